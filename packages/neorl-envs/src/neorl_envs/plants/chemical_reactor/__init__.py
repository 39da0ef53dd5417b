r"""A semi-batch polymerisation reactor that is unstable without control.

**Equations.** Water, monomer and polymer ($m_W, m_A, m_P$), the temperatures of reactor, steel
wall, jacket, contents of the external loop and its coolant ($T_R, T_S, T_M, T_{EK}, T_{AWT}$), and
the accumulated feed ($m_{acc}$), with feed $F$, conversion $U = m_P / (m_A + m_P)$ and mass $m$:

$$\dot m_W = w_W F, \qquad \dot m_A = w_A F - r_R - r_L, \qquad \dot m_P = r_R + r_L$$

$$r_R = k(T_R)\,(m_A - m_A M_L / m), \quad r_L = k(T_{EK})\, m_A M_L / m, \quad
k(T) = k_0\, e^{-E / (R T)} \left(k_{U1} (1 - U) + k_{U2} U\right)$$

$$m c_R \dot T_R = F c_F (T_F - T_R) - k_K A (T_R - T_S) - \dot m_L c_R (T_R - T_{EK})
+ \Delta H\, r_R$$

$$m_S c_S \dot T_S = k_K A\,(T_R - 2 T_S + T_M), \qquad
m_M c_W \dot T_M = \dot m_M c_W (T_{in,M} - T_M) + k_K A (T_S - T_M)$$

$$M_L c_R \dot T_{EK} = \dot m_L c_R (T_R - T_{EK}) - \alpha (T_{EK} - T_{AWT}) + \Delta H\, r_L$$

$$m_{AWT} c_W \dot T_{AWT} = \dot m_{AWT} c_W (T_{in,EK} - T_{AWT}) + \alpha (T_{EK} - T_{AWT})$$

where $k_K$ is the mean of the three heat transfer coefficients, weighted by mass. A total loss of
cooling would lead to the temperature $T_{adiab} = T_R + m_A \Delta H / (m c_R)$. The equations are
integrated by the classical Runge-Kutta method with 40 substeps per period.

**Parameters** are in :class:`Constants`, each with unit and source. The balances and their
constants, the initial charge, the band of 2 K about 363.15 K (90 °C), the limit of 382.15 K for the
adiabatic temperature and the target of 20,680 kg are published. Reaction rate and heat are
uncertain. Our own choices are the model of the pressure (inert gas compressed by the rising level,
water by Antoine, monomer over its polymer by Flory and Huggins), instruments, actuators,
disturbances, trips, prices and controllers.

**Disturbances.** The feed temperature (1 K) and both supply temperatures (0.2 K) drift with a time
constant of 30 minutes. A batch starts with up to 2 % more or less water, up to 20 kg more or less
polymer, and up to 2 K warmer or colder.

**Measured (12).** The five temperatures (0.1 K); `m_W`, `m_A_hat` and `m_P` (0.2 %); `m_acc`
(0.02 %); `T_adiab_hat`, computed from the readings and the nominal heat of reaction; pressure `P`
(0.02 bar); the time since the start.

*Dead time.* The amount of polymer comes from an analyser and is one period (50 s) old, which is our
own choice. Thermometers, totaliser and pressure gauge are mounted on the vessel and respond within
seconds. The balances include the transport of heat through wall, jacket and exchanger.

**Manipulated (3).** Feed (0 to 30,000 kg/h, at most 6,000 per period) and the inlet temperatures of
jacket and exchanger (333.15 to 373.15 K, at most 4 K per period, lag 30 s). The batch sequence
stops the feed at 30,000 kg.

**Objective.** A batch is worth 100 points of polymer; each period costs 0.1 points and a trip 100.
Costs: ``temperature``, K min of the reactor outside its band or of the adiabatic temperature above
its limit, at most 20 per episode; ``pressure``, bar above 3.5, not allowed in any step. The plant
trips above 5 bar or 403.15 K; the batch succeeds with 20,680 kg of polymer.

**Controllers.** Three PID loops and an interlock that limits the feed of a cold reactor. The name
of a controller gives its setpoint of the adiabatic temperature in °C and its feed gain in kg/h per
K: the reference, ``PID 106/1500``, holds 379.15 K. Faster ones finish sooner but break the limit in
half of the batches. A search over all parameters of the same loops reaches a score of 84.4 instead
of 83.1 with a reactor one kelvin colder (setpoints 362.05 and 362.75 K) and a colder jacket. It is
not used as the reference, because the recipe requires 363.15 K and the temperature determines the
polymer. :func:`bad_policy`, full feed with both inlets at 373.15 K, violates both costs.

Source: Lucia, Andersson, Brandt, Diehl and Engell, J. Process Control 24 (2014) 1247, as in
do-mpc's ``industrial_poly``.
"""

from neorl_envs.plants.chemical_reactor._env import bad_policy as bad_policy
from neorl_envs.plants.chemical_reactor._physics import Balances as Balances
from neorl_envs.plants.chemical_reactor._physics import Constants as Constants
from neorl_envs.plants.chemical_reactor._physics import Supply as Supply

__all__ = ["Balances", "Constants", "Supply", "bad_policy"]
