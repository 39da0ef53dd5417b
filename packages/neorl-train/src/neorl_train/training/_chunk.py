"""The hot loop: many updates as one compiled program, on data that lies on the device."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents import Algorithm
from neorl_agents.algorithms import require_answer
from neorl_agents.sampling import sampler_of


@partial(jax.jit, static_argnames="n_updates", donate_argnums=1)
def train_chunk(
    algorithm: Algorithm,
    state: Any,
    tables: Any,
    first: Int[Array, ""],
    key: PRNGKeyArray,
    *,
    n_updates: int,
) -> tuple[Any, dict[str, Float[Array, ""]]]:
    """Updates ``first .. first + n_updates - 1`` of one training run.

    The rows and the key of an update are functions of ``(key, number of the update)`` alone, drawn
    for all of the chunk before the scan and gathered once, so that the chunk length is not part
    of the result.

    Args:
        algorithm: Learner with array leaves (``neorl_core.as_arrays``).
        state: State of ``algorithm.init`` or the last chunk; its buffers are given away.
        tables: What the learner's sampler draws from (``neorl_agents.sampling``): by default the
            training rows, physical units; fields that the algorithm does not read are ``None``.
        first: Number of the first update, counted in calls of ``algorithm.update``.
        key: Key of the run's chunks.
        n_updates: Number of calls of ``algorithm.update``; static.

    Returns:
        The state, and the mean of every metric over the chunk.
    """
    numbers = first + jnp.arange(n_updates, dtype=jnp.int32)
    batch_key, update_key = jax.random.split(key)
    shape = (algorithm.batches_per_update, algorithm.batch_size)
    draw = partial(sampler_of(algorithm).draw, tables, key=batch_key, shape=shape)
    batches = jax.vmap(draw)(numbers)
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(update_key, numbers)
    state, metrics = jax.lax.scan(partial(update, algorithm), state, (batches, keys))
    return state, jax.tree.map(jnp.mean, metrics)


def update(
    algorithm: Algorithm, state: Any, batch_and_key: tuple[Any, PRNGKeyArray]
) -> tuple[Any, dict[str, Float[Array, ""]]]:
    """One update, whose answer is refused by name where it breaks the contract."""
    return require_answer(algorithm, state, algorithm.update(state, *batch_and_key))


def run_keys(seed: int) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """The keys of one training run: of its initial state, and of its chunks."""
    initial, chunks = jax.random.split(jax.random.key(seed))
    return initial, chunks
