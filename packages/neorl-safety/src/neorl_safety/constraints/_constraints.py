"""All constraints of one action: limits of every channel, and constraints of other kinds."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from neorl_safety.constraints._action_limits import ActionConstraints
from neorl_safety.constraints._by_channel import Box, Rate
from neorl_safety.constraints._kinds import KINDS
from neorl_safety.constraints._protocol import ChannelRange, Channels

CHANNEL_KINDS = ("box", "rate")
"""Kinds whose numbers are stored in :class:`ActionConstraints`."""


class Constraints(eqx.Module):
    """All constraints of an action.

    Attributes:
        action: Box and rate limits of every channel, and the ranges of the actuators.
        further: Constraints of other kinds, by the name of the kind; each a PyTree of arrays.
        obs: Observed channels with their measuring ranges; empty if no kind reads one.

    Raises:
        InputError: If a kind is unknown.
    """

    action: ActionConstraints
    further: dict[str, Any] = eqx.field(default_factory=dict)
    obs: tuple[ChannelRange, ...] = eqx.field(static=True, default=())

    @property
    def n_action(self) -> int:
        """Number of action channels."""
        return self.action.n_action

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the action channels."""
        return self.action.names

    @property
    def units(self) -> tuple[str, ...]:
        """Units of the action channels."""
        return self.action.units

    @property
    def dtype(self) -> jnp.dtype:
        """Dtype of the limits, and of stored actions."""
        return self.action.low.dtype

    def __check_init__(self) -> None:
        for name in self.further:
            KINDS.find(name)


AnyConstraints = Constraints | ActionConstraints
"""Accepted wherever constraints are: box and rate only, or with other kinds."""


def as_constraints(constraints: AnyConstraints) -> Constraints:
    """Converts box and rate limits to :class:`Constraints`, and returns these unchanged."""
    if isinstance(constraints, Constraints):
        return constraints
    return Constraints(constraints)


def by_kind(constraints: Constraints) -> Mapping[str, Any]:
    """The constraint of every kind in use, by the name of the kind."""
    c = constraints.action
    return {
        "box": Box(c.low, c.high),
        "rate": Rate(c.rate_up, c.rate_down),
        **constraints.further,
    }


def channels_of(constraints: AnyConstraints) -> Channels:
    """The action channels with the ranges of their actuators, and the observed channels."""
    full = as_constraints(constraints)
    c = full.action
    ends = zip(c.names, c.units, c.actuator_low, c.actuator_high, strict=True)
    actions = (ChannelRange(tag, unit, float(low), float(high)) for tag, unit, low, high in ends)
    return Channels(tuple(actions), full.obs)


def describe_constraints(constraints: AnyConstraints) -> list[str]:
    """Describes the constraints in words, each kind in its own way.

    Args:
        constraints: Constraints with concrete numbers.

    Returns:
        Sentences without full stops, with units.

    Example:
        >>> from neorl_core import Channel, Spec
        >>> from neorl_safety.constraints import action_constraints, describe_constraints
        >>> valve = Channel("valve", "%", 0.0, 100.0)
        >>> spec = Spec((Channel("level", "m", 0.0, 2.0),), (valve,), (), dt=60.0, horizon=100)
        >>> describe_constraints(action_constraints(spec, [0.5]))[0]
        'valve between 0 and 100 %'
    """
    full = as_constraints(constraints)
    channels = channels_of(full)
    return [
        sentence
        for name, constraint in by_kind(full).items()
        for sentence in KINDS.find(name).describe(channels, constraint)
    ]
