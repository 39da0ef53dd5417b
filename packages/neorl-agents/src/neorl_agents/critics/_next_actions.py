"""What a policy would do next in every row of a log, had it been told what was done before."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from neorl_agents.critics._columns import Columns
from neorl_core import Policy
from neorl_core.control import follow


def actions_along(policy: Policy, columns: Columns) -> np.ndarray:
    """The policy's action on the following observation of every row.

    Its carry walks along each piece of the log and is told every step what was done, as in shadow
    mode; so a controller with a memory is asked in the situation that it would take over.

    Args:
        policy: Deterministic; stepped from a fresh carry at the start of every piece.
        columns: The log.

    Returns:
        Actions in physical units, shape ``(row, act)``.
    """
    starts = np.append(True, columns.last[:-1])
    f32 = [np.asarray(x, np.float32) for x in (columns.obs, columns.action, columns.next_obs)]
    return np.asarray(_along(policy, jnp.asarray(starts), *map(jnp.asarray, f32)), np.float64)


@jax.jit
def _along(policy: Policy, starts: Array, obs: Array, action: Array, next_obs: Array) -> Array:
    def step(carry: Any, row: tuple[Array, Array, Array, Array]) -> tuple[Any, Array]:
        start, now, done, following = row
        fresh = policy.initial_carry()
        carry = jax.tree.map(lambda new, old: jnp.where(start, new, old), fresh, carry)
        carry, _ = policy(carry, now, None)  # pyright: ignore[reportArgumentType]
        carry = follow(policy, carry, done)
        return carry, policy(carry, following, None)[1]  # pyright: ignore[reportArgumentType]

    return jax.lax.scan(step, policy.initial_carry(), (starts, obs, action, next_obs))[1]
