"""What must hold, as data: every kind with its document, its words and its meaning."""

from neorl_safety.constraints._action_limits import ActionConstraints as ActionConstraints
from neorl_safety.constraints._action_limits import action_constraints as action_constraints
from neorl_safety.constraints._by_channel import Box as Box
from neorl_safety.constraints._by_channel import Rate as Rate
from neorl_safety.constraints._constraints import AnyConstraints as AnyConstraints
from neorl_safety.constraints._constraints import Constraints as Constraints
from neorl_safety.constraints._constraints import describe_constraints as describe_constraints
from neorl_safety.constraints._json import constraints_from_dict as constraints_from_dict
from neorl_safety.constraints._json import constraints_to_dict as constraints_to_dict
from neorl_safety.constraints._kinds import KINDS as KINDS
from neorl_safety.constraints._kinds import register_kind as register_kind
from neorl_safety.constraints._protocol import ActionChannel as ActionChannel
from neorl_safety.constraints._protocol import ConstraintKind as ConstraintKind
from neorl_safety.constraints._protocol import Interval as Interval
from neorl_safety.constraints._protocol import Record as Record
from neorl_safety.constraints._protocol import Situation as Situation

__all__ = [
    "KINDS",
    "ActionChannel",
    "ActionConstraints",
    "AnyConstraints",
    "Box",
    "ConstraintKind",
    "Constraints",
    "Interval",
    "Rate",
    "Record",
    "Situation",
    "action_constraints",
    "constraints_from_dict",
    "constraints_to_dict",
    "describe_constraints",
    "register_kind",
]
