"""Wrappers of environments: resets, delays, disturbances, limits, shifts.

Each function takes an environment and returns one with the same interface, so wrappers can be
nested; the inner one acts first. A wrapped plant is still a plant: its controllers see the same
observations and take the same actions as before.
"""

from neorl_envs.wrappers._base import AutoReset as AutoReset
from neorl_envs.wrappers._base import AutoResetState as AutoResetState
from neorl_envs.wrappers._base import Wrapper as Wrapper
from neorl_envs.wrappers._base import autoreset as autoreset
from neorl_envs.wrappers._base import fresh_carry as fresh_carry
from neorl_envs.wrappers._changed_plant import ChannelLimit as ChannelLimit
from neorl_envs.wrappers._changed_plant import Constrained as Constrained
from neorl_envs.wrappers._changed_plant import Delayed as Delayed
from neorl_envs.wrappers._changed_plant import Disturbed as Disturbed
from neorl_envs.wrappers._changed_plant import Randomised as Randomised
from neorl_envs.wrappers._changed_plant import RandomisedState as RandomisedState
from neorl_envs.wrappers._changed_plant import Shifted as Shifted
from neorl_envs.wrappers._changed_plant import constrained as constrained
from neorl_envs.wrappers._changed_plant import delayed as delayed
from neorl_envs.wrappers._changed_plant import disturbed as disturbed
from neorl_envs.wrappers._changed_plant import randomised as randomised
from neorl_envs.wrappers._changed_plant import shifted as shifted

__all__ = [
    "AutoReset",
    "AutoResetState",
    "ChannelLimit",
    "Constrained",
    "Delayed",
    "Disturbed",
    "Randomised",
    "RandomisedState",
    "Shifted",
    "Wrapper",
    "autoreset",
    "constrained",
    "delayed",
    "disturbed",
    "fresh_carry",
    "randomised",
    "shifted",
]
