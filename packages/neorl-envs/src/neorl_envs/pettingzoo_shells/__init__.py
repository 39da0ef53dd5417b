"""Multi-agent worlds as PettingZoo environments (AEC and parallel); needs extra ``pettingzoo``."""

from neorl_envs.pettingzoo_shells._shells import SimultaneousShell as SimultaneousShell
from neorl_envs.pettingzoo_shells._shells import StrictShell as StrictShell

__all__ = ["SimultaneousShell", "StrictShell"]
