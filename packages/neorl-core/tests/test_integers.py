"""Integers where floats are due: what the floats give, or one line that refuses them.

Read off the traced programs, which costs no compilation: an answer is cut where its dtype is that
of the integers, or where a program of integers turns floats into integers and that of floats does
not.
"""

import re
from collections.abc import Callable
from pathlib import Path

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from neorl_core import control, costs, losses, targets
from neorl_core.testing import load_table

TABLE = {f"{row}-{place}": row for place, row in enumerate(load_table(Path(__file__).parent))}
# What only stores its arguments gives them back as they came.
STORES = {
    *("as_arrays", "ConstantPolicy", "delay_step", "history_step", "window_rows"),
    *("ring_push", "ring_sample"),
}
REFUSES = r"(updates|target) must be of floats, got a leaf of int32; leave counters and keys out"
CHOICES: dict[str, Callable[[int], bool]] = {
    "all": lambda count: True,
    "one in two": lambda count: count % 2 == 0,
    "the others": lambda count: count % 2 == 1,
}


def is_float(leaf) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(leaf), jnp.floating))


def one_call(row):
    """The simplest draw of a row, without the axis of rows."""
    drawn = []
    options = row.options if isinstance(row.options, st.SearchStrategy) else st.just(row.options)

    @hypothesis.settings(max_examples=1)
    @hypothesis.given(row.sample, options)
    def keep(sample, options):
        drawn.append((jax.tree.map(lambda leaf: leaf[0], sample), options))

    keep()
    return drawn[0]


def whole(tree, chosen):
    """The tree with those of its float arrays as integers that ``chosen`` picks by their number."""
    leaves, structure = jax.tree.flatten(tree)
    for count, place in enumerate([i for i, leaf in enumerate(leaves) if is_float(leaf)]):
        if chosen(count):
            leaves[place] = jnp.zeros(np.shape(leaves[place]), jnp.int32)
    return jax.tree.unflatten(structure, leaves)


def program(row, sample, options):
    """As a user traces it, whose dtypes may mix."""
    with jax.numpy_dtype_promotion("standard"):
        return jax.make_jaxpr(lambda sample: row.function(*sample, **options))(sample)


def program_or_refusal(row, sample, options):
    try:
        return program(row, sample, options)
    except ValueError as error:
        return str(error)


def cuts(jaxpr) -> int:
    """How often a program turns floats into integers."""
    found = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "convert_element_type":
            to = equation.params["new_dtype"]
            found += is_float(equation.invars[0].aval) and jnp.issubdtype(to, jnp.integer)
        inside = jax.tree.leaves(equation.params, is_leaf=has_equations)
        found += sum(cuts(inner) for inner in inside if has_equations(inner))
    return found


def has_equations(value) -> bool:
    return hasattr(value, "eqns")


@pytest.mark.parametrize("name", TABLE)
def test_integers_are_not_cut(name):
    row = TABLE[name]
    if str(row) in STORES:
        return
    sample, options = one_call(row)
    floats = program(row, sample, options)
    for words, chosen in CHOICES.items():
        integers = program_or_refusal(row, whole(sample, chosen), options)
        if isinstance(integers, str):
            assert re.fullmatch(REFUSES, integers)
            continue
        dtypes = [out.dtype for out in integers.out_avals]
        assert dtypes == [out.dtype for out in floats.out_avals], f"{words} as integers"
        assert cuts(integers.jaxpr) <= cuts(floats.jaxpr), f"{words} as integers"


def test_a_cut_is_seen():
    def cutting(x):
        return jax.lax.cond(x[0] > 0, lambda x: x, lambda x: jnp.exp(x).astype(x.dtype), x)

    assert cuts(jax.make_jaxpr(cutting)(jnp.ones(2)).jaxpr) == 0
    assert cuts(jax.make_jaxpr(jax.jit(cutting))(jnp.ones(2, jnp.int32)).jaxpr) == 1


ONE, ZERO, THREE = jnp.asarray([1]), jnp.asarray([0]), jnp.asarray([3])
ENDED = jnp.asarray([False])
NUMBERS = {
    "expectile_loss": (lambda: losses.expectile_loss(ZERO, THREE, expectile=0.7), [6.3]),
    "td_target": (lambda: targets.td_target(ONE, THREE, ENDED, discount=0.99), [3.97]),
    "td_target of a float reward": (
        lambda: targets.td_target(ONE * 1.5, THREE, ENDED, discount=0.99),
        [4.47],
    ),
    "clipped_double_td_target": (
        lambda: targets.clipped_double_td_target(ONE, THREE[None], ENDED, discount=0.99),
        [3.97],
    ),
    "penalised_reward": (
        lambda: costs.penalised_reward(ONE[0], jnp.asarray([2.0]), jnp.asarray([0.25])),
        0.5,
    ),
    "td3_bc_policy_loss": (
        # The values have mean 2 and size 2, the actions distance 1.
        lambda: losses.td3_bc_policy_loss(ONE + ONE, ONE[None], ZERO[None], alpha=2.5),
        -1.5,
    ),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_integers_give_what_floats_give(name):
    call, want = NUMBERS[name]
    with jax.numpy_dtype_promotion("standard"):
        np.testing.assert_allclose(call(), want, rtol=1e-6)


def test_a_loop_of_whole_gains_has_met_nothing_yet():
    """NaN, which marks what is unknown, is no integer."""
    two = jnp.asarray([2])
    zero, nothing = 0 * two, jnp.zeros(0)
    gains = (two, zero, zero)
    bank = control.PID(
        *gains, zero, zero, zero, -9 * two, 9 * two, jnp.asarray(1), nothing, nothing, (0,)
    )
    carry = bank.initial_carry()
    assert np.isnan([carry.measurement, carry.output]).all()
    with jax.numpy_dtype_promotion("standard"):
        assert bank(carry, jnp.asarray([1.5]))[1].tolist() == [-3.0]
