"""The frame that networks of configurable size share: presets, draws, channels, steps, grids."""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_core import Channel, InputError, Step

Pairs = tuple[tuple[int, int], ...]
PRESETS = ("plant", "clean")


def noise_scale(preset: str) -> float:
    """Factor of the random disturbances in a preset: 0 or 1.

    Raises an ``InputError`` for an unknown preset.
    """
    if preset not in PRESETS:
        raise InputError(f"unknown preset {preset!r}; a network has {' and '.join(PRESETS)}")
    return float(preset == "plant")


def random_factors(key: PRNGKeyArray, shape: tuple[int, ...], spread: float) -> Float[Array, "..."]:
    """Factors of parameters, uniform within ``1 +- spread``."""
    return jax.random.uniform(key, shape, minval=1 - spread, maxval=1 + spread)


def received_command(
    name: str, action: Float[Array, " act"], last: Float[Array, " act"], low: float, high: float
) -> Float[Array, " act"]:
    """The received action, clipped to its range, with NaN replaced by the last command.

    Raises a ``ValueError`` if the action has a wrong shape.
    """
    if action.shape != last.shape:
        raise ValueError(f"an action of {name} has the shape {last.shape}, got {action.shape}")
    return jnp.clip(jnp.where(jnp.isnan(action), last, action), low, high)


def endless_step(
    obs: Float[Array, " obs"],
    reward: Float[Array, ""],
    applied: Float[Array, " act"],
    info: Any,
    *,
    time: Int[Array, ""],
    horizon: int,
) -> Step:
    """The step of a network: it has no costs, and an episode ends only by its horizon."""
    return Step(
        obs=obs,
        final_obs=obs,
        reward=reward,
        cost=jnp.zeros(0, reward.dtype),
        applied=applied,
        terminated=jnp.zeros((), jnp.bool_),
        truncated=time >= horizon,
        info=info,
    )


class NetworkPolicy(eqx.Module):
    """A policy without memory that acts on one network.

    Attributes:
        plant: The network; static.
    """

    plant: Any = eqx.field(static=True)

    def initial_carry(self) -> tuple[()]:
        """An empty carry."""
        return ()

    def sent(self, carry: tuple[()], action: Float[Array, " act"]) -> tuple[()]:
        """Returns the carry unchanged."""
        return carry


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


def link_channels(
    kind: str, ends: Iterable[Iterable[int]], quantity: str, unit: str, low: float, high: float
) -> list[Channel]:
    """One channel of every directed link, such as ``road5-6.queue``; ``ends`` as in both_ways."""
    return [
        Channel(f"{kind}{sender}-{receiver}.{quantity}", unit, low, high)
        for sender, receiver in zip(*ends, strict=True)
    ]
