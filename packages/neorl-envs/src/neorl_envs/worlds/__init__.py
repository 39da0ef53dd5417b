"""Multi-agent worlds: the protocol, sequential and simultaneous turns, and the treasure hunt."""

from neorl_envs.worlds._protocol import World as World
from neorl_envs.worlds._treasure_hunt import HuntDraws as HuntDraws
from neorl_envs.worlds._treasure_hunt import HuntState as HuntState
from neorl_envs.worlds._treasure_hunt import TreasureHunt as TreasureHunt
from neorl_envs.worlds._treasure_hunt import treasure_hunt as treasure_hunt
from neorl_envs.worlds._turns import Turn as Turn
from neorl_envs.worlds._turns import simultaneous_turn as simultaneous_turn
from neorl_envs.worlds._turns import strict_turn as strict_turn

__all__ = [
    "HuntDraws",
    "HuntState",
    "TreasureHunt",
    "Turn",
    "World",
    "simultaneous_turn",
    "strict_turn",
    "treasure_hunt",
]
