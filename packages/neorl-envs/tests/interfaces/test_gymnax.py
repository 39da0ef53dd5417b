import jax
import jax.numpy as jnp
import numpy as np

from neorl_envs.interfaces import gymnax
from neorl_envs.plants import ChemicalReactor


def test_the_gymnax_signature(env: ChemicalReactor) -> None:
    adapted = gymnax(env)
    assert (adapted.name, adapted.num_actions) == ("ChemicalReactor-v0", 3)
    params = adapted.default_params
    obs, state = adapted.reset(jax.random.key(0), params)
    assert obs.shape == (12,)
    step = jax.jit(adapted.step)
    key = jax.random.key(1)
    obs, state, reward, terminated, truncated, info = step(key, state, jnp.zeros(3), params)
    np.testing.assert_array_equal(obs, info["final_observation"])
    assert reward.shape == terminated.shape == truncated.shape == ()
    # At the end the observation is the next episode's, the final one is kept.
    ending = state._replace(state=state.state._replace(time=jnp.asarray(299, jnp.int32)))
    obs, after, _, terminated, truncated, info = step(key, ending, jnp.zeros(3), params)
    assert bool(truncated)
    assert not bool(terminated)
    assert int(after.state.time) == 0
    assert float(obs[11]) == 0.0
    assert float(info["final_observation"][11]) > 4
    assert set(info) > {"cost", "applied", "success"}
