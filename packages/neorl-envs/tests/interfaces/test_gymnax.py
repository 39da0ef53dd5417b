from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_envs.interfaces import gymnax
from neorl_envs.plants import ChemicalReactor


def test_the_gymnax_signature(env: ChemicalReactor) -> None:
    adapted = gymnax(env)
    assert (adapted.name, adapted.num_actions) == ("ChemicalReactor-v0", 3)
    params = adapted.default_params
    assert adapted.action_space(params).shape == (3,)
    box = adapted.observation_space(params)
    assert box.shape == (12,)
    assert bool(box.contains(box.sample(jax.random.key(0))))
    assert not bool(box.contains(box.high + 1))
    obs, state = adapted.reset(jax.random.key(0), params)
    assert obs.shape == (12,)
    step = jax.jit(adapted.step)
    key = jax.random.key(1)
    obs, state, reward, terminated, truncated, info = step(key, state, jnp.zeros(3), params)
    np.testing.assert_array_equal(obs, info["final_observation"])
    assert reward.shape == terminated.shape == truncated.shape == ()
    assert set(info) > {"cost", "cost_sum", "applied", "success", "terminated", "truncated"}


def test_the_end_of_an_episode(tank: Any) -> None:
    adapted = gymnax(tank())
    params, action = adapted.default_params, jnp.asarray([0.1])
    _, state = adapted.reset(jax.random.key(0), params)
    key = jax.random.key(1)
    step, bare = jax.jit(adapted.step), jax.jit(adapted.step_env)
    for _ in range(24):
        obs, state, _, _, truncated, _ = step(key, state, action, params)
        assert not bool(truncated)
    # Without a reset the state keeps its time and says that the clock has run out.
    last, ended, _, terminated, info = bare(key, state, action, params)
    assert bool(adapted.is_truncated(ended, params))
    assert bool(info["truncated"])
    assert not bool(terminated)
    obs, state, _, terminated, truncated, info = step(key, state, action, params)
    assert bool(truncated)
    assert bool(info["truncated"])
    assert not bool(info["terminated"])
    assert not bool(adapted.is_truncated(state, params))
    assert float(info["final_observation"][0]) == float(last[0])
    assert float(obs[0]) != float(last[0])


def test_every_episode_may_draw_its_parameters(tank: Any) -> None:
    adapted = gymnax(tank(), spread=0.3)
    _, states = jax.vmap(adapted.reset)(jax.random.split(jax.random.key(0), 20))
    assert len(np.unique(states.inner.state.params)) == 20


def test_a_training_loop_written_for_gymnax_learns(tank: Any) -> None:
    """The loop of PureJaxRL, with a linear policy and the gradient through the plant in
    place of PPO's.

    Nothing in it knows neorl: ``default_params``, both spaces, vmapped ``reset`` and ``step`` with
    six values, all inside one compiled program.
    """

    def make_train(env: Any, env_params: Any, n_envs: int, n_steps: int, n_updates: int) -> Any:
        n_obs = env.observation_space(env_params).shape[0]
        n_act = env.action_space(env_params).shape[0]

        def returns(weights: Any, rng: Any) -> Any:
            rng, _rng = jax.random.split(rng)
            obsv, env_state = jax.vmap(env.reset, in_axes=(0, None))(
                jax.random.split(_rng, n_envs), env_params
            )

            def _env_step(runner_state: Any, unused: Any) -> Any:
                env_state, last_obs, rng = runner_state
                action = jnp.tanh(last_obs @ weights["w"] + weights["b"])
                rng, _rng = jax.random.split(rng)
                obsv, env_state, reward, *_ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
                    jax.random.split(_rng, n_envs), env_state, action, env_params
                )
                return (env_state, obsv, rng), reward

            _, reward = jax.lax.scan(_env_step, (env_state, obsv, rng), None, n_steps)
            return reward.mean()

        def train(rng: Any) -> Any:
            weights = {"w": jnp.zeros((n_obs, n_act)), "b": jnp.zeros(n_act)}

            def _update(weights: Any, rng: Any) -> Any:
                metric, slope = jax.value_and_grad(returns)(weights, rng)
                return jax.tree.map(lambda x, g: x + 0.05 * g, weights, slope), metric

            return jax.lax.scan(_update, weights, jax.random.split(rng, n_updates))

        return train

    env = gymnax(tank())
    train = jax.jit(make_train(env, env.default_params, 16, 25, 100))
    with jax.numpy_rank_promotion("allow"):  # as in a user's own program
        _, metric = train(jax.random.key(30))
    assert np.isfinite(metric).all()
    assert np.mean(metric[-5:]) > np.mean(metric[:5]) + 0.1, metric
