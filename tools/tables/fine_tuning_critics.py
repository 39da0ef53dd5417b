"""Whether a learner's critics know which of the draws of its policy earn more."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy import stats

from neorl_agents.networks import q_values
from neorl_core import Policy, as_arrays
from neorl_core.costs import penalised_reward

EPISODES, DISCOUNT = 1_000, 0.99


def knowledge(env: Any, learner: Any, state: Any, price: Float[Array, " cost"]) -> float:
    """Rank correlation of the critics' advantage of a draw with the one that the plant shows.

    After a third of an episode by the mean policy, one action is drawn from the exploring policy.
    What the draw earns more than the mean action is found by going on with the mean policy, from
    the same state and with the same noise, to the end of the episode; what the critics say is
    ``min_i Q_i(s, draw) - min_i Q_i(s, mean)``. One is right, zero is chance.

    Args:
        env: Simulated plant.
        learner: A learner with critics; its own discount is that of ``DISCOUNT``.
        state: Its state.
        price: Reward that one unit of each cost takes off.
    """
    explore, mean = learner.explore(state), learner.policy(state)
    keys = jax.random.split(jax.random.key(11), EPISODES)
    obs, drawn, usual, earned = jax.jit(_compared)(
        env, as_arrays(explore), as_arrays(mean), price, keys
    )
    maps, critics = as_arrays(state.preparation), as_arrays(state.parameters["critics"])
    obs = maps.obs.to_scaled(obs)
    drawn, usual = (maps.action.to_scaled(action) for action in (drawn, usual))
    of_draw, of_mean = (
        jnp.min(q_values(critics, obs, action), axis=0) for action in (drawn, usual)
    )
    found: Any = stats.spearmanr(np.asarray(of_draw - of_mean), np.asarray(earned))
    return float(found.statistic)


def _compared(
    env: Any, explore: Policy, mean: Policy, price: Float[Array, " cost"], keys: PRNGKeyArray
) -> tuple[Array, Array, Array, Array]:
    """Observations, draws, mean actions, and what the draws earned more."""
    return jax.vmap(lambda key: _one(env, explore, mean, price, key))(keys)


def _one(
    env: Any, explore: Policy, mean: Policy, price: Float[Array, " cost"], key: PRNGKeyArray
) -> tuple[Array, Array, Array, Array]:
    for_params, for_reset, for_steps, for_draw = jax.random.split(key, 4)
    params = env.sample_params(for_params)
    state, obs = env.reset(params, for_reset)
    horizon = env.spec.horizon
    keys = jax.random.split(for_steps, horizon)
    carry = (state, obs, jnp.asarray(True))

    def act(carry: Any, action: Array, key: PRNGKeyArray) -> tuple[Any, Array]:
        state, _, going = carry
        state, step = env.step(params, state, action, key)
        reward = jnp.where(going, penalised_reward(step.reward, step.cost, price), 0)
        return (state, step.final_obs, going & ~(step.terminated | step.truncated)), reward

    def go_on(carry: Any, key: PRNGKeyArray) -> tuple[Any, Array]:
        return act(carry, mean((), carry[1], key)[1], key)

    begin = horizon // 3
    carry, _ = jax.lax.scan(go_on, carry, keys[:begin])
    obs = carry[1]

    def earned(action: Array) -> Array:
        after, first = act(carry, action, keys[begin])
        _, later = jax.lax.scan(go_on, after, keys[begin + 1 :])
        return first + jnp.sum(later * DISCOUNT ** (1 + jnp.arange(len(later))))

    drawn, usual = explore((), obs, for_draw)[1], mean((), obs, for_draw)[1]
    return obs, drawn, usual, earned(drawn) - earned(usual)
