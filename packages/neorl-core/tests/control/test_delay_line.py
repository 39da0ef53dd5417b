"""Delays where the table does not reach."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.control import (
    DelayLine,
    delay_line,
    delay_step,
)
from neorl_core.testing import state_keeps_form


def test_a_line_keeps_its_form_through_every_step():
    state_keeps_form(delay_step, delay_line(jnp.zeros(2), delay=3), jnp.ones(2), first=True)


def test_containers_start_empty():
    line = delay_line(jnp.ones(2), delay=3)
    assert isinstance(line, DelayLine)
    assert line.values.tolist() == [[1, 1]] * 3


def test_a_line_of_no_delay_lets_values_through():
    line, out = delay_step(delay_line(0.0, delay=0), 5.0, first=False)
    assert float(out) == 5.0
    assert line.values.shape == (0,)


KEPT = [(jnp.int32, 5.7), (jnp.int32, np.float32(5)), (jnp.int8, np.int32(300)), (bool, 1)]
KEPT += [(jnp.bfloat16, np.float32(0.1)), (jnp.float32, np.int32(2**24 + 1))]


@pytest.mark.parametrize(("dtype", "value"), KEPT)
def test_a_value_that_would_lose_something_is_refused(dtype, value):
    """5.7 came out of a line that was filled with 0 as 5."""
    fill = jnp.zeros((), dtype)

    def through(value):
        return delay_step(delay_line(fill, delay=1), value, first=True)

    for run in (through, jax.jit(through)):
        with pytest.raises(ValueError, match=f"fit into {fill.dtype} without loss, got"):
            run(value)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (jnp.float32, 5), (jnp.bfloat16, 0.5), (jnp.float32, jnp.bfloat16(0.5)), (jnp.int32, 5),
        (jnp.float32, np.float64(0.5)), (jnp.float32, True), (jnp.int32, np.int8(5)),
    ],
)  # fmt: skip
def test_a_value_that_fits_takes_the_dtype_of_the_line(dtype, value):
    def through(value):
        line, _ = delay_step(delay_line(jnp.zeros((), dtype), delay=1), value, first=True)
        return delay_step(line, value, first=False)[1]

    for run in (through, jax.jit(through)):
        assert (run(value).dtype, float(run(value))) == (dtype, float(value))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: delay_line(0.0, delay=-1), "delay must be 0 or more"),
        (lambda: delay_step(delay_line(0.0, delay=2), jnp.ones(1), first=True), "shape ()"),
    ],
)
def test_misuse_is_refused_by_name(call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call()
