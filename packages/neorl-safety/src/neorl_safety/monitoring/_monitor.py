"""A monitor's score and alarm, and its threshold with a guaranteed rate of false alarms."""

from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from neorl_core import InputError
from neorl_core.statistics import conformal_quantile, conformal_sample_size

# Protocol of a monitor: it gives a score and an alarm, and never changes the action.


class MonitorInput(NamedTuple):
    """Input of a monitor in one step.

    Attributes:
        obs: The observation, shape ``(obs,)``; may hold NaN.
        action: Action that the policy proposes, shape ``(act,)``; may hold NaN.
        previous: Action that the plant last received, shape ``(act,)``; NaN if unknown.
    """

    obs: Float[Array, " obs"]
    action: Float[Array, " act"]
    previous: Float[Array, " act"]


class Score(NamedTuple):
    """Result of a monitor.

    Attributes:
        value: The larger, the less suitable the situation; infinite if it could not be computed.
            Scalar.
        alarm: Whether the value is above the monitor's threshold. Scalar.
    """

    value: Float[Array, ""]
    alarm: Bool[Array, ""]


@runtime_checkable
class Monitor(Protocol):
    """A PyTree of arrays with two pure functions."""

    def initial_carry(self) -> Any:
        """The carry before the first step."""
        ...

    def __call__(self, carry: Any, inputs: MonitorInput) -> tuple[Any, Score]:
        """The new carry, and the score of this step."""
        ...


def score_of(value: Float[Array, ""], threshold: Float[Array, ""]) -> Score:
    """Compares a value with its threshold; NaN in either of them is an alarm."""
    # A value that cannot be computed counts as the worst, also in the maxima of a calibration.
    value = jnp.where(jnp.isnan(value), jnp.inf, value)
    # Not ``value > threshold``, which is false for a NaN threshold.
    return Score(value, ~(value <= threshold))


# Thresholds with a guaranteed rate of false alarms.


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
    return jnp.max(_episode_scan(monitor, obs, action, mask)[0], axis=1)


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
    return jnp.any(_episode_scan(monitor, obs, action, mask)[1], axis=1)


def calibrate(
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
        kind = "episode" if stretch is None else "stretch"
        raise InputError(
            f"a rate of {false_alarms:g} false alarms per {kind} cannot be guaranteed with "
            f"{len(scores)} of them: {conformal_sample_size(false_alarms)} with finite scores are "
            "needed; record more, or allow a higher rate"
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
        _scan_continuous(monitor, jnp.asarray(obs), jnp.asarray(action), jnp.asarray(valid))
    )
    values = values.reshape(valid.shape)
    if stretch is None:
        return jnp.asarray(np.max(np.where(valid, values, -np.inf), axis=1))
    scores = []
    for row, is_valid in zip(values, valid, strict=True):
        usable = row[is_valid]
        used = len(usable) // stretch * stretch
        scores.append(usable[:used].reshape(-1, stretch).max(axis=1))
    return jnp.asarray(np.concatenate(scores))


def alarms_per_day(false_alarms: float, stretch_seconds: float) -> float:
    """Number of false alarms per day if a fraction of the stretches has one.

    Args:
        false_alarms: Fraction of the stretches that may have one.
        stretch_seconds: Length of a stretch; several alarms in one stretch count once.
    """
    return false_alarms * 86_400.0 / stretch_seconds


@jax.jit
def _scan_continuous(monitor: Any, obs: Array, action: Array, valid: Array) -> Array:
    """Values of every step, in order, in the second of two passes."""

    def step(carry: Any, row: tuple[Array, Array, Array]) -> tuple[Any, Array]:
        obs_now, action_now, is_valid = row
        next_carry, score = monitor(carry, MonitorInput(obs_now, action_now, action_now))
        # Padding must not reach the memory, which continues with the next episode.
        next_carry = jax.tree.map(lambda new, old: jnp.where(is_valid, new, old), next_carry, carry)
        return next_carry, jnp.where(is_valid, score.value, -jnp.inf)

    obs, action, valid = (part.reshape(-1, *part.shape[2:]) for part in (obs, action, valid))
    rows = obs, action, valid
    warm_carry, _ = jax.lax.scan(step, monitor.initial_carry(), rows)
    return jax.lax.scan(step, warm_carry, rows)[1]


def _episode_scan(
    monitor: Monitor, obs: Array, action: Array, mask: Array | None
) -> tuple[Float[Array, "episode time"], Bool[Array, "episode time"]]:
    """Value and alarm of every step; minus infinity and no alarm where there is no step."""
    valid = jnp.ones(obs.shape[:2], jnp.bool_) if mask is None else jnp.asarray(mask)
    return _scan_episodes(monitor, jnp.asarray(obs), jnp.asarray(action), valid)


@jax.jit
def _scan_episodes(monitor: Any, obs: Array, action: Array, valid: Array) -> tuple[Array, Array]:
    def step(carry: Any, row: tuple[Array, Array, Array]) -> tuple[Any, tuple[Array, Array]]:
        obs_now, action_now, is_valid = row
        carry, score = monitor(carry, MonitorInput(obs_now, action_now, action_now))
        return carry, (jnp.where(is_valid, score.value, -jnp.inf), is_valid & score.alarm)

    def episode(obs_now: Array, action_now: Array, is_valid: Array) -> tuple[Array, Array]:
        return jax.lax.scan(step, monitor.initial_carry(), (obs_now, action_now, is_valid))[1]

    return jax.vmap(episode)(obs, action, valid)
