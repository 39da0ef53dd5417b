"""Disturbances of the grid: loads that fluctuate and step, and a tie circuit that trips."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float, PRNGKeyArray

from neorl_envs.blocks import autoregressive
from neorl_envs.plants.power_grid import _network as net
from neorl_envs.plants.power_grid._constants import BASE, Constants
from neorl_envs.plants.power_grid._machines import Schedule

DT = 1.0
STEP_TIMES = ((10.0, 100.0), (130.0, 230.0))  # s
OUTAGE_TIMES = (10.0, 250.0)  # s
APART = (12.0, 30.0)  # s before and after a load step in which no outage may occur
NEVER = 1e9


class World(NamedTuple):
    """The disturbances of an episode.

    Attributes:
        wander: Relative deviation of both loads, shape ``(2,)``.
        step_time: Times at which a load steps, s, shape ``(2,)``.
        step: Change of the loads at buses 7 and 9 by each step, MW, shape ``(2, 2)``.
        outage_time: Time at which a tie circuit trips, s.
        outage: Line of the circuit that trips: 1 for 7-8, 2 for 8-9.
        closing_time: Time at which it is reclosed, s.
    """

    wander: Float[Array, "2"]
    step_time: Float[Array, "2"]
    step: Float[Array, "2 2"]
    outage_time: Float[Array, ""]
    outage: Float[Array, ""]
    closing_time: Float[Array, ""]


def world_at_start(c: Constants, key: PRNGKeyArray) -> World:
    """Samples the events: a load step in each half of the episode, and possibly an outage."""
    keys = jax.random.split(key, 3)
    u = jax.random.uniform(keys[0], (10,), c.step.dtype)
    earliest, latest = jnp.asarray(STEP_TIMES, c.step.dtype).T
    size = (c.step[0] + (c.step[1] - c.step[0]) * u[2:4]) * jnp.where(u[4:6] < 0.5, -1.0, 1.0)
    at_seven = (u[6:8] < 0.5).astype(u.dtype)
    when = OUTAGE_TIMES[0] + (OUTAGE_TIMES[1] - OUTAGE_TIMES[0]) * u[8]
    drawn = jax.random.uniform(keys[1], (), c.step.dtype)
    step_time = jnp.floor(earliest + (latest - earliest) * u[:2])
    before, after = APART
    for step in step_time:
        close = (when > step - before) & (when < step + after)
        when = jnp.where(close, step + after, when)
    tripped = jnp.where(drawn < c.outage, jnp.floor(when), NEVER)
    return World(
        wander=c.load_sd * jax.random.normal(keys[2], (2,), c.step.dtype),
        step_time=step_time,
        step=size[:, None] * jnp.stack([at_seven, 1 - at_seven], axis=1),
        outage_time=tripped,
        outage=jnp.where(u[9] < 0.5, 1.0, 2.0).astype(u.dtype),
        closing_time=tripped + c.reclosing,
    )


def world_later(c: Constants, world: World, normal: Float[Array, "2"]) -> World:
    """The disturbances one period later, with new load fluctuations."""
    wander = autoregressive(world.wander, normal, sd=c.load_sd, memory=c.load_memory, dt=DT)
    return world._replace(wander=wander)


def outage_now(world: World, time: Array) -> Array:
    """The line with a circuit out: 0 for none, 1 for line 7-8, 2 for line 8-9."""
    seconds = time.astype(world.step.dtype) * DT
    out = (seconds >= world.outage_time) & (seconds < world.closing_time)
    return jnp.where(out, world.outage, 0).astype(jnp.int32)


def more_load(s: Schedule, world: World, time: Array) -> Complex[Array, "2"]:
    """Load admittance in addition to the schedule; steps are defined at the scheduled voltage."""
    seconds = time.astype(world.step.dtype) * DT
    stepped = jnp.sum(jnp.where((seconds >= world.step_time)[:, None], world.step, 0), axis=0)
    per_megawatt = s.load[0] / s.megawatt
    real = s.load[0] * world.wander + per_megawatt * stepped
    return jax.lax.complex(real, s.load[1] * world.wander)


def matrix_now(s: Schedule, world: World, time: Array) -> Complex[Array, "11 4"]:
    """Bus voltages per unit of source current in the period that begins at ``time``."""
    return net.with_loads(s.ports[outage_now(world, time)], more_load(s, world, time))


def loads_now(
    s: Schedule, world: World, time: Array, voltage: Float[Array, "2"]
) -> Float[Array, "2"]:
    """Active power of both loads, MW."""
    return BASE * (s.load[0] + jnp.real(more_load(s, world, time))) * voltage**2
