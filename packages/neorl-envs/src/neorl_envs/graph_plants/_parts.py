"""Shared parts of the networks of configurable size: presets, received commands, grids."""

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_core import InputError

Pairs = tuple[tuple[int, int], ...]
PRESETS = ("plant", "clean")


def noise_scale(preset: str) -> float:
    """Factor of the random disturbances in a preset: 0 or 1.

    Raises:
        InputError: For an unknown preset.
    """
    if preset not in PRESETS:
        raise InputError(f"unknown preset {preset!r}; a network has {' and '.join(PRESETS)}")
    return float(preset == "plant")


def received(
    name: str, action: Float[Array, " act"], last: Float[Array, " act"], low: float, high: float
) -> Float[Array, " act"]:
    """The received action, clipped to its range, with NaN replaced by the last command.

    Raises:
        ValueError: If the action has a wrong shape.
    """
    if action.shape != last.shape:
        raise ValueError(f"an action of {name} has the shape {last.shape}, got {action.shape}")
    return jnp.clip(jnp.where(jnp.isnan(action), last, action), low, high)


def require_sizes(least: int, **sizes: Any) -> None:
    """Raises unless all sizes of a network are integers of at least ``least``."""
    for field, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{field} must be an integer of at least {least}, got {value!r}")


def grid_pairs(rows: int, columns: int) -> Pairs:
    """Pairs of neighbours in a grid, the smaller number first; ``(r, c)`` is ``r columns + c``."""
    number = np.arange(rows * columns).reshape(rows, columns)
    horizontal = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1)
    below = np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1)
    return tuple(sorted((int(a), int(b)) for a, b in np.concatenate([horizontal, below])))


def both_ways(pairs: Iterable[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Senders and receivers of every pair, with both directions next to each other."""
    ends = np.asarray(tuple(pairs), np.int32).reshape(-1, 2)
    return ends.reshape(-1), ends[:, ::-1].reshape(-1)
