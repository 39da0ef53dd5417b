r"""A radiant annealing furnace of a strip line: six zones, sixty cells of strip, coil after coil.

Strip of thickness $d$ and width $w$ runs at speed $v$ through 120 m of furnace and is heated by
radiation from both sides. $T$ is the temperature along the strip (60 cells of 2 m, upwind
differences), and $T_f$ that of the six zones:

$$\rho\, c(T)\, d \left(\frac{\partial T}{\partial t} + v \frac{\partial T}{\partial x}\right) =
2 \varepsilon \sigma (T_f^4 - T^4)$$

$$C \dot T_{f,k} = \eta(T_{f,k})\, Q\, (1 + f)\, u_k
- \int_k 2 \varepsilon \sigma w (T_f^4 - T^4) dx
- UA (T_{f,k} - T_a) + k_z (T_{f,k-1} - 2 T_{f,k} + T_{f,k+1})$$

with $\eta = 0.7\,(1 - 2 \cdot 10^{-4} (T_f - 900))$ and $c(T)$ of EN 1993-1-2, 3.4.1.2, whose peak
is limited to 1500 J/(kg K). The equations are integrated by the classical Runge-Kutta method with
25 substeps of 0.8 s per period of 20 s. The line runs at
$v = \mathrm{clip}(\dot m / (\rho d w), 1.2, 2.8)$ m/s with a lag of 10 s; while a weld is inside,
it runs at the speed of the slower of the two coils. The weld is modelled as a position: thickness,
width and setpoint move with the strip and are never smeared.

Coils are 800 to 1500 m long. From coil to coil, thickness (0.5 to 1.4 mm) and width (0.9 to 1.5 m)
follow random walks, and the setpoint of the exit temperature changes to a neighbour among 720, 750
and 780 degC with probability 0.3. The zones take minutes to change temperature but the strip only
one, so a change of setpoint must begin before its weld arrives.

| parameter | value | source |
|---|---|---|
| density of steel $\rho$ | 7850 kg/m3 | EN 1993-1-2 |
| emissivity $\varepsilon$ (randomised, half the given spread) | 0.30 | own choice |
| capacity of a zone $C$ | 5 MJ/K | own choice |
| burner of a zone $Q$ | 3.25 MW | own choice |
| losses $UA$ of walls, rolls and openings (randomised) | 700 W/K | own choice |
| exchange of neighbours $k_z$ | 1500 W/K | own choice |
| mass flow $\dot m$ | 15.5 kg/s (55.8 t/h) | own choice; radiant lines of order 100 m |
| ambient and mean inlet $T_a$ | 30 degC | own choice |
| walk of thickness, width | s.d. 0.12 mm, 0.03 m per coil | own choice |
| heating value $f$, inlet temperature | s.d. 1.5 % over 30 min, 5 K over 15 min | own choice |

| measured | unit, range, noise |
|---|---|
| `T_zone_1` to `_6` | degC, 0 to 1200, 1 K |
| `T_strip_1` to `_6`, at the zones' ends; the last is the exit | degC, 0 to 1000, 1.5 K |
| `T_set` at the exit | degC, 700 to 800 |
| `thickness`, `width` of the coil at the exit | mm, 0.4 to 1.5, 0.003 mm; m, 0.8 to 1.6 |
| `speed` | m/s, 0 to 3, 0.2 % |
| `next_thickness`, `next_T_set` of the coil after it | as above |
| `weld_distance` of the weld between them from the exit | m, 0 to 1700 |
| `fuel_power` | MW, 0 to 30, 0.5 % |

Manipulated: `fuel_1` to `fuel_6`, 0 to 1, at most 0.1 per period, lag 15 s.

*Dead time.* Not declared for any channel. The transport of the strip from a zone to its pyrometer
is in the equations. Pyrometers and thermocouples respond within 1 s of a 20 s period. Thickness and
width are known data of the coils, not readings of a gauge far downstream, and fuel is metered at
the burners.

*Reward*, in tonnes: strip within 10 K of its setpoint counts fully, and the value falls linearly
to zero at 30 K; minus 0.1 t per MWh of fuel, and minus 100 t for a trip (a zone above 1100 degC, or
the exit above 900 degC). *Cost* `temperature_profile`: kelvin minutes of the exit beyond 10 K or of
a zone above 1040 degC, whichever is larger; limit 1800 K min in an episode of 4 h.

*Controllers.* "zone PI with exit trim" holds the zones at the temperatures that nominal strip needs
for the setpoint, shifted by 1.2 times the error of the exit; it uses neither thickness nor the
next coil. "PI feed-forward", the reference, uses a static inverse of the furnace to bring the zones
to the temperatures that the current strip needs. It changes over to the next coil during the last
240 s, and trims all burners by a PI loop on the exit. The documented bad policy is 60 % fuel
everywhere, with which the strip stays cold.

*Errors.* Error of the 0.8 s steps, compared with SciPy on the same 60 cells under random fuel:
below 0.6 K in the cell that a weld crosses, and below 0.05 K at the exit. Error of the 60 cells: in
the steady state with nominal strip, the exit is 2.9 K colder than with 960 cells (738.4 instead of
741.3 degC). The cells are part of the definition of the plant, so a finer grid would be a different
plant. In the steady state with 80 % fuel, the burners consume 15.6 MW, 3.6 MW are lost through
walls, rolls and openings, and 7.3 MW go into 55.8 t/h of strip. This is 1.0 GJ/t of fuel, at the
lower end of the range reported for such lines (1.0 to 1.3).

*Published*: the structure (Yoshitani and Hasegawa 1998; McGuinness and Taylor 2004; Zareba et al.
2016) and the heat capacity. *Own choice*: all sizes of the furnace. *Tuned* so that the constraint
can be both satisfied and violated: the walk of the width (0.03 m; the next width is not measured),
the probability of a new setpoint, the limit of the zones (1040 degC instead of 1000), the budget.
*Left out*: a limit of the heating rate, which thin strip exceeds in any furnace of this length.
"""

from neorl_envs.plants.steel_annealing._env import bad_policy as bad_policy
from neorl_envs.plants.steel_annealing._env import feedforward_pi as feedforward_pi
from neorl_envs.plants.steel_annealing._env import zone_pi as zone_pi
from neorl_envs.plants.steel_annealing._physics import Coil as Coil
from neorl_envs.plants.steel_annealing._physics import Constants as Constants
from neorl_envs.plants.steel_annealing._physics import Disturbance as Disturbance
from neorl_envs.plants.steel_annealing._physics import Furnace as Furnace

__all__ = [
    "Coil",
    "Constants",
    "Disturbance",
    "Furnace",
    "bad_policy",
    "feedforward_pi",
    "zone_pi",
]
