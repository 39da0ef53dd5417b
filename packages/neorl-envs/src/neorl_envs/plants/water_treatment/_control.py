"""Controllers of the works: feedback alone, and dosing by the raw water with feedback."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core import Policy
from neorl_core.control import PID, ConstantPolicy
from neorl_envs.blocks import FeedforwardPID, pid_bank
from neorl_envs.plants.water_treatment._chemistry import (
    MEQ_PER_MG_ALUM,
    carbonate_of_water,
    charged_share,
)
from neorl_envs.plants.water_treatment._physics import PERIOD

NAME = "WaterTreatment-v0"
RAW_TURBIDITY, RAW_PH, RAW_ALKALINITY, DEMAND, MIXED_PH, SETTLED, LEVEL = 0, 1, 2, 4, 5, 7, 14
ALUM = 11
LOW, HIGH = (0.0, 0.0, 10.0, 0.3), (80.0, 2.0, 80.0, 0.7)
LEVEL_SETPOINT = 2.5  # m


class Numbers(NamedTuple):
    """What the dosing by the raw water computes with.

    Attributes:
        least_alum: mg/L at no turbidity.
        alum: mg/L for a turbidity of 1 NTU to the power below.
        power: Of the turbidity.
        ph: Wanted pH.
        gradient: Mixing, 1/s.
        calm: Raw turbidity at which the flow begins to be cut, NTU.
        storm: Raw turbidity at which it is cut most, NTU.
        cut: Largest cut of the flow, m3/s.
        reserve: Level of the clearwell at which the flow is not cut any more, m.
    """

    least_alum: Array
    alum: Array
    power: Array
    ph: Array
    gradient: Array
    calm: Array
    storm: Array
    cut: Array
    reserve: Array


def measurements(numbers: Numbers, obs: Float[Array, " obs"]) -> Float[Array, " loop"]:
    """Settled turbidity, pH of the mixer, nothing for the mixing, level."""
    return jnp.stack([obs[SETTLED], obs[MIXED_PH], jnp.zeros_like(obs[0]), obs[LEVEL]])


def by_raw_water(n: Numbers, obs: Float[Array, " obs"]) -> Float[Array, " act"]:
    """Alum by turbidity, caustic by the carbonate equilibrium, flow by demand and storm."""
    turbidity = jnp.maximum(obs[RAW_TURBIDITY], 0)
    alum = jnp.minimum(n.least_alum + n.alum * turbidity**n.power, HIGH[0])
    carbonate = carbonate_of_water(obs[RAW_ALKALINITY], obs[RAW_PH])
    # The alum that is there now, not the one wanted: the pump needs time, and the pH feels it.
    taken = obs[ALUM] * MEQ_PER_MG_ALUM
    caustic = carbonate * charged_share(n.ph) - obs[RAW_ALKALINITY] + taken
    cut = n.cut * jnp.clip((turbidity - n.calm) / (n.storm - n.calm), 0, 1)
    cut = cut * jnp.clip((obs[LEVEL] - n.reserve) / (LEVEL_SETPOINT - n.reserve), 0, 1)
    return jnp.stack([alum, caustic, n.gradient, obs[DEMAND] - cut])


def feedforward_pi(
    *, alum: float = 1.2, gradient: float = 60.0, cut: float = 0.2, ph: float = 7.0
) -> FeedforwardPID:
    """Dosing by the raw water, trimmed by loops on settled turbidity, pH and level.

    Args:
        alum: mg/L for a turbidity of 1 NTU to the power 0.85, on top of 12 mg/L.
        gradient: Mixing, 1/s.
        cut: Largest cut of the flow in a storm, m3/s.
        ph: Wanted pH of the mixed water.
    """
    feedback = pid_bank(
        kp=(-3.0, 0.1, 0.0, 0.06),
        ti=(math.inf, 1800.0, math.inf, math.inf),
        setpoint=(3.0, ph, 0.0, LEVEL_SETPOINT),
        bias=(0.0, 0.0, 0.0, 0.0),
        low=(-20.0, -1.0, -1.0, -0.3),
        high=(20.0, 1.0, 1.0, 0.3),
        measured=(0, 1, 2, 3),
        dt=PERIOD,
    )
    numbers = (12.0, alum, 0.85, ph, gradient, 15.0, 60.0, cut, 0.7)
    return FeedforwardPID(
        feedback=feedback,
        numbers=Numbers(*map(jnp.asarray, numbers)),
        low=jnp.asarray(LOW),
        high=jnp.asarray(HIGH),
        measure=measurements,
        feedforward=by_raw_water,
        origin=(NAME, "PI feed-forward"),
    )


def feedback_pi(*, settled: float = 3.0) -> PID:
    """Alum by the settled turbidity, caustic by the mixed pH, constant mixing, flow by the level.

    Args:
        settled: Set point of the settled turbidity, NTU.
    """
    return pid_bank(
        kp=(-2.0, 0.1, 0.0, 0.1),
        ti=(2 * 3600.0, 1800.0, math.inf, math.inf),
        setpoint=(settled, 7.2, 0.0, LEVEL_SETPOINT),
        bias=(25.0, 0.3, 40.0, 0.46),
        low=LOW,
        high=HIGH,
        measured=(SETTLED, MIXED_PH, LEVEL, LEVEL),
        dt=PERIOD,
    )


def tunings() -> dict[str, Policy]:
    """An ordinary controller and the reference."""
    return {"PI": feedback_pi(), "PI feed-forward": feedforward_pi()}


def bad_policy() -> ConstantPolicy:
    """Too much caustic for far too little alum: pH above 9, and nothing coagulates."""
    return ConstantPolicy(jnp.asarray((10.0, 0.8, 40.0, 0.5)))
