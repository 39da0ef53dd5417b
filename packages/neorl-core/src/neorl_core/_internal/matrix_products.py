"""Matrix products that keep the precision of their factors on every device."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array


def product(*factors: Array) -> Array:
    """The product of matrices and vectors, from left to right.

    Accelerators multiply float32 matrices in a shorter format unless told otherwise; an estimate
    or a Riccati equation loses its digits by that.
    """
    return functools.reduce(_times, factors)


def _times(left: Array, right: Array) -> Array:
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def symmetric(matrix: Array) -> Array:
    """The symmetric part, which rounding may have left."""
    return (matrix + matrix.T) / 2
