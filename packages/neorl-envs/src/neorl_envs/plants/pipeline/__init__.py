"""Pipeline of NeoRL-2, reproduced exactly: a gate at the head of a pipe with 20 steps of dead time.

The action ``a`` changes the flow through the gate, ``flow <- clip(flow + a, 0, 200)``; the outflow
is the flow 19 steps ago. The target starts in {50, 80, 110, 140} and is sampled again with
probability 0.003 in every step. Reward: ``((200 - |outflow - target|) / 100)^2 - 3``. The
observation consists of the outflow, the target, the 25 previous outflows and the 25 previous
actions, newest first. An episode has 1,000 steps and starts with the same flow, from [80, 120],
throughout the pipe.

All of this is published, without units or a period (we use a nominal period of 1 s). There is no
noise and no cost. The three controllers, which are linear in the observation, are our own choice.

*Dead time.* The 20 steps of the pipe are the plant itself and part of its state. Instruments and
gate have no dead time, as in the benchmark.

The normalised score of the benchmark is ``100 (R + 296) / (751 + 296)``.

Source: NeoRL-2 (polixir), ``envs/pipline.py``.
"""

from neorl_envs.plants.pipeline._env import Constants as Constants
from neorl_envs.plants.pipeline._env import Pipe as Pipe

__all__ = ["Constants", "Pipe"]
