"""The Industrial Benchmark: three steerings, delayed and hidden effects, noise by state.

A set point ``p`` loads the machine. Velocity ``v``, gain ``g`` and shift ``h`` are steered by
increments of at most 1, 10 and 5.75 a step, each within 0 to 100. Fatigue ``f`` depends on ``v``
and ``g``, at random, and amplifies itself once it is high; consumption ``c`` is the operational
cost ``exp((2 p + 2.5 g + 4 v) / 100)`` of five to nine steps before, plus a miscalibration that
runs through a hidden cycle of 24 phases, driven by the shift, plus noise. The reward is
``-(3 f + c)`` a step, and an episode has 1,000 steps. Nothing ends it early; there is no cost.

Published: all equations and numbers. Own choices: the set point of an episode, constant and uniform
in [10, 100] (55 in the preset ``"clean"``, which is noisy all the same: here noise is the plant), a
period written as 1 s, the measuring ranges, and the two controllers, which go to fixed steerings
and to steerings that depend on the set point.

*Dead time.* Of the operational cost five to nine steps, in the equations; the benchmark's channels
have none, and it is restated draw for draw.

Source: Hein, Depeweg, Tokic, Udluft, Hentschel, Runkler and Sterzing, "A Benchmark Environment
Motivated by Industrial Control Problems", IEEE SSCI 2017 (arXiv 1709.09480); recorded trajectories
of its authors' Python code.
"""

from neorl_envs.plants.industrial_benchmark._physics import Constants as Constants
from neorl_envs.plants.industrial_benchmark._physics import Draws as Draws
from neorl_envs.plants.industrial_benchmark._physics import Machine as Machine

__all__ = ["Constants", "Draws", "Machine"]
