"""Scores of policies on a plant: one compiled program a kind of policy."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from neorl_core import Policy, highs, lows
from neorl_core.control import ConstantPolicy


class Totals(NamedTuple):
    """What whole episodes come to, shape ``(episode,)``.

    ``score`` is the return less the penalised costs; ``kept``, whether every cost kept its limit,
    and ``kept_each``, which did, of shape ``(episode, cost)``.
    """

    score: np.ndarray
    reward: np.ndarray
    cost: np.ndarray
    steps: np.ndarray
    trip: np.ndarray
    kept: np.ndarray
    kept_each: np.ndarray


@functools.partial(jax.jit, static_argnums=(0, 3))
def _totals(env: Any, policy: Policy, keys: Array, spread: float) -> Any:
    def episode(key: Array) -> Any:
        for_params, for_reset, for_steps = jax.random.split(key, 3)
        params = env.sample_params(for_params, spread=spread)
        state, obs = env.reset(params, for_reset)

        def step(carry: tuple, t: Array) -> tuple[tuple, None]:
            state, obs, memory, alive, total = carry
            at = jax.random.fold_in(for_steps, t)
            memory, action = policy(memory, obs, at)
            state, answer = env.step(params, state, action, at)
            memory = policy.sent(memory, answer.applied)
            reward, cost, worst, steps, trip = total
            total = (
                reward + jnp.where(alive, answer.reward, 0),
                cost + jnp.where(alive, answer.cost, 0),
                jnp.maximum(worst, jnp.where(alive, answer.cost, 0)),
                steps + alive.astype(steps.dtype),
                trip | (alive & answer.info.trip),
            )
            alive = alive & ~(answer.terminated | answer.truncated)
            return (state, answer.obs, memory, alive, total), None

        zero = jnp.zeros(env.spec.n_cost)
        nothing = (jnp.zeros(()), zero, zero, jnp.zeros((), jnp.int32), jnp.asarray(False))
        carry = (state, obs, policy.initial_carry(), jnp.asarray(True), nothing)
        (*_, total), _ = jax.lax.scan(step, carry, jnp.arange(env.spec.horizon))
        return total

    return jax.vmap(episode)(keys)


def _judged(env: Any, result: Any) -> Totals:
    reward, cost, worst, steps, trip = map(np.asarray, result)
    channels = env.spec.cost
    limit = np.asarray([channel.limit for channel in channels])
    a_step = np.asarray([channel.per == "step" for channel in channels])
    kept = (np.where(a_step, worst, cost) <= limit) & ~trip[..., None]
    weight = np.asarray([env.penalty_weights()[channel.name] for channel in channels])
    return Totals(reward - cost @ weight, reward, cost, steps, trip, kept.all(axis=-1), kept)


@pytest.fixture(scope="session")
def totals() -> Any:
    """``totals(env, policy, episodes, key=0, spread=0.15)``."""

    def run(env: Any, policy: Any, episodes: int, key: int = 0, spread: float = 0.15) -> Totals:
        keys = jax.random.split(jax.random.key(key), episodes)
        return _judged(env, _totals(env, policy, keys, spread))

    return run


@pytest.fixture(scope="session")
def kept_at() -> Any:
    """``kept_at(env, demands, steps, seen)``: one world a demand, which is held for all steps.

    Constants with a spread of 0.3, and on beyond trips and horizon. Asserts that all readings stay
    in their ranges and reward and costs finite; returns what ``seen(state, answer)`` gives, of
    shape ``(demand, step, ...)``.
    """

    def run(env: Any, demands: Any, steps: int, seen: Callable[[Any, Any], Any]) -> Any:
        low, high = (jnp.asarray(ends(env.spec.obs)) for ends in (lows, highs))

        @jax.jit
        @jax.vmap
        def world(demand: Array, key: Array) -> Any:
            params = env.sample_params(key, spread=0.3)

            def step(state: Any, key: Array) -> Any:
                state, answer = env.step(params, state, demand, key)
                fine = jnp.all((answer.obs >= low) & (answer.obs <= high))
                fine = fine & jnp.isfinite(answer.reward) & jnp.all(jnp.isfinite(answer.cost))
                return state, (fine, seen(state, answer))

            start, _ = env.reset(params, key)
            return jax.lax.scan(step, start, jax.random.split(key, steps))[1]

        demands = jnp.asarray(np.asarray(demands), jnp.float32)
        fine, result = world(demands, jax.random.split(jax.random.key(2), len(demands)))
        assert np.asarray(fine).all()
        return jax.tree.map(np.asarray, result)

    return run


@pytest.fixture(scope="session")
def constant_scores() -> Any:
    """``constant_scores(env, count, episodes)``: mean scores of random constant actions."""

    def run(env: Any, count: int, episodes: int) -> np.ndarray:
        low, high = jnp.asarray(lows(env.spec.action)), jnp.asarray(highs(env.spec.action))
        rows = jax.random.uniform(jax.random.key(5), (count, low.size))
        keys = jax.random.split(jax.random.key(0), episodes)

        def one(row: Array) -> Any:
            return _totals(env, ConstantPolicy(low + row * (high - low)), keys, 0.15)

        return _judged(env, jax.jit(jax.vmap(one))(rows)).score.mean(axis=1)

    return run
