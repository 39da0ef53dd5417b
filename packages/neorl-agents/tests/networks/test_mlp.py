"""Perceptrons: values, gradients, initial weights."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.networks import ACTIVATIONS, ensemble, init_mlp, relu, tanh

KEY = jax.random.key(0)


class TestMLP:
    @pytest.mark.parametrize("initialiser", ["uniform", "orthogonal"])
    def test_equals_numpy_on_one_row_and_on_batches(self, initialiser, in_numpy):
        network = init_mlp((3, 8, 5, 2), KEY, initialiser=initialiser)
        x = np.random.default_rng(0).normal(size=(4, 6, 3)).astype(np.float32)
        np.testing.assert_allclose(network(jnp.asarray(x)), in_numpy(network, x), atol=1e-5)
        np.testing.assert_allclose(
            network(jnp.asarray(x[0, 0])), in_numpy(network, x[0, 0]), atol=1e-5
        )

    @pytest.mark.parametrize(
        "outputs",
        [1, 4, *(pytest.param(n, marks=pytest.mark.nightly) for n in (2, 3, 5, 9))],
    )
    @pytest.mark.parametrize("variant", ["eager", "jit", "vmap", "jit of vmap"])
    def test_batches_have_the_values_and_gradients_of_their_rows(self, outputs, variant, in_numpy):
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
            wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (network, x))
            expected = jax.jit(jax.value_and_grad(loss_of_its_rows, argnums=(0, 1)))(*wide)
        if "vmap" in variant:
            both, pair = jax.vmap(both), jax.tree.map(lambda a: np.stack([a, a]), (network, x))
        else:
            pair = (network, x)
        results = (jax.jit(both) if "jit" in variant else both)(*pair)
        for a, b in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
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
        draw = jax.jit(partial(init_mlp, (6, 10, 4, 1), initialiser="orthogonal"))
        network = jax.device_get(draw(KEY))
        for weight in network.weights:
            rows, columns = weight.shape
            gram = weight.T @ weight if rows >= columns else weight @ weight.T
            np.testing.assert_allclose(gram, 2 * np.eye(min(rows, columns)), atol=1e-5)
        assert all(not np.any(bias) for bias in network.biases)

    def test_orthogonal_draws_prefer_no_direction(self):
        """A factorisation alone has columns of one sign: their mean would be far from zero."""
        draw = partial(init_mlp, (3, 2), initialiser="orthogonal")
        draws = jax.jit(jax.vmap(lambda key: draw(key).weights[0]))(jax.random.split(KEY, 400))
        first = np.asarray(draws)
        assert np.abs(first.mean(0)).max() < 4 * first.std() / 20

    def test_members_are_factorised_one_by_one(self):
        """XLA's CPU pool waits for itself where several batches are factorised at once."""

        def members(key):
            draw = partial(init_mlp, (3, 5, 4), initialiser="orthogonal")
            return ensemble(2, partial(ensemble, 3, draw), key)

        text = jax.jit(members).trace(KEY).lower(lowering_platforms=("cpu",)).as_text()
        factorised = re.findall(r"@lapack_sgeqrf_ffi\(.*?\(tensor<([0-9x]+)xf32>", text)
        assert sorted(factorised) == ["5x3", "5x4"]

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
