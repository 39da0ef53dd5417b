"""Four sites with logs of their own train side by side, and their parameters are averaged."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import TD3BC
from neorl_agents.learning import Log, Site, begin_training, train_chunk
from neorl_agents.testing import sized
from neorl_core import as_arrays
from neorl_core.federated import weighted_mean
from neorl_core.statistics import merge_statistics
from neorl_train.data import training_data
from neorl_train.training import run_keys

SITES = 4


@pytest.fixture(scope="module")
def sites(make_log):
    """The same plant at four places: observations lie elsewhere, rewards are of another size."""
    log = make_log()
    rows = log.transitions
    return [
        training_data(
            dataclasses.replace(
                log,
                transitions=rows._replace(
                    obs=rows.obs + np.float32(site),
                    next_obs=rows.next_obs + np.float32(site),
                    reward=rows.reward * np.float32(1 + site),
                ),
            )
        )
        for site in range(SITES)
    ]


def test_four_sites_with_one_key_start_equal_and_their_parameters_can_be_averaged(sites):
    learner = sized(TD3BC(), hidden=(8,), batch_size=16)
    arrays = as_arrays(learner)
    initial, chunks = run_keys(0)
    own = [data.statistics_for(learner) for data in sites]
    alone = [learner.init(data.spec, one, initial) for data, one in zip(sites, own, strict=True)]
    assert not np.allclose(alone[0].preparation.obs.offset, alone[1].preparation.obs.offset)

    shared = learner.prepare(sites[0].spec, merge_statistics(own))
    states = [
        learner.init(data.spec, one, initial, preparation=shared)
        for data, one in zip(sites, own, strict=True)
    ]
    for state in states[1:]:
        chex.assert_trees_all_equal(state, states[0])

    ends, batches, compiled = [], [], train_chunk._cache_size()  # pyright: ignore
    for number, (data, state) in enumerate(zip(sites, states, strict=True)):
        tables = jax.device_put(learner.sampler.tables(data.rows_for(learner)))
        source = Site(jnp.asarray(number, jnp.int32))
        drawn = source.batches(arrays, (), tables, jnp.arange(2), chunks)
        batches.append(np.asarray(drawn.obs) - number)
        begun = begin_training(arrays, source, jax.tree.map(jnp.array, state), tables, chunks)
        first = jnp.asarray(0, jnp.int32)
        end, metrics = train_chunk(arrays, source, begun, tables, first, chunks, n_updates=4)
        assert all(np.isfinite(value) for value in metrics.values())
        ends.append(end.learner)
    assert not np.allclose(batches[0], batches[1], atol=0.1), "sites draw the same rows"
    programs = train_chunk._cache_size() - compiled  # pyright: ignore
    assert programs == 1, "one program serves all sites of as many rows"

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[end.parameters for end in ends])
    mean = weighted_mean(stacked, jnp.asarray([float(data.n_rows) for data in sites]))
    assert mean.usable.all()
    together = dataclasses.replace(ends[0], parameters=mean.value)
    chex.assert_trees_all_close(
        together.parameters,
        jax.tree.map(lambda *leaves: sum(leaves) / SITES, *[end.parameters for end in ends]),
        rtol=1e-5, atol=1e-6,
    )  # fmt: skip
    policy = learner.policy(together)
    _, action = policy(policy.initial_carry(), jnp.zeros(2), None)
    assert np.isfinite(action).all()


def test_site_draws_from_the_log_with_a_key_of_its_own(sites):
    learner = sized(TD3BC(), hidden=(8,), batch_size=16)
    tables = jax.device_put(learner.sampler.tables(sites[0].rows_for(learner)))
    _, key = run_keys(3)
    site = Site(jnp.asarray(2, jnp.int32))
    ours = site.batches(learner, (), tables, jnp.arange(3), key)
    theirs = Log().batches(learner, (), tables, jnp.arange(3), jax.random.fold_in(key, 2))
    chex.assert_trees_all_equal(ours, theirs)
    assert site.cycle == 0
