"""Sums whose rounding errors are kept: a number as an unevaluated sum of two floats.

A float32 sum of ones stops at 2^24; with the part that rounding leaves out it goes on to 2^48.
"""

import jax.numpy as jnp
from jaxtyping import Array


def add_two_parts(first: Array, second: Array, rest: Array) -> tuple[Array, Array]:
    """The nearest float to ``first + second + rest`` and what that leaves out.

    Args:
        first: A float.
        second: What is added to it.
        rest: What rounding left out of both so far, small beside them.
    """
    total = first + second
    added = total - first
    lost = (first - (total - added)) + (second - added) + rest
    lost = jnp.where(jnp.isfinite(total), lost, 0)
    result = total + lost
    return result, jnp.where(jnp.isfinite(total), lost - (result - total), 0)
