"""Thresholds with a promised rate of false alarms."""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
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
        action: What the policy proposed, or what was sent.
        mask: False where an episode has no step (padding).

    Returns:
        One score an episode; minus infinity for one without steps.
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
        action: What the policy proposed, or what was sent.
        mask: False where an episode has no step (padding).

    Returns:
        One flag an episode.
    """
    return jnp.any(_along(monitor, obs, action, mask)[1], axis=1)


def calibrated(
    monitor: AnyMonitor,
    obs: Float[Array, "episode time obs"],
    action: Float[Array, "episode time act"],
    mask: Bool[Array, "episode time"] | None = None,
    *,
    false_alarms: float,
) -> AnyMonitor:
    """The monitor with the conformal threshold of held-out episodes.

    Of episodes that are exchangeable with these, at most a part ``false_alarms`` raises a false
    alarm at any step: on average over the draw of these episodes, not for a given draw. The steps
    of one episode are not exchangeable, so the score of an episode is its largest.

    Args:
        monitor: A monitor with a field ``threshold``.
        obs: Observations of episodes that it was not fitted on.
        action: What the policy proposed, or what was sent.
        mask: False where an episode has no step.
        false_alarms: Promised rate of false alarms an episode, in (0, 1).

    Returns:
        The monitor with its threshold.

    Raises:
        InputError: If there are too few episodes to promise it: ``1 / false_alarms - 1`` are
            needed.
    """
    scores = episode_scores(monitor, obs, action, mask)
    threshold = conformal_quantile(scores, miscoverage=false_alarms)
    if not bool(jnp.isfinite(threshold)):
        raise InputError(
            f"{len(scores)} episodes cannot promise {false_alarms} false alarms an episode: "
            f"{conformal_sample_size(false_alarms)} with finite scores are needed"
        )
    old = monitor.threshold
    return eqx.tree_at(lambda m: m.threshold, monitor, threshold.astype(old.dtype))


def _along(
    monitor: Monitor, obs: Array, action: Array, mask: Array | None
) -> tuple[Float[Array, "episode time"], Bool[Array, "episode time"]]:
    """Value and alarm of every step; minus infinity and none where there is no step."""
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
