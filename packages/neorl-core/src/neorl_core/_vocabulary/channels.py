"""Channels and the specification of a control problem: static, hashable, no array leaves."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from neorl_core._internal.checks import checked_integer

CostPer = Literal["step", "episode"]
"""What a cost limit bounds: each step of an episode, or the sum over it."""


@dataclasses.dataclass(frozen=True)
class Channel:
    """One measured or manipulated variable.

    Attributes:
        name: Tag of the channel.
        unit: Physical unit, as printed to people (for example ``"K"``).
        low: Lower end, in ``unit``: of the measuring range for an observation, of the
            admissible range for an action.
        high: Upper end, in ``unit``.

    Raises:
        ValueError: If the name is empty, an end is not finite, or ``low >= high``.
    """

    name: str
    unit: str
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a channel needs a name; use that of its column in the log")
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise ValueError(
                f"channel {self.name!r}: low and high must be finite, "
                f"got {self.low} and {self.high}; give the range that the plant can reach"
            )
        if not self.low < self.high:
            raise ValueError(
                f"channel {self.name!r}: low must be below high, got {self.low} and {self.high}; "
                "swap or widen them"
            )


@dataclasses.dataclass(frozen=True)
class CostChannel:
    """One cost of violating a constraint, with its limit.

    Attributes:
        name: Name of the constraint.
        unit: Unit of the cost (``"1"`` if it is dimensionless).
        limit: Largest admissible cost, in ``unit``.
        per: Whether ``limit`` bounds the cost of one ``"step"`` or its sum over an ``"episode"``.

    Raises:
        ValueError: If the name is empty, the limit is negative or not finite, or ``per`` is
            neither ``"step"`` nor ``"episode"``.
    """

    name: str
    unit: str
    limit: float
    per: CostPer

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a cost channel needs a name; use the one of the log's column")
        if not (math.isfinite(self.limit) and self.limit >= 0):
            raise ValueError(
                f"cost {self.name!r}: limit must be finite and not negative, got {self.limit}; "
                "give the largest sum allowed, in the cost's unit"
            )
        if self.per not in get_args(CostPer):
            raise ValueError(
                f"cost {self.name!r}: per must be 'step' or 'episode', got {self.per!r}; "
                "say what the limit counts over"
            )


@dataclasses.dataclass(frozen=True)
class Spec:
    """Channels, costs, period and horizon of a plant. Hashable, so usable as a static argument.

    Attributes:
        obs: The observed channels, in the order of the last axis of ``obs``.
        action: The manipulated channels, in the order of the last axis of ``action``.
        cost: The cost channels; may be empty.
        dt: Control period in seconds.
        horizon: Number of steps after which an episode is truncated.

    Raises:
        ValueError: If ``obs`` or ``action`` is empty, names repeat, ``dt`` is not positive or
            ``horizon`` is not a positive integer.
    """

    obs: tuple[Channel, ...]
    action: tuple[Channel, ...]
    cost: tuple[CostChannel, ...]
    dt: float
    horizon: int

    def __post_init__(self) -> None:
        for field in ("obs", "action", "cost"):
            object.__setattr__(self, field, tuple(getattr(self, field)))
            names = [channel.name for channel in getattr(self, field)]
            repeated = sorted({name for name in names if names.count(name) > 1})
            if repeated:
                raise ValueError(
                    f"{field} channels share a name: {', '.join(repeated)}; rename one"
                )
        if not self.obs or not self.action:
            raise ValueError(
                "a spec needs at least one observed and one manipulated channel; "
                "add the missing one"
            )
        if not (math.isfinite(self.dt) and self.dt > 0):
            raise ValueError(
                f"dt must be a positive number of seconds, got {self.dt}; "
                "give the period of the log"
            )
        horizon = checked_integer(
            "horizon", self.horizon, 1, "give the largest number of steps of an episode"
        )
        object.__setattr__(self, "horizon", horizon)

    @property
    def n_obs(self) -> int:
        """Number of observed channels."""
        return len(self.obs)

    @property
    def n_action(self) -> int:
        """Number of manipulated channels."""
        return len(self.action)

    @property
    def n_cost(self) -> int:
        """Number of cost channels; may be zero."""
        return len(self.cost)


def lows(channels: Sequence[Channel]) -> tuple[float, ...]:
    """Lower ends of ``channels``, each in its own unit."""
    return tuple(float(channel.low) for channel in channels)


def highs(channels: Sequence[Channel]) -> tuple[float, ...]:
    """Upper ends of ``channels``, each in its own unit."""
    return tuple(float(channel.high) for channel in channels)


def spec_to_dict(spec: Spec) -> dict[str, Any]:
    """The specification as plain dictionaries, lists, strings and numbers, ready for JSON."""
    return dataclasses.asdict(spec)


def spec_from_dict(data: Mapping[str, Any]) -> Spec:
    """Inverse of :func:`spec_to_dict`.

    Args:
        data: What :func:`spec_to_dict` returned, possibly after a round trip through JSON.

    Returns:
        The specification.

    Raises:
        ValueError: If a field is missing or unknown, or its value is invalid for :class:`Spec`.
    """
    expected = {field.name for field in dataclasses.fields(Spec)}
    if set(data) != expected:
        raise ValueError(
            f"a spec has the fields {sorted(expected)}, got {sorted(data)}; "
            "make it with spec_to_dict"
        )
    try:
        return Spec(
            obs=tuple(Channel(**channel) for channel in data["obs"]),
            action=tuple(Channel(**channel) for channel in data["action"]),
            cost=tuple(CostChannel(**channel) for channel in data["cost"]),
            dt=float(data["dt"]),
            horizon=data["horizon"],
        )
    except TypeError as error:
        raise ValueError(
            f"a channel of the spec is malformed: {error}; make it with spec_to_dict"
        ) from error
