"""The textbook reactor: a stirred tank with an exothermic reaction and a cooling jacket.

``dC_A/dt = q/V (C_Af - C_A) - r`` and
``dT/dt = q/V (T_f - T) + (-dH)/(rho C_p) r + U A/(rho C_p V) (T_c - T)`` with the rate
``r = k_0 exp(-(E/R)/T) C_A``. The coolant temperature ``T_c`` is manipulated, and the concentration
should follow a setpoint that steps from time to time. If the coolant is warmer than about 304 K,
the reaction ignites: the concentration falls to a few per cent and the temperature overshoots by
150 K.

The equations and constants are published. Our own choices are the range of the coolant (285 to 310
K, wider than the usual 295 to 302 K, so that ignition is possible), its rate limit of 2 K per step,
a lag of 5 s, noise of 0.003 mol/L and 0.2 K, a feed that drifts by 0.5 K and 0.005 mol/L, a new
setpoint from 0.82 to 0.94 mol/L every 8 minutes on average (also in the preset ``"clean"``, since
following it is the task), the soft limit of 340 K with a budget of 1 K min per episode, the trip at
400 K, and the reward ``-100 |C_A - setpoint|`` per step of 15 s. ``bad_policy()`` heats as much as
possible.

*Controllers.* "PI" adjusts the coolant by the concentration, slowly enough for all sampled
parameters. "PI feed-forward", the reference, starts from the coolant temperature that holds the
setpoint in the nominal tank. It subtracts 0.6 K for every kelvin by which the tank is hotter than
in that steady state, because the temperature shows immediately where the concentration is going,
and adds a PI correction. Its three parameters come from a cross-entropy search. Without the
temperature term its return was -137 instead of -105.

*Dead time.* The analyser shows the concentration one step (15 s) late, because of its sample line
and measuring cell; this is our own choice. The thermometer is in the tank, and the pipe to the
jacket is short compared with the lag of 5 s, so neither has a dead time.

Source: Seborg, Edgar and Mellichamp, "Process Dynamics and Control", example 2.5 and exercises; as
in pcgym's ``cstr``.
"""

from neorl_envs.plants.cstr._control import bad_policy as bad_policy
from neorl_envs.plants.cstr._physics import Constants as Constants
from neorl_envs.plants.cstr._physics import Feed as Feed
from neorl_envs.plants.cstr._physics import Tank as Tank

__all__ = ["Constants", "Feed", "Tank", "bad_policy"]
