from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import InputError, Step
from neorl_envs.plants import ChemicalReactor
from neorl_envs.wrappers import autoreset, fresh_carry, randomised

SHORT = ChemicalReactor(horizon=7)


@pytest.mark.parametrize("spread", [None, 0.15])
def test_autoreset_begins_a_new_episode_and_keeps_the_last_observation(spread: float) -> None:
    env = autoreset(SHORT if spread is None else randomised(SHORT, spread=spread))
    assert env.spec == SHORT.spec
    params = SHORT.default_params() if spread is None else None
    pid = SHORT.tunings()[SHORT.reference]

    def step(carry: Any, key: Any) -> Any:
        state, obs, memory = carry
        memory, action = pid(memory, obs)
        state, answer = env.step(params, state, action, key)
        memory = fresh_carry(pid, pid.sent(memory, answer.applied), answer)
        return (state, answer.obs, memory), (answer, state, memory)

    state, obs = env.reset(params, jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 21)
    run = jax.jit(lambda carry: jax.lax.scan(step, carry, keys))
    _, rows = run((state, obs, pid.initial_carry()))
    answer, state, memory = jax.tree.map(np.asarray, rows)
    over = np.arange(21) % 7 == 6
    np.testing.assert_array_equal(answer.truncated, over)
    np.testing.assert_allclose(answer.final_obs[over, 11], 7 * 50 / 3600, rtol=1e-6)
    np.testing.assert_array_equal(answer.obs[over, 11], 0.0)
    np.testing.assert_array_equal(answer.obs[~over], answer.final_obs[~over])
    # The controller's memory does not cross the boundary of the episode.
    fresh = pid.initial_carry()
    np.testing.assert_array_equal(memory.integral[over], np.tile(fresh.integral, (3, 1)))
    assert np.isnan(memory.measurement[over]).all()
    assert (memory.integral[~over][:, 1] != 0).all()
    if spread is None:
        np.testing.assert_array_equal(state.state.time, (np.arange(21) + 1) % 7)
    else:  # an episode keeps its parameters, the next one has others
        heat = state.state.params.constants.reaction_heat
        assert len(np.unique(heat)) == 4
        assert heat[0] == heat[5] != heat[6]
    # No two episodes begin alike: resets are drawn, not replayed.
    assert len(np.unique(answer.obs[over, 0])) == 3


def test_cached_starts_are_drawn_once_and_chosen_at_random(tank: Any) -> None:
    env = autoreset(tank(), cached=3)
    params = env.default_params()
    state, obs = env.reset(params, jax.random.key(0))
    first = np.asarray(state.starts[1])[:, 0]
    assert len(np.unique(first)) == 3
    assert float(obs[0]) == first[0]

    def step(state: Any, key: Any) -> Any:
        return env.step(params, state, jnp.asarray([60.0]), key)

    _, steps = jax.jit(lambda s: jax.lax.scan(step, s, jax.random.split(jax.random.key(1), 500)))(
        state
    )
    first_obs = np.asarray(steps.obs)[np.asarray(steps.truncated), 0]
    assert len(first_obs) == 20
    assert set(first_obs.tolist()) == set(first.tolist())
    for wrong in (0, 1.5, True):
        with pytest.raises(InputError, match="cached must be None or an integer of at least 1"):
            autoreset(tank(), cached=wrong)


class Counted:
    """A plant of one number that counts how often a start is computed."""

    def __init__(self) -> None:
        self.starts = 0

    def reset(self, params: Any, key: Any) -> tuple[Any, Any]:
        jax.debug.callback(self._count)
        start = jax.random.uniform(key)
        return (start, jnp.int32(0)), start[None]

    def _count(self) -> None:
        self.starts += 1

    def step(self, params: Any, state: Any, action: Any, key: Any) -> tuple[Any, Step]:
        x, time = state[0] * params, state[1] + 1
        over, no = time >= 3, jnp.zeros((), jnp.bool_)
        return (x, time), Step(x[None], x[None], x, x[None], action, no, over, ())


def test_a_batch_computes_starts_only_where_an_episode_ends() -> None:
    plant = Counted()
    env = autoreset(plant)  # type: ignore[arg-type]

    def run(params: Any, key: Any) -> Any:
        state, _ = env.reset(params, key)

        def step(state: Any, key: Any) -> Any:
            state, answer = env.step(params, state, jnp.zeros(1), key)
            return state, answer.reward

        return jax.lax.scan(step, state, jax.random.split(key, 7))[1]

    keys = jax.random.split(jax.random.key(0), 5)
    batched = jax.jit(jax.vmap(run, in_axes=(None, 0)))(0.5, keys)
    jax.effects_barrier()
    assert plant.starts == 1 + 2  # calls for the batch: at first, and in steps 3 and 6 of 7
    alone = jax.jit(lambda keys: jax.lax.map(lambda key: run(0.5, key), keys))(keys)
    np.testing.assert_array_equal(batched, alone)
    twice = jax.jit(jax.vmap(jax.vmap(run, in_axes=(None, 0)), in_axes=(None, 0)))
    np.testing.assert_array_equal(twice(0.5, keys[None])[0], batched)
    # Gradients pass through a reset: the reward of step k of an episode has slope k x_0 a^(k-1).
    slope = jax.grad(lambda a: jnp.sum(jax.vmap(run, in_axes=(None, 0))(a, keys)))(0.5)
    starts = np.asarray(batched)[:, [0, 3]] / 0.5
    last = np.asarray(batched)[:, 6] / 0.5
    wanted = (starts * (1 + 2 * 0.5 + 3 * 0.25)).sum() + last.sum()
    np.testing.assert_allclose(slope, wanted, rtol=1e-5)
