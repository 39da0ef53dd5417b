"""A state has named parts: what each change touches, and what every learner keeps apart."""

from dataclasses import fields

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import ALGORITHMS, IQL, LearnerState
from neorl_agents.learning import restarted
from neorl_agents.testing import make_problem, sized
from neorl_core.statistics import merge_statistics

SMALL = {"hidden": (8,), "batch_size": 8}
NIGHT = {name for name, kind in ALGORITHMS.items() if kind.keeps_limits} | {"sac", "td3"}
BY_DAY = [
    pytest.param(name, marks=pytest.mark.nightly if name in NIGHT or kind().fits() else ())
    for name, kind in ALGORITHMS.items()
    if not kind.needs_rollouts
]
PARTS = [field.name for field in fields(LearnerState)]


def state_of_numbers():
    one, two = jnp.float32(1), jnp.float32(2)
    return LearnerState(
        parameters={"actor": one, "critics": two},
        targets={"critics": jnp.float32(0)},
        optimisers={"actor": (one,), "critics": (two,)},
        counters={"updates": jnp.int32(5), "episodes": jnp.int32(7)},
        preparation=None,
        context={"model": one},
    )


def parts_that_differ(one, other):
    return [part for part in PARTS if getattr(one, part) != getattr(other, part)]


@pytest.mark.parametrize("part", ["parameters", "optimisers", "targets", "counters"])
def test_a_change_of_one_name_leaves_all_others(part):
    before = state_of_numbers()
    name = next(iter(getattr(before, part)))
    after = getattr(before, f"with_{part}")(**{name: "new"})
    assert parts_that_differ(before, after) == [part]
    assert getattr(after, part) == {**getattr(before, part), name: "new"}
    assert parts_that_differ(before, state_of_numbers()) == [], "the state before is as it was"


def test_targets_go_a_fraction_of_the_way_to_their_parameters():
    before = state_of_numbers()
    after = before.with_averaged_targets("critics", tau=0.25)
    assert parts_that_differ(before, after) == ["targets"]
    assert float(after.targets["critics"]) == 0.5
    with pytest.raises(KeyError, match="actor"):
        before.with_averaged_targets("actor", tau=0.25)


def test_a_restart_sets_every_counter_to_zero_and_nothing_else():
    before = state_of_numbers()
    after = restarted(before)
    assert parts_that_differ(before, after) == ["counters"]
    assert {name: int(count) for name, count in after.counters.items()} == {
        "updates": 0,
        "episodes": 0,
    }
    assert after.counters["updates"].dtype == jnp.int32


@pytest.mark.parametrize("name", BY_DAY)
def test_leaves_of_a_learner_under_a_restart(name, problem, state_of_form):
    """The counters alone go back; networks, moments and maps stay to the bit."""
    plain = sized(ALGORITHMS[name](), **SMALL)
    state = jax.tree.map(lambda leaf: leaf + leaf.dtype.type(2), state_of_form(plain, problem))
    again = restarted(state)
    changed = [
        jax.tree_util.keystr(path)
        for (path, leaf), other in zip(
            jax.tree.leaves_with_path(state), jax.tree.leaves(again), strict=True
        )
        if not np.array_equal(leaf, other)
    ]
    assert changed == [f".counters[{counter!r}]" for counter in sorted(state.counters)]
    assert all(int(count) == 0 for count in again.counters.values())


@pytest.mark.parametrize("name", BY_DAY)
def test_four_sites_with_one_key_and_one_preparation_start_equal(name):
    plain = sized(ALGORITHMS[name](), **SMALL)
    sites = [make_problem(seed=seed) for seed in range(4)]
    whole = merge_statistics([site.statistics for site in sites])
    key, spec = jax.random.key(0), sites[0].spec
    shared = plain.prepare(spec, whole)
    together = [plain.init(spec, one.statistics, key, preparation=shared) for one in sites]
    for other in together[1:]:
        chex.assert_trees_all_equal(together[0], other)
    alone = [plain.init(spec, one.statistics, key) for one in sites]
    chex.assert_trees_all_equal(alone[0].parameters, alone[1].parameters)
    obs = [one.preparation.obs.offset for one in alone]
    assert not np.array_equal(obs[0], obs[1]), "each site alone standardises by its own rows"


def test_sites_average_parameters_alone():
    """What federated averaging does to a state: maps, counters and moments stay each site's."""
    problem = make_problem()
    plain = sized(IQL(), **SMALL)
    first, second = (
        plain.init(problem.spec, problem.statistics, jax.random.key(i)) for i in range(2)
    )
    mean = jax.tree.map(lambda a, b: (a + b) / 2, first.parameters, second.parameters)
    averaged = first.with_parameters(**mean)
    chex.assert_trees_all_equal_structs(averaged, first)
    chex.assert_trees_all_equal(averaged.optimisers, first.optimisers)
    weight = averaged.parameters["value"].weights[0]
    halves = [one.parameters["value"].weights[0] for one in (first, second)]
    np.testing.assert_allclose(weight, np.mean(halves, axis=0), rtol=1e-6)
