r"""The Industrial Benchmark: three steerings, delayed and hidden effects, noise by state.

A set point $p$ loads the machine. Velocity $v$, gain $g$ and shift $h$ are steered by increments of
at most 1, 10 and 5.75 a step, each within 0 to 100. The pair of gain and velocity has effective
actions $a \in [0, 1]$ and hidden states $\mu$; with draws of exponentials $E$, uniforms $U$, flips
$B$ of probability $a$ and normals $N$, of every step,

$$n = \tanh(E / 20) + (1 - \tanh(E / 20))\, U B a, \qquad
\mu' = \begin{cases} a & a \le 0.05 \\ \min(5, 1.1 \mu) & \mu \ge 1.2 \\
0.9 \mu + n / 3 & \text{otherwise} \end{cases}$$

Fatigue depends on velocity and gain, and the operational cost comes five to nine steps late:

$$f = \frac{1 + 2 \max n}{3} \max\left(\frac{30000}{5 v + 100} - \frac{g^2}{100}, 0\right), \qquad
\hat c = \sum_{k=5}^{9} w_k\, e^{(2 p + 2.5 g_{-k} + 4 v_{-k}) / 100} + 25\,(1 + M(\phi, h_e))$$

with $1 / (1 + e^{-2.4 - 0.4 N})$ for $\max n$ where a hidden state is at 5. Consumption is
$c = \hat c - N\,(1 + 0.005\, \hat c)$. The miscalibration
$M = -\alpha r^2 + \beta r^4 + \kappa r \sin \phi$ runs through a hidden cycle of 24 phases $\phi$,
which the effective shift $h_e = h / 20 - p / 50 - 1.5$ drives. The reward is $-(3 f + c)$ a step,
and an episode has 1,000 steps. Nothing ends it early; there is no cost.

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
