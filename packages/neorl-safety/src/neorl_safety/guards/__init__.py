"""A policy with its filter, and the rules for which controller takes over."""

from neorl_safety.guards._chain import ChainCarry as ChainCarry
from neorl_safety.guards._chain import FallbackChain as FallbackChain
from neorl_safety.guards._chain import fallback_chain as fallback_chain
from neorl_safety.guards._guard import GuardCarry as GuardCarry
from neorl_safety.guards._guard import GuardedPolicy as GuardedPolicy
from neorl_safety.guards._guard import decayed_offset as decayed_offset
from neorl_safety.guards._guard import guard as guard
from neorl_safety.guards._settings import GuardSettings as GuardSettings
from neorl_safety.guards._settings import default_settings as default_settings
from neorl_safety.guards._settings import describe_settings as describe_settings
from neorl_safety.guards._settings import guard_with as guard_with
from neorl_safety.guards._settings import settings_from_dict as settings_from_dict
from neorl_safety.guards._settings import settings_to_dict as settings_to_dict
from neorl_safety.guards._settings import usable_ages as usable_ages
from neorl_safety.guards._supervisor import Supervision as Supervision
from neorl_safety.guards._supervisor import SupervisorCarry as SupervisorCarry
from neorl_safety.guards._supervisor import initial_supervisor as initial_supervisor
from neorl_safety.guards._supervisor import release as release
from neorl_safety.guards._supervisor import stop as stop
from neorl_safety.guards._supervisor import supervise as supervise
from neorl_safety.guards._supervisor import supervision as supervision

__all__ = [
    "ChainCarry",
    "FallbackChain",
    "GuardCarry",
    "GuardSettings",
    "GuardedPolicy",
    "Supervision",
    "SupervisorCarry",
    "decayed_offset",
    "default_settings",
    "describe_settings",
    "fallback_chain",
    "guard",
    "guard_with",
    "initial_supervisor",
    "release",
    "settings_from_dict",
    "settings_to_dict",
    "stop",
    "supervise",
    "supervision",
    "usable_ages",
]
