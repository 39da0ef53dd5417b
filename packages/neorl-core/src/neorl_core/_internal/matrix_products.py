"""Matrix products that keep the precision of their factors on every device."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array


def product(*factors: Array) -> Array:
    """The product of matrices and vectors, from left to right.

    Accelerators multiply float32 matrices in a shorter format unless full precision is requested,
    which costs an estimate or a Riccati equation its last digits.
    """
    return functools.reduce(_times, factors)


def _times(left: Array, right: Array) -> Array:
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)
