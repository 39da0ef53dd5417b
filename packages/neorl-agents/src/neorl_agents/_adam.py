"""One step of Adam, with the learning rate as data."""

from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
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
        mean: Moving average of the gradient: all small leaves as one vector, if there are any, then
            every large leaf in its own shape, both in the order of the parameters.
        square: Moving average of its square, likewise.
    """

    step: Int[Array, ""]
    mean: tuple[Float[Array, "..."], ...]
    square: tuple[Float[Array, "..."], ...]


def init_adam(parameters: Any) -> Moments:
    """Zero moments for ``parameters``, and no step taken."""
    zeros = jax.tree.map(jnp.zeros_like, _packed(parameters))
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

    gradients = _packed(gradient)
    mean = jax.tree.map(averaged, moments.mean, gradients)
    square = jax.tree.map(squared, moments.square, gradients)
    ways = _unpacked(jax.tree.map(way, mean, square), parameters)
    return jax.tree.map(moved, parameters, ways), Moments(step, mean, square)


def _packed(tree: Any) -> tuple[Array, ...]:
    leaves = jax.tree.leaves(tree)
    small = [leaf.ravel() for leaf in leaves if leaf.size <= SMALL]
    large = [leaf for leaf in leaves if leaf.size > SMALL]
    return (jnp.concatenate(small), *large) if small else tuple(large)


def _unpacked(packed: tuple[Array, ...], like: Parameters) -> Parameters:
    leaves, treedef = jax.tree.flatten(like)
    sizes = [leaf.size for leaf in leaves if leaf.size <= SMALL]
    vector, large = (packed[0], packed[1:]) if sizes else (None, packed)
    starts, rest = iter(accumulate(sizes, initial=0)), iter(large)
    found = []
    for leaf in leaves:
        if vector is not None and leaf.size <= SMALL:
            start = next(starts)
            found.append(vector[start : start + leaf.size].reshape(leaf.shape))
        else:
            found.append(next(rest))
    return treedef.unflatten(found)
