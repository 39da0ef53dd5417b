"""Random row numbers, and batched evaluation of one function within bounded memory."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

_ELEMENTS_AT_ONCE = 2**20


def random_rows(key: Array, shape: tuple[int, ...], n: int) -> Int[Array, "*shape"]:
    """Row numbers from 0 to ``n - 1``, all equally likely up to ``n / 2^32``.

    Takes the upper word of 32 random bits times ``n`` (Lemire 2019), which needs half the bits of
    ``jax.random.randint`` and no division. The product is formed from halves of 16 bits, since
    float32 programs have no uint64.
    """
    bits = jax.random.bits(key, shape, jnp.uint32)
    half, rest = jnp.uint32(16), jnp.uint32(0xFFFF)
    upper, lower = bits >> half, bits & rest
    high, low = (jnp.uint32(part) for part in divmod(n, 2**16))
    if n < 2**16:
        rows = (upper * low + (lower * low >> half)) >> half
    else:
        first, second = upper * low, lower * high
        carry = (first & rest) + (second & rest) + (lower * low >> half)
        rows = upper * high + (first >> half) + (second >> half) + (carry >> half)
    return rows.astype(jnp.int32)


def in_blocks(one: Callable[[Any], Any], items: Array, size: int) -> Any:
    """Applies ``one``, which holds ``size`` numbers, to all items, about 2^20 numbers at once."""
    if size == 0:  # lax.map cannot join empty batches.
        return jax.vmap(one)(items)
    together = max(1, min(len(items), _ELEMENTS_AT_ONCE // size))
    return jax.lax.map(one, items, batch_size=together)
