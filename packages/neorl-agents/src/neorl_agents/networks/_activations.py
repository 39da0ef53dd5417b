"""Activations by name, so that a stored network can refer to its own."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from neorl_core.infrastructure import Registry

Activation = Callable[[Array], Array]
"""A function of an array, of the same shape and dtype."""


def relu(x: Array) -> Array:
    """``max(x, 0)``, with gradient 0 at 0."""
    return jax.nn.relu(x)


def gelu(x: Array) -> Array:
    """``x`` times the standard normal CDF of ``x``, in the tanh approximation; arXiv 1606.08415."""
    return jax.nn.gelu(x)


def tanh(x: Array) -> Array:
    """The hyperbolic tangent."""
    return jnp.tanh(x)


def identity(x: Array) -> Array:
    """``x`` itself."""
    return x


def largest(x: Array) -> Array:
    """1 at the first of the largest numbers along the last axis, -1 at all others; no gradient."""
    chosen = jnp.argmax(x, axis=-1, keepdims=True)
    positions = jax.lax.broadcasted_iota(chosen.dtype, x.shape, x.ndim - 1)
    return jnp.where(positions == chosen, 1, -1).astype(x.dtype)


def _check_activation(name: str, entry: Any) -> None:
    if not callable(entry):
        raise TypeError(f"expected a function of an array, got a {type(entry).__name__}")
    if getattr(entry, "__name__", "") == "<lambda>":
        # A function created anew in each run would trigger a new compilation.
        raise TypeError("expected a named module-level function, got a lambda")
    x = jax.ShapeDtypeStruct((2, 3), jnp.float32)
    y = jax.eval_shape(entry, x)
    if getattr(y, "shape", None) != x.shape or y.dtype != x.dtype:
        raise TypeError("its result must have the shape and dtype of its argument")


ACTIVATIONS: Registry[Activation] = Registry(
    "neorl.activations",
    "activation",
    {"relu": relu, "gelu": gelu, "tanh": tanh, "identity": identity, "largest": largest},
    _check_activation,
)
"""The activations by the name that an artefact stores; other packages can add to this mapping.

A distribution adds its own through the entry points ``neorl.activations``, a script through
``ACTIVATIONS.register("swish", jax.nn.swish)``. All are module-level functions: a lambda per
instance would retrace every compiled function that uses it.
"""


def activation_name(activation: Any) -> str:
    """The name under which a file stores an activation.

    Raises:
        ValueError: If it has none.
    """
    for name, entry in ACTIVATIONS.items():
        if entry is activation:
            return name
    raise ValueError(
        f"activation {activation!r} cannot be stored, because it has no registered name; use one "
        f"of {', '.join(ACTIVATIONS)}, or register it with "
        "neorl_agents.networks.ACTIVATIONS.register"
    )
