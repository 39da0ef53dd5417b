"""Stacked action-value networks and their loss."""

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.learning import critic_loss
from neorl_agents.networks import ensemble, first_q_value, init_mlp, q_values

KEY = jax.random.key(0)


class TestCritics:
    def test_stacked_equals_one_by_one(self, in_numpy):
        critics = ensemble(2, lambda key: init_mlp((5, 8, 1), key), KEY)
        rng = np.random.default_rng(0)
        obs, action = jnp.asarray(rng.normal(size=(6, 3))), jnp.asarray(rng.normal(size=(6, 2)))
        inputs = np.concatenate([obs, action], axis=1)
        actual = q_values(critics, obs, action)
        for i in range(2):
            alone = jax.tree.map(lambda leaf, i=i: leaf[i], critics)
            np.testing.assert_allclose(actual[i], in_numpy(alone, inputs)[:, 0], atol=1e-5)
        np.testing.assert_allclose(first_q_value(critics, obs, action), actual[0], atol=1e-6)

    def test_loss_sums_over_members_and_averages_over_rows(self, problem):
        critics = ensemble(2, lambda key: init_mlp((6, 8, 1), key), KEY)
        rows = problem.log._replace(obs=problem.log.obs / 1e4, action=problem.log.action / 1e4)
        target = jnp.arange(256.0)
        loss, mean = critic_loss(critics, rows, target)
        q = np.asarray(q_values(critics, rows.obs, rows.action), np.float64)
        np.testing.assert_allclose(loss, np.mean((q - np.arange(256)) ** 2, 1).sum(), rtol=1e-5)
        np.testing.assert_allclose(mean, q.mean(axis=0), rtol=1e-4, atol=1e-6)
