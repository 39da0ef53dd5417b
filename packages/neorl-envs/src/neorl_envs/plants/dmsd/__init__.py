r"""DMSD of NeoRL-2, reproduced exactly: two masses between three springs and dampers.

The masses are to be moved to targets.

With positions ``p``, velocities ``v``, forces ``F`` and a period of 0.2 s,

``p' = p + dt v``,
``v1' = v1 + dt (-(k1 + k2) p1 + k2 p2 - (d1 + d2) v1 + d2 v2 + F1) / m1``, and likewise for the
second mass. Reward: ``sum_i -ln(|p'_i - target_i| + 0.01)``. An episode has 100 steps. Each target
is uniform in [-1.5, 1.5] m; with probability one half it changes once, at step 50.

Equations, constants, initial states (within 0.25 m and 0.1 m/s), targets, horizon and the largest
force of 30 N are published; other implementations scale the force to [-1, 1]. There is no noise,
delay or rate limit, and no cost. ``DMSD(shifted=True)`` has the masses of 30 kg of the benchmark's
test mode. The measuring ranges and the controllers are our own choices.

*Dead time.* None, as in the benchmark, which is reproduced step by step.

The normalised score of the benchmark is ``100 (R - 30.60) / (849.51 - 30.60)``.

Source: NeoRL-2 (polixir), ``envs/dmsd.py``; constants as recovered from its published data.
"""

from neorl_envs.plants.dmsd._physics import Constants as Constants
from neorl_envs.plants.dmsd._physics import Masses as Masses
from neorl_envs.plants.dmsd._physics import Targets as Targets

__all__ = ["Constants", "Masses", "Targets"]
