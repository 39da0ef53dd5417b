"""Parameters of the simulated operators of the reactor, used to record a plant log."""

import jax.numpy as jnp
import numpy as np

from neorl_envs.plants.chemical_reactor._channels import INDEX
from neorl_envs.plants.chemical_reactor._objective import ADIABATIC_LIMIT, SETPOINT
from neorl_envs.recording._operators import OperatorPlan


def operator_plan() -> OperatorPlan:
    """Setpoint steps, manual holds of 5 to 30 minutes, and a binary signal on every actuator.

    At a period of 50 s, the signals of 3000 kg/h, 3 K and 3 K change sign every 8 minutes on
    average. A setpoint step of up to 2 K (adiabatic temperature) and 1 K (reactor temperature)
    occurs every 25 minutes. One actuator is held in manual every 50 minutes, and returned to
    automatic when the reactor is 4 K away from its setpoint or the adiabatic temperature is within
    1 K of its limit.
    """
    watch_low = np.full(len(INDEX), -np.inf, np.float32)
    watch_high = np.full(len(INDEX), np.inf, np.float32)
    watch_low[INDEX["T_R"]], watch_high[INDEX["T_R"]] = SETPOINT - 4.0, SETPOINT + 4.0
    watch_high[INDEX["T_adiab_hat"]] = ADIABATIC_LIMIT - 1.0
    return OperatorPlan(
        amplitude=jnp.asarray((3000.0, 3.0, 3.0)),
        dwell=jnp.asarray(10.0),
        setpoint_step=jnp.asarray((2.0, 1.0, 1.0)),
        setpoint_high=jnp.asarray((ADIABATIC_LIMIT - 1.0, SETPOINT + 1.0, SETPOINT + 1.0)),
        setpoint_group=jnp.asarray((0, 1, 1), jnp.int32),
        setpoint_every=jnp.asarray(30.0),
        hold_every=jnp.asarray(60.0),
        hold_shortest=jnp.asarray(6, jnp.int32),
        hold_longest=jnp.asarray(36, jnp.int32),
        watch_low=jnp.asarray(watch_low),
        watch_high=jnp.asarray(watch_high),
    )
