"""Perceptrons, policies, scaling and Adam."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.networks import ACTIVATIONS, MLP, ensemble, init_mlp
from neorl_agents.networks._adam import adam, init_adam
from neorl_agents.networks._critics import critic_loss, first_q_value, init_critics, q_values
from neorl_agents.networks._mlp import relu, tanh
from neorl_agents.policies import GaussianPolicy, NetworkPolicy
from neorl_agents.policies._scaling import init_scaling, scaled
from neorl_core import Affine, FieldStatistics
from neorl_core.testing import assert_close, finite_grad, no_recompile

KEY = jax.random.key(0)


def in_numpy(network: MLP, x: np.ndarray) -> np.ndarray:
    x = np.asarray(x, np.float64)
    layers = list(zip(network.weights, network.biases, strict=True))
    for weight, bias in layers[:-1]:
        x = np.maximum(x @ np.asarray(weight, np.float64) + np.asarray(bias, np.float64), 0)
    weight, bias = layers[-1]
    return x @ np.asarray(weight, np.float64) + np.asarray(bias, np.float64)


class TestMLP:
    @pytest.mark.parametrize("initialiser", ["uniform", "orthogonal"])
    def test_equals_numpy_on_one_row_and_on_batches(self, initialiser):
        network = init_mlp((3, 8, 5, 2), KEY, initialiser=initialiser)
        x = np.random.default_rng(0).normal(size=(4, 6, 3)).astype(np.float32)
        np.testing.assert_allclose(network(jnp.asarray(x)), in_numpy(network, x), atol=1e-5)
        np.testing.assert_allclose(
            network(jnp.asarray(x[0, 0])), in_numpy(network, x[0, 0]), atol=1e-5
        )

    @pytest.mark.parametrize("outputs", [1, 2, 3, 4, 5, 9])
    @pytest.mark.parametrize("variant", ["eager", "jit", "vmap", "jit of vmap"])
    def test_batches_have_the_values_and_gradients_of_their_rows(self, outputs, variant):
        network = init_mlp((3, 8, 5, outputs), KEY)
        x = jax.random.normal(jax.random.key(1), (7, 3))
        target = jax.random.normal(jax.random.key(2), (7, outputs))

        def loss_of_the_batch(network, x):
            return jnp.sum(jnp.square(network(x) - target))

        def loss_of_its_rows(network, x):
            return jnp.sum(jnp.square(jax.vmap(network)(x) - target.astype(x.dtype)))

        np.testing.assert_allclose(network(x), in_numpy(network, np.asarray(x)), atol=1e-5)
        both = jax.value_and_grad(loss_of_the_batch, argnums=(0, 1))
        with jax.enable_x64(True):
            wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), (network, x))
            expected = jax.value_and_grad(loss_of_its_rows, argnums=(0, 1))(*wide)
        if "vmap" in variant:
            both, pair = jax.vmap(both), jax.tree.map(lambda a: jnp.stack([a, a]), (network, x))
        else:
            pair = (network, x)
        found = (jax.jit(both) if "jit" in variant else both)(*pair)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a[-1] if "vmap" in variant else a, b, rtol=1e-4, atol=1e-5)

    def test_output_activation_comes_last(self):
        plain = init_mlp((3, 8, 2), KEY)
        bounded = init_mlp((3, 8, 2), KEY, output=tanh)
        x = 10 * jnp.ones(3)
        np.testing.assert_allclose(bounded(x), np.tanh(plain(x)), rtol=1e-6)

    def test_relu_has_no_gradient_at_zero(self):
        assert jax.grad(relu)(0.0) == 0.0

    def test_uniform_draws_fill_their_range(self):
        network = init_mlp((16, 200, 100), KEY)
        for weight, bias, inputs in zip(network.weights, network.biases, (16, 200), strict=True):
            bound = 1 / np.sqrt(inputs)
            for draw in (weight, bias):
                assert np.abs(draw).max() <= bound
            np.testing.assert_allclose(np.abs(weight).max(), bound, rtol=0.01)
            np.testing.assert_allclose(np.std(weight), bound / np.sqrt(3), rtol=0.05)

    def test_orthogonal_draws_are_orthogonal_with_gain(self):
        network = init_mlp((6, 10, 4, 1), KEY, initialiser="orthogonal")
        for weight in network.weights:
            rows, columns = weight.shape
            gram = weight.T @ weight if rows >= columns else weight @ weight.T
            np.testing.assert_allclose(gram, 2 * np.eye(min(rows, columns)), atol=1e-5)
        assert all(not np.any(bias) for bias in network.biases)

    def test_layers_and_members_are_independent(self):
        network = init_mlp((8, 8, 8), KEY)
        assert abs(np.corrcoef(network.weights[0].ravel(), network.weights[1].ravel())[0, 1]) < 0.5
        twins = ensemble(2, partial(init_mlp, (4, 8, 1)), KEY)
        assert twins.weights[0].shape == (2, 4, 8)
        assert not np.array_equal(twins.weights[0][0], twins.weights[0][1])

    @pytest.mark.parametrize("widths", [(3,), (3, 0, 1), ()])
    def test_bad_widths_are_refused(self, widths):
        with pytest.raises(ValueError, match="widths must be"):
            init_mlp(widths, KEY)

    def test_unknown_initialiser_is_refused(self):
        with pytest.raises(ValueError, match="uniform or orthogonal"):
            init_mlp((3, 1), KEY, initialiser="xavier")

    def test_activations_are_the_same_objects_in_every_network(self):
        trees = {jax.tree.structure(init_mlp((3, 4, 1), jax.random.key(i))) for i in range(2)}
        assert len(trees) == 1
        assert all(callable(activation) for activation in ACTIVATIONS.values())


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
    def test_maps_physical_to_physical(self):
        one, obs = policy(), np.array([310.0, 0.5, 5.0])
        unit = np.tanh(in_numpy(one.network, [1.0, 0.5, 0.0]))
        expected = np.array([50.0, 0.0]) + np.array([50.0, 1.0]) * unit
        np.testing.assert_allclose(act(one, jnp.asarray(obs, jnp.float32)), expected, rtol=1e-5)

    @pytest.mark.parametrize("size", [1e3, 1e30, np.inf])
    def test_stays_in_the_box(self, size):
        for sign in (1.0, -1.0):
            action = act(policy(), sign * jnp.full(3, size, jnp.float32))
            fine = (np.array([0.0, -1.0]) <= action) & (action <= np.array([100.0, 1.0]))
            assert np.all(fine | np.isnan(action))

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


class TestCritics:
    def test_stacked_equals_one_by_one(self):
        critics = init_critics((5, 8), KEY, initialiser="uniform")
        rng = np.random.default_rng(0)
        obs, action = jnp.asarray(rng.normal(size=(6, 3))), jnp.asarray(rng.normal(size=(6, 2)))
        inputs = np.concatenate([obs, action], axis=1)
        got = q_values(critics, obs, action)
        for i in range(2):
            alone = jax.tree.map(lambda leaf, i=i: leaf[i], critics)
            np.testing.assert_allclose(got[i], in_numpy(alone, inputs)[:, 0], atol=1e-5)
        np.testing.assert_allclose(first_q_value(critics, obs, action), got[0], atol=1e-6)

    def test_loss_sums_over_members_and_averages_over_rows(self, problem):
        critics = init_critics((6, 8), KEY, initialiser="uniform")
        rows = problem.log._replace(obs=problem.log.obs / 1e4, action=problem.log.action / 1e4)
        target = jnp.arange(256.0)
        loss, mean = critic_loss(critics, rows, target)
        q = np.asarray(q_values(critics, rows.obs, rows.action), np.float64)
        np.testing.assert_allclose(loss, np.mean((q - np.arange(256)) ** 2, 1).sum(), rtol=1e-5)
        np.testing.assert_allclose(mean, q.mean(), rtol=1e-4)


class TestScaling:
    def test_standardises_observations_and_maps_actions_to_the_unit_box(self, problem):
        scaling = init_scaling(problem.spec, problem.statistics, "none")
        rows = scaled(scaling, problem.log)
        np.testing.assert_allclose(rows.obs.mean(0), 0, atol=2e-3)
        spread = rows.obs.std(0)
        assert np.all((spread[:3] > 0.85) & (spread[:3] <= 1.0))
        np.testing.assert_allclose(spread[3], 0, atol=1e-6)
        assert np.abs(rows.action).max() == np.float32(1 - 1e-5)
        np.testing.assert_array_equal(rows.reward, problem.log.reward)
        np.testing.assert_array_equal(rows.terminated, problem.log.terminated)

    def test_reward_factors(self, problem):
        statistics, reward = problem.statistics, problem.statistics.reward
        returns = statistics.episode_return
        for name, factor in (
            ("none", 1.0),
            ("std", 1 / reward.std),
            ("return_range", 1000 / (returns.max - returns.min)),
        ):
            scaling = init_scaling(problem.spec, statistics, name)
            np.testing.assert_allclose(scaling.reward, factor, rtol=1e-6)

    @pytest.mark.parametrize("name", ["std", "return_range"])
    def test_constant_reward_is_left_alone(self, problem, name):
        flat = FieldStatistics(*(np.float32(x) for x in (10, 3, 0, 3, 3)))
        statistics = problem.statistics._replace(reward=flat, episode_return=flat)
        assert init_scaling(problem.spec, statistics, name).reward == 1.0

    def test_next_action_may_be_there(self, problem):
        scaling = init_scaling(problem.spec, problem.statistics, "none")
        rows = scaled(scaling, problem.log._replace(next_action=problem.log.action))
        np.testing.assert_allclose(rows.next_action, rows.action, atol=2e-5)


@pytest.mark.parametrize(
    "shapes",
    [
        pytest.param({"b": (2,), "w": (3, 2)}, id="small leaves"),
        pytest.param({"b": (2,), "u": (32, 32), "v": (41, 25), "w": (3,), "x": ()}, id="both"),
        pytest.param({"b": (40, 30), "w": (50, 30)}, id="large leaves"),
        pytest.param({"b": (1,)}, id="one leaf"),
    ],
)
def test_adam_equals_the_paper_in_float64(shapes):
    rng = np.random.default_rng(0)
    parameters = {
        name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()
    }
    parameters["b"] = jnp.zeros(shapes["b"])
    moments = init_adam(parameters)
    exact = {name: np.asarray(leaf, np.float64) for name, leaf in parameters.items()}
    m = {name: np.zeros_like(leaf) for name, leaf in exact.items()}
    v = {name: np.zeros_like(leaf) for name, leaf in exact.items()}
    step = jax.jit(adam)
    for t in range(1, 6):
        gradient = {name: np.asarray(rng.normal(size=leaf.shape)) for name, leaf in exact.items()}
        gradient["b"][0] = 0.0
        as_float32 = jax.tree.map(lambda g: jnp.asarray(g, jnp.float32), gradient)
        parameters, moments = step(parameters, moments, as_float32, jnp.float32(0.01))
        for name, g in gradient.items():
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.999 * v[name] + 0.001 * g**2
            corrected = (m[name] / (1 - 0.9**t)) / (np.sqrt(v[name] / (1 - 0.999**t)) + 1e-8)
            exact[name] = exact[name] - 0.01 * corrected
        assert_close(parameters, exact, rtol=1e-5)
    assert jnp.all(parameters["b"][0] == 0.0)
    assert moments.step == 5
