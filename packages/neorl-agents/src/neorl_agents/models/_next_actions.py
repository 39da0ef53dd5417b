"""A policy's next action in every row of a log, given the logged actions at every step."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from neorl_core import Policy
from neorl_core.control import follow


def actions_along(
    policy: Policy, obs: np.ndarray, action: np.ndarray, next_obs: np.ndarray, last: np.ndarray
) -> np.ndarray:
    """The policy's action for the next observation of every row.

    Its carry runs along each piece of the log and is given the logged action at every step, as in
    shadow mode, so a controller with memory acts from the situation that it would take over.

    Args:
        policy: Deterministic; stepped from a fresh carry at the start of every piece.
        obs: Observations in physical units, in order of time, shape ``(row, obs)``.
        action: Logged actions, shape ``(row, act)``.
        next_obs: Next observations, shape ``(row, obs)``.
        last: Whether a row is the last of its piece, shape ``(row,)``.

    Returns:
        Actions in physical units, shape ``(row, act)``, float64.
    """
    starts = np.append(True, np.asarray(last)[:-1])
    f32 = [np.asarray(x, np.float32) for x in (obs, action, next_obs)]
    return np.asarray(_along(policy, jnp.asarray(starts), *map(jnp.asarray, f32)), np.float64)


@jax.jit
def _along(policy: Policy, starts: Array, obs: Array, action: Array, next_obs: Array) -> Array:
    def step(carry: Any, row: tuple[Array, Array, Array, Array]) -> tuple[Any, Array]:
        start, obs_now, action_taken, obs_next = row
        fresh = policy.initial_carry()
        carry = jax.tree.map(lambda new, old: jnp.where(start, new, old), fresh, carry)
        carry, _ = policy(carry, obs_now, None)  # pyright: ignore[reportArgumentType]
        carry = follow(policy, carry, action_taken)
        return carry, policy(carry, obs_next, None)[1]  # pyright: ignore[reportArgumentType]

    return jax.lax.scan(step, policy.initial_carry(), (starts, obs, action, next_obs))[1]
