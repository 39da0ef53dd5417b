r"""A five-zone office over one week: heating and cooling against weather, people and prices.

**Equations.** Every zone has air and mass (floors and walls),

$C_a \dot T_a = U_o (T_o - T_a) + U_g (T_g - T_a) + \sum_j K_j (T_{a,j} - T_a) + H (T_m - T_a) + Q
+ 0.5 Q_{sun} + 0.6 Q_{use}$ and $C_m \dot T_m = H (T_a - T_m) + 0.5 Q_{sun} + 0.4 Q_{use}$,

ten linear equations whose inputs are held over 900 s, so one matrix exponential gives their exact
solution (:func:`neorl_core.linear_systems.zero_order_hold`). It is computed when the parameters
change, not at every step. Electric power is
$\sum |Q| (1 / \mathrm{COP}(T_o) + 0.05)$ with $\mathrm{COP}_{cool} = 3.6 - 0.06 (T_o - 30)$ in
[2, 5] and $\mathrm{COP}_{heat} = 3.2 + 0.06 (T_o - 8)$ in [1.6, 4.5]. The time constants are about
half an hour (air) and 18 to 53 hours (mass).

**Parameters** are in :class:`Constants`, each with unit and source. Areas, windows and U values
(ASHRAE 90.1 small office, as in SustainGym), the capacity of the mass (ISO 13790), the gains of
people and equipment (ASHRAE 90.1) and the price of electricity (BOPTEST) are published. Our own
choices are 0.2 air changes per hour in the outdoor conductance, half the U value towards the
ground, 8 W/(m2 K) between air and mass, the conductances between zones, the furniture factor of
six, the heat pumps, the temperate climate with a random week of the year, the variation of clouds
and occupancy, and the demand limit.

**Measured (18).** Air temperatures of five zones (0 to 60 degC, noise 0.1 K); the heat last
delivered to each (-8 to 8 kW); current outdoor temperature (-40 to 55 degC), radiation (0 to 1400
W/m2), occupancy (0 to 1) and price ($/kWh), which change at random in the coming period;
temperature and radiation expected in one hour; sine and cosine of the hour. The temperatures of the
masses and the day of the week are hidden.

**Manipulated (5).** Heat to every zone, -8 to 8 kW, at most 4 kW per step, lag 300 s.

*Dead time.* Not declared for any channel: each sensor is in the zone that it measures, transport in
ducts and mixing of the air take one to three minutes of a 15-minute period, and the lag of 300 s is
that of the heat pump and its coil.

**Objective.** The reward is minus the electricity bill, minus 0.5 $ for every kelvin hour of
discomfort. Costs: ``energy``, kWh beyond a demand of 12 kW (limit 1 kWh per week); ``comfort``, K h
outside the comfort band, averaged over the zones (limit 5 K h per week). The band is 21 to 24 degC
from 8 to 18 h on five days, otherwise 15 to 30 degC. An episode ends only by truncation, after 672
steps.

**Controllers.** ``PI``: one loop per zone at 22.5 degC day and night. ``preheating and load
compensation`` (the reference): two setpoints with night set-back, a morning ramp, and compensation
of the steady load of weather, sun and people. :func:`bad_policy`, constant full heating, violates
both costs.

**Own weather and prices:** use :meth:`neorl_envs.plants.HVACControl.with_records`. Read hourly
files such as EPW with ``numpy.loadtxt(path, delimiter=",", skiprows=8, usecols=(6, 13))`` and
interpolate them.

Sources: Yeh et al., SustainGym, 2023; Zhang et al., BEAR, 2023; Blum et al., BOPTEST, 2021.
"""

from neorl_envs.plants.hvac_control._env import Schedule as Schedule
from neorl_envs.plants.hvac_control._env import bad_policy as bad_policy
from neorl_envs.plants.hvac_control._physics import Building as Building
from neorl_envs.plants.hvac_control._physics import Conditions as Conditions
from neorl_envs.plants.hvac_control._physics import Constants as Constants
from neorl_envs.plants.hvac_control._physics import Sampled as Sampled
from neorl_envs.plants.hvac_control._physics import World as World

__all__ = ["Building", "Conditions", "Constants", "Sampled", "Schedule", "World", "bad_policy"]
