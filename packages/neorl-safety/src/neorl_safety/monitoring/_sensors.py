"""Measurements that are finite but wrong: outside the measuring range, or frozen."""

from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from neorl_core import InputError, Spec, highs, lows
from neorl_safety.monitoring._monitor import MonitorInput, Score, score_of

TOLERANCE = 0.05
"""Fraction of the measuring range by which a reading may lie outside it."""


class RangeMonitor(eqx.Module):
    """Alarms while a channel is outside its measuring range; see :func:`range_monitor`.

    Attributes:
        low: Lower ends of the measuring ranges, shape ``(obs,)``.
        high: Upper ends, shape ``(obs,)``.
        tolerance: Fraction of the range by which a reading may lie outside it, scalar.
    """

    low: Float[Array, " obs"]
    high: Float[Array, " obs"]
    tolerance: Float[Array, ""]

    def initial_carry(self) -> tuple[()]:
        """An empty carry: the monitor has no memory."""
        return ()

    def __call__(self, carry: tuple[()], inputs: MonitorInput) -> tuple[tuple[()], Score]:
        """The largest distance outside a range, as a fraction of the range; NaN gives infinity."""
        span = self.high - self.low
        excess = jnp.maximum(self.low - inputs.obs, inputs.obs - self.high) / span
        # A lost reading is outside any range.
        excess = jnp.where(jnp.isnan(excess), jnp.inf, excess)
        return carry, score_of(jnp.maximum(jnp.max(excess), 0), self.tolerance)


def range_monitor(spec: Spec, *, tolerance: float = TOLERANCE) -> RangeMonitor:
    """Checks that every observation lies in its measuring range.

    Args:
        spec: Specification with the measuring ranges.
        tolerance: Fraction of the range by which a reading may lie outside it, not negative.

    Returns:
        The monitor.

    Raises:
        InputError: If the tolerance is negative or not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> from neorl_core import Channel, Spec
        >>> from neorl_safety.monitoring import MonitorInput, range_monitor
        >>> valve = Channel("valve", "%", 0.0, 100.0)
        >>> spec = Spec((Channel("level", "m", 0.0, 2.0),), (valve,), (), dt=60.0, horizon=100)
        >>> inputs = MonitorInput(jnp.array([3.0]), jnp.ones(1), jnp.ones(1))
        >>> _, score = range_monitor(spec)((), inputs)
        >>> float(score.value), bool(score.alarm)
        (0.5, True)
    """
    if not (np.isfinite(tolerance) and tolerance >= 0):
        raise InputError(f"tolerance must be zero or more, got {tolerance}")
    low, high = (jnp.asarray(np.asarray(end(spec.obs), np.float32)) for end in (lows, highs))
    return RangeMonitor(low, high, jnp.asarray(tolerance, jnp.float32))


class FrozenCarry(NamedTuple):
    """Carry of a :class:`FrozenMonitor`.

    Attributes:
        last: Last observation, shape ``(obs,)``; NaN before the first.
        steps: Number of steps for which each channel has not moved, shape ``(obs,)``.
    """

    last: Float[Array, " obs"]
    steps: Int[Array, " obs"]


class FrozenMonitor(eqx.Module):
    """Alarms while a channel has not moved for too long; see :func:`frozen_monitor`.

    Attributes:
        min_change: Threshold for a change, shape ``(obs,)``; only a larger change counts as a
            movement.
        max_steps: Number of steps for which a channel may stand still, shape ``(obs,)``.
    """

    min_change: Float[Array, " obs"]
    max_steps: Int[Array, " obs"]

    def initial_carry(self) -> FrozenCarry:
        """A carry before the first observation."""
        return FrozenCarry(jnp.full_like(self.min_change, jnp.nan), jnp.zeros_like(self.max_steps))

    def __call__(self, carry: FrozenCarry, inputs: MonitorInput) -> tuple[FrozenCarry, Score]:
        """The longest standstill, as a multiple of the number of steps allowed for its channel."""
        obs = inputs.obs.astype(carry.last.dtype)
        # A NaN on either side counts as a movement, since other flags report it.
        unchanged = jnp.abs(obs - carry.last) <= self.min_change
        # The count stops long before it would overflow to a negative number, which is no alarm.
        steps = jnp.where(unchanged, jnp.minimum(carry.steps, 2**30) + 1, 0)
        ratio = steps.astype(carry.last.dtype) / jnp.maximum(self.max_steps, 1).astype(
            carry.last.dtype
        )
        return FrozenCarry(obs, steps), score_of(jnp.max(ratio), jnp.ones((), ratio.dtype))


def frozen_monitor(
    spec: Spec,
    steps: int | Mapping[str, int],
    *,
    channels: tuple[str, ...] | None = None,
    min_change: float = 0.0,
) -> FrozenMonitor:
    """Checks that measurements move: a noisy signal that stands still is dead.

    Args:
        spec: Specification with the measuring ranges.
        steps: Number of steps for which a channel may stand still, at least one; or one number for
            each channel, by name.
        channels: Names of the monitored channels; all by default. Leave out setpoints, valves and
            other signals that may stand still.
        min_change: Threshold for a change, as a fraction of the measuring range.

    Returns:
        The monitor.

    Raises:
        InputError: If ``steps`` is below one, ``min_change`` is negative or a name is unknown.
    """
    names = [channel.name for channel in spec.obs]
    monitored = names if channels is None else list(channels)
    steps_by_name = dict(steps) if isinstance(steps, Mapping) else dict.fromkeys(monitored, steps)
    unknown = sorted(set(steps_by_name) - set(names))
    if unknown:
        raise InputError(
            f"no observation is called {', '.join(unknown)}; known: {', '.join(names)}"
        )
    if min(steps_by_name.values(), default=0) < 1 or not min_change >= 0:
        raise InputError(
            "steps must be at least 1 and min_change must not be negative, got steps "
            f"{steps} and min_change {min_change}"
        )
    span = np.asarray(highs(spec.obs)) - np.asarray(lows(spec.obs))
    never = np.iinfo(np.int32).max
    max_steps = [steps_by_name.get(name, never) for name in names]
    return FrozenMonitor(
        jnp.asarray(np.asarray(min_change * span, np.float32)),
        jnp.asarray(np.asarray(max_steps, np.int32)),
    )
