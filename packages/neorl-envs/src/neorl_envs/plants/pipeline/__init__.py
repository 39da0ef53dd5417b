"""NeoRL-2's Pipeline: a gate at the head of a pipe with a dead time of 20 steps; step for step.

The action ``a`` changes the flow through the gate, ``flow <- clip(flow + a, 0, 200)``; the outflow
is the flow of 19 steps before. The target starts in {50, 80, 110, 140} and is drawn anew with
probability 0.003 in every step. Reward: ``((200 - |outflow - target|) / 100)^2 - 3``. Observed are
outflow, target, the 25 outflows and the 25 actions before, newest first. An episode has 1,000
steps; it starts with the pipe full of one flow from [80, 120].

Published: all of this, without units or a period (1 s is written here). Nothing is noisy, there is
no cost. Own choice: the three controllers, which are linear in the observation.

*Dead time.* The pipe's 20 steps are the plant itself, part of its state; instruments and gate have
none, as in the benchmark.

The normalised score of the benchmark is ``100 (R + 296) / (751 + 296)``.

Source: NeoRL-2 (polixir), ``envs/pipline.py``.
"""

from neorl_envs.plants.pipeline._env import Constants as Constants
from neorl_envs.plants.pipeline._env import Pipe as Pipe

__all__ = ["Constants", "Pipe"]
