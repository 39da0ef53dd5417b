"""Thresholds with a guaranteed rate of false alarms."""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from neorl_core import InputError
from neorl_core.statistics import conformal_quantile, conformal_sample_size
from neorl_safety.monitoring._monitor import Monitor, Seen

AnyMonitor = TypeVar("AnyMonitor", bound=Any)


def episode_scores(
    monitor: Monitor,
    obs: Float[Array, "episode time obs"],
    action: Float[Array, "episode time act"],
    mask: Bool[Array, "episode time"] | None = None,
) -> Float[Array, " episode"]:
    """The largest score of a monitor in every episode.

    Args:
        monitor: Any monitor.
        obs: Observations of each episode.
        action: Action that the policy proposed, or that was sent.
        mask: False where an episode has no step (padding).

    Returns:
        One score per episode; minus infinity for one without steps.
    """
    return jnp.max(_along(monitor, obs, action, mask)[0], axis=1)


def episode_alarms(
    monitor: Monitor,
    obs: Float[Array, "episode time obs"],
    action: Float[Array, "episode time act"],
    mask: Bool[Array, "episode time"] | None = None,
) -> Bool[Array, " episode"]:
    """Whether a monitor alarms at any step of every episode.

    Args:
        monitor: Any monitor.
        obs: Observations of each episode.
        action: Action that the policy proposed, or that was sent.
        mask: False where an episode has no step (padding).

    Returns:
        One flag per episode.
    """
    return jnp.any(_along(monitor, obs, action, mask)[1], axis=1)


def calibrated(
    monitor: AnyMonitor,
    obs: Float[Array, "episode time obs"],
    action: Float[Array, "episode time act"],
    mask: Bool[Array, "episode time"] | None = None,
    *,
    false_alarms: float,
    stretch: int | None = None,
) -> AnyMonitor:
    """The monitor with a conformal threshold from held-out operation.

    Among stretches that are exchangeable with these, at most a fraction ``false_alarms`` raises a
    false alarm at any step. This holds on average over the sampling of these stretches, not for a
    given sample. The steps of one stretch are not exchangeable, so the score of a stretch is its
    largest. The monitor's memory continues from one stretch to the next, as it does while a plant
    runs; if it started afresh in every stretch, the monitor would seem quieter than it is in
    operation.

    Args:
        monitor: A monitor with a field ``threshold``.
        obs: Observations of episodes to which it was not fitted.
        action: Action that the policy proposed, or that was sent.
        mask: False where an episode has no step.
        false_alarms: Guaranteed fraction of the stretches with a false alarm, in (0, 1);
            :func:`alarms_per_day` converts it to alarms per day.
        stretch: Steps of a stretch, of which an episode may hold many; ``None`` for whole episodes.

    Returns:
        The monitor with its threshold.

    Raises:
        InputError: If there are too few stretches for the guarantee: ``1 / false_alarms - 1`` are
            needed.
    """
    scores = operation_scores(monitor, obs, action, mask, stretch=stretch)
    threshold = conformal_quantile(scores, miscoverage=false_alarms)
    if not bool(jnp.isfinite(threshold)):
        raise InputError(
            f"{len(scores)} {'episodes' if stretch is None else 'stretches'} cannot promise "
            f"{false_alarms:g} false alarms in each: {conformal_sample_size(false_alarms)} with "
            "finite scores are needed"
        )
    old = monitor.threshold
    return eqx.tree_at(lambda m: m.threshold, monitor, threshold.astype(old.dtype))


def operation_scores(
    monitor: Monitor,
    obs: Float[Array, "episode time obs"],
    action: Float[Array, "episode time act"],
    mask: Bool[Array, "episode time"] | None = None,
    *,
    stretch: int | None = None,
) -> Float[Array, " stretch"]:
    """The largest score of a monitor in every stretch of consecutive operation.

    The monitor's memory continues from step to step and from episode to episode; the scores are
    those of a second pass, after the monitor has seen all episodes once.

    Args:
        monitor: Any monitor.
        obs: Observations of each episode.
        action: Action that the policy proposed, or that was sent.
        mask: False where an episode has no step; such steps are skipped.
        stretch: Steps of a stretch; a shorter remainder of an episode is ignored. ``None`` for
            whole episodes.

    Returns:
        One score per stretch.
    """
    valid = np.ones(obs.shape[:2], bool) if mask is None else np.asarray(mask, bool)
    values = np.asarray(
        _continued(monitor, jnp.asarray(obs), jnp.asarray(action), jnp.asarray(valid))
    )
    values = values.reshape(valid.shape)
    if stretch is None:
        return jnp.asarray(np.max(np.where(valid, values, -np.inf), axis=1))
    scores = []
    for row, counts in zip(values, valid, strict=True):
        kept = row[counts]
        whole = len(kept) // stretch * stretch
        scores.append(kept[:whole].reshape(-1, stretch).max(axis=1))
    return jnp.asarray(np.concatenate(scores))


def alarms_per_day(false_alarms: float, stretch_seconds: float) -> float:
    """Number of false alarms per day if a fraction of the stretches has one.

    Args:
        false_alarms: Fraction of the stretches that may have one.
        stretch_seconds: Length of a stretch; several alarms in one stretch count once.
    """
    return false_alarms * 86_400.0 / stretch_seconds


@jax.jit
def _continued(monitor: Any, obs: Array, action: Array, valid: Array) -> Array:
    """Values of every step, in order, in the second of two passes."""

    def step(carry: Any, row: tuple[Array, Array, Array]) -> tuple[Any, Array]:
        now, act, counts = row
        after, score = monitor(carry, Seen(now, act, act))
        after = jax.tree.map(lambda new, old: jnp.where(counts, new, old), after, carry)
        return after, jnp.where(counts, score.value, -jnp.inf)

    obs, action, valid = (part.reshape(-1, *part.shape[2:]) for part in (obs, action, valid))
    rows = obs, action, valid
    seen, _ = jax.lax.scan(step, monitor.initial_carry(), rows)
    return jax.lax.scan(step, seen, rows)[1]


def _along(
    monitor: Monitor, obs: Array, action: Array, mask: Array | None
) -> tuple[Float[Array, "episode time"], Bool[Array, "episode time"]]:
    """Value and alarm of every step; minus infinity and no alarm where there is no step."""
    valid = jnp.ones(obs.shape[:2], jnp.bool_) if mask is None else jnp.asarray(mask)
    return _scanned(monitor, jnp.asarray(obs), jnp.asarray(action), valid)


@jax.jit
def _scanned(monitor: Any, obs: Array, action: Array, valid: Array) -> tuple[Array, Array]:
    def step(carry: Any, row: tuple[Array, Array, Array]) -> tuple[Any, tuple[Array, Array]]:
        now, act, counts = row
        carry, score = monitor(carry, Seen(now, act, act))
        return carry, (jnp.where(counts, score.value, -jnp.inf), counts & score.alarm)

    def episode(now: Array, act: Array, counts: Array) -> tuple[Array, Array]:
        return jax.lax.scan(step, monitor.initial_carry(), (now, act, counts))[1]

    return jax.vmap(episode)(obs, action, valid)
