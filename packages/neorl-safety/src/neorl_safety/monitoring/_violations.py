"""Violations of constraints: how large, independently of the filter, how often and how long."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from neorl_core.statistics import DEFAULT_LEVEL
from neorl_core.statistics import Interval as ConfidenceInterval
from neorl_safety.constraints import (
    KINDS,
    AnyConstraints,
    Constraints,
    Interval,
    Rank,
    Rate,
    Situation,
    Tier,
    channels_of,
)
from neorl_safety.constraints._by_channel import RateKind
from neorl_safety.constraints._constraints import as_constraints, rank_of

# Excess of an action over each constraint, computed independently of the filter.


ROW_TOLERANCE = 1e-6
"""Rounding allowance of the guarantee, relative to the size of a row."""


class CheckedConstraint(NamedTuple):
    """One condition that is checked for an action.

    Attributes:
        name: For example ``"feed: rate"``.
        unit: Unit of the excess; empty for a row, which has the unit of its terms.
        tier: How binding it is.
        description: The requirement in words.
        scale: Typical size with which to compare an excess, in ``unit``.
    """

    name: str
    unit: str
    tier: Tier
    description: str
    scale: float


def checked_constraints(constraints: AnyConstraints) -> list[CheckedConstraint]:
    """Describes the constraints of :func:`constraint_excess`, in the same order, in words.

    Args:
        constraints: Constraints with concrete numbers.

    Returns:
        Box and rate of every channel, then intervals by channel or rows of every other kind.
    """
    full = as_constraints(constraints)
    channels = channels_of(full)
    spans = [(channel, channel.high - channel.low) for channel in channels.action]
    action_limits = full.action
    checked = [
        CheckedConstraint(
            f"{one.name}: range", one.unit, Tier.HARD, f"{low:g} to {high:g} {one.unit}", span
        )
        for (one, span), low, high in zip(
            spans, action_limits.low.tolist(), action_limits.high.tolist(), strict=True
        )
    ]
    checked += [
        CheckedConstraint(
            f"{one.name}: rate", one.unit, Tier.HARD, _rate_text(up, down, one.unit), span
        )
        for (one, span), up, down in zip(
            spans, action_limits.rate_up.tolist(), action_limits.rate_down.tolist(), strict=True
        )
    ]
    for kind, constraint in full.further.items():
        tier = Tier.PREFERENCE if rank_of(kind) == Rank.WEAR else Tier.HARD
        sentences = list(KINDS.find(kind).describe(channels, constraint))
        if _is_rows(full, kind):
            checked += [
                CheckedConstraint(f"{kind} {i + 1}", "", tier, s, 1.0)
                for i, s in enumerate(sentences)
            ]
            continue
        description = "; ".join(sentences)
        checked += [
            CheckedConstraint(f"{one.name}: {kind}", one.unit, tier, description, span)
            for one, span in spans
        ]
    return checked


def constraint_excess(
    constraints: AnyConstraints,
    obs: Float[Array, " obs"],
    previous: Float[Array, " act"],
    action: Float[Array, " act"],
    dt: Float[Array, ""],
    held: Float[Array, " act"] | None = None,
    apply_wear: Bool[Array, ""] | bool = True,
) -> Float[Array, " checked"]:
    """Excess of an action over each constraint, in the order of :func:`checked_constraints`.

    Every kind returns the actions that it admits now, and the action is compared with them; the
    filter is not used. If the rate limit keeps an action from reaching an admitted value in this
    step, that is not a violation until it can, because the rate ranks above the box and other
    kinds. A tripped interlock outside the box replaces it. Rows have an allowance of 1e-6 of their
    size, the rounding allowance of the guarantee.

    Args:
        constraints: Constraints in physical units.
        obs: The observation to which the action responds.
        previous: Action before the step; if it is NaN, it is unknown and no rate applies.
        action: The action.
        dt: Length of one step in seconds.
        held: Seconds since each channel moved before this action (:func:`seconds_held`); ``None``
            if unknown, and then no resting time applies.
        apply_wear: Whether wear limits apply; they do not if the fallback acts.

    Returns:
        Positive where violated, minus infinity where no limit applies, infinite where the action is
        not finite.
    """
    full = as_constraints(constraints)
    limits = full.action
    known = jnp.isfinite(previous)
    start = jnp.where(known, previous, action)
    held_for = jnp.full_like(start, jnp.inf) if held is None else held.astype(start.dtype)
    situation = Situation(obs, start, dt, action, held_for, start)
    rate_limits = RateKind().lower(Rate(limits.rate_up, limits.rate_down), situation)
    low = jnp.where(known, rate_limits.low, -jnp.inf)
    high = jnp.where(known, rate_limits.high, jnp.inf)
    lowered = {
        kind: KINDS.find(kind).lower(constraint, situation)
        for kind, constraint in full.further.items()
    }
    interlock_replaces_box = jnp.zeros(start.shape, jnp.bool_)
    for kind, allowed in lowered.items():
        if rank_of(kind) == Rank.INTERLOCK and isinstance(allowed, Interval):
            interlock_replaces_box |= (allowed.low > limits.high) | (allowed.high < limits.low)
    # What the rate does not let the action reach yet is no violation.
    box_excess = _interval_excess(
        action, jnp.minimum(limits.low, high), jnp.maximum(limits.high, low)
    )
    excesses = [
        jnp.where(interlock_replaces_box, -jnp.inf, box_excess),
        _interval_excess(action, low, high),
    ]
    for kind, allowed in lowered.items():
        if isinstance(allowed, Interval):
            ends = jnp.minimum(allowed.low, high), jnp.maximum(allowed.high, low)
            free = jnp.isneginf(allowed.low) & jnp.isposinf(allowed.high)
            free |= (rank_of(kind) == Rank.WEAR) & ~jnp.asarray(apply_wear)
            excesses.append(jnp.where(free, -jnp.inf, _interval_excess(action, *ends)))
        else:
            size = jnp.sum(jnp.abs(allowed.rows * action[None]), axis=1)
            room = allowed.bounds + ROW_TOLERANCE * (size + jnp.abs(allowed.bounds))
            excesses.append(jnp.sum(allowed.rows * action[None], axis=1) - room)
    excess = jnp.concatenate(excesses)
    # What cannot be computed counts as violated.
    return jnp.where(jnp.isnan(excess) | ~jnp.all(jnp.isfinite(action)), jnp.inf, excess)


def seconds_held(applied: Float[Array, "time act"], dt: float) -> Float[Array, "time act"]:
    """Seconds for which each channel had not moved before every step; infinite at first.

    Args:
        applied: Action that the plant received in every step.
        dt: Length of one step in seconds.

    Returns:
        ``held`` for :func:`constraint_excess`, one row per step.
    """
    moved = jnp.concatenate([jnp.zeros_like(applied[:1], bool), applied[1:] != applied[:-1]])
    start = jnp.full(applied.shape[1:], jnp.inf, applied.dtype)
    return jax.lax.scan(_held_on, (start, jnp.asarray(dt, applied.dtype)), moved)[1]


def _held_on(carry: tuple[Array, Array], moved: Array) -> tuple[tuple[Array, Array], Array]:
    """One step of :func:`seconds_held`; of the module, so that an eager call compiles it once."""
    held, dt = carry
    return (jnp.where(moved, 0, held) + dt, dt), held


def _interval_excess(action: Array, low: Array, high: Array) -> Float[Array, " act"]:
    excess = jnp.maximum(low - action, action - high)
    return jnp.where(jnp.isneginf(low) & jnp.isposinf(high), -jnp.inf, excess)


def _is_rows(constraints: Constraints, kind: str) -> bool:
    """Whether a kind lowers to rows, tested at the middle of every range."""
    n_obs, n = max(len(constraints.obs), 1), constraints.n_action
    middle = (constraints.action.low + constraints.action.high) / 2
    situation = Situation(
        jnp.zeros((n_obs,)), middle, jnp.ones(()), middle, jnp.full((n,), jnp.inf), middle
    )
    lowered = KINDS.find(kind).lower(constraints.further[kind], situation)
    return not isinstance(lowered, Interval)


def _rate_text(up: float, down: float, unit: str) -> str:
    if np.isinf(up) and np.isinf(down):
        return "any rate"
    rises = "any rise" if np.isinf(up) else f"rises by at most {up:g}"
    falls = "any fall" if np.isinf(down) else f"falls by at most {down:g}"
    return f"{rises}, {falls} {unit} per second"


# Frequency, duration and size of constraint violations, counted on the host.


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

    steps: int
    step_fraction: float
    longest: int
    episodes: int
    episode_fraction: ConfidenceInterval


def violation_statistics(
    violated: Bool[ArrayLike, "episode time"],
    mask: Bool[ArrayLike, "episode time"] | None = None,
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
        ValueError: If ``violated`` is not two-dimensional, ``mask`` has another shape or ``level``
            is outside (0, 1).

    Source: Clopper and Pearson, The use of confidence or fiducial limits illustrated in the case of
    the binomial, Biometrika 26 (1934) 404.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level}; 0.95 is 95 %")
    violated, valid = _with_mask("violated", np.asarray(violated, bool), mask)
    violated = violated & valid
    steps, episodes = int(violated.sum()), int(violated.any(axis=1).sum())
    return ViolationStatistics(
        steps=steps,
        step_fraction=steps / max(int(valid.sum()), 1),
        longest=_longest_run(violated),
        episodes=episodes,
        episode_fraction=_exact_interval(episodes, int(valid.any(axis=1).sum()), level),
    )


class Depth(NamedTuple):
    """Size of the violations of a limit over a batch of episodes.

    Attributes:
        largest: Largest excess of any step, in the unit of the quantity; zero if none exceeds the
            limit.
        mean: Mean excess of the violating steps; zero if there are none.
        integral: Mean over the episodes of the excess summed over time, in the unit times seconds.
    """

    largest: float
    mean: float
    integral: float


def violation_depth(
    excess: Float[ArrayLike, "episode time"],
    mask: Bool[ArrayLike, "episode time"] | None = None,
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
    excess, valid = _with_mask("excess", np.asarray(excess, np.float64), mask)
    # An excess that cannot be computed counts as infinite, but not in padding.
    over = np.where(valid, np.maximum(np.where(np.isnan(excess), np.inf, excess), 0), 0)
    total = float(over.sum())
    return Depth(
        largest=float(over.max(initial=0)),
        mean=total / max(int((over > 0).sum()), 1),
        integral=total * dt / max(int(valid.any(axis=1).sum()), 1),
    )


def _with_mask(
    name: str, values: np.ndarray, mask: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    """The values and which of them count; raises an error if a shape is wrong."""
    if values.ndim != 2:
        raise ValueError(f"{name} must have shape (episode, time), got {values.shape}")
    valid = np.ones(values.shape, bool) if mask is None else np.asarray(mask, bool)
    if valid.shape != values.shape:
        raise ValueError(f"mask has shape {valid.shape}; expected {values.shape}")
    return values, valid


def _exact_interval(count: int, total: int, level: float) -> ConfidenceInterval:
    """Clopper and Pearson's; without trials it is [0, 1], and the estimate NaN."""
    from scipy.special import betaincinv  # Imported here: slow, and only needed for reports.

    tail = (1 - level) / 2
    low = float(betaincinv(count, total - count + 1, tail)) if count > 0 else 0.0
    high = float(betaincinv(count + 1, total - count, 1 - tail)) if count < total else 1.0
    numbers: Any = count / total if total else float("nan"), low, high
    return ConfidenceInterval(*numbers)


def _longest_run(violated: np.ndarray) -> int:
    index = np.broadcast_to(np.arange(violated.shape[1]), violated.shape)
    # The last step without a violation up to each step; the distance to it is the length so far.
    last_clear = np.maximum.accumulate(np.where(violated, -1, index), axis=1)
    return int((index - last_clear).max(initial=0))
