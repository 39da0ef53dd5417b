"""The recurrent unit beside the equations of its paper in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.networks import Encoding, init_gru, init_network

INPUTS, HIDDEN, STEPS = 5, 4, 6


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def oracle(cell, x, seen):
    """``h' = (1 - z) n + z h``, written out gate by gate."""
    w, u = (
        np.asarray(m, np.float64).reshape(len(m), 3, HIDDEN) for m in (cell.weight, cell.recurrent)
    )
    b, c = np.asarray(cell.bias, np.float64).reshape(3, HIDDEN), np.asarray(cell.recurrent_bias)
    h = np.zeros(HIDDEN)
    for now, counts in zip(np.asarray(x, np.float64), seen, strict=True):
        if not counts:
            continue
        reset = sigmoid(now @ w[:, 0] + h @ u[:, 0] + b[0])
        keep = sigmoid(now @ w[:, 1] + h @ u[:, 1] + b[1])
        new = np.tanh(now @ w[:, 2] + b[2] + reset * (h @ u[:, 2] + c))
        h = (1 - keep) * new + keep * h
    return h


def test_the_last_state_is_that_of_the_equations():
    rng = np.random.default_rng(0)
    cell = init_gru(INPUTS, HIDDEN, jax.random.key(0))
    x = rng.normal(size=(3, STEPS, INPUTS))
    seen = np.array([[1] * 6, [0, 0, 1, 1, 1, 1], [0, 1, 0, 1, 1, 0]], bool)
    expected = np.stack([oracle(cell, *row) for row in zip(x, seen, strict=True)])
    actual = cell.last(jnp.asarray(x, jnp.float32), jnp.asarray(seen))
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float64)), cell)
        exact = wide.last(jnp.asarray(x), jnp.asarray(seen))
        assert exact.dtype == jnp.float64
        np.testing.assert_allclose(exact, expected, atol=1e-13)
        # One step alone is the same recursion.
        h = jnp.zeros((1, HIDDEN))
        for t in range(STEPS):
            h = wide(h, jnp.asarray(x[:1, t]))
        np.testing.assert_allclose(h, expected[:1], atol=1e-13)


def test_fresh_weights_fill_their_range():
    cell = init_gru(32, 64, jax.random.key(1))
    for leaf in jax.tree.leaves(cell):
        assert abs(float(jnp.abs(leaf).max()) - 1 / 8) < 0.01
        assert leaf.dtype == jnp.float32


@pytest.mark.parametrize("encoder", ["history", "gru"])
def test_gradients_of_a_network_that_reads_windows(encoder):
    """Reverse mode beside central differences in float64; unknown steps have no gradient."""
    encoding = Encoding(encoder, 3, 2, 1)
    with jax.enable_x64(True):
        network = init_network((encoding.width + 1, 4, 1), jax.random.key(0), encoding=encoding)
        network = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float64)), network)
        x = np.random.default_rng(0).normal(size=(1, encoding.width + 1))
        flags = x[:, :-1].reshape(1, 3, 5)[..., 3:]
        flags[...] = 1
        flags[:, 0] = 0
        total = jax.jit(lambda x: jnp.sum(network(x)))
        slope = np.asarray(jax.grad(total)(jnp.asarray(x)))
        for i in range(x.shape[1]):
            if i % 5 in (3, 4) and i < encoding.width:
                continue
            up, down = x.copy(), x.copy()
            up[0, i] += 1e-6
            down[0, i] -= 1e-6
            expected = (float(total(up)) - float(total(down))) / 2e-6
            assert slope[0, i] == pytest.approx(expected, abs=1e-8)
        if encoder == "gru":
            assert not slope[0, :5].any()
        assert slope[0, -1] != 0
