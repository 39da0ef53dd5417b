"""A buffer drawn by priority: what rows are worth after every update, against NumPy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import DQN
from neorl_agents.learning import Networks, for_run, training_keys
from neorl_agents.testing import sized
from neorl_core import InputError, as_arrays
from neorl_core.statistics import range_statistics
from neorl_envs.graph_plants import load_balance
from neorl_train import train_online
from neorl_train.configuration import OnlineConfig
from neorl_train.runs import tree_digest
from neorl_train.training import Collection, Plan, PlantReplay

PLANT = load_balance(4, seed=0)
LEARNER = for_run(sized(DQN(networks=Networks(hidden=(8,)), priority=0.6), batch_size=16), 40)


def test_priorities_are_those_of_the_last_errors_and_weights_undo_them():
    source = PlantReplay(Collection(PLANT, None, None, None, PLANT.spec, 4), 3, 64, 8)
    learner, keys = as_arrays(LEARNER), training_keys(jax.random.key(0))
    state = LEARNER.init(PLANT.spec, range_statistics(PLANT.spec), jax.random.key(1))

    @jax.jit
    def run(state):
        memory = source.begin(learner, state, None, keys)

        def cycle(carry, number):
            state, memory = carry
            memory = source.advance(learner, state, memory, None, number, keys.source)
            batch = source.batches(learner, memory, None, number[None], keys.batches)
            state, _ = learner.update(state, jax.tree.map(lambda x: x[0], batch), keys.updates)
            kept = (memory.tree, memory.drawn, memory.weights, state.counters["errors"])
            return (state, memory), (kept, memory.ring)

        first = (memory.tree, memory.ring)
        return first, jax.lax.scan(cycle, (state, memory), jnp.arange(6, dtype=jnp.int32))[1]

    (tree, ring), ((trees, drawn, weights, errors), rings) = jax.device_get(run(state))
    worth, largest, slot = tree.sums[64:], 1.0, int(ring.next_slot)
    np.testing.assert_array_equal(worth, [1.0] * 32 + [0.0] * 32)
    for i in range(6):
        worth, size = worth.copy(), int(rings.size[i])
        if i:
            again = (errors[i - 1] + 1e-6) ** 0.6
            for item in np.unique(drawn[i - 1]):
                worth[item] = again[drawn[i - 1] == item].max()
            largest = max(largest, again.max())
        worth[(slot + np.arange(12)) % 64] = largest
        slot = (slot + 12) % 64
        np.testing.assert_allclose(trees.sums[i, 64:], worth, rtol=1e-5)
        assert size == min(32 + 12 * (i + 1), 64)
        chance = worth[drawn[i]] / worth.sum()
        beta = 1 - 0.6 * (1 - i / 40)
        expected = (size * chance) ** -beta
        np.testing.assert_allclose(weights[i], expected / expected.max(), rtol=1e-4)
    assert np.all(rings.rows.action.sum(-1)[-1] == 1), "one side is asked for in every row"


@pytest.mark.nightly
def test_the_length_of_a_chunk_is_not_part_of_the_result():
    settings = OnlineConfig(environments=4, warm_up=32, capacity=64)
    whole, parts = (
        train_online(LEARNER, PLANT, (0,), Plan(40, chunk, 40), settings=settings)
        for chunk in (40, 8)
    )
    assert tree_digest(whole.snapshot["state"].learner) == tree_digest(
        parts.snapshot["state"].learner
    )


def test_a_buffer_smaller_than_a_batch_is_refused():
    plan, settings = Plan(40, 40, 40), OnlineConfig(environments=4, warm_up=8, capacity=8)
    with pytest.raises(InputError, match=r"settings\.capacity is 8, smaller than a batch of DQN"):
        train_online(LEARNER, PLANT, (0,), plan, settings=settings)
    few = dataclasses.replace(settings, capacity=64)
    with pytest.raises(InputError, match=r"settings\.warm_up is 8, and 16 of the 16 rows"):
        train_online(LEARNER, PLANT, (0,), plan, settings=few)
