"""Limits of the manipulated variables, as data."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from neorl_core import Spec, highs, lows

Rate = float | tuple[float, float] | None


def _as_float(value: Any) -> Any:
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.floating):
        return value
    with np.errstate(over="ignore"):
        return jnp.asarray(np.asarray(value, np.float32))


class ActionConstraints(eqx.Module):
    """Box and rate limits of every action channel, in physical units.

    For an action ``u`` that follows ``v`` after ``dt`` seconds, the hard constraints are

    ``low <= u <= high`` and ``-rate_down dt <= u - v <= rate_up dt``.

    Every limit is an array leaf, so limits may be batched, swept and exported. Concrete values are
    checked; in compiled code the filter flags bad ones instead. Limits are the float32 numbers
    nearest to the declared ones. Constraints of other kinds are added to these in
    :class:`Constraints`.

    Attributes:
        low: Lower ends of the box, shape ``(act,)``.
        high: Upper ends of the box, shape ``(act,)``.
        rate_up: Largest rise per second, shape ``(act,)``; infinite means no limit.
        rate_down: Largest fall per second, as a positive number, shape ``(act,)``.
        actuator_low: Lower end of the actuator range, shape ``(act,)``: at or below ``low``.
        actuator_high: Upper end of the actuator range, shape ``(act,)``: at or above ``high``.
        names: Channel names, in the order of the last axis.
        units: Units of the channels.

    Raises:
        ValueError: If shapes differ, or a concrete limit is NaN, infinite where that is not
            allowed, negative, subnormal or inverted; the message names the channel.
    """

    low: Float[Array, " act"] = eqx.field(converter=_as_float)
    high: Float[Array, " act"] = eqx.field(converter=_as_float)
    rate_up: Float[Array, " act"] = eqx.field(converter=_as_float)
    rate_down: Float[Array, " act"] = eqx.field(converter=_as_float)
    actuator_low: Float[Array, " act"] = eqx.field(converter=_as_float)
    actuator_high: Float[Array, " act"] = eqx.field(converter=_as_float)
    names: tuple[str, ...] = eqx.field(static=True)
    units: tuple[str, ...] = eqx.field(static=True)

    @property
    def n_action(self) -> int:
        """Number of action channels."""
        return len(self.names)

    def __check_init__(self) -> None:
        expected = (len(self.names),)
        if len(self.units) != len(self.names):
            raise ValueError(
                f"ActionConstraints has {len(self.names)} names but {len(self.units)} units; give "
                "one unit for each name"
            )
        for field in LIMIT_FIELDS:
            shape = getattr(self, field).shape
            if shape != expected:
                raise ValueError(
                    f"{field} has shape {shape}; expected {expected}, "
                    f"one number for each of the channels {', '.join(self.names)}"
                )
        values = {field: getattr(self, field) for field in LIMIT_FIELDS}
        if not any(isinstance(value, Tracer) for value in values.values()):
            _refuse_bad_limits(self.names, self.units, values)


LIMIT_FIELDS = ("low", "high", "rate_up", "rate_down", "actuator_low", "actuator_high")


def _refuse_bad_limits(
    names: Sequence[str], units: Sequence[str], values: dict[str, jax.Array]
) -> None:
    for i, (name, unit) in enumerate(zip(names, units, strict=True)):
        limits = {field: float(value[i]) for field, value in values.items()}
        where = f"action channel {name!r} ({unit})"
        for field, value in values.items():
            tiny = float(np.finfo(value.dtype).tiny)
            if 0 < abs(limits[field]) < tiny:
                raise ValueError(
                    f"{where}: {field} is {limits[field]}, below the smallest normal number "
                    f"{tiny:g}; write 0"
                )
        for field in ("low", "high", "actuator_low", "actuator_high"):
            if not np.isfinite(limits[field]):
                raise ValueError(f"{where}: {field} must be finite in float32, got {limits[field]}")
        for field in ("rate_up", "rate_down"):
            if not limits[field] >= 0:
                raise ValueError(
                    f"{where}: {field} must be zero or more per second, or infinite for no "
                    f"limit, got {limits[field]}"
                )
        if limits["low"] > limits["high"]:
            raise ValueError(f"{where}: low {limits['low']} is above high {limits['high']}")
        if not (
            limits["actuator_low"] <= limits["low"] and limits["high"] <= limits["actuator_high"]
        ):
            raise ValueError(
                f"{where}: the box {limits['low']} to {limits['high']} leaves the actuator range "
                f"{limits['actuator_low']} to {limits['actuator_high']}"
            )


def action_constraints(
    spec: Spec,
    rates: Sequence[Rate] | None = None,
    *,
    low: Sequence[float] | None = None,
    high: Sequence[float] | None = None,
) -> ActionConstraints:
    """The box of a specification with rate limits, optionally tightened.

    Args:
        spec: Specification whose action channels give names, units, the actuator ranges and, unless
            ``low`` and ``high`` are given, the box.
        rates: Largest change per second of each action channel: one number for both directions, a
            pair ``(up, down)``, or ``None`` or infinity for no limit. ``None`` instead of a list
            means that no channel has a rate limit.
        low: Lower ends of a tighter box.
        high: Upper ends of a tighter box.

    Returns:
        The constraints, in float32.

    Raises:
        ValueError: If a list does not have one entry for each channel, or a limit is bad; the
            message names the channel.

    Example:
        >>> from neorl_core import Channel, Spec
        >>> from neorl_safety.constraints import action_constraints
        >>> valve = Channel("valve", "%", 0.0, 100.0)
        >>> spec = Spec((Channel("level", "m", 0.0, 2.0),), (valve,), (), dt=60.0, horizon=100)
        >>> action_constraints(spec, [(0.5, 1.0)]).rate_down.tolist()
        [1.0]
    """
    n = spec.n_action
    given = {
        "rates": [None] * n if rates is None else list(rates),
        "low": lows(spec.action) if low is None else list(low),
        "high": highs(spec.action) if high is None else list(high),
    }
    for field, entries in given.items():
        if len(entries) != n:
            raise ValueError(
                f"{field} has {len(entries)} entries; expected {n}, one for each of the channels "
                f"{', '.join(channel.name for channel in spec.action)}"
            )
    pairs = [_up_and_down(rate) for rate in given["rates"]]
    return ActionConstraints(
        low=given["low"],
        high=given["high"],
        rate_up=[up for up, _ in pairs],
        rate_down=[down for _, down in pairs],
        actuator_low=lows(spec.action),
        actuator_high=highs(spec.action),
        names=tuple(channel.name for channel in spec.action),
        units=tuple(channel.unit for channel in spec.action),
    )


def _up_and_down(rate: Rate) -> tuple[float, float]:
    if rate is None:
        return np.inf, np.inf
    if isinstance(rate, tuple | list):
        if len(rate) != 2:
            raise ValueError(f"a rate is one number or a pair (up, down), got {rate!r}")
        return float(rate[0]), float(rate[1])
    return float(rate), float(rate)
