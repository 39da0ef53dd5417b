"""The known kinds of constraints, and all constraints of one action."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from neorl_core.infrastructure import Registry
from neorl_safety.constraints._barrier import BarrierKind
from neorl_safety.constraints._by_channel import ActionConstraints, Box, BoxKind, Rate, RateKind
from neorl_safety.constraints._function_kind import FunctionKind
from neorl_safety.constraints._interlock import InterlockKind
from neorl_safety.constraints._linear import LinearKind
from neorl_safety.constraints._protocol import ChannelRange, Channels, ConstraintKind, Rank
from neorl_safety.constraints._wear import DeadbandKind, RestKind

# The known kinds of constraints, and how others are added.


MEMBERS = ("to_records", "from_records", "describe", "lower")
_OWN: dict[str, ConstraintKind] = {
    "box": BoxKind(),
    "rate": RateKind(),
    "interlock": InterlockKind(),
    "linear": LinearKind(),
    "barrier": BarrierKind(),
    "deadband": DeadbandKind(),
    "rest": RestKind(),
    "function": FunctionKind(),
}


def _check_kind(name: str, kind: Any) -> None:
    """Raises a ``TypeError`` that names the first required member that a kind lacks."""
    if isinstance(kind, type):
        raise TypeError(f"a kind must be an object, got the class; give {kind.__name__}()")
    for member in MEMBERS:
        if not callable(getattr(kind, member, None)):
            raise TypeError(f"a kind must have {', '.join(MEMBERS)}; {member} is missing")


DECLARED_AS = {"range": "box", "while": "interlock", "sum": "linear"}
"""Aliases under which people declare kinds, in addition to their names in a document."""

KINDS = Registry("neorl.constraints", "kind", _OWN, _check_kind)
"""Every kind of constraint, by its name in a document."""


def register_kind(name: str, kind: ConstraintKind) -> None:
    """Makes a kind available to documents, filters, reports and bundles.

    Distributions declare their kinds with an entry point instead::

        [project.entry-points."neorl.constraints"]
        totaliser = "my_package.totaliser:TOTALISER"

    Args:
        name: Name in the field ``kind`` of a record.
        kind: An object with ``to_records``, ``from_records``, ``describe`` and ``lower``; see
            :class:`ConstraintKind`.

    Raises:
        InputError: If the name is taken or a member is missing.
    """
    KINDS.register(name, kind)


def rank_of(name: str) -> Rank:
    """The rank of a kind; ``LIMIT`` if it does not declare one."""
    return Rank(getattr(KINDS.find(name), "rank", Rank.LIMIT))


# All constraints of one action: limits of every channel, and constraints of other kinds.


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
