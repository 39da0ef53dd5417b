"""A policy behind its filter, and who takes over."""

from neorl_safety.guards._guard import GuardCarry as GuardCarry
from neorl_safety.guards._guard import GuardedPolicy as GuardedPolicy
from neorl_safety.guards._guard import guard as guard

__all__ = [
    "GuardCarry",
    "GuardedPolicy",
    "guard",
]
