"""Network policies: physical units in and out, inside the box."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.networks import init_mlp, tanh
from neorl_agents.policies import GaussianPolicy, NetworkPolicy, SquashedGaussianPolicy
from neorl_core import Affine
from neorl_core.testing import finite_grad, no_recompile

KEY = jax.random.key(0)


def policy(seed: int = 0) -> NetworkPolicy:
    network = init_mlp((3, 8, 2), jax.random.key(seed), output=tanh)
    return NetworkPolicy(
        obs=Affine(jnp.asarray([300.0, 0.0, 5.0]), jnp.asarray([10.0, 1.0, 2.0])),
        network=network,
        action=Affine(jnp.asarray([50.0, 0.0]), jnp.asarray([50.0, 1.0])),
        low=jnp.asarray([0.0, -1.0]),
        high=jnp.asarray([100.0, 1.0]),
    )


def act(policy, obs):
    return policy(policy.initial_carry(), obs, None)[1]


class TestNetworkPolicy:
    def test_maps_physical_to_physical(self, in_numpy):
        one, obs = policy(), np.array([310.0, 0.5, 5.0])
        unit = np.tanh(in_numpy(one.network, [1.0, 0.5, 0.0]))
        expected = np.array([50.0, 0.0]) + np.array([50.0, 1.0]) * unit
        np.testing.assert_allclose(act(one, jnp.asarray(obs, jnp.float32)), expected, rtol=1e-5)

    @pytest.mark.parametrize("size", [1e3, 1e30, np.inf])
    def test_stays_in_the_box(self, size):
        for sign in (1.0, -1.0):
            action = act(policy(), sign * jnp.full(3, size, jnp.float32))
            inside = (np.array([0.0, -1.0]) <= action) & (action <= np.array([100.0, 1.0]))
            assert np.all(inside | np.isnan(action))

    def test_ignores_the_key_and_carries_nothing(self):
        one, obs = policy(), jnp.ones(3)
        carry, action = one((), obs, KEY)
        assert carry == ()
        assert one.sent((), action) == ()
        np.testing.assert_array_equal(action, act(one, obs))

    @pytest.mark.parametrize("shape", [(5, 3), (4,), ()])
    def test_refuses_all_but_one_observation(self, shape):
        with pytest.raises(ValueError, match="one observation of shape"):
            act(policy(), jnp.zeros(shape))

    def test_another_policy_uses_the_same_program(self):
        no_recompile(act, (policy(0), jnp.ones(3)), (policy(1), jnp.zeros(3)))

    def test_gradient_with_respect_to_the_observation_is_finite(self):
        one = policy()

        def action_of(obs):
            return act(one, obs)

        finite_grad(action_of, jnp.asarray([[300.0, 0, 0], [1e4, 1e4, 1e4], [0, 0, 0]]))

    def test_exploration_is_clipped_and_centred(self):
        explorer = GaussianPolicy(policy(), jnp.asarray([3.0, -3.0]))
        keys = jax.random.split(KEY, 200)
        actions = jax.vmap(lambda key: explorer((), jnp.ones(3), key)[1])(keys)
        assert np.all(actions >= explorer.mean.low[None])
        assert np.all(actions <= explorer.mean.high[None])
        assert set(np.asarray(actions[:, 0])) >= {0.0, 100.0}
        np.testing.assert_allclose(
            actions[:, 1].mean(), act(explorer.mean, jnp.ones(3))[1], atol=0.02
        )
        assert explorer.initial_carry() == () == explorer.sent((), actions[0])

    @pytest.mark.parametrize("kind", ["gaussian", "squashed"])
    def test_exploration_without_a_key_is_refused(self, kind):
        drawn = {
            "gaussian": GaussianPolicy(policy(), jnp.zeros(2)),
            "squashed": SquashedGaussianPolicy(policy(), (-5.0, 2.0)),
        }
        with pytest.raises(ValueError, match=r"samples its actions and needs a key"):
            act(drawn[kind], jnp.ones(3))
