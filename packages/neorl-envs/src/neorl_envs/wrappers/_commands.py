"""Converts a demand to an actuator command within the actuator's range and rate limit."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import highs, lows
from neorl_core.projections import limit_rate, project_box


def held_command(
    env: Any, params: Any, state: Any, like: Array, key: PRNGKeyArray
) -> Float[Array, " act"]:
    """The command that the actuators currently hold, found by a trial step with an all-NaN action.

    ``key`` may be one that was used before, because the trial step is discarded.
    """
    leave = jnp.full((env.spec.n_action,), jnp.nan, like.dtype)
    return env.step(params, state, leave, jax.random.clone(key))[1].applied


def limit_command(env: Any, last: Float[Array, " act"], action: Float[Array, " act"]) -> Array:
    """Limits the demand to range and rate; a NaN channel keeps its last command.

    Raises a ``ValueError`` if the shape of the action is not ``(act,)``.
    """
    spec = env.spec
    if jnp.shape(action) != (spec.n_action,):
        raise ValueError(f"an action has shape ({spec.n_action},), got {jnp.shape(action)}")
    demand = jnp.where(jnp.isnan(action), last, jnp.asarray(action, last.dtype))
    low, high = (jnp.asarray(ends(spec.action), last.dtype) for ends in (lows, highs))
    speed = jnp.asarray(env.action_rates(), last.dtype)
    return limit_rate(project_box(demand, low, high), last, speed, dt=spec.dt)
