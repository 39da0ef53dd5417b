"""What must hold, as data."""

from neorl_safety.constraints._action_limits import ActionConstraints as ActionConstraints
from neorl_safety.constraints._action_limits import action_constraints as action_constraints
from neorl_safety.constraints._json import constraints_from_dict as constraints_from_dict
from neorl_safety.constraints._json import constraints_to_dict as constraints_to_dict

__all__ = [
    "ActionConstraints",
    "action_constraints",
    "constraints_from_dict",
    "constraints_to_dict",
]
