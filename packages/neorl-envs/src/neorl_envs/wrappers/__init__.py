"""Wrappers of environments: resets, delays, disturbances, limits, shifts.

Each function takes an environment and returns one with the same interface, so wrappers can be
nested; the inner one acts first. A wrapped plant is still a plant: its controllers see the same
observations and take the same actions as before.
"""

from neorl_envs.wrappers._autoreset import AutoReset as AutoReset
from neorl_envs.wrappers._autoreset import AutoResetState as AutoResetState
from neorl_envs.wrappers._autoreset import autoreset as autoreset
from neorl_envs.wrappers._autoreset import fresh_carry as fresh_carry
from neorl_envs.wrappers._base import Wrapper as Wrapper
from neorl_envs.wrappers._constrained import ChannelLimit as ChannelLimit
from neorl_envs.wrappers._constrained import Constrained as Constrained
from neorl_envs.wrappers._constrained import constrained as constrained
from neorl_envs.wrappers._delayed import Delayed as Delayed
from neorl_envs.wrappers._delayed import delayed as delayed
from neorl_envs.wrappers._disturbed import Disturbed as Disturbed
from neorl_envs.wrappers._disturbed import disturbed as disturbed
from neorl_envs.wrappers._randomised import Randomised as Randomised
from neorl_envs.wrappers._randomised import RandomisedState as RandomisedState
from neorl_envs.wrappers._randomised import randomised as randomised
from neorl_envs.wrappers._shifted import Shifted as Shifted
from neorl_envs.wrappers._shifted import shifted as shifted

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
