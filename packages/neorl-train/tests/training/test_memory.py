"""Where velocities are not measured, cloning with memory beats cloning the present alone."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import BC, TD3BC
from neorl_agents.learning import unit_rows
from neorl_agents.sampling import windows
from neorl_agents.testing import sized
from neorl_core import Transition
from neorl_envs import collect_log, make
from neorl_envs.datasets import data_statistics
from neorl_envs.scoring import score_episodes, scores
from neorl_train import train
from neorl_train.data import training_data
from neorl_train.judging import rollouts
from neorl_train.training import Plan

SEEN = (0, 1, 4, 5)


class Partly(eqx.Module):
    policy: BC

    def initial_carry(self):
        return self.policy.initial_carry()

    def __call__(self, carry, obs, key=None):
        return self.policy(carry, obs[jnp.asarray(SEEN)], key)

    def sent(self, carry, action):
        return self.policy.sent(carry, action)


@pytest.mark.parametrize("encoder", ["history", pytest.param("gru", marks=pytest.mark.nightly)])
def test_what_a_policy_with_memory_did_is_what_its_log_says_of_it(encoder):
    """A rollout as evaluation makes it, and the actions of the windows that training would draw."""
    env, starts = make("DMSD-v0"), 3
    spec, horizon = env.spec, env.spec.horizon
    log = collect_log(env, n_steps=1_000, key=jax.random.key(0))
    learner = sized(TD3BC(), hidden=(8,), batch_size=8, encoder=encoder, history_steps=4)
    state = learner.init(spec, data_statistics(log), jax.random.key(5))
    policy = learner.policy(state)
    done = jax.device_get(rollouts(env, policy, jax.random.key(1), jnp.arange(starts)))
    assert done.mask.all()
    seen = np.concatenate([done.first_obs[:, None], done.obs[:, :-1]], axis=1)
    flat = [np.asarray(x).reshape(starts * horizon, -1) for x in (seen, done.applied, done.obs)]
    last = np.arange(starts * horizon) % horizon == horizon - 1
    none = np.zeros(len(last), bool)
    rows = Transition(
        flat[0], flat[1], np.zeros(len(last), np.float32), next_obs=flat[2], terminated=none,
        truncated=last,
    )  # fmt: skip
    tables = jax.tree.map(jnp.asarray, learner.sampler.tables(rows))
    drawn = rows._replace(obs=windows(tables, jnp.arange(len(last)), steps=4), next_obs=None)
    inputs = unit_rows(state.preparation, jax.tree.map(jnp.asarray, drawn)).obs
    expected = policy.action.to_physical(policy.network(inputs))
    requested = done.action.reshape(starts * horizon, -1)
    np.testing.assert_allclose(requested, expected, rtol=1e-5, atol=1e-5)
    # The window matters: without it the same network acts differently.
    fresh = jax.vmap(lambda obs: policy(policy.initial_carry(), obs)[1])(jnp.asarray(flat[0]))
    alone = np.abs(np.asarray(fresh) - requested).max(axis=1)
    assert (alone[np.arange(len(last)) % horizon == 0] < 1e-5).all()
    assert np.median(alone) > 1e-3


@pytest.mark.nightly
def test_memory_makes_up_for_what_is_not_measured(make_notes):
    env = make("DMSD-v0")
    log = collect_log(env, n_steps=20_000, key=jax.random.key(0))
    rows, columns = log.transitions, list(SEEN)
    spec = dataclasses.replace(log.spec, obs=tuple(log.spec.obs[i] for i in SEEN))
    rows = rows._replace(obs=rows.obs[:, columns], next_obs=rows.next_obs[:, columns])
    data = training_data(dataclasses.replace(log, transitions=rows, spec=spec))
    keys, earned = jax.random.split(jax.random.key(1), 200), {}
    for encoder in ("none", "history", "gru"):
        learner = sized(BC(), hidden=(64, 64), batch_size=128, encoder=encoder, history_steps=4)
        trained = train(learner, data, (0,), Plan(8_000, 500, 8_000), watcher=make_notes())
        earned[encoder] = np.asarray(
            scores(env, score_episodes(env, Partly(trained.policies[0]), keys))
        )
    for encoder in ("history", "gru"):
        gain = earned[encoder] - earned["none"]
        # The same episodes: far more than four standard errors, and 5 points of the benchmark.
        assert gain.mean() > 4 * gain.std(ddof=1) / np.sqrt(len(gain))
        assert gain.mean() > 0.05 * (849.51 - 30.60)
