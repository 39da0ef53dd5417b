r"""Drinking water from a river: coagulation, flocculation, settling, filtration, clearwell.

*pH.* The mixer (30 m3) holds two reaction invariants, strong acid less strong base $W_a$ in meq/L
and total carbonate $W_b$ in mmol/L:

$$V \dot W_a = Q\,(6 D / 594 - C - \mathrm{alk} - W_a), \qquad V \dot W_b = Q\,(W_{b,raw} - W_b)$$

$$W_a + 10^3 (10^{pH-14} - 10^{-pH}) + W_b \frac{1 + 2 \cdot 10^{pH - pK_2}}
{1 + 10^{pK_1 - pH} + 10^{pH - pK_2}} = 0$$

with alum $D$ in mg/L, caustic $C$ in meq/L, $pK_1 = 6.35$, $pK_2 = 10.25$; twelve Newton steps.

*Flocculation* in three tanks of 300 m3, unflocculated $n_i$ and flocculated $f_i$ turbidity:
$\dot n_i = (n_{i-1} - n_i) Q / V - a K_A G n_i + K_B G^2 f_i$, $f_i$ with the opposite signs; alum
adds 0.08 NTU L/mg of floc. The collision efficiency is
$a = D^2 / (D^2 + (6 + 0.3\,T_{raw})^2) \cdot \exp(-((pH - 7) / 1.1)^2)$.

*Settler* of 1500 m3 and 500 m2: $1 - \exp(-v_s A / Q)$ of the floc stays, with
$v_s = 1.2 \cdot 10^{-3} (40 / G)^{0.3} (1 + 0.02 (\vartheta - 12))$ m/s. *Filter* (Iwasaki):
$T = n e^{-0.6 \lambda L} + f e^{-1.2 \lambda L}$ with
$\lambda = 3\,(1 + 1.2 s - 0.55 s^2) \sqrt{0.5 / Q}$; the deposit $s$ grows with what is retained;
head loss $0.35\,(Q / 0.5)(1 + 1.9 s)$ m, and the deposit takes up what stays,
$\dot s = (Q / 217)\,(n + f - T) \cdot 1.65 \cdot 10^{-3}$, from 0.1 after a wash; the bracket of
$\lambda$ is at least 0.2. Backwash at 1.6 m, or at 0.5 NTU six hours after the last one: 15
minutes without production and 1,300 m3 of the clearwell's water (6 m3/m2, 36 m/h for ten minutes);
it waits while the clearwell holds less than 1.3 m. *Clearwell* of 3000 m2, 4 m; what comes beyond
runs over a weir and is lost.

*Left out or simplified*: alum acts at once in all three tanks, though water needs 11 minutes for
each; the acid passes flocculators and settler as one stirred tank of 2,400 m3; the settler is a
stirred tank; break-up acts on the floc that there is, not on the initial number of particles as
Argaman and Kaufman write it; one filter stands for a row of them.

*Over-dosing.* Alum brings its own floc, so the settled turbidity is least at about 14 mg/L with 8
NTU of raw water (24 mg/L with 20 NTU) and rises beyond; the filtered turbidity falls up to three
times that dose. A loop on the settled turbidity turns against itself there, so none is closed.

Classical Runge-Kutta, 8 substeps in a period of 5 minutes. Raw turbidity (8 NTU, log-normal),
alkalinity (1 meq/L), pH (7.5), temperature (12 degC) and demand (0.46 m3/s, 20 % more and less
with the time of day) wander; storms come every 30 h on average, bring 30 to 90 NTU that decay over
4 h, and take up to 60 % of the alkalinity and 0.2 of the pH away; they come within 45 minutes.

| parameter | value | source |
|---|---|---|
| $pK_1$, $pK_2$, reaction invariants | 6.35, 10.25 | Henson and Seborg 1994 |
| alum | 594 g/mol, six equivalents | stoichiometry |
| $K_A$ (randomised), $K_B$ | 6.75e-5, 3e-8 s | Argaman and Kaufman 1970, times 1.5 and 0.3 |
| filter (randomised, 0.3 of the asked width) | $\lambda$ as above | Iwasaki 1937; sizes own |
| settling, demand (half the width), raw turbidity, alkalinity (whole) | as above | own choice |
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
| `alum`, `caustic`, `gradient` as they are | mg/L, meq/L, 1/s; 1 % of the doses |
| `level` of the clearwell | m, 0 to 4, 0.01 m |

| manipulated | unit, range, most in a period |
|---|---|
| `alum_dose` | mg/L, 0 to 80, 5; lag 60 s |
| `caustic_dose` | meq/L, 0 to 2, 0.05; lag 60 s |
| `mixing` (velocity gradient $G$) | 1/s, 10 to 80, 10 |
| `flow` | m3/s, 0.3 to 0.7, 0.05 |

*Dead time.* `pH_mixed` is drawn from a sample line and is 10 minutes old, own choice. The other
analysers stand at the basin that they measure: turbidimeters and the clearwell's probe answer
within a minute of a period of 5 minutes. What takes long, mixer to filter, is in the equations.

*Reward*, in k$ and negative: what the treatment costs. Alum 0.25 and caustic 0.5 $/kg, mixing
power, 200 $ for a backwash, a rebate of 0.4 $ for each m3 and NTU of filtered turbidity beyond 0.1,
0.5 $ for a m3 that is spilled, and 50 k$ for a clearwell below 0.3 m, which is a trip. What the
town pays for its water is not in it: it takes what it needs whoever controls the works, and those
40 k$ would hide what the controller does. *Costs*: `pH`, hours times pH of the clearwell outside
6.5 to 8.5 (secondary standard of the EPA), 1 in an episode of two days; `turbidity`, NTU h of the
filtered water above 0.3 NTU, 8 in an episode. A plant of this size (40,000 m3/d, some 100,000
people) falls under 40 CFR 141.173, which asks for at most 0.3 NTU in 95 % of a month's samples and
never more than 1 NTU; hours above 0.3 NTU with a budget stand for the percentile.

*Controllers.* "PI" doses alum by the filtered turbidity and caustic by the mixed pH. "PI
feed-forward", the reference, doses by the raw water (alum by its turbidity, caustic by the
carbonate equilibrium), sends less water through the works while a storm passes and the clearwell
lasts, and trims by feedback; its ten numbers are of a cross-entropy search, the flow's then chosen
for the storms that come one after the other. The documented bad policy gives too much caustic and
far too little alum.

*Published*: pH and its constants, alum, the structure of flocculation and filter, both limits. *Own
choice*: sizes, settling, storms, prices; and, tuned until both constraints could be kept and
broken: alum demand of turbid water, storms, the filter's two coefficients (what is not flocculated
passes), its washing at 1.6 m, the clearwell's size (30 % of a day), alkalinity, budgets.
"""

from neorl_envs.plants.water_treatment._chemistry import carbonate_of_water as carbonate_of_water
from neorl_envs.plants.water_treatment._chemistry import charged_share as charged_share
from neorl_envs.plants.water_treatment._chemistry import ph_of_water as ph_of_water
from neorl_envs.plants.water_treatment._control import bad_policy as bad_policy
from neorl_envs.plants.water_treatment._control import feedback_pi as feedback_pi
from neorl_envs.plants.water_treatment._control import feedforward_pi as feedforward_pi
from neorl_envs.plants.water_treatment._physics import Constants as Constants
from neorl_envs.plants.water_treatment._physics import Dosing as Dosing
from neorl_envs.plants.water_treatment._physics import Raw as Raw
from neorl_envs.plants.water_treatment._physics import Works as Works
from neorl_envs.plants.water_treatment._world import World as World

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
