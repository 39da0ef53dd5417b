from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.replay import (
    PrioritySample,
    RingBuffer,
    priority_tree,
    priority_weights,
    ring_buffer,
    ring_order,
    ring_push,
    ring_sample,
    sample_priorities,
    set_priorities,
)
from neorl_core.testing import ROWS as DRAWS
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    integers,
    keys,
    mapped,
    reals,
    rows,
)

CAPACITY = 4
RANDOM = {"oracle": "a random draw: the laws fix its distribution"}


def pushed(first, second):
    """Two pushes of different lengths into a buffer of four rows."""
    example = {"x": first[0], "n": jnp.zeros((), jnp.int32)}
    buffer = ring_buffer(example, capacity=CAPACITY)
    for start, block in ((0, first), (len(first), second)):
        number = start + jnp.arange(len(block), dtype=jnp.int32)
        buffer = ring_push(buffer, {"x": block, "n": number})
    return buffer


def in_order(first, second):
    """What the buffer holds, oldest first, and zeros beyond."""
    buffer = pushed(first, second)
    order = ring_order(buffer)
    held = jax.tree.map(lambda leaf: leaf[order], buffer.rows)
    return jax.tree.map(
        lambda leaf: jnp.where((order >= 0).reshape(-1, *[1] * (leaf.ndim - 1)), leaf, 0), held
    )


def kept_by_a_deque(first, second):
    memory = deque(maxlen=CAPACITY)
    memory.extend(enumerate(np.concatenate([first, second])))
    values = np.zeros((CAPACITY, *first.shape[1:]))
    numbers = np.zeros(CAPACITY, np.int32)
    for slot, (number, value) in enumerate(memory):
        numbers[slot], values[slot] = number, value
    return {"n": numbers, "x": values}


def one_by_one_is_at_once(first, second):
    assert_close(mapped(in_order_one_by_one, first, second), mapped(in_order, first, second))


def in_order_one_by_one(first, second):
    buffer = ring_buffer(first[0], capacity=CAPACITY)
    for row in jnp.concatenate([first, second]):
        buffer = ring_push(buffer, row[None])
    order = ring_order(buffer)
    number = jnp.concatenate([first, second]).shape[0] - buffer.size
    numbers = jnp.where(order >= 0, number + jnp.arange(CAPACITY, dtype=jnp.int32), 0)
    held = jnp.where((order >= 0)[:, None], buffer.rows[order], 0)
    return {"n": numbers, "x": held}


def state_of_a_ring(written):
    """A buffer of four slots after that many pushes of one row."""
    slot, size = written % CAPACITY, jnp.minimum(written, CAPACITY)
    return ring_order(RingBuffer(jnp.zeros((CAPACITY, 2)), slot, size))


def slots_by_number(written):
    """Row ``n`` lies in slot ``n mod capacity``; of ``n`` written ones the last four are held."""
    held = [number % CAPACITY for number in range(max(0, written - CAPACITY), int(written))]
    return np.asarray(held + [-1] * (CAPACITY - len(held)), np.int32)


def one_more_row_moves_all_up(written):
    full = np.asarray(written) + CAPACITY
    before, after = (np.asarray(mapped(state_of_a_ring, count)) for count in (full, full + 1))
    np.testing.assert_array_equal(after[:, :-1], before[:, 1:])
    np.testing.assert_array_equal(after[:, -1], before[:, 0])


def sampled(first, second, key):
    return ring_sample(pushed(first, second), key, batch=6)


def draws_come_from_what_is_held(first, second, key):
    drawn, slots = mapped(sampled, first, second, key)
    held = mapped(in_order, first, second)
    total = first.shape[1] + second.shape[1]
    assert np.all((slots >= 0) & (slots < min(total, CAPACITY)))
    assert np.all(drawn["n"] >= total - CAPACITY)
    for row in range(DRAWS):
        for number, value in zip(drawn["n"][row], drawn["x"][row], strict=True):
            at = np.flatnonzero(np.asarray(held["n"][row]) == number)[-1]
            assert_close(value, held["x"][row][at])


def tree_after(items, priorities):
    tree = set_priorities(priority_tree(5), jnp.arange(5), jnp.ones(5))
    return set_priorities(tree, items, priorities).sums


def sums_by_counting(items, priorities):
    leaves = np.append(np.ones(5), np.zeros(3))
    for item in set(items.tolist()):
        leaves[item] = priorities[items == item].max()
    sums = [leaves]
    while len(sums[0]) > 1:
        sums.insert(0, sums[0].reshape(-1, 2).sum(axis=1))
    return np.concatenate([[0.0], *sums])


def order_of_writing_does_not_matter(items, priorities):
    assert_close(
        mapped(tree_after, items[:, ::-1], priorities[:, ::-1]),
        mapped(tree_after, items, priorities),
    )


def drawn_by_priority(priorities, key):
    tree = set_priorities(priority_tree(6), jnp.arange(6), priorities)
    return sample_priorities(tree, key, batch=30)


def counts_follow_the_priorities(priorities, key):
    sample = mapped(drawn_by_priority, priorities, key)
    assert isinstance(sample, PrioritySample)
    for row in range(DRAWS):
        total = priorities[row].sum(dtype=np.float64)
        items, chances = np.asarray(sample.items[row]), np.asarray(sample.probabilities[row])
        if total == 0:
            assert np.all(items == -1)
            assert not np.any(chances)
            continue
        expected = priorities[row] / total
        assert_close(chances, expected[items], atol=1e-5)
        counts = np.bincount(items, minlength=6)
        assert np.all(np.abs(counts - 30 * expected) < 2)
        assert not np.any(counts[priorities[row] == 0])
        assert np.all(np.diff(items) >= 0)


def weights_by_hand(probabilities, *, size, exponent):
    weights = (size * probabilities) ** -exponent
    return weights / weights.max() if len(weights) else weights


def the_rarest_weighs_one(probabilities, *, size, exponent):
    weights = np.asarray(mapped(priority_weights, probabilities, size=size, exponent=exponent))
    rarest = probabilities.argmin(axis=1)
    assert_close(weights[np.arange(DRAWS), rarest], np.ones(DRAWS))


# Fewer rows than the capacity, and more.
PUSHES = st.sampled_from([(1, 2), (3, 6)]).flatmap(
    lambda lengths: st.tuples(rows(lengths[0], 2), rows(lengths[1], 2))
)
PRIORITIES = rows(6, elements=st.sampled_from([0.0, 0.0, 0.5, 1.0, 3.0, 64.0]))


ROWS = [
    Row(
        state_of_a_ring,
        name="ring_order",
        sample=st.tuples(integers(low=0, high=3 * CAPACITY)),
        oracle=slots_by_number,
        laws=[one_more_row_moves_all_up],
        edges=[Edge((np.int32(count),)) for count in (0, CAPACITY, 2 * CAPACITY)],
        differentiable=False,
    ),
    Row(
        in_order,
        name="ring_push",
        sample=PUSHES,
        oracle=kept_by_a_deque,
        laws=[one_by_one_is_at_once],
        differentiable=False,
        exempt={"integers": "what it is given comes back as it is"},
    ),
    Row(
        sampled,
        name="ring_sample",
        sample=st.tuples(rows(3, 2), rows(6, 2), keys()),
        oracle=None,
        laws=[draws_come_from_what_is_held],
        exempt=RANDOM | {"integers": "what it is given comes back as it is"},
        differentiable=False,
    ),
    Row(
        tree_after,
        name="set_priorities",
        sample=st.tuples(integers(4, low=0, high=4), rows(4, elements=reals(0, 100))),
        oracle=sums_by_counting,
        laws=[order_of_writing_does_not_matter],
        refuses=[
            Refusal("(batch)", (jnp.asarray(0), jnp.asarray(1.0))),
            Refusal("must agree", (jnp.zeros(2, int), jnp.ones(3))),
            Refusal("items must be integers, got float32", (jnp.zeros(2), jnp.ones(2))),
        ],
        differentiable=False,
        exempt={"dtype": "the tree keeps its own dtype"},
    ),
    Row(
        drawn_by_priority,
        name="sample_priorities",
        sample=st.tuples(PRIORITIES, keys()),
        oracle=None,
        laws=[counts_follow_the_priorities],
        differentiable=False,
        exempt={**RANDOM, "dtype": "the tree keeps its own dtype"},
    ),
    Row(
        priority_weights,
        sample=st.tuples(rows(7, elements=reals(0.015625, 1))),
        options=st.fixed_dictionaries({"size": st.just(64.0), "exponent": reals(0, 1).map(float)}),
        oracle=weights_by_hand,
        laws=[the_rarest_weighs_one],
        edges=[
            Edge((np.full(3, 0.125),), {"size": 8.0, "exponent": 0.5}),
            Edge((np.ones(1),), {"size": 1.0, "exponent": 1.0}),
            Edge((np.zeros(0),), {"size": 1.0, "exponent": 1.0}),
        ],
        refuses=[
            Refusal("(batch)", (jnp.asarray(1.0),), {"size": 1, "exponent": 1.0}),
            Refusal("size", (jnp.ones(1),), {"size": 0, "exponent": 1.0}),
            Refusal("exponent", (jnp.ones(1),), {"size": 1, "exponent": 1.5}),
        ],
    ),
]
