"""A loss summed over blocks of rows is the loss of all rows at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.algorithms._row_blocks import blocks_of, row_shares, sum_by_blocks
from neorl_core.losses import masked_mean

BATCH, INPUTS = 64, 40


def row_loss(parameters, rows):
    """A network of one layer on forty inputs a row."""
    inputs, target, share = rows
    values = jnp.tanh(inputs @ parameters["weight"][:, None])[..., 0] + parameters["bias"]
    per_row = jnp.square(jnp.mean(values, axis=1) - target)
    return jnp.sum(share * per_row), {"value": values, "loss": per_row}


def drawn(seed):
    rng = np.random.default_rng(seed)
    mask = jnp.asarray(rng.random(BATCH) < 0.8)
    rows = (rng.normal(size=(BATCH, INPUTS, 3)), rng.normal(size=BATCH), row_shares(mask, BATCH))
    parameters = {"weight": rng.normal(size=3), "bias": rng.normal()}
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (parameters, rows)), mask


def blocked(parameters, rows):
    return sum_by_blocks(row_loss, parameters, rows, inputs=INPUTS)


def agree(one, other):
    same = jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-5, atol=1e-6), one, other
    )
    assert jax.tree.structure(same) == jax.tree.structure(jax.tree.map(lambda _: None, other))


def test_value_gradient_and_results_of_every_row_are_those_of_all_rows_at_once():
    assert blocks_of(BATCH, INPUTS) == 8
    (parameters, rows), mask = drawn(0)
    whole, block = (jax.value_and_grad(one, has_aux=True) for one in (row_loss, blocked))
    agree(block(parameters, rows), expected := whole(parameters, rows))
    agree(jax.jit(block)(parameters, rows), expected)
    agree(jax.jit(blocked)(parameters, rows), expected[0])
    np.testing.assert_allclose(expected[0][0], masked_mean(expected[0][1]["loss"], mask), rtol=1e-6)
    # Half the loss has half the slope: what comes from outside is multiplied on.
    half = jax.grad(lambda one: 0.5 * blocked(one, rows)[0])(parameters)
    agree(half, jax.tree.map(lambda x: 0.5 * x, expected[1]))
    several = jax.tree.map(lambda *x: jnp.stack(x), *(drawn(seed)[0] for seed in range(3)))
    mapped = jax.jit(jax.vmap(block))(*several)
    agree(mapped, jax.vmap(whole)(*several))


@pytest.mark.parametrize(
    ("batch", "inputs", "blocks"),
    [(256, 31, 16), (64, 31, 4), (32, 31, 1), (256, 1, 1), (101, 31, 1), (4, 1024, 4), (300, 7, 5)],
)
def test_blocks_are_equal_and_small_enough_or_there_is_one(batch, inputs, blocks):
    """A batch of a prime length would be cut into single rows."""
    assert blocks_of(batch, inputs) == blocks
    assert batch % blocks == 0


def test_shares_are_those_of_a_mean():
    np.testing.assert_allclose(row_shares(None, 4), 0.25)
    np.testing.assert_allclose(row_shares(jnp.array([True, False, True]), 3), [0.5, 0, 0.5])
    assert not row_shares(jnp.zeros(3, bool), 3).any()
