"""A control loop judged from its log: its health, what ails it, and a model of its process."""

from neorl_agents.loops._model import Interval as Interval
from neorl_agents.loops._model import LoopModel as LoopModel
from neorl_agents.loops._record import LoopRecord as LoopRecord

__all__ = ["Interval", "LoopModel", "LoopRecord"]
