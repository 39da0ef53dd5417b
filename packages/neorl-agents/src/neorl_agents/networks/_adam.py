"""One step of Adam, with the learning rate as data."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

Parameters = TypeVar("Parameters")

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8

SMALL = 1024
"""Leaves of at most so many numbers are averaged together, as one vector. The biases and last
layers of small networks are most of their leaves and hardly any of their numbers; on a CPU a kernel
for each costs more to start than to run."""


class Moments(NamedTuple):
    """What Adam remembers.

    Attributes:
        step: Number of steps taken.
        mean: Moving average of the gradient: all small leaves as one vector, and a PyTree like the
            parameters with ``None`` in their places.
        square: Moving average of its square, likewise.
    """

    step: Int[Array, ""]
    mean: tuple[Float[Array, " small"], Any]
    square: tuple[Float[Array, " small"], Any]


def init_adam(parameters: Any) -> Moments:
    """Zero moments for ``parameters``, and no step taken."""
    zeros = jax.tree.map(jnp.zeros_like, _packed(parameters)[0])
    return Moments(jnp.zeros((), jnp.int32), zeros, zeros)


def adam(
    parameters: Parameters,
    moments: Moments,
    gradient: Parameters,
    learning_rate: float | Float[Array, ""],
) -> tuple[Parameters, Moments]:
    """``parameters`` one step down ``gradient``.

    ``m' = b1 m + (1 - b1) g``, ``v' = b2 v + (1 - b2) g^2``,
    ``p' = p - rate (m' / (1 - b1^t)) / (sqrt(v' / (1 - b2^t)) + e)`` with ``b1 = 0.9``,
    ``b2 = 0.999``, ``e = 1e-8``; computed in the order of the end of section 2 of the paper, with
    the corrections drawn into the scalars. The rate is an argument of the step, not of an
    optimiser: it may be traced, scheduled or swept without another program.

    Args:
        parameters: A PyTree of arrays.
        moments: From :func:`init_adam` or the last step.
        gradient: Same structure as ``parameters``.
        learning_rate: Positive.

    Returns:
        New parameters and moments.

    Source: Kingma and Ba, Adam: a method for stochastic optimization, arXiv 1412.6980.
    """
    step = moments.step + 1
    t = step.astype(jnp.float32)
    correction = jnp.sqrt(1 - BETA_2**t)
    rate = learning_rate * correction / (1 - BETA_1**t)
    floor = EPSILON * correction

    def averaged(m: Array, g: Array) -> Array:
        return BETA_1 * m + (1 - BETA_1) * g

    def squared(v: Array, g: Array) -> Array:
        return BETA_2 * v + (1 - BETA_2) * jnp.square(g)

    def way(m: Array, v: Array) -> Array:
        return rate * m / (jnp.sqrt(v) + floor)

    def moved(p: Array, w: Array) -> Array:
        return (p - w).astype(p.dtype)

    gradients, unpacked = _packed(gradient)
    mean = jax.tree.map(averaged, moments.mean, gradients)
    square = jax.tree.map(squared, moments.square, gradients)
    ways = unpacked(*jax.tree.map(way, mean, square))
    return jax.tree.map(moved, parameters, ways), Moments(step, mean, square)


def _packed(tree: Parameters) -> tuple[tuple[Array, Any], Callable[[Array, Any], Parameters]]:
    small, large = eqx.partition(tree, _is_small)
    vector, unravel = ravel_pytree(small)

    def unpacked(vector: Array, large: Any) -> Parameters:
        return eqx.combine(unravel(vector), large)

    return (vector, large), unpacked


def _is_small(leaf: Array) -> bool:
    return leaf.size <= SMALL
