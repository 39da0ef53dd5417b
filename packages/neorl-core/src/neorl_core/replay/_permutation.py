"""Shuffling without a table: a keyed bijection of 0 .. n - 1."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Int, PRNGKeyArray, UInt32

from neorl_core._internal.checks import checked_integer, require_integers

_ROUNDS = 8
_SORTED = 256
"""Up to this many positions are shuffled by sorting: the network is uneven for few positions."""


def shuffled_position(
    key: PRNGKeyArray, position: Int[ArrayLike, "*batch"], *, n: int
) -> Int[Array, "*batch"]:
    """Image of a position under the permutation of ``0 .. n - 1`` given by ``key``.

    A Feistel network of eight rounds on the smallest even number of bits that can hold ``n``. While
    the image is ``n`` or more it is mapped again (cycle walking), which makes the map an exact
    bijection for every ``n``. So any part of a shuffle is available without memory for the whole.
    Up to 256 positions are shuffled by sorting random numbers instead, which makes every
    permutation equally likely; the network would prefer some.

    Args:
        key: Random key of the permutation.
        position: Positions from 0 to ``n - 1``, any shape.
        n: Number of positions, from 1 to 2^31 - 1.

    Returns:
        The images, int32, same shape; -1 for a position out of range.

    Raises:
        ValueError: If ``n`` is out of range, or ``n`` or a position is not an integer.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> sorted(shuffled_position(jax.random.key(0), jnp.arange(5), n=5).tolist())
        [0, 1, 2, 3, 4]

    Source: Black and Rogaway 2002, "Ciphers with arbitrary finite domains".
    """
    n = checked_integer("n", n)
    if not 1 <= n < 2**31:
        raise ValueError(f"n must be from 1 to 2^31 - 1, got {n}; split larger ranges")
    require_integers("position", position)
    position = jnp.asarray(position)
    if jnp.iinfo(position.dtype).bits < 32:
        position = position.astype(jnp.int32)  # holds n and the images
    inside = (position >= 0) & (position < n)
    start = jnp.where(inside, position, 0).astype(jnp.uint32)
    image = _sorted_image(key, start, n) if n <= _SORTED else _walked_image(key, start, n)
    return jnp.where(inside, image.astype(jnp.int32), -1)


def _sorted_image(key: PRNGKeyArray, start: Array, n: int) -> Array:
    return jnp.argsort(jax.random.bits(key, (n,), jnp.uint32))[start]


def _walked_image(key: PRNGKeyArray, start: Array, n: int) -> Array:
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    cipher = _Cipher(
        jax.random.bits(key, (_ROUNDS,), jnp.uint32),
        jnp.asarray(half, jnp.uint32),
        jnp.asarray(n, jnp.uint32),
    )
    walk = (_encrypt(start, cipher), cipher)
    image, _ = jax.lax.while_loop(_some_outside, _walk, walk)
    return image


class _Cipher(NamedTuple):
    keys: UInt32[Array, " round"]
    half: UInt32[Array, ""]
    n: UInt32[Array, ""]


def _some_outside(walk: tuple[Array, _Cipher]) -> Array:
    value, cipher = walk
    return jnp.any(value >= cipher.n)


def _walk(walk: tuple[Array, _Cipher]) -> tuple[Array, _Cipher]:
    value, cipher = walk
    return jnp.where(value >= cipher.n, _encrypt(value, cipher), value), cipher


def _encrypt(value: Array, cipher: _Cipher) -> Array:
    mask = (jnp.uint32(1) << cipher.half) - jnp.uint32(1)
    left, right = value >> cipher.half, value & mask
    for round_number in range(_ROUNDS):
        mixed = _mix(right ^ cipher.keys[round_number]) & mask
        left, right = right, left ^ mixed
    return (left << cipher.half) | right


def _mix(x: Array) -> Array:
    """The finaliser of MurmurHash3, in which every input bit affects every output bit."""
    x = (x ^ (x >> jnp.uint32(16))) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> jnp.uint32(13))) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> jnp.uint32(16))
