"""The checks that every module shares: what passes, what is refused in which words, what is NaN."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core._internal.checks import (
    booleans,
    checked_integer,
    checked_positive,
    checked_probability,
    floats,
    is_concrete,
    like,
    nan_unless,
    require_broadcast,
    require_choice,
    require_each,
    require_integers,
    require_key,
    require_length,
    require_order,
    require_rank,
    require_same_shape,
    require_scalar,
    require_series,
)
from neorl_core._internal.precision import checked_wide, is_half_precision, narrow, widen
from neorl_core.distributions import (
    diagonal_gaussian_sample,
)
from neorl_core.statistics import (
    bootstrap_interval,
    stratified_bootstrap_interval,
)

UNIT = "check sign and unit"
FRACTION = "give a fraction, not a percentage"
NUMBER = "index it, or use jax.vmap for several"
EACH = "give one number, or one for each element"
FOUR = {"other": "y", "shape": (4, 3)}
REFUSED = [
    (checked_probability, {}, 1.5, f"x must be in (0, 1), got 1.5; {FRACTION}"),
    (checked_probability, {}, 1, f"x must be in (0, 1), got 1; {FRACTION}"),
    (checked_probability, {}, 0, f"x must be in (0, 1), got 0; {FRACTION}"),
    (checked_probability, {}, np.nan, f"x must be in (0, 1), got nan; {FRACTION}"),
    (checked_probability, {"closed": True}, 1.01, f"x must be in [0, 1], got 1.01; {FRACTION}"),
    (checked_probability, {"closed": True}, -0.01, f"x must be in [0, 1], got -0.01; {FRACTION}"),
    *(
        (check, {}, "0.9", "x must be a number, got '0.9'; write it without quotes")
        for check in (checked_probability, checked_positive)
    ),
    (checked_probability, {}, None, "x must be a number, got None; give a float"),
    (checked_positive, {}, 0.0, f"x must be finite and positive, got 0.0; {UNIT}"),
    (checked_positive, {}, np.inf, f"x must be finite and positive, got inf; {UNIT}"),
    (checked_positive, {}, np.nan, f"x must be finite and positive, got nan; {UNIT}"),
    (checked_positive, {"or_zero": True}, -1, f"x must be finite and not negative, got -1; {UNIT}"),
    *(
        (check, {}, np.full(shape, 0.5), f"x must be one number, got shape {shape}; {NUMBER}")
        for check in (require_scalar, checked_probability, checked_positive)
        for shape in ((1,), (2, 1))
    ),
    (
        checked_probability,
        {"many": True},
        np.asarray([0.5, 2.0]),
        f"x must be in (0, 1), got [0.5 2. ]; {FRACTION}",
    ),
    *(
        (
            require_each,
            {"count": 2, "counted": "loops"},
            np.zeros(shape),
            "x must have one number for each of the 2 loops, "
            f"got shape {shape}; give it the shape (2,)",
        )
        for shape in ((), (1,), (2, 1))
    ),
    *(
        (
            require_broadcast,
            FOUR,
            np.zeros(shape),
            f"x must broadcast against the shape (4, 3) of y, got shape {shape}; {EACH}",
        )
        for shape in ((4,), (2, 3), (1, 4, 3))
    ),
    (
        require_rank,
        {"rank": 2, "axes": "time, act"},
        np.zeros(3),
        "x must have the axes (time, act), got shape (3,); "
        "add the missing axes, for example with jnp.expand_dims",
    ),
    (
        require_rank,
        {"rank": 1, "axes": "time"},
        np.zeros((2, 3)),
        "x must have the axes (time), got shape (2, 3); for a batch of them use jax.vmap",
    ),
    (
        require_length,
        {"minimum": 2},
        np.zeros((1, 4)),
        "x needs a first axis of length 2 or more, got shape (1, 4); check how it was sliced",
    ),
    (
        require_length,
        {"minimum": 0},
        np.zeros(()),
        "x needs a first axis of length 0 or more, got shape (); check how it was sliced",
    ),
    (
        require_choice,
        {"choices": ("mean", "sum")},
        "Sum",
        "x must be one of mean, sum, got 'Sum'; spell it as listed",
    ),
    (
        require_integers,
        {},
        np.zeros(2, np.float32),
        "x must be integers, got float32; cast it with astype(jnp.int32)",
    ),
    (
        checked_integer,
        {},
        2.0,
        "x must be an integer that is known before tracing, got 2.0; give an int",
    ),
    (
        checked_integer,
        {"minimum": 3, "advice": "do this"},
        2,
        "x must be 3 or more, got 2; do this",
    ),
    (
        checked_wide,
        {},
        jnp.zeros(1, jnp.float16),
        "x must be float32 or float64, got float16; cast with x.astype(jnp.float32)",
    ),
]
GOOD = [
    (checked_probability, {}, 1e-9),
    (checked_probability, {}, 1 - 1e-9),
    (checked_probability, {"closed": True}, 0),
    (checked_probability, {"closed": True}, 1),
    (checked_positive, {}, 1e-30),
    (checked_positive, {}, 1e30),
    (checked_positive, {"or_zero": True}, 0),
    (checked_positive, {"many": True}, np.ones((2, 1))),
    (checked_probability, {"many": True}, np.full(2, 0.5)),
]
PASSED = [
    (require_scalar, {}, 3),
    (require_scalar, {}, np.zeros(())),
    (require_each, {"count": 2, "counted": "loops"}, (0, 1)),
    *((require_broadcast, FOUR, np.zeros(shape)) for shape in ((), (3,), (4, 1), (4, 3))),
    (require_rank, {"rank": 2, "axes": "time, act"}, np.zeros((0, 3))),
    (require_length, {"minimum": 2}, np.zeros(2)),
    (require_length, {"minimum": 0}, np.zeros(0)),
    (require_choice, {"choices": ("mean", "sum")}, "sum"),
    (require_integers, {}, 3),
    (require_integers, {}, []),
    (require_integers, {}, np.zeros(2, np.uint8)),
]


@pytest.mark.parametrize(("check", "options", "value", "message"), REFUSED)
def test_what_is_refused_is_refused_in_these_words(check, options, value, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check("x", value, **options)


@pytest.mark.parametrize(("check", "options", "value"), GOOD)
def test_a_good_number_comes_back_as_it_is(check, options, value):
    assert check("x", value, **options) is value


@pytest.mark.parametrize(("check", "options", "value"), PASSED)
def test_what_is_fine_passes(check, options, value):
    assert check("x", value, **options) is None


@pytest.mark.parametrize(
    ("check", "options", "numbers", "bad"),
    [
        (checked_probability, {}, [0, 1e-9, 0.5, 1, 2, np.nan], [1, 0, 0, 1, 1, 1]),
        (checked_probability, {"closed": True}, [-1, 0, 0.5, 1, 2, np.nan], [1, 0, 0, 0, 1, 1]),
        (checked_positive, {}, [-1, 0, 1e-9, 1e30, np.inf, np.nan], [1, 1, 0, 0, 1, 1]),
        (checked_positive, {"or_zero": True}, [-1, 0, 1e30, np.inf, np.nan], [1, 0, 0, 1, 1]),
    ],
)
def test_a_traced_number_outside_its_range_is_nan_and_one_inside_keeps_its_bits(
    check, options, numbers, bad
):
    judge = jax.jit(lambda number: check("x", number, **options))
    for number, outside in zip(np.asarray(numbers, np.float32), bad, strict=True):
        np.testing.assert_array_equal(judge(number), np.float32(np.nan) if outside else number)


def test_a_traced_integer_outside_its_range_is_nan_too():
    judge = jax.jit(lambda number: checked_positive("x", number))
    assert judge(3) == 3
    assert np.isnan(judge(-3))
    assert judge(3).dtype == jnp.float32


def test_only_what_is_traced_is_unknown():
    seen = []
    jax.jit(
        lambda x: seen.append((is_concrete(x), is_concrete((1.0, [x])), is_concrete(np.ones(2))))
    )(1.0)
    assert seen == [(False, False, True)]
    assert is_concrete(1.0)
    assert is_concrete(jnp.ones(2))
    assert is_concrete([])


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_floats_stay_and_integers_become_the_default_float(dtype):
    weak = jnp.asarray(1.0)
    assert weak.weak_type
    assert not floats(weak).weak_type
    assert floats(jnp.ones(2, dtype)).dtype == dtype
    with pytest.raises(TypeError, match=r"got a mapping of 'a', 'b'; give one of its arrays"):
        floats({"a": np.ones(2), "b": np.ones(3)})
    assert floats([1, 2]).dtype == floats(True).dtype == jnp.float32
    with jax.enable_x64(True):
        assert floats(1).dtype == jnp.float64


@pytest.mark.parametrize(
    ("flags", "where"),
    [
        ([0.0, 0.99, 1.0], "got 0.99 at index 1"),
        (jnp.asarray([[1, 2]]), r"got 2 at index \(0, 1\)"),
        (np.nan, "got nan;"),
    ],
)
def test_flags_that_are_neither_0_nor_1_are_refused(flags, where):
    """A probability of an end, or a count, would otherwise be read as true."""
    with pytest.raises(ValueError, match=f"flags such as terminated must be 0 or 1, {where}"):
        booleans(flags)
    assert booleans([0.0, 1.0]).tolist() == booleans([0, 1]).tolist() == [False, True]
    assert jax.jit(booleans)(jnp.asarray([0.0, 1.0])).tolist() == [False, True]


def test_nan_stands_where_a_number_is_not_fine():
    result = nan_unless(np.asarray([True, False]), np.asarray([1, 2]))
    np.testing.assert_array_equal(result, np.asarray([1, np.nan], np.float32))
    short = nan_unless(np.asarray([True, False]), jnp.ones(2, jnp.bfloat16))
    assert short.dtype == jnp.bfloat16


def test_two_shapes_are_named_where_they_differ():
    require_same_shape("a", np.zeros((2, 3)), "b", np.ones((2, 3)))
    message = (
        "a and b must have one shape, got (2,) and (2, 1); "
        "index or reshape one of them, nothing is broadcast here"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        require_same_shape("a", np.zeros(2), "b", np.zeros((2, 1)))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_short_floats_are_widened_and_narrowed_again(dtype):
    assert is_half_precision(dtype)
    short = jnp.ones(2, dtype)
    assert widen(short).dtype == jnp.float32
    tree = {"sum": jnp.ones(2), "count": jnp.ones(2, jnp.int32)}
    back = narrow(tree, dtype)
    assert back["sum"].dtype == dtype
    assert back["count"].dtype == jnp.int32


def test_what_is_not_short_passes_as_it_is():
    assert not any(map(is_half_precision, (jnp.float32, jnp.float64, jnp.int8)))
    wide = jnp.ones(2)
    assert checked_wide("x", wide) is wide
    assert widen(wide).dtype == widen([1, 2]).dtype == jnp.float32
    tree = {"sum": wide}
    assert narrow(tree, jnp.float32) is tree
    with jax.enable_x64(True):
        assert widen(jnp.ones(2, jnp.float64)).dtype == jnp.float64


@pytest.mark.parametrize(("low", "high"), [(2.0, 1.0), (np.nan, 1.0), (0.0, np.nan)])
def test_ends_that_cross_are_refused_and_traced_ones_pass(low, high):
    message = f"low must not be above high, got {low} and {high}; swap the ends that cross"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        require_order(low, high)
    require_order(1.0, 1.0)
    require_order(-np.inf, np.inf)
    jax.jit(lambda a, b: require_order(a, b))(low, high)


@pytest.mark.parametrize(
    ("series", "message"),
    [
        ({"a": np.ones((2, 2))}, "a must have the axes (time), got shape (2, 2)"),
        ({"a": np.ones(2), "b": np.ones(())}, "b must have the axes (time), got shape ()"),
        ({"a": np.ones(2), "b": np.ones(3)}, "a and b must have one shape, got (2,) and (3,)"),
        ({"a": np.ones(0), "b": np.ones(0)}, "a needs a first axis of length 1 or more"),
    ],
)
def test_series_have_one_axis_of_one_length(series, message):
    require_series(a=np.ones(1), b=np.zeros(1, bool))
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        require_series(**series)


def test_flags_may_be_zeros_and_ones_and_numbers_take_the_dtype_of_the_data():
    flags = booleans(np.asarray([0.0, 1.0]))
    assert flags.dtype == jnp.bool_
    assert flags.tolist() == [False, True]
    for dtype in (jnp.bfloat16, jnp.float32):
        assert like(0.5, jnp.ones(2, dtype)).dtype == dtype
    assert float(like(0.5, jnp.ones(2))) == 0.5


@pytest.mark.parametrize("seed", [0, None, np.int64(3), jnp.asarray(3), np.random.default_rng(0)])
def test_a_seed_is_no_random_key(seed):
    with pytest.raises(
        TypeError, match=r"key must be a JAX random key, got .*: jax\.random\.key\(0\)"
    ):
        require_key(seed)


@pytest.mark.parametrize("key", [jax.random.key(0), jax.random.PRNGKey(0), np.zeros(2, np.uint32)])
def test_both_kinds_of_random_keys_pass(key):
    require_key(key)
    jax.eval_shape(require_key, key)


SCORES = np.arange(6.0).reshape(3, 2)
DRAWS = {
    "bootstrap_interval": lambda key: bootstrap_interval(SCORES, key),
    "stratified_bootstrap_interval": lambda key: stratified_bootstrap_interval(SCORES, key),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_what_draws_refuses_a_seed(draw):
    with pytest.raises(TypeError, match="key must be a JAX random key, got 0"):
        draw(0)


def test_a_key_among_the_data_is_no_number():
    message = "^expected numbers, got a random key; give the key after all data$"
    with pytest.raises(TypeError, match=message):
        diagonal_gaussian_sample(jax.random.key(0), jnp.zeros(2), jnp.zeros(2))
