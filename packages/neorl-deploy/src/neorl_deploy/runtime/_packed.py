"""Packs the arrays passed between steps into one, because each array costs its own dispatch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from neorl_deploy.bundle._manifest import ArrayEntry

WORD = 4


class Layout(NamedTuple):
    """Position of every array in the words.

    Attributes:
        entries: Names, shapes and dtypes, in order.
        ends: Index after the last word of each array.
        places: Words, shape and dtype of every array by name.
    """

    entries: tuple[ArrayEntry, ...]
    ends: tuple[int, ...]
    places: Mapping[str, tuple[slice, tuple[int, ...], np.dtype]]

    def get(self, words: np.ndarray, name: str) -> np.ndarray:
        """A copy of one array."""
        at, shape, dtype = self.places[name]
        return _from_words(words[at].copy(), shape, dtype)

    def set(self, words: np.ndarray, name: str, value: np.ndarray) -> np.ndarray:
        """A copy of the words with another value for one array."""
        at, _, dtype = self.places[name]
        changed = np.array(words)
        changed[at] = _to_words(np.asarray(value, dtype))
        return changed


def layout_of(entries: Sequence[ArrayEntry]) -> Layout:
    """The layout of consecutive arrays; every element takes one word, even a boolean."""
    sizes = [
        int(np.prod(entry.shape, dtype=int)) * max(1, np.dtype(entry.dtype).itemsize // WORD)
        for entry in entries
    ]
    ends = tuple(int(end) for end in np.cumsum(sizes, dtype=int))
    places = {
        entry.name: (slice(end - size, end), entry.shape, np.dtype(entry.dtype))
        for entry, size, end in zip(entries, sizes, ends, strict=True)
    }
    return Layout(tuple(entries), ends, places)


def pack(layout: Layout, arrays: Sequence[Any]) -> np.ndarray:
    """The first arrays of a layout as words on the host, with zeros for the rest."""
    words = np.zeros(layout.ends[-1], np.uint32)
    given = np.concatenate([_to_words(np.asarray(array)) for array in arrays])
    words[: len(given)] = given
    return words


def packed_step(
    step: Callable[..., Sequence[Any]], layout: Layout, n_carry: int
) -> Callable[[Any, Any, Any], Any]:
    """``step`` of many arrays as a compiled function of three that returns one.

    Args:
        step: ``(*carry, obs, last_sent) -> (*carry, *outputs)``.
        layout: Layout of all that it returns, the carry first.
        n_carry: Number of arrays of the carry.

    Returns:
        ``(words, obs, last_sent) -> words``; on input only the words of the carry matter.
    """
    import jax
    import jax.numpy as jnp

    def from_words(words: Any, entry: ArrayEntry) -> Any:
        dtype = np.dtype(entry.dtype)
        if dtype == np.bool_:
            return (words != 0).reshape(entry.shape)
        if dtype.itemsize > WORD:
            words = words.reshape(*entry.shape, dtype.itemsize // WORD)
            return jax.lax.bitcast_convert_type(words, dtype)
        if dtype.itemsize < WORD:
            words = words.astype(f"uint{8 * dtype.itemsize}")
        return jax.lax.bitcast_convert_type(words, dtype).reshape(entry.shape)

    def to_words(array: Any) -> Any:
        if array.dtype == jnp.bool_:
            return array.astype(jnp.uint32).ravel()
        small = array.dtype.itemsize < WORD
        unsigned = f"uint{8 * array.dtype.itemsize}" if small else jnp.uint32
        return jax.lax.bitcast_convert_type(array, unsigned).astype(jnp.uint32).ravel()

    def run(words: Any, obs: Any, last_sent: Any) -> Any:
        ends, entries = layout.ends[:n_carry], layout.entries[:n_carry]
        arrays = [
            from_words(words[begin:end], entry)
            for begin, end, entry in zip((0, *ends), ends, entries, strict=False)
        ]
        return jnp.concatenate([to_words(array) for array in step(*arrays, obs, last_sent)])

    return jax.jit(run)


def _to_words(array: np.ndarray) -> np.ndarray:
    if array.dtype == np.bool_:
        return array.astype(np.uint32).ravel()
    unsigned = np.dtype(f"uint{8 * min(array.dtype.itemsize, WORD)}")
    return np.ascontiguousarray(array).reshape(-1).view(unsigned).astype(np.uint32)


def _from_words(words: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.itemsize == WORD:
        return words.view(dtype).reshape(shape)
    if dtype == np.bool_:
        return (words != 0).reshape(shape)
    if dtype.itemsize < WORD:
        words = words.astype(f"uint{8 * dtype.itemsize}")
    return words.view(dtype).reshape(shape)
