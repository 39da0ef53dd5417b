"""How others step a plant: Gymnasium, gymnax, automatic resets."""

from neorl_envs.interfaces._autoreset import AutoReset as AutoReset
from neorl_envs.interfaces._autoreset import AutoResetState as AutoResetState
from neorl_envs.interfaces._autoreset import autoreset as autoreset
from neorl_envs.interfaces._autoreset import fresh_carry as fresh_carry
from neorl_envs.interfaces._gymnax import gymnax as gymnax

__all__ = [
    "AutoReset",
    "AutoResetState",
    "autoreset",
    "fresh_carry",
    "gymnax",
]
