"""The kit is tested by what it must accept and, above all, by what it must reject."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from scipy import stats

from neorl_core.testing import (
    ROWS,
    assert_close,
    batch_independent,
    dtype_preserved,
    everywhere,
    finite_grad,
    no_recompile,
    oracle,
    pure,
    series,
    state_keeps_form,
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
    # The two eager calls and the eager vmap always run the Python body.
    assert len(traces) - first == 3


def test_a_loop_that_compiles_at_every_call_is_noticed():
    def summed(x):
        return jax.lax.fori_loop(0, 3, lambda i, total: total + i * x[0], 0.0)

    with pytest.raises(AssertionError, match="compiles again"):
        everywhere(summed, VALUES)
    everywhere(jax.jit(summed), VALUES)


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


def test_slopes_beside_tiny_numbers_are_taken_by_tiny_steps():
    """A step of 1e-6 changes the sign of such weights, and both sides of it may agree by chance."""

    def mean(values, weights):
        return (values * weights).sum() / weights.sum()

    values = np.asarray([[9e9, -1e8, -7e9]], np.float32)
    weights = np.asarray([[2e-9, 3e-10, 1e-9]], np.float32)
    slopes_agree(mean, mean, values, weights)
    with pytest.raises(AssertionError, match="the oracle's slope"):
        slopes_agree(lambda v, w: mean(v, jax.lax.square(w) / 1e-9), mean, values, weights)


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
