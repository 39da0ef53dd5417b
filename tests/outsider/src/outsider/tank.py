"""A tank with a pump and an outflow that nobody controls."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from neorl_core import Channel, CostChannel, Spec, Step
from neorl_core.control import PID
from neorl_envs.plants import PlantDefaults

HIGH_LEVEL = 1.6  # m
SETPOINT = 1.0  # m


class Parameters(NamedTuple):
    """Area of the tank, m2, and mean outflow, m3/s."""

    area: jax.Array
    outflow: jax.Array


class Info(NamedTuple):
    """Whether the tank ran over, or lasted to the end."""

    success: jax.Array
    trip: jax.Array


class Tank(eqx.Module, PlantDefaults):
    """``area dh/dt = inflow - outflow (1 + noise)``, every minute; it must not run over.

    Attributes:
        horizon: Steps after which an episode is truncated.
    """

    horizon: int = eqx.field(static=True, default=30)

    name = "Tank-v0"
    reference = "slow"
    reward_unit = "m"
    glossary = "A return is minus the distance of the level from 1 m, summed over the steps, in m."

    @property
    def spec(self):
        return Spec(
            obs=(Channel("level", "m", 0.0, 2.0),),
            action=(Channel("inflow", "l/s", 0.0, 40.0),),
            cost=(CostChannel("overflow", "m", 0.5, "episode"),),
            dt=60.0,
            horizon=self.horizon,
        )

    def action_rates(self):
        return (0.5,)

    def penalty_weights(self):
        return {"overflow": 1.0}

    def bands(self):
        return {"level": (0.4, HIGH_LEVEL)}

    def tunings(self):
        return {"slow": level_control(10.0), "fast": level_control(40.0)}

    def default_params(self, preset="plant"):
        return Parameters(jnp.asarray(3.0), jnp.asarray(0.02))

    def sample_params(self, key, *, preset="plant", spread=0.15):
        width = 1 + spread * jax.random.uniform(key, (2,), minval=-1, maxval=1)
        return Parameters(3.0 * width[0], 0.02 * width[1])

    def reset(self, params, key):
        level = jax.random.uniform(key, minval=0.6, maxval=1.4)
        return (level, jnp.asarray(0, jnp.int32)), level[None]

    def step(self, params, state, action, key):
        level, time = state
        inflow = jnp.clip(jnp.nan_to_num(action), 0.0, 40.0)
        outflow = params.outflow * (1 + 0.2 * jax.random.normal(key))
        level = level + 60.0 * (inflow[0] / 1000 - outflow) / params.area
        level = jnp.clip(level, 0.0, 2.0)
        trip, last = level >= 2.0, time + 1 >= self.horizon
        step = Step(
            obs=level[None],
            final_obs=level[None],
            reward=-jnp.abs(level - SETPOINT),
            cost=jnp.maximum(level - HIGH_LEVEL, 0)[None],
            applied=inflow,
            terminated=trip,
            truncated=last & ~trip,
            info=Info(success=last & ~trip, trip=trip),
        )
        return (level, time + 1), step


def level_control(gain):
    """A proportional controller of the level; the gain in l/s per m."""
    one, none = jnp.ones((1,)), jnp.zeros((0,))
    return PID(
        kp=gain * one,
        ki=0 * one,
        kd=0 * one,
        tau=one,
        setpoint=SETPOINT * one,
        bias=20 * one,
        low=0 * one,
        high=40 * one,
        dt=jnp.asarray(60.0),
        override_below=none,
        override_cap=none,
        measured=(0,),
    )
