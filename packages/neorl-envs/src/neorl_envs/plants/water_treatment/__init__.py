r"""Drinking water from a river: coagulation, flocculation, settling, filtration, clearwell.

*pH.* The state of the mixer (30 m3) is given by two reaction invariants, strong acid minus strong
base $W_a$ in meq/L, and total carbonate $W_b$ in mmol/L:

$$V \dot W_a = Q\,(6 D / 594 - C - \mathrm{alk} - W_a), \qquad V \dot W_b = Q\,(W_{b,raw} - W_b)$$

$$W_a + 10^3 (10^{pH-14} - 10^{-pH}) + W_b \frac{1 + 2 \cdot 10^{pH - pK_2}}
{1 + 10^{pK_1 - pH} + 10^{pH - pK_2}} = 0$$

with alum $D$ in mg/L, caustic $C$ in meq/L, $pK_1 = 6.35$ and $pK_2 = 10.25$. The second equation
is solved for the pH by twelve Newton steps.

*Flocculation* takes place in three tanks of 300 m3, with unflocculated turbidity $n_i$ and
flocculated turbidity $f_i$:
$\dot n_i = (n_{i-1} - n_i) Q / V - a K_A G n_i + K_B G^2 f_i$, and the same with opposite signs of
the reaction terms for $f_i$. Alum adds 0.08 NTU L/mg of floc. The collision efficiency is
$a = D^2 / (D^2 + (6 + 0.3\,T_{raw})^2) \cdot \exp(-((pH - 7) / 1.1)^2)$.

*Settler* of 1500 m3 and 500 m2: it retains the fraction $1 - \exp(-v_s A / Q)$ of the floc, with
$v_s = 1.2 \cdot 10^{-3} (40 / G)^{0.3} (1 + 0.02 (\vartheta - 12))$ m/s. *Filter* (Iwasaki):
$T = n e^{-0.6 \lambda L} + f e^{-1.2 \lambda L}$ with
$\lambda = 3\,(1 + 1.2 s - 0.55 s^2) \sqrt{0.5 / Q}$, where the bracket is at least 0.2. The deposit
$s$ is 0.1 after a backwash and grows with the retained turbidity,
$\dot s = (Q / 217)\,(n + f - T) \cdot 1.65 \cdot 10^{-3}$. The head loss is
$0.35\,(Q / 0.5)(1 + 1.9 s)$ m. A backwash starts at a head loss of 1.6 m, or at 0.5 NTU if the last
one was at least six hours ago. It takes 15 minutes without production and 1,300 m3 of water from
the clearwell (6 m3/m2, 36 m/h for ten minutes), and waits while the level of the clearwell is below
1.3 m. *Clearwell* of 3000 m2 and 4 m; excess water flows over a weir and is lost.

*Left out or simplified*: alum acts immediately in all three tanks, although water takes 11 minutes
to pass each; acid passes flocculators and settler as through one stirred tank of 2,400 m3; the
settler is a stirred tank; break-up acts on the current floc, not on the initial number of particles
as in Argaman and Kaufman; one filter represents several in parallel.

*Over-dosing.* Alum produces floc of its own, so the settled turbidity has its minimum at about 14
mg/L with 8 NTU of raw water (24 mg/L with 20 NTU) and rises with higher doses; the filtered
turbidity falls up to three times that dose. A loop on the settled turbidity would become positive
feedback there, so there is none.

The equations are integrated by the classical Runge-Kutta method with 8 substeps per period of 5
minutes. Raw turbidity (8 NTU, log-normal), alkalinity (1 meq/L), pH (7.5), temperature (12 degC)
and demand (0.46 m3/s, plus or minus 20 % with the time of day) fluctuate. Storms occur every 30 h
on average and build up within 45 minutes. They bring 30 to 90 NTU, which decay over 4 h, and reduce
the alkalinity by up to 60 % and the pH by up to 0.2.

| parameter | value | source |
|---|---|---|
| $pK_1$, $pK_2$, reaction invariants | 6.35, 10.25 | Henson and Seborg 1994 |
| alum | 594 g/mol, six equivalents | stoichiometry |
| $K_A$ (randomised), $K_B$ | 6.75e-5, 3e-8 s | Argaman and Kaufman 1970, times 1.5 and 0.3 |
| filter (randomised, 0.3 of the given spread) | $\lambda$ as above | Iwasaki 1937; sizes own |
| settling, demand (half the spread), raw turbidity, alkalinity (full) | as above | own choice |
| volumes, areas, storms, prices | as above | own choice |

| measured | unit, range, noise |
|---|---|
| `turbidity_raw` | NTU, 0 to 300, 3 % |
| `pH_raw` | 5 to 10, 0.03 |
| `alkalinity_raw` | meq/L, 0 to 3, 2 % |
| `temperature_raw` | degC, 0 to 30, 0.1 K |
| `demand` | m3/s, 0 to 1, 1 % |
| `pH_mixed`, ten minutes old; `pH_clear` | 2 to 13, 0.03 and 0.02 |
| `turbidity_settled` | NTU, 0 to 200, 3 % |
| `turbidity_filtered`, 0 in backwash | NTU, 0 to 10, 0.005 NTU |
| `head_loss` | m, 0 to 5, 0.01 m |
| `run_time` since the last backwash | h, 0 to 100 |
| actual `alum`, `caustic`, `gradient` | mg/L, meq/L, 1/s; 1 % of the doses |
| `level` of the clearwell | m, 0 to 4, 0.01 m |

| manipulated | unit, range, largest change in a period |
|---|---|
| `alum_dose` | mg/L, 0 to 80, 5; lag 60 s |
| `caustic_dose` | meq/L, 0 to 2, 0.05; lag 60 s |
| `mixing` (velocity gradient $G$) | 1/s, 10 to 80, 10 |
| `flow` | m3/s, 0.3 to 0.7, 0.05 |

*Dead time.* `pH_mixed` comes from a sample line and is 10 minutes old, which is our own choice. The
other analysers are at the basins that they measure: turbidimeters and the probe of the clearwell
respond within one minute of the 5-minute period. The slow transport from mixer to filter is in the
equations.

*Reward*: minus the cost of the treatment, in k$. The cost consists of alum (0.25 $/kg), caustic
(0.5 $/kg), mixing power, 200 $ per backwash, a rebate to customers of 0.4 $ per m3 and NTU of
filtered turbidity above 0.1 NTU, 0.5 $ per m3 of spilled water, and 50 k$ for a trip, which is a
clearwell below 0.3 m. Water sales are not included: the town takes what it needs whatever the
controller does, and those 40 k$ would hide the effect of the controller. *Costs*: `pH`, hours times
pH units of the clearwell outside 6.5 to 8.5 (secondary standard of the EPA), limit 1 in an episode
of two days; `turbidity`, NTU h of the filtered water above 0.3 NTU, limit 8 in an episode. A plant
of this size (40,000 m3/d, about 100,000 people) falls under 40 CFR 141.173, which requires at most
0.3 NTU in 95 % of a month's samples and never more than 1 NTU. The budget of NTU h above 0.3 NTU
represents this percentile.

*Controllers.* "PI" doses alum by the filtered turbidity and caustic by the mixed pH. "PI
feed-forward", the reference, doses by the raw water (alum by its turbidity, caustic by the
carbonate equilibrium), reduces the flow through the works during a storm as long as the clearwell
lasts, and adds a feedback trim. Its ten parameters come from a cross-entropy search; those of the
flow were then chosen for storms in close succession. The documented bad policy doses too much
caustic and far too little alum.

*Published*: pH and its constants, alum, the structure of flocculation and filter, both limits. *Own
choice*: sizes, settling, storms and prices. *Tuned* so that both constraints can be both satisfied
and violated: the alum demand of turbid water, storms, the two coefficients of the filter
(unflocculated turbidity passes), its backwash at 1.6 m, the size of the clearwell (30 % of a day),
alkalinity and budgets.
"""

from neorl_envs.plants.water_treatment._env import bad_policy as bad_policy
from neorl_envs.plants.water_treatment._env import feedback_pi as feedback_pi
from neorl_envs.plants.water_treatment._env import feedforward_pi as feedforward_pi
from neorl_envs.plants.water_treatment._physics import Constants as Constants
from neorl_envs.plants.water_treatment._physics import Dosing as Dosing
from neorl_envs.plants.water_treatment._physics import Raw as Raw
from neorl_envs.plants.water_treatment._physics import Works as Works
from neorl_envs.plants.water_treatment._physics import World as World
from neorl_envs.plants.water_treatment._physics import carbonate_of_water as carbonate_of_water
from neorl_envs.plants.water_treatment._physics import charged_share as charged_share
from neorl_envs.plants.water_treatment._physics import ph_of_water as ph_of_water

__all__ = [
    "Constants",
    "Dosing",
    "Raw",
    "Works",
    "World",
    "bad_policy",
    "carbonate_of_water",
    "charged_share",
    "feedback_pi",
    "feedforward_pi",
    "ph_of_water",
]
