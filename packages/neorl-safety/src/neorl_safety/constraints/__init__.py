"""Constraints as data: every kind with its JSON document, its description and its meaning."""

from neorl_safety.constraints._barrier import Barrier as Barrier
from neorl_safety.constraints._barrier import barrier_records as barrier_records
from neorl_safety.constraints._by_channel import ActionConstraints as ActionConstraints
from neorl_safety.constraints._by_channel import Box as Box
from neorl_safety.constraints._by_channel import ChannelLimits as ChannelLimits
from neorl_safety.constraints._by_channel import Rate as Rate
from neorl_safety.constraints._by_channel import action_constraints as action_constraints
from neorl_safety.constraints._by_channel import channel_limits as channel_limits
from neorl_safety.constraints._constraints import KINDS as KINDS
from neorl_safety.constraints._constraints import AnyConstraints as AnyConstraints
from neorl_safety.constraints._constraints import Constraints as Constraints
from neorl_safety.constraints._constraints import channels_of as channels_of
from neorl_safety.constraints._constraints import describe_constraints as describe_constraints
from neorl_safety.constraints._constraints import register_kind as register_kind
from neorl_safety.constraints._documents import constraints_from_dict as constraints_from_dict
from neorl_safety.constraints._documents import constraints_from_toml as constraints_from_toml
from neorl_safety.constraints._documents import constraints_to_dict as constraints_to_dict
from neorl_safety.constraints._documents import declared_constraints as declared_constraints
from neorl_safety.constraints._documents import spec_channels as spec_channels
from neorl_safety.constraints._feasible import require_feasible as require_feasible
from neorl_safety.constraints._function_kind import Requirement as Requirement
from neorl_safety.constraints._function_kind import Tier as Tier
from neorl_safety.constraints._identified import IdentifiedModel as IdentifiedModel
from neorl_safety.constraints._identified import identified_model as identified_model
from neorl_safety.constraints._identified import with_models as with_models
from neorl_safety.constraints._interlock import Interlock as Interlock
from neorl_safety.constraints._linear import Linear as Linear
from neorl_safety.constraints._protocol import ChannelRange as ChannelRange
from neorl_safety.constraints._protocol import Channels as Channels
from neorl_safety.constraints._protocol import ConstraintKind as ConstraintKind
from neorl_safety.constraints._protocol import Interval as Interval
from neorl_safety.constraints._protocol import Rank as Rank
from neorl_safety.constraints._protocol import Record as Record
from neorl_safety.constraints._protocol import Rows as Rows
from neorl_safety.constraints._protocol import Situation as Situation
from neorl_safety.constraints._requirement import excess as excess
from neorl_safety.constraints._requirement import penalty as penalty
from neorl_safety.constraints._requirement import requirement as requirement
from neorl_safety.constraints._requirement import with_requirements as with_requirements
from neorl_safety.constraints._wear import Deadband as Deadband
from neorl_safety.constraints._wear import Rest as Rest

__all__ = [
    "KINDS",
    "ActionConstraints",
    "AnyConstraints",
    "Barrier",
    "Box",
    "ChannelLimits",
    "ChannelRange",
    "Channels",
    "ConstraintKind",
    "Constraints",
    "Deadband",
    "IdentifiedModel",
    "Interlock",
    "Interval",
    "Linear",
    "Rank",
    "Rate",
    "Record",
    "Requirement",
    "Rest",
    "Rows",
    "Situation",
    "Tier",
    "action_constraints",
    "barrier_records",
    "channel_limits",
    "channels_of",
    "constraints_from_dict",
    "constraints_from_toml",
    "constraints_to_dict",
    "declared_constraints",
    "describe_constraints",
    "excess",
    "identified_model",
    "penalty",
    "register_kind",
    "require_feasible",
    "requirement",
    "spec_channels",
    "with_models",
    "with_requirements",
]
