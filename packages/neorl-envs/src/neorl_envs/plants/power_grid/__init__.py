r"""Four machines in two areas and a weak tie: frequency and voltage under load steps and outages.

**Equations.** Kundur's two-area system: eleven buses at 230 kV, two double-circuit tie lines of
110 km, loads at buses 7 and 9. Each machine has six states (angle, speed, transient voltages and
subtransient fluxes of both axes, Sauer and Pai), a voltage regulator (sensor of 10 ms, gain 200,
field -6.4 to 7), a stabiliser (gain 20, washout 10 s, two lead-lag stages, within 0.2) and a
steam governor (TGOV1, droop 5 %): 48 states. With equal subtransient reactances the stator is a
source behind a constant impedance, and loads are constant admittances, so the network is one
constant complex matrix; when loads change, two rows of it are corrected by Woodbury's identity.
Integration by the classical Runge-Kutta method, 50 steps of 20 ms. Speeds are deviations and
angles relative to machine 1, so that float32 stays accurate.

**Parameters** stand in :class:`Constants`, each with unit and source. Published are network,
loads, machines and schedule; field and stabiliser limits, prices and disturbances are our own
choice. The power flow of the schedule and the network's matrices are computed when the parameters
change.

**Disturbances.** Both loads wander (1 %, one minute); a load steps by 50 to 200 MW, up or down,
in each half of an episode; in a fifth of the episodes a tie circuit trips and is reclosed after
10 s, never in the 12 s before a step of the load or the 30 s after one: a double contingency, which
a grid is not planned for. Steps of up to 300 MW, outages that last and outages beside a step were
tried: with the whole transfer on the weakened tie no controller tried here holds the voltage at bus
8.

**Measured (32).** Of the machines: frequency (-1 to 1 Hz, deviation), active and reactive power,
turbine power (MW, Mvar) and voltage; voltages of buses 5 to 11 (0 to 1.5); power over the tie;
loads at buses 7 and 9; control errors of both areas, $\Delta P_{tie} +
600\,\mathrm{MW/Hz}\,\Delta f$.

*Dead time.* What a control centre gathers from its substations (power over the tie, loads, control
errors) is 2 s old: telemetry scans every 2 to 4 s, own choice. Quantities of the machines are read
on the spot, within a tenth of the period, so they have none; the references' ramps are the
actuators' dynamics.

**Manipulated (8).** Changes of the power references (-0.15 to 0.15 of 900 MVA, 0.3 a minute) and
of the voltage references (-0.05 to 0.05, 0.01 a second).

**Judged by.** A second takes off $5 \Delta f^2 + 10^{-5} \sum ACE^2$ and 0.001 a $ of fuel beyond
the schedule, in points; a trip 100. Costs: ``frequency``, the worst deviation beyond 0.2 Hz over
0.3 Hz; ``voltage``, the worst of buses 5 to 11 outside 0.90 to 1.05 over 0.03; each summed over
the episode, limit 5. Beyond 0.5 Hz, outside 0.85 to 1.15 or with 180 degrees between rotors the
plant trips.

**Controllers.** Generation control integrates each area's control error. The ordinary one is slow
and winds up at the ramp limit of the references; the reference is fast and does not, and moves each
machine's voltage reference by 0.25 for a hertz of its frequency. That is worth a quarter of its
return (-2.45 for -3.43 without it) at less excess voltage, since loads of constant admittance take
less at less voltage and exciters are faster than turbines. It leans on this load model: motors and
electronics, which take the same power at any voltage, would give less.
:func:`bad_policy`, the least power and voltage, breaks both costs.

**Checked.** Power flow: the book's. Modes with governors blocked: inter-area 0.543 Hz (manual
excitation), unstable with regulators (real part +0.014), well damped with stabilisers (0.604 Hz,
0.19); the book has 0.545 Hz, +0.031 and -0.50. What remains is plausibly its saturation and its
loads of constant current.

Sources: Kundur, Power System Stability and Control, 1994, example 12.6; Sauer and Pai, Power
System Dynamics and Stability, 1998.
"""

from neorl_envs.plants.power_grid._constants import Constants as Constants
from neorl_envs.plants.power_grid._control import bad_policy as bad_policy
from neorl_envs.plants.power_grid._machines import Machines as Machines
from neorl_envs.plants.power_grid._machines import Schedule as Schedule
from neorl_envs.plants.power_grid._world import World as World

__all__ = ["Constants", "Machines", "Schedule", "World", "bad_policy"]
