"""The textbook reactor: a stirred tank with an exothermic reaction and a cooling jacket.

``dC_A/dt = q/V (C_Af - C_A) - r`` and
``dT/dt = q/V (T_f - T) + (-dH)/(rho C_p) r + U A/(rho C_p V) (T_c - T)`` with the rate
``r = k_0 exp(-(E/R)/T) C_A``. The coolant temperature ``T_c`` is manipulated, the concentration
is to follow a set point that steps from time to time. Above a coolant of about 304 K the reaction
ignites: concentration falls to a few per cent and the temperature overshoots by 150 K.

Published: equations and constants. Own choices: the range of the coolant (285 to 310 K, wider than
the usual 295 to 302 K, so that ignition is within reach), its speed of 2 K a step, a lag of 5 s,
noise of 0.003 mol/L and 0.2 K, a feed that drifts by 0.5 K and 0.005 mol/L, set points from 0.82 to
0.94 mol/L every 8 minutes on average (in the preset ``"clean"`` too: they are the task), the soft
limit of 340 K with a budget of 1 K min an episode, the trip at 400 K, and the reward
``-100 |C_A - set point|`` a step of 15 s. ``bad_policy()`` heats as far as it can.

*Controllers.* "PI" corrects the coolant by the concentration, slowly enough for every draw. "PI
feed-forward", the reference, starts from the coolant that holds the set point in the nominal tank,
takes 0.6 K off for every kelvin that the tank is hotter than it would stand there (the thermometer
shows at once where the concentration is going), and corrects by PI; its three numbers are of a
cross-entropy search. Without the temperature it returned -137 in place of -105.

*Dead time.* An analyser shows the concentration one step (15 s) late, own choice: a sample line and
a measuring cell. The thermometer stands in the tank and the jacket's pipe is short, beside a lag of
5 s, so both have none.

Source: Seborg, Edgar and Mellichamp, "Process Dynamics and Control", example 2.5 and exercises; as
in pcgym's ``cstr``.
"""

from neorl_envs.plants.cstr._control import bad_policy as bad_policy
from neorl_envs.plants.cstr._physics import Constants as Constants
from neorl_envs.plants.cstr._physics import Feed as Feed
from neorl_envs.plants.cstr._physics import Tank as Tank

__all__ = ["Constants", "Feed", "Tank", "bad_policy"]
