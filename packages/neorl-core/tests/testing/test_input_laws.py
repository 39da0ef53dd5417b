"""The laws of arguments are tested by what they must reject."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from jaxtyping import Array, Float

from neorl_core._internal.checks import (
    checked_integer,
    checked_positive,
    floats,
    like,
    require_scalar,
)
from neorl_core.testing import Refusal, Row, check_bad_values, check_form
from neorl_core.testing._laws import (
    counts_are_integers,
    hyperparameters_leave_dtypes,
    integers_are_floats,
    is_one_number,
    lists_are_arrays,
    one_number_is_no_array,
    sums_are_wide,
)

VALUES = np.asarray([[1.0, 2.0], [3.0, 4.0], [-5.0, 0.5]], np.float32)


def tails(x, *, n: int, scale: float | Float[Array, ""] = 1.0):
    """Right in every way."""
    n = checked_integer("n", n, 0, "give 0 for none")
    scale = checked_positive("scale", scale)
    x = floats(x)
    return like(scale, x) * jnp.sum(x[n:], dtype=jnp.float32).astype(x.dtype)


def checks_nothing(x, *, n: int = 1, scale: float = 1.0):
    return jnp.asarray(x)[: int(n)] * jnp.asarray(scale)


def needs_an_array(x: Float[Array, " item"]):
    return x * 2.0


def cuts_inside(x):
    x = jnp.asarray(x)
    return jax.lax.cond(x[0] > 0, lambda x: x, lambda x: jnp.exp(x).astype(x.dtype), x)


def adds_in_a_loop(x):
    return jax.lax.scan(lambda total, one: (total + one, total), x[0], x)[0]


def adds_by_scattering(x):
    return jnp.zeros(1, x.dtype).at[jnp.zeros(2, jnp.int32)].add(x)


def test_a_right_function_passes_everything():
    row = Row(
        tails,
        st.tuples(st.just(VALUES)),
        oracle=lambda x, n, scale: scale * x[n:].sum(),
        options={"n": 1, "scale": 2.0},
        laws=[lambda *_, **__: None],
        refuses=[Refusal("positive", (VALUES[0],), {"n": 1, "scale": -1.0})],
    )
    check_form(row)
    check_bad_values(row)


def test_integers_that_are_none_are_noticed():
    counts_are_integers(tails, VALUES, n=1)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        counts_are_integers(checks_nothing, VALUES)


def test_arrays_in_place_of_a_number_are_noticed():
    one_number_is_no_array(tails, VALUES, n=1)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        one_number_is_no_array(checks_nothing, VALUES)
    assert is_one_number(float)
    assert is_one_number(float | Float[Array, ""])
    assert not is_one_number(float | Float[Array, "*#batch"])
    assert not is_one_number(int)


def test_a_function_of_arrays_alone_is_noticed():
    lists_are_arrays(tails, VALUES, n=1)
    with pytest.raises(TypeError):
        lists_are_arrays(needs_an_array, VALUES)


def test_a_hyperparameter_that_widens_is_noticed():
    hyperparameters_leave_dtypes(needs_an_array, VALUES)
    with pytest.raises(AssertionError, match="float64 give"):
        hyperparameters_leave_dtypes(checks_nothing, VALUES, scale=1.0)


def test_a_cut_is_noticed_at_any_depth():
    integers_are_floats(tails, VALUES, n=1)
    for wrong in (cuts_inside, jax.jit(cuts_inside)):
        with pytest.raises(AssertionError, match="as integers"):
            integers_are_floats(wrong, VALUES)


def test_sums_in_bfloat16_are_noticed():
    sums_are_wide(tails, VALUES, n=1)
    for wrong in (adds_in_a_loop, adds_by_scattering, jax.jit(adds_in_a_loop)):
        with pytest.raises(AssertionError, match="adds up in bfloat16"):
            sums_are_wide(wrong, VALUES)


def test_a_bad_value_that_passes_in_a_compiled_program_is_noticed():
    def refuses_what_it_knows(x, *, scale):
        if isinstance(scale, float) and not scale > 0:
            raise ValueError("scale must be positive")
        return x * scale

    row = Row(
        refuses_what_it_knows,
        st.tuples(st.just(VALUES)),
        oracle=lambda x, scale: x * scale,
        options={"scale": 1.0},
        laws=[lambda *_, **__: None],
        refuses=[Refusal("positive", (VALUES[0],), {"scale": -1.0})],
    )
    with pytest.raises(AssertionError, match="compiled, it gives"):
        check_bad_values(row)


def test_shapes_that_are_refused_while_tracing_need_no_nan():
    def summed(x, y):
        require_scalar("y", y)
        return x.sum() + y

    row = Row(
        summed,
        st.tuples(st.just(VALUES), st.just(VALUES[:, 0])),
        oracle=lambda x, y: x.sum() + y,
        laws=[lambda *_: None],
        refuses=[Refusal("one number", (VALUES[0], VALUES[0]))],
    )
    check_bad_values(row)
