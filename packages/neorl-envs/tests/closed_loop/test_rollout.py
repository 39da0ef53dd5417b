"""Rollouts against a loop written out in NumPy, and what follows the end of an episode."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from neorl_envs.closed_loop import LoopStep, Start, drawn_start, rollout
from neorl_envs.scoring import run_episode


class Windup(eqx.Module):
    """An integrator with noise, which is taken back by what the actuator did not follow."""

    gain: Array

    def initial_carry(self) -> Array:
        return jnp.zeros(1)

    def __call__(self, carry: Array, obs: Array, key: Array) -> tuple[Array, Array]:
        carry = carry + self.gain * (1 - obs)
        return carry, 50 + carry + 30 * jax.random.normal(key, (1,))

    def sent(self, carry: Array, action: Array) -> Array:
        return carry - 0.25 * jnp.maximum(carry + 50 - action, 0)


@pytest.fixture
def plant(tank: Any) -> Any:
    """A tank with a disturbance, which trips when it is nearly empty or full."""

    class Tripping(tank):
        def step(self, params: Any, state: Any, action: Any, key: Any) -> Any:
            action = action + 20 * jax.random.normal(key, (1,))
            state, step = super().step(params, state, action, key)
            trip = jnp.abs(step.obs[0] - 1) > 0.8
            return state, step._replace(terminated=trip, truncated=step.truncated & ~trip)

    return Tripping()


@jax.jit
@jax.vmap
def two_draws(key: Array) -> Array:
    """What policy and plant draw in a step."""
    return jax.vmap(lambda one: jax.random.normal(one, (1,))[0])(jax.random.split(key))


def written_out(start: Start, gain: float) -> tuple[list[list[float]], int]:
    """The same episode in float64, row by row: level, applied action, reward, ended."""
    level, carry, rows = float(start.obs[0]), 0.0, []
    for of_policy, of_noise in np.asarray(two_draws(start.noise_keys), float):
        carry += gain * (1 - level)
        requested = 50 + carry + 30 * of_policy
        applied = min(max(requested + 20 * of_noise, 0), 100)
        after = min(max(level + float(start.params) * (applied - 50), 0), 2)
        carry -= 0.25 * max(carry + 50 - applied, 0)
        ended = abs(after - 1) > 0.8
        rows.append([level, applied, -abs(after - 1)])
        level = after
        if ended:
            break
    return rows, len(rows)


def added(so_far: Array, loop_step: LoopStep) -> Array:
    return so_far + loop_step.step.reward


def test_an_episode_is_the_loop_written_out_whole_or_tripped(plant: Any) -> None:
    policy, keys = Windup(jnp.asarray(15.0)), jax.random.split(jax.random.key(1), 12)

    def one(key: Array) -> Any:
        start = drawn_start(plant, key)
        return start, rollout(plant, policy, start, sums=jnp.zeros(()), add=added, hold=True)

    starts, done = jax.jit(jax.vmap(one))(keys)
    done = jax.device_get(done)
    lengths = done.mask.sum(axis=1)
    assert (lengths < 25).any()
    assert (lengths == 25).any()
    for i, length in enumerate(lengths):
        expected, steps = written_out(jax.tree.map(lambda x, i=i: x[i], starts), 15.0)
        assert length == steps
        assert done.mask[i, :length].all()
        rows = jax.tree.map(lambda x, i=i, n=length: x[i, :n], done.rows)
        np.testing.assert_allclose(
            np.column_stack([rows.obs, rows.action, rows.reward]), expected, rtol=1e-3, atol=1e-4
        )
        np.testing.assert_allclose(done.sums[i], np.sum(expected, axis=0)[2], rtol=1e-3)
        # Behind the end the plant stays where it was when it acted last.
        np.testing.assert_array_equal(np.unique(done.rows.obs[i, length:]).size, int(length < 25))
    # One start alone, without vmap, is the same episode; so is that of the scoring room.
    alone = jax.jit(one)(keys[3])[1]
    np.testing.assert_allclose(alone.rows.obs, done.rows.obs[3], rtol=1e-5)
    scored = run_episode(plant, policy, keys[3])
    np.testing.assert_allclose(scored.obs, done.rows.obs[3, : lengths[3]], rtol=1e-5)


def test_what_is_kept_of_a_step_is_the_callers_choice(plant: Any) -> None:
    policy, start = Windup(jnp.asarray(15.0)), drawn_start(plant, jax.random.key(0))

    def action_and_carry(loop_step: LoopStep) -> dict[str, Array]:
        return {"asked": loop_step.action, "carry": loop_step.carry}

    one = rollout(plant, policy, start, record=action_and_carry)
    np.testing.assert_allclose(one.rows["carry"][0], 15 * (1 - start.obs), rtol=1e-5)
    nothing = rollout(plant, policy, start, record=None)
    assert jax.tree.leaves((nothing.rows, nothing.sums)) == []
    np.testing.assert_array_equal(nothing.mask, one.mask)
