"""Populations of independent agents with discrete actions, each with its own learner."""

from neorl_agents.populations._iqn import IQN as IQN
from neorl_agents.populations._iqn import Agent as Agent
from neorl_agents.populations._iqn import UpdateDraws as UpdateDraws
from neorl_agents.populations._iqn import quantile_loss as quantile_loss
from neorl_agents.populations._iqn import quantile_targets as quantile_targets
from neorl_agents.populations._memory import Episode as Episode
from neorl_agents.populations._memory import Memory as Memory
from neorl_agents.populations._memory import Shape as Shape
from neorl_agents.populations._memory import Windows as Windows
from neorl_agents.populations._memory import draw_windows as draw_windows
from neorl_agents.populations._memory import empty_memory as empty_memory
from neorl_agents.populations._memory import episode_windows as episode_windows
from neorl_agents.populations._memory import first_frames as first_frames
from neorl_agents.populations._memory import remember as remember
from neorl_agents.populations._memory import ring_windows as ring_windows
from neorl_agents.populations._memory import windows_known as windows_known
from neorl_agents.populations._population import OverAgents as OverAgents
from neorl_agents.populations._population import act as act
from neorl_agents.populations._population import begin_episode as begin_episode
from neorl_agents.populations._population import end_episode as end_episode
from neorl_agents.populations._population import init_population as init_population
from neorl_agents.populations._sorrel import SorrelMemory as SorrelMemory
from neorl_agents.populations._sorrel import SorrelModel as SorrelModel

__all__ = [
    "IQN",
    "Agent",
    "Episode",
    "Memory",
    "OverAgents",
    "Shape",
    "SorrelMemory",
    "SorrelModel",
    "UpdateDraws",
    "Windows",
    "act",
    "begin_episode",
    "draw_windows",
    "empty_memory",
    "end_episode",
    "episode_windows",
    "first_frames",
    "init_population",
    "quantile_loss",
    "quantile_targets",
    "remember",
    "ring_windows",
    "windows_known",
]
