r"""Four machines in two areas and a weak tie: frequency and voltage under load steps and outages.

**Equations.** Kundur's two-area system: eleven buses at 230 kV, two double-circuit tie lines of
110 km, loads at buses 7 and 9. Each machine has six states (angle, speed, transient voltages and
subtransient fluxes of both axes, Sauer and Pai), a voltage regulator (sensor of 10 ms, gain 200,
field -6.4 to 7), a stabiliser (gain 20, washout 10 s, two lead-lag stages, output limit 0.2) and a
steam governor (TGOV1, droop 5 %): 48 states in total. With equal subtransient reactances, the
stator is a voltage source behind a constant impedance. Loads are constant admittances, so the
network is one constant complex matrix; when loads change, Woodbury's identity corrects two of its
rows. The equations are integrated by the classical Runge-Kutta method with 50 steps of 20 ms.
Speeds are stored as deviations, and angles relative to machine 1, so that float32 is accurate.

**Parameters** are in :class:`Constants`, each with unit and source. Network, loads, machines and
schedule are published; field and stabiliser limits, prices and disturbances are our own choice. The
power flow of the schedule and the matrices of the network are computed when the parameters change.

**Disturbances.** Both loads fluctuate (1 %, time constant one minute). In each half of an episode,
a load steps up or down by 50 to 200 MW. In a fifth of the episodes, a tie circuit trips and is
reclosed after 10 s, but never in the 12 s before or the 30 s after a load step: that would be a
double contingency, for which grids are not designed. Steps of up to 300 MW, permanent outages and
outages close to a step were tried, but with the whole transfer on the weakened tie, no controller
tried here holds the voltage at bus 8.

**Measured (32).** For each machine, frequency deviation (-1 to 1 Hz), active and reactive power,
turbine power (MW, Mvar) and voltage; voltages of buses 5 to 11 (0 to 1.5); power over the tie;
loads at buses 7 and 9; control errors of both areas, $\Delta P_{tie} +
600\,\mathrm{MW/Hz}\,\Delta f$.

*Dead time.* Quantities that a control centre collects from its substations (power over the tie,
loads, control errors) are 2 s old, because telemetry scans every 2 to 4 s; this is our own choice.
Quantities of the machines are read locally, within a tenth of the period, so they have no dead
time. The ramps of the references are the dynamics of the actuators.

**Manipulated (8).** Changes of the power references (-0.15 to 0.15 of 900 MVA, 0.3 per minute) and
of the voltage references (-0.05 to 0.05, 0.01 per second).

**Objective.** In points, each second costs $5 \Delta f^2 + 10^{-5} \sum ACE^2$, plus 0.001 per $ of
fuel beyond the schedule; a trip costs 100. The plant trips beyond 0.5 Hz, outside 0.85 to 1.15, or
with 180 degrees between rotors. *Costs*, both without unit and summed over the seconds of an
episode with a limit of 5: ``frequency``, the largest amount by which a machine's frequency
deviation exceeds 0.2 Hz at the end of a second, divided by 0.3 Hz, so that a second at 0.5 Hz
counts 1; ``voltage``, the largest amount by which a voltage of buses 5 to 11 leaves 0.90 to 1.05,
divided by 0.03, so that a second at 0.87 or 1.08 counts 1. A limit of 5 therefore permits five such
seconds in an episode, or ten with half the excess.

**Controllers.** Generation control integrates the control error of each area. The ordinary
controller is slow and winds up at the ramp limit of the references. The reference controller is
fast, does not wind up, and also changes each machine's voltage reference by 0.25 per hertz of its
frequency deviation. This improves the return by more than a quarter (-2.45 instead of -3.43) with
less excess voltage, because constant-admittance loads draw less power at a lower voltage, and
exciters are faster than turbines. The benefit depends on this load model: it would be smaller with
motors and electronics, which draw the same power at any voltage. :func:`bad_policy`, the lowest
power and voltage, violates both costs.

**Checked.** The power flow agrees with the book. With governors blocked, the inter-area mode is at
0.543 Hz (manual excitation), unstable with regulators (real part +0.014), and well damped with
stabilisers (0.604 Hz, damping 0.19); the book gives 0.545 Hz, +0.031 and -0.50. The remaining
difference is plausibly due to saturation and constant-current loads in the book.

Sources: Kundur, Power System Stability and Control, 1994, example 12.6; Sauer and Pai, Power
System Dynamics and Stability, 1998.
"""

from neorl_envs.plants.power_grid._env import bad_policy as bad_policy
from neorl_envs.plants.power_grid._physics import Constants as Constants
from neorl_envs.plants.power_grid._physics import Machines as Machines
from neorl_envs.plants.power_grid._physics import Schedule as Schedule
from neorl_envs.plants.power_grid._physics import World as World

__all__ = ["Constants", "Machines", "Schedule", "World", "bad_policy"]
