"""Checks that the functions of time series share."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

from neorl_core._require import require_length, require_rank, require_same_shape


def require_series(**series: ArrayLike) -> None:
    """Refuses arrays that are not all of one shape ``(time,)`` with at least one step."""
    names = list(series)
    for name in names:
        require_rank(name, series[name], 1, "time")
        require_same_shape(names[0], series[names[0]], name, series[name])
    require_length(names[0], series[names[0]], 1)


def booleans(flags: ArrayLike) -> Array:
    """Flags as booleans; a log may hold them as 0 and 1."""
    return jnp.asarray(flags).astype(jnp.bool_)


def like(value: ArrayLike, data: Array) -> Array:
    """A hyperparameter in the dtype of the data."""
    return jnp.asarray(value).astype(data.dtype)
