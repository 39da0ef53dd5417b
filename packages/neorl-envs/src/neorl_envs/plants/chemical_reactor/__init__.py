r"""A semi-batch polymerisation reactor that is unstable without control.

**Equations.** Water, monomer and polymer ($m_W, m_A, m_P$), the temperatures of reactor, steel
wall, jacket, contents of the external loop and its coolant ($T_R, T_S, T_M, T_{EK}, T_{AWT}$), and
what was fed ($m_{acc}$), with feed $F$, conversion $U = m_P / (m_A + m_P)$ and mass $m$:

$$\dot m_W = w_W F, \qquad \dot m_A = w_A F - r_R - r_L, \qquad \dot m_P = r_R + r_L$$

$$r_R = k(T_R)\,(m_A - m_A M_L / m), \quad r_L = k(T_{EK})\, m_A M_L / m, \quad
k(T) = k_0\, e^{-E / (R T)} \left(k_{U1} (1 - U) + k_{U2} U\right)$$

$$m c_R \dot T_R = F c_F (T_F - T_R) - k_K A (T_R - T_S) - \dot m_L c_R (T_R - T_{EK})
+ \Delta H\, r_R$$

$$m_S c_S \dot T_S = k_K A\,(T_R - 2 T_S + T_M), \qquad
m_M c_W \dot T_M = \dot m_M c_W (T_{in,M} - T_M) + k_K A (T_S - T_M)$$

$$M_L c_R \dot T_{EK} = \dot m_L c_R (T_R - T_{EK}) - \alpha (T_{EK} - T_{AWT}) + \Delta H\, r_L$$

$$m_{AWT} c_W \dot T_{AWT} = \dot m_{AWT} c_W (T_{in,EK} - T_{AWT}) + \alpha (T_{EK} - T_{AWT})$$

where $k_K$ is the mean of the three heat transfers, weighted by mass. What a total loss of
cooling would lead to is $T_{adiab} = T_R + m_A \Delta H / (m c_R)$. Classical Runge-Kutta, 40
substeps in a period.

**Parameters** are in :class:`Constants`, each with unit and source. Published are the balances and
their constants, the initial charge, the band of 2 K about 363.15 K (90 °C), the limit of 382.15 K
for the adiabatic temperature and the amount of 20,680 kg. Reaction rate and heat are uncertain. Our
own choices are the pressure (a rising level compresses inert gas, water by Antoine, monomer over
its polymer by Flory and Huggins), instruments, actuators and disturbances, the trips, the prices,
and the controllers.

**Disturbances.** The feed's temperature (1 K) and both supplies (0.2 K) drift with a memory of 30
minutes; a batch starts with 2 % more or less water, up to 20 kg more or less reacted and up to 2 K
warmer or colder.

**Measured (12).** The five temperatures (0.1 K); `m_W`, `m_A_hat` and `m_P` (0.2 %); `m_acc`
(0.02 %); `T_adiab_hat`, computed from the readings and the nominal heat of reaction; pressure `P`
(0.02 bar); the time since the start.

*Dead time.* The polymer's amount comes from an analyser and is one period (50 s) old, own choice.
Thermometers, totaliser and pressure sit at the vessel and answer within seconds; the way of heat
through wall, jacket and exchanger is in the balances.

**Manipulated (3).** Feed (0 to 30,000 kg/h, 6,000 a period) and the inlet temperatures of jacket
and exchanger (333.15 to 373.15 K, 4 K a period, a lag of 30 s). The batch sequence ends the dosing
with 30,000 kg.

**Judged by.** A batch is worth 100 points of polymer; a period costs 0.1, a trip 100. Costs:
``temperature``, K min of the reactor outside its band or of the adiabatic temperature above its
limit, 20 an episode; ``pressure``, bar above 3.5, none in any step. Above 5 bar or 403.15 K the
plant trips; with 20,680 kg of polymer the batch has succeeded.

**Controllers.** Three PID loops and an interlock that caps the feed of a cold reactor. Their names
give the set point of the adiabatic temperature in °C and the gain of the feed in kg/h per K: the
reference, ``PID 106/1500``, holds 379.15 K. Faster ones finish sooner and break the limit in half
of the batches. A search over all numbers of the same loops reaches a score of 84.4 in place of 83.1
with a reactor one kelvin colder (set points 362.05 and 362.75 K) and a colder jacket; it is not the
reference, since the recipe asks for 363.15 K and the temperature determines the polymer.
:func:`bad_policy`, full feed with both inlets at 373.15 K, breaks both costs.

Source: Lucia, Andersson, Brandt, Diehl and Engell, J. Process Control 24 (2014) 1247, as in
do-mpc's ``industrial_poly``.
"""

from neorl_envs.plants.chemical_reactor._control import bad_policy as bad_policy
from neorl_envs.plants.chemical_reactor._physics import Balances as Balances
from neorl_envs.plants.chemical_reactor._physics import Constants as Constants
from neorl_envs.plants.chemical_reactor._physics import Supply as Supply

__all__ = ["Balances", "Constants", "Supply", "bad_policy"]
