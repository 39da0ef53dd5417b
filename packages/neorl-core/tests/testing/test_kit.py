"""The kit is tested by what it must accept and, above all, by what it must reject."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from scipy import stats

from neorl_core import Transition
from neorl_core.testing import (
    LENGTHS,
    ROWS,
    assert_close,
    batch_independent,
    conditioned,
    counts,
    decades,
    dtype_preserved,
    endings,
    everywhere,
    finite_grad,
    in_units,
    keys,
    logs,
    no_recompile,
    oracle,
    padded_graphs,
    positive_definite,
    pure,
    pytrees,
    rows,
    salted,
    seeds,
    series,
    simplex,
    state_keeps_form,
    trajectories,
    transitions,
)
from neorl_core.testing._slopes import slopes_agree

VALUES = np.asarray([[1.0, 2.0], [3.0, 4.0], [-5.0, 0.5]], np.float32)


def mean_square(errors, *, weight=1.0):
    return weight * (errors**2).mean()


def mean_square_in_numpy(errors, *, weight=1.0):
    return weight * np.sum(errors * errors) / errors.size


def unit_vector(x):
    return x / jnp.sqrt((x**2).sum())


def prints(x):
    jax.debug.print("{}", x)
    return x


def calls_back(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def scans_a_callback(x):
    return jax.lax.scan(lambda c, v: (c, calls_back(v)), 0, x)[1]


def starts_from_zeros(x):
    return jnp.where(jnp.any(x > 0), jnp.ones(()), jnp.zeros(()))


def widens(x):
    return x.astype(jnp.float32)


def draw_normal(key):
    return jax.random.normal(key, (2,))


def counter(state, x):
    return state + jnp.astype(x > 0, jnp.int32), x


def leaky_counter(state, x):
    return jnp.stack([state, state]), x


@given(series(1))
def test_a_right_function_passes_everything(sample):
    result = oracle(mean_square, mean_square_in_numpy, *sample, weight=0.5)
    assert result.shape == (ROWS,)
    (gradient,) = finite_grad(mean_square, *sample, weight=0.5)
    assert gradient.shape == sample[0].shape
    batch_independent(mean_square, *sample)


def test_a_wrong_oracle_is_noticed():
    with pytest.raises(AssertionError, match="differs from the oracle"):
        oracle(mean_square, lambda errors: np.sum(errors), VALUES)


def test_everywhere_notices_a_function_that_depends_on_its_transformation():
    def traced_differs(x):
        return x + float(isinstance(x, jax.core.Tracer))

    def batched_differs(x):
        return x + float("Batch" in type(x).__name__)

    for wrong in (traced_differs, batched_differs):
        with pytest.raises(AssertionError, match="differ"):
            everywhere(wrong, VALUES)


def test_everywhere_accepts_trees_keys_and_static_options():
    tree = {"a": VALUES, "b": (VALUES[:, 0],)}
    doubled = everywhere(double_tree, tree, times=2)
    assert_close(doubled["b"][0], 2 * VALUES[:, 0])
    assert everywhere(draw_normal, jax.random.split(jax.random.key(0), ROWS)).shape == (ROWS, 2)


def double_tree(tree, *, times):
    return jax.tree.map(lambda leaf: leaf * float(times), tree)


def test_transformed_callables_are_compiled_once():
    traces = []

    def counted(x, *, shift):
        traces.append(1)
        return x + shift

    everywhere(counted, VALUES, shift=0.5)
    first = len(traces)
    everywhere(counted, VALUES + 1, shift=0.25)
    # The eager call and the eager vmap always run the Python body.
    assert len(traces) - first == 2


def test_a_gradient_that_is_not_finite_is_noticed():
    with pytest.raises(AssertionError, match="not finite"):
        finite_grad(unit_vector, np.zeros((ROWS, 2), np.float32))


def test_finite_grad_sees_outputs_that_cancel_in_a_plain_sum():
    (gradient,) = finite_grad(jax.nn.softmax, VALUES)
    assert np.abs(gradient).max() > 1e-3


def test_a_gradient_that_is_wrong_is_noticed():
    @jax.custom_jvp
    def doubled(x):
        return 2 * x.sum()

    doubled.defjvps(lambda slope, value, x: slope.sum())

    def stopped(x):
        return jax.lax.stop_gradient(x).sum()

    slopes_agree(mean_square, mean_square_in_numpy, VALUES)
    slopes_agree(lambda x: jnp.abs(x), np.abs, np.zeros_like(VALUES))  # A kink is left out.
    with pytest.raises(AssertionError, match="the oracle's slope"):
        slopes_agree(doubled, lambda x: 2 * x.sum(), VALUES)
    slopes_agree(stopped, np.sum, VALUES)  # By design.


def test_finite_grad_leaves_integer_arguments_alone():
    index = np.asarray([0, 1, 1], np.int32)
    (gradient,) = finite_grad(pick, VALUES, index)
    assert_close(gradient, jax.nn.one_hot(index, 2) * 1.5)


def pick(values, index):
    return values[index]


def test_no_recompile_rejects_another_structure():
    no_recompile(mean_square, (jnp.ones(2),), (jnp.zeros(2),), weight=0.5)
    with pytest.raises(AssertionError, match="traced 2 times"):
        no_recompile(mean_square, (jnp.ones(2),), (jnp.ones(3),))
    with pytest.raises(AssertionError, match="traced 2 times"):
        no_recompile(double_tree, (1.0,), (jnp.float32(1),), times=2)


def test_purity_sees_effects_and_callbacks_at_any_depth():
    pure(mean_square, VALUES)
    for wrong in (prints, calls_back, scans_a_callback):
        with pytest.raises(AssertionError, match=r"effects|call"):
            pure(wrong, VALUES)


def test_a_changed_dtype_is_noticed():
    dtype_preserved(mean_square, VALUES, weight=0.5)
    with pytest.raises(AssertionError, match="bfloat16 became float32"):
        dtype_preserved(widens, VALUES)
    with pytest.raises(AssertionError, match="float32 became float64"):
        dtype_preserved(starts_from_zeros, VALUES, dtypes=("float32",))


def test_a_state_that_changes_form_is_noticed():
    state_keeps_form(counter, jnp.int32(0), jnp.float32(1))
    with pytest.raises(AssertionError, match="became"):
        state_keeps_form(leaky_counter, jnp.int32(0), jnp.float32(1))


def test_rows_that_touch_each_other_are_noticed():
    batch_independent(mean_square, VALUES)
    with pytest.raises(AssertionError, match="mixes the rows"):
        batch_independent(mixing, VALUES)


@jax.custom_batching.custom_vmap
def mixing(x):
    return x


@mixing.def_vmap
def _mix(axis_size, in_batched, x):
    return x - x.mean(axis=0, keepdims=True), True


def test_closeness_follows_the_size_of_each_leaf():
    assert_close(1e6 + 1.0, 1e6, rtol=0)
    assert_close(1e-9 * (1 + 1e-6), 1e-9)
    assert_close({"a": np.nan}, {"a": np.nan})
    assert_close(np.asarray([0.0, np.inf, 1.0]), np.asarray([1e-6, np.inf, 1.0]))
    for wrong in (
        (1.0 + 1e-4, 1.0),
        (np.inf, -np.inf),
        (np.nan, 0.0),
        (1, 2),
        (np.ones(2), np.ones(3)),
        (1e-9, 2e-9),
        ({"large": 1e9, "small": 1e-9}, {"large": 1e9, "small": 0.0}),
    ):
        with pytest.raises(AssertionError):
            assert_close(*wrong)
    with pytest.raises(AssertionError, match=r"\['b'\]"):
        assert_close({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 3.0})


def difference(x, y):
    return x - y


def tail_of(x):
    """The upper tail of the normal law, by what cancels."""
    return 1 - jax.scipy.stats.norm.cdf(x)


def test_a_difference_may_carry_the_rounding_of_what_it_is_of():
    large = np.float32(1e6) + VALUES
    oracle(difference, np.subtract, large, large - np.float32(0.1))
    with pytest.raises(AssertionError, match="differs from the oracle"):
        oracle(difference, lambda x, y: (x - y) * 1.1 + 0.2, VALUES, VALUES - np.float32(0.1))


def test_a_small_result_beside_large_arguments_may_not():
    """A probability of 1e-7 is not 0, however far out the point."""
    far = np.full(ROWS, 5.2, np.float32)
    oracle(jax.scipy.stats.norm.sf, stats.norm.sf, far)
    with pytest.raises(AssertionError, match="differs from the oracle"):
        oracle(tail_of, stats.norm.sf, far)


def test_where_the_reference_jumps_nothing_is_owed_to_rounding():
    ties = np.zeros((ROWS, 2), np.float32) + 3
    with pytest.raises(AssertionError, match="differs from the oracle"):
        oracle(lambda x: jnp.asarray(x[0] > x[1], x.dtype), lambda x: float(x[0] >= x[1]), ties)


@given(series(2), rows(3), simplex(4), keys(), seeds())
def test_arrays_are_finite_float32_rows(pair, row, weights, key, seed):
    length = pair[0].shape[1]
    assert length in LENGTHS
    assert pair[0].shape == pair[1].shape == (ROWS, length)
    assert row.shape == (ROWS, 3)
    for array in (*pair, row, weights):
        assert array.dtype == np.float32
        assert np.isfinite(array).all()
        assert (np.abs(array) <= 100).all()
        tiny = np.finfo(np.float32).tiny
        assert ((array == 0) | (np.abs(array) >= tiny)).all()
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)
    assert key.shape == (ROWS,)
    assert 0 <= seed < 2**31


@given(in_units(series(1)), rows(20, elements=decades()), counts(20), conditioned(4, decades=7))
def test_what_the_field_meets_is_finite_and_positive(sample, spread, whole, matrices):
    for array in (*sample, spread, whole, matrices):
        assert array.dtype == np.float32
        assert array.shape[0] == ROWS
        assert np.isfinite(array).all()
    assert ((spread == 0) | ((np.abs(spread) >= 9e-10) & (np.abs(spread) <= 1.1e9))).all()
    np.testing.assert_array_equal(whole, np.floor(whole))
    assert (whole >= 0).all()
    values = np.linalg.eigvalsh(matrices.astype(np.float64))
    np.testing.assert_allclose(values[:, -1], 1, rtol=1e-5)
    assert (values[:, 0] > -1e-6).all()


def test_the_decades_are_met_evenly():
    seen = {"spread": [], "units": [], "whole": []}

    @given(rows(10, elements=decades()), in_units(rows(10)), counts(10))
    def collect(spread, units, whole):
        for name, array in (("spread", spread), ("units", units), ("whole", whole)):
            seen[name].append(array)

    collect()
    for arrays in seen.values():
        sizes = np.log10(np.abs(np.concatenate(arrays)[np.concatenate(arrays) != 0]))
        assert np.ptp(np.quantile(sizes, [0.1, 0.9])) > 5


def test_most_entries_of_a_drawn_array_differ():
    counts = []

    @given(rows(20))
    def collect(array):
        counts.append(len(np.unique(array)))

    collect()
    assert np.median(counts) > 30


def test_salt_is_there():
    draws = np.asarray(salted(jax.random.key(0), (4000,)))
    for value in (0.0, 1.0, -1.0, 1e-6, 100.0, -100.0):
        assert 80 < (draws == np.float32(value)).sum() < 260
    assert len(np.unique(draws)) > 2500


def test_every_pattern_of_ends_occurs():
    seen = set()

    @given(logs(length=3))
    def collect(log):
        ends = log.terminated.astype(int) + 2 * log.truncated
        seen.update(map(tuple, ends.tolist()))
        assert (ends[:, -1] > 0).all()

    collect()
    assert len(seen) > 12
    assert {row[-1] for row in seen} == {1, 2, 3}
    assert {row[0] for row in seen} == {0, 1, 2, 3}


@given(logs(length=7), trajectories(length=7), transitions())
def test_experience_keeps_the_contract_of_episode_boundaries(log, trajectory, loose):
    for experience in (log, trajectory):
        ends = experience.terminated | experience.truncated
        assert ends[:, -1].all()
        inner = ~ends[:, :-1]
        np.testing.assert_array_equal(
            experience.next_obs[:, :-1][inner], experience.obs[:, 1:][inner]
        )
        np.testing.assert_array_equal(
            experience.next_action[:, :-1][inner], experience.action[:, 1:][inner]
        )
        assert (experience.next_action[ends] == 0).all()
        assert experience.cost.shape == (ROWS, 7, 1)
    assert not (trajectory.terminated | trajectory.truncated)[:, :-1].any()
    assert isinstance(loose, Transition)
    assert loose.obs.shape == (ROWS, 3)


def test_endings_of_one_row_are_ends():
    @given(endings(1))
    def check(pattern):
        terminated, truncated = pattern
        assert (terminated | truncated).all()

    check()


@given(pytrees(), positive_definite(3), padded_graphs())
def test_structures_have_their_properties(tree, matrices, graph):
    for leaf in jax.tree.leaves(tree):
        assert leaf.shape[0] == ROWS
    np.testing.assert_array_equal(matrices, matrices.transpose(0, 2, 1))
    assert np.linalg.eigvalsh(matrices.astype(np.float64)).min() > 0.49
    for row in range(ROWS):
        real = graph.edge_mask[row]
        assert graph.node_mask[row][graph.senders[row][real]].all()
        assert graph.node_mask[row][graph.receivers[row][real]].all()


def test_graphs_include_empty_ones_and_isolated_nodes():
    found = set()

    @given(padded_graphs())
    def collect(graph):
        for nodes, edges, senders, receivers in zip(
            graph.node_mask, graph.edge_mask, graph.senders, graph.receivers, strict=True
        ):
            touched = {*senders[edges].tolist(), *receivers[edges].tolist()}
            found.add("empty" if not nodes.any() else "nodes")
            found.add("isolated" if nodes.sum() > len(touched) else "joined")
            found.add("edges" if edges.any() else "no edges")

    collect()
    assert {"empty", "isolated", "joined", "edges", "no edges"} <= found
