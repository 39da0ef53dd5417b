"""Buffers and priorities where the table does not reach."""

import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from neorl_core.replay import (
    PrioritySample,
    PriorityTree,
    RingBuffer,
    priority_tree,
    priority_weights,
    ring_buffer,
    ring_order,
    ring_push,
    ring_sample,
    sample_priorities,
    set_priorities,
    window_rows,
)
from neorl_core.testing import state_keeps_form

KEY = jax.random.key(0)
EXAMPLE = {"obs": jnp.zeros(2), "done": jnp.zeros((), bool)}


def rows_of(count):
    return {"obs": jnp.ones((count, 2)), "done": jnp.ones(count, bool)}


def test_states_keep_their_form_through_every_step():
    state_keeps_form(ring_push, ring_buffer(EXAMPLE, capacity=3), rows_of(2))
    state_keeps_form(set_priorities, priority_tree(3), jnp.zeros(2, jnp.int32), jnp.ones(2))


def test_containers_start_empty():
    buffer = ring_buffer(EXAMPLE, capacity=3)
    assert isinstance(buffer, RingBuffer)
    assert ring_order(buffer).tolist() == [-1, -1, -1]
    assert buffer.rows["done"].dtype == bool
    tree = priority_tree(5)
    assert isinstance(tree, PriorityTree)
    assert tree.sums.tolist() == [0.0] * 16
    assert int(tree.capacity) == 5
    assert priority_tree(4, jnp.bfloat16).sums.shape == (8,)


def test_an_empty_push_changes_nothing():
    buffer = ring_push(ring_buffer(EXAMPLE, capacity=3), rows_of(2))
    again = ring_push(buffer, rows_of(0))
    chex.assert_trees_all_equal(again, buffer)


@pytest.mark.nightly
def test_an_empty_buffer_and_a_tree_without_weight_are_flagged():
    _, slots = ring_sample(ring_buffer(EXAMPLE, capacity=3), KEY, batch=2)
    assert slots.tolist() == [-1, -1]
    for priorities in ([0.0, 0.0], [1.0, -1.0], [jnp.nan, 1.0], [jnp.inf, 1.0]):
        tree = set_priorities(priority_tree(2), jnp.arange(2), jnp.asarray(priorities))
        sample = sample_priorities(tree, KEY, batch=2)
        assert isinstance(sample, PrioritySample)
        assert sample.items.tolist() == [-1, -1]
        assert sample.probabilities.tolist() == [0, 0]
    healed = set_priorities(tree, jnp.asarray([0]), jnp.asarray([1.0]))
    assert sample_priorities(healed, KEY, batch=2).items.tolist() == [0, 1]


@pytest.mark.nightly
def test_items_out_of_range_change_nothing():
    tree = set_priorities(priority_tree(4), jnp.arange(4), jnp.ones(4))
    same = set_priorities(tree, jnp.asarray([-1, 4, 100]), jnp.full(3, 9.0))
    np.testing.assert_array_equal(tree.sums, same.sums)
    # Of five items the tree has eight leaves; the last three were drawn.
    beyond = set_priorities(priority_tree(5), jnp.asarray([4, 5, 6, 7]), jnp.ones(4))
    assert set(sample_priorities(beyond, KEY, batch=8).items.tolist()) == {4}


def test_a_tree_of_one_item_draws_it():
    tree = set_priorities(priority_tree(1), jnp.asarray([0]), jnp.asarray([0.25]))
    sample = sample_priorities(tree, KEY, batch=3)
    assert sample.items.tolist() == [0, 0, 0]
    assert sample.probabilities.tolist() == [1, 1, 1]


def test_draws_over_many_keys_follow_the_priorities():
    """Row S08: prioritised draws follow the priorities."""
    priorities = np.asarray([5.0, 0.0, 1.0, 3.0, 0.5])
    tree = set_priorities(priority_tree(5), jnp.arange(5), priorities)
    draw = jax.jit(jax.vmap(lambda key: sample_priorities(tree, key, batch=1).items))
    counts = np.bincount(np.ravel(draw(jax.random.split(KEY, 4000))), minlength=5)
    assert counts[1] == 0
    held = priorities > 0
    expected = 4000 * priorities[held] / priorities.sum()
    assert stats.chisquare(counts[held], expected).pvalue > 1e-3


def test_uniform_draws_from_a_ring_are_uniform():
    buffer = ring_push(ring_buffer(0.0, capacity=8), jnp.arange(5.0))
    rows, slots = ring_sample(buffer, KEY, batch=4000)
    np.testing.assert_array_equal(rows, slots)
    assert stats.chisquare(np.bincount(slots, minlength=5)).pvalue > 1e-3


@pytest.mark.nightly
def test_weights_undo_the_priorities():
    """Weighted by ``(n p)^-1``, a prioritised mean estimates the plain one."""
    values, priorities = jnp.arange(8.0), jnp.arange(1.0, 9.0)
    tree = set_priorities(priority_tree(8), jnp.arange(8), priorities)
    sample = sample_priorities(tree, KEY, batch=20_000)
    weights = priority_weights(sample.probabilities, size=8, exponent=1.0)
    mean = jnp.sum(weights * values[sample.items]) / jnp.sum(weights)
    np.testing.assert_allclose(mean, 3.5, rtol=0.01)
    assert priority_weights(jnp.zeros(2), size=8, exponent=1.0).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ring_buffer(0.0, capacity=0), "capacity"),
        (lambda: ring_order(ring_buffer((), capacity=2)), "no array"),
        (lambda: ring_push(ring_buffer(EXAMPLE, capacity=2), jnp.ones((2, 2))), "structure"),
        (
            lambda: ring_push(
                ring_buffer(EXAMPLE, capacity=2), {**rows_of(2), "obs": jnp.ones((2, 3))}
            ),
            "rows['obs']",
        ),
        (
            lambda: ring_push(
                ring_buffer(EXAMPLE, capacity=2), {**rows_of(2), "done": jnp.ones(3, bool)}
            ),
            "as many rows",
        ),
        (
            lambda: ring_push(
                ring_buffer(EXAMPLE, capacity=2), {**rows_of(2), "done": jnp.ones(2)}
            ),
            "of bool",
        ),
        (lambda: ring_sample(ring_buffer(0.0, capacity=2), KEY, batch=-1), "batch"),
        (lambda: priority_tree(0), "capacity"),
        (lambda: sample_priorities(priority_tree(2), KEY, batch=0), "batch"),
        (lambda: window_rows(3, 0, length=0), "length"),
    ],
)
def test_misuse_is_refused_by_name(call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call()
