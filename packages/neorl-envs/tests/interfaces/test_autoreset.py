from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_envs.interfaces import autoreset, fresh_carry
from neorl_envs.plants import ChemicalReactor

SHORT = ChemicalReactor(horizon=7)


@pytest.mark.parametrize("spread", [None, 0.15])
def test_autoreset_begins_a_new_episode_and_keeps_the_last_observation(spread: float) -> None:
    env = autoreset(SHORT, spread=spread)
    assert env.spec == SHORT.spec
    params = SHORT.default_params()
    heat = jnp.asarray(900.0)
    params = params._replace(constants=params.constants._replace(reaction_heat=heat))
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
    np.testing.assert_array_equal(state.state.time, (np.arange(21) + 1) % 7)
    # The controller's memory does not cross the boundary of the episode.
    fresh = pid.initial_carry()
    np.testing.assert_array_equal(memory.integral[over], np.tile(fresh.integral, (3, 1)))
    assert np.isnan(memory.measurement[over]).all()
    assert (memory.integral[~over][:, 1] != 0).all()
    heats = np.unique(state.params.constants.reaction_heat)
    assert len(heats) == (1 if spread is None else 4)
    # No two episodes begin alike: resets are drawn, not replayed.
    assert len(np.unique(answer.obs[over, 0])) == 3
