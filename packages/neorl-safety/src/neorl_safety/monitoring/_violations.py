"""Frequency and duration of constraint violations, and the number of episodes with one."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from neorl_core.statistics import DEFAULT_LEVEL, Interval, clopper_pearson_interval


class ViolationStatistics(NamedTuple):
    """Violations of one constraint over a batch of episodes.

    Attributes:
        steps: Number of violating steps.
        step_fraction: Fraction of valid steps that violate the constraint; without an interval,
            since the steps of an episode are not independent.
        longest: Longest uninterrupted violation, in steps.
        episodes: Number of episodes with at least one violating step.
        episode_fraction: Fraction of such episodes, with its exact (Clopper-Pearson) interval.
    """

    steps: Int[Array, ""]
    step_fraction: Float[Array, ""]
    longest: Int[Array, ""]
    episodes: Int[Array, ""]
    episode_fraction: Interval


def violation_statistics(
    violated: Bool[Array, "episode time"],
    mask: Bool[Array, "episode time"] | None = None,
    *,
    level: float = DEFAULT_LEVEL,
) -> ViolationStatistics:
    """Counts violations, and bounds the probability that an episode has one.

    The interval has a coverage of at least ``level`` if the episodes are independent samples of the
    situation to which it is applied: the stated simulator, starts and seeds, nothing else. No
    violation in 299 episodes bounds the probability by 1 % (one-sided, 95 %).

    Args:
        violated: Whether the constraint was violated, one row per episode.
        mask: False where an episode has no step (padding); an episode without any step is ignored.
        level: Coverage of the two-sided interval, in (0, 1).

    Returns:
        The counts and fractions.

    Raises:
        ValueError: If ``violated`` is not two-dimensional or ``mask`` has another shape.
    """
    if violated.ndim != 2:
        raise ValueError(f"violated must have shape (episode, time), got {violated.shape}")
    if mask is not None and mask.shape != violated.shape:
        raise ValueError(f"mask has shape {mask.shape}; expected {violated.shape}")
    valid = jnp.ones_like(violated) if mask is None else mask
    violated = violated & valid
    steps, valid_steps = jnp.sum(violated), jnp.sum(valid)
    episodes = jnp.sum(jnp.any(violated, axis=1))
    valid_episodes = jnp.sum(jnp.any(valid, axis=1))
    return ViolationStatistics(
        steps=steps,
        step_fraction=steps.astype(jnp.float32) / jnp.maximum(valid_steps, 1).astype(jnp.float32),
        longest=_longest_run(violated),
        episodes=episodes,
        episode_fraction=clopper_pearson_interval(episodes, valid_episodes, level=level),
    )


class Depth(NamedTuple):
    """Size of the violations of a limit over a batch of episodes.

    Attributes:
        largest: Largest excess of any step, in the unit of the quantity; zero if none exceeds the
            limit.
        mean: Mean excess of the violating steps; zero if there are none.
        integral: Mean over the episodes of the excess summed over time, in the unit times seconds.
    """

    largest: Float[Array, ""]
    mean: Float[Array, ""]
    integral: Float[Array, ""]


def violation_depth(
    excess: Float[Array, "episode time"],
    mask: Bool[Array, "episode time"] | None = None,
    *,
    dt: float,
) -> Depth:
    """Size of violations; :func:`violation_statistics` gives their frequency and duration.

    Args:
        excess: Quantity minus its limit, positive where violated; NaN counts as infinite.
        mask: False where an episode has no step.
        dt: Length of one step in seconds.

    Returns:
        The depths.

    Raises:
        ValueError: If ``excess`` is not two-dimensional or ``mask`` has another shape.
    """
    if excess.ndim != 2:
        raise ValueError(f"excess must have shape (episode, time), got {excess.shape}")
    if mask is not None and mask.shape != excess.shape:
        raise ValueError(f"mask has shape {mask.shape}; expected {excess.shape}")
    valid = jnp.ones(excess.shape, jnp.bool_) if mask is None else mask
    excess_or_zero = jnp.maximum(jnp.where(jnp.isnan(excess), jnp.inf, excess), 0)
    excess_or_zero = jnp.where(valid, excess_or_zero, 0)
    violating_steps = jnp.maximum(jnp.sum(excess_or_zero > 0), 1).astype(excess_or_zero.dtype)
    episodes = jnp.maximum(jnp.sum(jnp.any(valid, axis=1)), 1).astype(excess_or_zero.dtype)
    total = jnp.sum(excess_or_zero)
    return Depth(jnp.max(excess_or_zero, initial=0), total / violating_steps, total * dt / episodes)


def _longest_run(violated: Bool[Array, "episode time"]) -> Int[Array, ""]:
    index = jnp.broadcast_to(jnp.arange(violated.shape[1]), violated.shape)
    last_clear = jax.lax.cummax(jnp.where(violated, -1, index), axis=1)
    return jnp.max(index - last_clear, initial=0)
