r"""The Industrial Benchmark: three steerings, delayed and hidden effects, state-dependent noise.

A setpoint $p$ is the load of the machine. Velocity $v$, gain $g$ and shift $h$ are changed by at
most 1, 10 and 5.75 per step, each within 0 to 100. Gain and velocity have effective actions
$a \in [0, 1]$ and hidden states $\mu$. In every step, random numbers are drawn for each: $E$
exponential, $U$ uniform, $B$ Bernoulli with probability $a$, and $N$ normal:

$$n = \tanh(E / 20) + (1 - \tanh(E / 20))\, U B a, \qquad
\mu' = \begin{cases} a & a \le 0.05 \\ \min(5, 1.1 \mu) & \mu \ge 1.2 \\
0.9 \mu + n / 3 & \text{otherwise} \end{cases}$$

Fatigue depends on velocity and gain, and the operational cost is delayed by five to nine steps:

$$f = \frac{1 + 2 \max n}{3} \max\left(\frac{30000}{5 v + 100} - \frac{g^2}{100}, 0\right), \qquad
\hat c = \sum_{k=5}^{9} w_k\, e^{(2 p + 2.5 g_{-k} + 4 v_{-k}) / 100} + 25\,(1 + M(\phi, h_e))$$

where $\max n$ is replaced by $1 / (1 + e^{-2.4 - 0.4 N})$ if a hidden state has reached 5.
Consumption is $c = \hat c - N\,(1 + 0.005\, \hat c)$. The miscalibration
$M = -\alpha r^2 + \beta r^4 + \kappa r \sin \phi$ runs through a hidden cycle of 24 phases $\phi$,
driven by the effective shift $h_e = h / 20 - p / 50 - 1.5$. The reward is $-(3 f + c)$ per step. An
episode has 1,000 steps and never ends early; there is no cost.

All equations and numbers are published. Our own choices are the setpoint of an episode, constant
and uniform in [10, 100] (55 in the preset ``"clean"``, which still has noise, because the noise is
part of the benchmark), a nominal period of 1 s, the measuring ranges, and the two controllers. One
moves to fixed steerings, the other to steerings that depend on the setpoint.

*Dead time.* The operational cost is delayed by five to nine steps, as part of the equations. The
channels have no dead time, as in the benchmark, which is reproduced exactly for the same random
numbers.

Source: Hein, Depeweg, Tokic, Udluft, Hentschel, Runkler and Sterzing, "A Benchmark Environment
Motivated by Industrial Control Problems", IEEE SSCI 2017 (arXiv 1709.09480); recorded trajectories
of its authors' Python code.
"""

from neorl_envs.plants.industrial_benchmark._physics import Constants as Constants
from neorl_envs.plants.industrial_benchmark._physics import Draws as Draws
from neorl_envs.plants.industrial_benchmark._physics import Machine as Machine

__all__ = ["Constants", "Draws", "Machine"]
