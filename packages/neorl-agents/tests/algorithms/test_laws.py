"""The laws that every entry of ``ALGORITHMS`` keeps."""

from dataclasses import fields, replace
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import ALGORITHMS, Algorithm
from neorl_agents.policies import NetworkPolicy
from neorl_core import Policy, as_arrays
from neorl_core.testing import assert_close, state_keeps_form

every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)
TRACES: list[str] = []


def counted_update(algorithm, state, batch, key):
    TRACES.append(type(algorithm).__name__)
    return algorithm.update(state, batch, key)


@jax.jit
def updated(algorithm, state, batch, key):
    return counted_update(algorithm, state, batch, key)


@partial(jax.jit, donate_argnums=1)
def many(algorithm, state, batches, keys):
    return jax.lax.scan(partial(one_of_many, algorithm), state, (batches, keys))


@jax.jit
def in_turn(algorithm, state, batch, keys):
    return jax.lax.map(partial(one_in_turn, algorithm, state, batch), keys)


@jax.jit
def side_by_side(algorithms, state, batch, keys):
    def one(algorithm, key):
        return algorithm.update(state, batch, key)[0]

    return jax.vmap(one)(algorithms, keys)


def one_of_many(algorithm, state, batch_and_key):
    return algorithm.update(state, *batch_and_key)


def one_in_turn(algorithm, state, batch, key):
    return algorithm.update(state, batch, key)[0]


def row(tree, index):
    return jax.tree.map(lambda leaf: leaf[index], tree)


def equal(left, right):
    same = jax.tree.map(lambda a, b: bool(jnp.array_equal(a, b, equal_nan=True)), left, right)
    return all(jax.tree.leaves(same))


@pytest.fixture
def started(name, problem, few):
    plain = ALGORITHMS[name](**few)
    state = plain.init(problem.spec, problem.statistics, jax.random.key(0))
    return plain, as_arrays(plain), state


@every_algorithm
def test_has_the_face_of_an_algorithm(name, started, problem):
    plain, _, state = started
    assert isinstance(plain, Algorithm)
    assert set(plain.fields) <= set(problem.log._fields)
    assert isinstance(plain.policy(state), Policy)
    assert isinstance(plain.policy(state), NetworkPolicy)
    assert isinstance(plain.batches_per_update, int)
    assert hash(type(plain)(hidden=[16, 16])) == hash(type(plain)(hidden=(16, 16)))


@every_algorithm
def test_second_call_and_other_values_do_not_retrace(name, started, problem):
    plain, algorithm, state = started
    TRACES.clear()
    new, _ = updated(algorithm, state, problem.batch(plain), jax.random.key(1))
    updated(algorithm, new, problem.batch(plain, seed=1), jax.random.key(2))
    other = jax.tree.map(lambda x: x * 0.5 if x.dtype == jnp.float32 else x, algorithm)
    updated(other, new, problem.batch(plain), jax.random.key(3))
    assert len(TRACES) <= 1


@every_algorithm
def test_every_leaf_is_an_array_of_strong_dtype(name, started, problem):
    plain, algorithm, state = started
    new, metrics = updated(algorithm, state, problem.batch(plain), jax.random.key(1))
    for leaf in jax.tree.leaves((state, new, metrics, plain.policy(new), algorithm)):
        assert isinstance(leaf, jax.Array)
        assert not leaf.weak_type
        assert leaf.dtype in (jnp.float32, jnp.int32)
    for metric in metrics.values():
        assert metric.shape == ()
        assert np.isfinite(metric)


@every_algorithm
def test_update_keeps_the_form_of_the_state(name, started, problem):
    plain, algorithm, state = started

    def step(state, batch, key):
        return algorithm.update(state, batch, key)

    state_keeps_form(step, state, problem.batch(plain), jax.random.key(0))


@every_algorithm
def test_vmap_and_map_agree_with_single_updates(name, started, problem):
    plain, algorithm, state = started
    batch, keys = problem.batch(plain), jax.random.split(jax.random.key(1), 2)
    field = "learning_rate" if name == "bc" else "actor_learning_rate"
    faster = replace(algorithm, **{field: 10 * getattr(algorithm, field)})
    sweep = jax.tree.map(lambda *leaves: jnp.stack(leaves), algorithm, faster)
    swept = side_by_side(sweep, state, batch, keys)
    mapped = in_turn(algorithm, state, batch, keys)
    first, _ = updated(algorithm, state, batch, keys[0])
    second, _ = updated(algorithm, state, batch, keys[1])
    fast, _ = updated(faster, state, batch, keys[1])
    assert_close(row(mapped, 0), first, rtol=1e-4, message="map differs from a single run")
    assert_close(row(mapped, 1), second, rtol=1e-4, message="map differs from a single run")
    assert_close(row(swept, 0), first, rtol=1e-4, message="vmap differs from a single run")
    assert_close(row(swept, 1), fast, rtol=1e-4, message="vmap differs from a single run")
    assert not equal(plain.policy(fast).network, plain.policy(second).network)


@every_algorithm
def test_masked_rows_are_inert(name, started, problem):
    plain, algorithm, state = started
    batch, key = problem.batch(plain), jax.random.key(1)
    mask = jnp.asarray(np.random.default_rng(5).uniform(size=batch.action.shape[:2]) < 0.6)

    def spoiled(column):
        if column is None or column.dtype == bool:
            return column
        return jnp.where(mask.reshape(mask.shape + (1,) * (column.ndim - 2)), column, jnp.nan)

    clean, _ = updated(algorithm, state, batch._replace(mask=mask), key)
    dirty = jax.tree.map(spoiled, batch._replace(mask=None))._replace(
        mask=mask,
        terminated=None if batch.terminated is None else batch.terminated ^ ~mask,
    )
    spoilt, metrics = updated(algorithm, state, dirty, key)
    assert equal(clean, spoilt)
    assert all(np.isfinite(metric) for metric in metrics.values())
    everything, _ = updated(algorithm, state, batch._replace(mask=jnp.ones_like(mask)), key)
    unmasked, _ = updated(algorithm, state, batch, key)
    assert_close(everything, unmasked, rtol=1e-4)
    assert not equal(clean, everything)


@every_algorithm
def test_nothing_counts_when_every_row_is_masked(name, started, problem):
    plain, algorithm, state = started
    batch = problem.batch(plain)
    nothing = batch._replace(mask=jnp.zeros(batch.action.shape[:2], bool))
    new, _ = updated(algorithm, state, nothing, jax.random.key(1))
    chex.assert_tree_all_finite(new)


@every_algorithm
def test_saturated_actions_constant_channels_and_zero_reward_stay_finite(name, started, problem):
    plain, algorithm, _ = started
    state = plain.init(problem.spec, problem.statistics, jax.random.key(0))
    batch = problem.batch(plain)
    high = jnp.asarray([channel.high for channel in problem.spec.action])
    hard = batch._replace(
        action=jnp.broadcast_to(high, batch.action.shape),
        reward=None if batch.reward is None else jnp.zeros_like(batch.reward),
    )
    keys = jax.random.split(jax.random.key(1), 200)
    batches = jax.tree.map(lambda x: jnp.broadcast_to(x, (200, *x.shape)), hard)
    new, metrics = many(algorithm, state, batches, keys)
    chex.assert_tree_all_finite((new, metrics))
    _, action = plain.policy(new)((), hard.obs[0, 0])
    low = jnp.asarray([channel.low for channel in problem.spec.action])
    assert np.all((low <= action) & (action <= high))
    constant = hard.obs[0, 0].at[3].add(1.0)
    _, moved = plain.policy(new)((), constant)
    assert np.all(np.isfinite(moved))


@every_algorithm
def test_costs_play_no_part(name, started, problem, problem_without_costs):
    plain, algorithm, _ = started
    spec, statistics = problem_without_costs.spec, problem_without_costs.statistics
    state = plain.init(spec, statistics, jax.random.key(0))
    TRACES.clear()
    updated(algorithm, state, problem_without_costs.batch(plain), jax.random.key(1))
    assert len(TRACES) <= 1
    assert problem_without_costs.batch(plain).cost is None


@every_algorithm
def test_initial_state_is_a_function_of_the_key(name, started, problem):
    plain, _, state = started
    again = plain.init(problem.spec, problem.statistics, jax.random.key(0))
    other = plain.init(problem.spec, problem.statistics, jax.random.key(1))
    assert equal(state, again)
    assert not equal(state, other)
    seeds = jax.random.split(jax.random.key(2), 2)
    stacked = jax.vmap(partial(plain.init, problem.spec, problem.statistics))(seeds)
    alone = plain.init(problem.spec, problem.statistics, seeds[1])
    assert_close(jax.tree.map(lambda leaf: leaf[1], stacked), alone)


@every_algorithm
def test_policies_of_all_learners_share_one_program(name, problem, few):
    structures = {
        jax.tree.structure(
            kind(**few).policy(
                kind(**few).init(problem.spec, problem.statistics, jax.random.key(0))
            )
        )
        for kind in ALGORITHMS.values()
    }
    assert len(structures) == 1


@every_algorithm
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden", ()),
        ("hidden", (8, 0)),
        ("hidden", (8.5,)),
        ("batch_size", 0),
        ("batch_size", 2.5),
    ],
)
def test_bad_shapes_are_refused_by_name(name, field, value):
    with pytest.raises(ValueError, match=rf"{ALGORITHMS[name].__name__}\.{field} must be"):
        ALGORITHMS[name](**{field: value}).validate()


BAD = {
    "bc": {"learning_rate": [0.0, -1.0, float("nan"), "fast", True], "optimiser": ["adamm"]},
    "td3_bc": {
        "alpha": [-1.0, float("inf")],
        "discount": [-0.1, 1.1, float("nan")],
        "tau": [0.0, 1.5],
        "actor_learning_rate": [0.0],
        "critic_learning_rate": [-1e-3],
        "noise_std": [-0.1],
        "noise_clip": [-0.1],
        "policy_delay": [0, 1.5],
        "reward_scale": ["big"],
        "optimiser": ["", "Adam"],
    },
    "iql": {
        "expectile": [0.0, 1.0, 3.0, float("nan")],
        "inverse_temperature": [-1.0],
        "max_weight": [0.0],
        "discount": [1.01],
        "tau": [0.0],
        "value_learning_rate": [0.0],
        "critic_learning_rate": [0.0],
        "actor_learning_rate": [0.0],
        "decay_updates": [-2, 0.5],
        "variant": ["fql"],
        "advantage_scale": ["range"],
        "reward_scale": ["range"],
        "optimiser": ["adamm"],
    },
}
CASES = [
    (name, field, value)
    for name, of in BAD.items()
    for field, values in of.items()
    for value in values
]


@pytest.mark.parametrize(("name", "field", "value"), CASES)
def test_bad_values_are_refused_by_name(name, field, value, problem):
    algorithm = ALGORITHMS[name](**{field: value})
    with pytest.raises(ValueError, match=rf"{ALGORITHMS[name].__name__}\.{field} must be .*, got"):
        algorithm.init(problem.spec, problem.statistics, jax.random.key(0))


def test_every_field_is_checked():
    for name, kind in ALGORITHMS.items():
        unchecked = (
            {field.name for field in fields(kind)} - set(BAD[name]) - {"hidden", "batch_size"}
        )
        assert not unchecked, f"{name}: no bad value of {unchecked} is tested"
