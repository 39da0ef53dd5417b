"""Controllers of the works: pure feedback, and feed-forward dosing by the raw water."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core import Policy
from neorl_core.control import PID, ConstantPolicy
from neorl_envs.blocks import FeedforwardPID, handle, pid_bank
from neorl_envs.plants.water_treatment._chemistry import (
    MEQ_PER_MG_ALUM,
    carbonate_of_water,
    charged_share,
)
from neorl_envs.plants.water_treatment._objective import CLEAR
from neorl_envs.plants.water_treatment._physics import PERIOD

NAME = "WaterTreatment-v0"
RAW_TURBIDITY, RAW_PH, RAW_ALKALINITY, DEMAND, MIXED_PH, FILTERED, LEVEL = 0, 1, 2, 4, 5, 8, 14
ALUM = 11
HANDLES = (
    handle("alum at no turbidity", "least_alum", "mg/L", factor=0.1),
    handle("alum for turbidity", "alum", "mg/L", factor=0.1),
    handle("wanted pH", "ph", shift=0.05),
    handle("mixing", "gradient", "1/s", factor=0.1),
    handle("largest cut of the flow", "cut", "m3/s", factor=0.2),
    handle("setpoint of the level in a storm", "full", "m", shift=0.1),
)
LOW, HIGH = (0.0, 0.0, 10.0, 0.3), (80.0, 2.0, 80.0, 0.7)


class Numbers(NamedTuple):
    """Parameters of the dosing by the raw water.

    Attributes:
        least_alum: Alum dose at zero turbidity, mg/L.
        alum: Additional dose at a turbidity of 1 NTU, mg/L.
        power: Exponent of the turbidity.
        ph: Desired pH.
        gradient: Velocity gradient of the mixing, 1/s.
        calm: Raw turbidity above which the flow is reduced, NTU.
        storm: Raw turbidity at which the reduction is largest, NTU.
        cut: Largest reduction of the flow, m3/s.
        reserve: Level of the clearwell below which the flow is not reduced, m.
        full: Setpoint of the level, m.
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
    full: Array


def measurements(numbers: Numbers, obs: Float[Array, " obs"]) -> Float[Array, " loop"]:
    """Controlled variables: filtered turbidity, pH of the mixer, zero for the mixing, level."""
    return jnp.stack([obs[FILTERED], obs[MIXED_PH], jnp.zeros_like(obs[0]), obs[LEVEL]])


def by_raw_water(n: Numbers, obs: Float[Array, " obs"]) -> Float[Array, " act"]:
    """Alum by turbidity, caustic by the carbonate equilibrium, flow by demand and storm."""
    turbidity = jnp.maximum(obs[RAW_TURBIDITY], 0)
    alum = jnp.minimum(n.least_alum + n.alum * turbidity**n.power, HIGH[0])
    carbonate = carbonate_of_water(obs[RAW_ALKALINITY], obs[RAW_PH])
    # Use the actual alum dose, not the demanded one, since the pump lags and the pH depends on it.
    alum_acidity = obs[ALUM] * MEQ_PER_MG_ALUM
    caustic = carbonate * charged_share(n.ph) - obs[RAW_ALKALINITY] + alum_acidity
    cut = n.cut * jnp.clip((turbidity - n.calm) / (n.storm - n.calm), 0, 1)
    cut = cut * jnp.clip((obs[LEVEL] - n.reserve) / (n.full - n.reserve), 0, 1)
    return jnp.stack([alum, caustic, n.gradient, obs[DEMAND] - cut])


def feedforward_pi(
    *,
    least_alum: float = 7.0,
    alum: float = 2.35,
    power: float = 0.77,
    gradient: float = 72.0,
    cut: float = 0.23,
    ph: float = 6.93,
    by_filtered: float = 1.6,
    reserve: float = 1.6,
    full: float = 3.2,
    by_level: float = 0.05,
) -> FeedforwardPID:
    """Dosing by the raw water, trimmed by loops on filtered turbidity, pH and level.

    Args:
        least_alum: Alum dose at zero turbidity, mg/L.
        alum: Additional dose at a turbidity of 1 NTU, mg/L.
        power: Exponent of the turbidity.
        gradient: Velocity gradient of the mixing, 1/s.
        cut: Largest reduction of the flow in a storm, m3/s.
        ph: Desired pH of the mixed water.
        by_filtered: Gain from filtered turbidity to alum, mg/L per NTU.
        reserve: Level of the clearwell below which the flow is not reduced, m.
        full: Setpoint of the level, m.
        by_level: Gain from level to flow, m2/s.
    """
    feedback = pid_bank(
        kp=(-by_filtered, 0.1, 0.0, by_level),
        ti=(math.inf, 1800.0, math.inf, math.inf),
        setpoint=(CLEAR, ph, 0.0, full),
        bias=(0.0, 0.0, 0.0, 0.0),
        low=(-20.0, -1.0, -1.0, -0.3),
        high=(20.0, 1.0, 1.0, 0.3),
        measured=(0, 1, 2, 3),
        dt=PERIOD,
    )
    numbers = (least_alum, alum, power, ph, gradient, 15.0, 60.0, cut, reserve, full)
    return FeedforwardPID(
        feedback=feedback,
        numbers=Numbers(*map(jnp.asarray, numbers)),
        low=jnp.asarray(LOW),
        high=jnp.asarray(HIGH),
        measure=measurements,
        feedforward=by_raw_water,
        origin=(NAME, "PI feed-forward"),
        handles=HANDLES,
    )


def feedback_pi(
    *,
    filtered: float = 0.05,
    gain: float = 35.0,
    integral_time: float = 2 * 3600.0,
    usual: float = 38.0,
    full: float = 3.0,
    by_level: float = 0.04,
) -> PID:
    """Alum by filtered turbidity, caustic by mixed pH, constant mixing, flow by level.

    The settled turbidity is not suitable: above the dose of its minimum (14 mg/L at 8 NTU of raw
    water), the alum's own floc raises it, so a loop on it would become positive feedback. The
    filtered turbidity falls with alum up to three times that dose.

    Args:
        filtered: Setpoint of the filtered turbidity, NTU.
        gain: Gain from filtered turbidity to alum, mg/L per NTU.
        integral_time: Integral time, s.
        usual: Alum dose at the start, mg/L.
        full: Setpoint of the level, m.
        by_level: Gain from level to flow, m2/s.
    """
    return pid_bank(
        kp=(-gain, 0.1, 0.0, by_level),
        ti=(integral_time, 1800.0, math.inf, math.inf),
        setpoint=(filtered, 7.2, 0.0, full),
        bias=(usual, 0.3, 40.0, 0.46),
        low=LOW,
        high=HIGH,
        measured=(FILTERED, MIXED_PH, LEVEL, LEVEL),
        dt=PERIOD,
    )


def tunings() -> dict[str, Policy]:
    """An ordinary controller and the reference."""
    return {"PI": feedback_pi(), "PI feed-forward": feedforward_pi()}


def bad_policy() -> ConstantPolicy:
    """Too much caustic and far too little alum, so that the pH exceeds 9 and nothing coagulates."""
    return ConstantPolicy(jnp.asarray((10.0, 0.8, 40.0, 0.5)))
