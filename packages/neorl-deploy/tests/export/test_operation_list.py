"""A traced step as a list of operations answers in NumPy and again in JAX as JAX itself does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_deploy import BundleError
from neorl_deploy.bundle import ArrayEntry
from neorl_deploy.export._jax_operations import as_jax
from neorl_deploy.export._numpy_form import NoSuchOperationError, operation_list
from neorl_deploy.runtime import as_function

VECTOR = ArrayEntry("x", (2,), "float32")
NUMBERS = np.array([0.0, -0.0, 1.5, -2.5, 3e38, -1e-40, np.nan, np.inf, -np.inf], np.float32)


def operations_of_all_kinds(x, y, whole):
    """Every operation that the list has, of two vectors and one of integers."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    square = jnp.outer(x, y)
    return (
        *(f(x) for f in (jnp.abs, jnp.ceil, jnp.floor, jnp.sign, jnp.isfinite, jnp.negative)),
        *(f(x) for f in (jnp.exp, jnp.expm1, jnp.log, jnp.log1p, jnp.sqrt, jax.lax.rsqrt)),
        *(f(x) for f in (jnp.tanh, jax.nn.sigmoid, jnp.square)),
        *(f(x, y) for f in (jnp.add, jnp.subtract, jnp.multiply, jnp.divide, jnp.power)),
        *(f(x, y) for f in (jnp.maximum, jnp.minimum, jnp.nextafter, jax.lax.rem)),
        *(f(x, y) for f in (jnp.less, jnp.less_equal, jnp.equal, jnp.not_equal)),
        *(f(x, y) for f in (jnp.greater, jnp.greater_equal)),
        jnp.where(x > y, x, y),
        jnp.where(x[0] > y[0], x, y),
        (x > 0) & (y > 0) | ~(x < y) ^ (y > 1),
        bits >> 3 & jnp.uint32(255) | bits << 2,
        whole >> 1,
        whole.astype(jnp.float32) * 2,
        x**3,
        jnp.clip(x, -1, 1),
        jnp.concatenate([x, y])[2:9:3],
        jnp.stack([x, y]).T,
        square[0],
        *jnp.unstack(square[:, :3], axis=1),
        jnp.eye(9) @ jnp.nan_to_num(x, posinf=1, neginf=-1),
        jnp.nan_to_num(x, posinf=1, neginf=-1) @ jnp.ones((9, 2)).T.reshape(2, 9).T,
        x[jnp.array([3, 0])],
        x.at[jnp.array([3, 0, 3])].min(y[:3]),
        x.at[jnp.array([3, 0, 3])].max(y[:3]),
        x.at[jnp.array([3, 0])].add(y[:2]),
        jax.lax.cond(x[0] > y[0], lambda a, b: a + b, lambda a, b: a - b, x, y),
        jnp.max(y),
        jnp.min(y, initial=3),
        jnp.sum(jnp.where(jnp.isfinite(x), 1.0, 0.0)),
        jnp.any(x > 2),
        jnp.all(x > 2),
        jnp.argmax(y).astype(jnp.int32),
        jnp.argmin(y).astype(jnp.int32),
        jnp.reshape(x, (3, 3))[:, 1],
        jnp.broadcast_to(x, (2, 9)),
    )


def test_every_operation_answers_as_jax_does():
    x, y = NUMBERS, np.roll(NUMBERS, 2)
    whole = np.arange(-4, 5, dtype=np.int32)
    inputs = [ArrayEntry("x", (9,), "float32"), ArrayEntry("y", (9,), "float32")]
    inputs.append(ArrayEntry("whole", (9,), "int32"))
    listed = operation_list(operations_of_all_kinds, inputs)
    run, traced = as_function(listed), jax.jit(as_jax(listed))(x, y, whole)
    compiled = jax.jit(operations_of_all_kinds)(x, y, whole)
    for at, (again, theirs) in enumerate(zip(traced, compiled, strict=True)):
        np.testing.assert_allclose(again, theirs, rtol=2e-6, err_msg=f"in JAX, output {at}")
    tiny = np.abs(x) < np.finfo(np.float32).tiny  # some processors take them for zero
    for at, (ours, theirs) in enumerate(zip(run(x, y, whole), compiled, strict=True)):
        theirs = np.asarray(theirs)
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), at
        if ours.shape == (9,):
            ours, theirs = ours[~tiny & ~np.roll(tiny, 2)], theirs[~tiny & ~np.roll(tiny, 2)]
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, err_msg=f"output {at}")


def operations_that_once_were_missing(x, at):
    """Loops, branches, sorts, sums along an axis, and parts at places that are known only then."""

    def halved(state):
        total, turns = state
        return total / 2, turns + 1

    largest, places = jax.lax.top_k(x, 3)
    return (
        *jax.lax.while_loop(lambda s: (s[0] > 1) & (s[1] < 50), halved, (x[2], at * 0)),
        *jax.lax.scan(lambda h, u: (h * 0.5 + u, h), jnp.float32(0), x, reverse=True),
        jax.lax.scan(lambda h, u: (h + 0.1 * u, None), x, jnp.ones((3, 9)))[0],
        jax.lax.switch(at, [jnp.abs, jnp.negative, lambda y: jnp.cumsum(y)[::-1]], x),
        jnp.cumsum(x),
        jax.lax.cummax(x, reverse=True),
        jax.lax.cummin(x),
        largest,
        places,
        jnp.sort(x),
        jnp.argsort(x),
        *jnp.split(x, 3),
        x.at[at].set(9.0),
        x.at[at + jnp.arange(2)].set(9.0, mode="drop"),
        x[at],
        x.reshape(3, 3)[at % 3, jnp.array([2, 0])],
        jax.lax.dynamic_slice(x, (at,), (4,)),
        jax.lax.dynamic_update_slice(x, x[:2], (at,)),
        jax.lax.pad(x, jnp.float32(7), [(2, -1, 1)]),
        x.astype(jnp.int32),
    )


@pytest.mark.parametrize("at", [-20, -1, 0, 2, 7, 12])
@pytest.mark.parametrize("shift", [0, 3])
def test_loops_branches_and_moving_parts_answer_as_jax_does(at, shift):
    x = np.roll(np.array([0.0, -0.0, 900.5, np.nan, 3e9, 1.5, -3e38, np.inf, -np.inf]), shift)
    x, at = x.astype(np.float32), np.int32(at)
    inputs = [ArrayEntry("x", (9,), "float32"), ArrayEntry("at", (), "int32")]
    listed = operation_list(operations_that_once_were_missing, inputs)
    run, traced = as_function(listed), jax.jit(as_jax(listed))(x, at)
    compiled = jax.jit(operations_that_once_were_missing)(x, at)
    for i, (again, theirs) in enumerate(zip(traced, compiled, strict=True)):
        np.testing.assert_allclose(again, theirs, rtol=2e-6, err_msg=f"in JAX, output {i}")
    for i, (ours, theirs) in enumerate(zip(run(x, at), compiled, strict=True)):
        theirs = np.asarray(theirs)
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), i
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, err_msg=f"output {i}")


def test_a_random_key_that_nobody_reads_is_left_out():
    def unread(x):
        jax.random.key(0)
        return (x + 1,)

    assert len(operation_list(unread, [VECTOR]).operations) == 1


def test_what_has_no_list_is_named():
    with pytest.raises(NoSuchOperationError, match="numbers of type float64"), jax.enable_x64(True):
        operation_list(lambda x: (x.astype(jnp.float64),), [VECTOR])
    with pytest.raises(NoSuchOperationError, match="the operation erf"):
        operation_list(lambda x: (jax.lax.erf(x),), [VECTOR])
    with pytest.raises(NoSuchOperationError, match="a rounding to uint8"):
        operation_list(lambda x: (x.astype(jnp.uint8),), [VECTOR])


def test_a_loop_that_does_not_end_is_an_error_and_not_a_wait():
    def endless(x):
        return (jax.lax.while_loop(lambda y: y[0] < 1, lambda y: y, x),)

    run = as_function(operation_list(endless, [VECTOR]))
    assert run(np.ones(2, np.float32))[0].tolist() == [1, 1]
    with pytest.raises(BundleError, match="did not end after 10000 turns"):
        run(np.zeros(2, np.float32))
