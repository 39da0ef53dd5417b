"""Laws of form that every pure function obeys, whatever it computes."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_core.testing._compare import ATOL, RTOL, assert_stable, rounding, to_numpy
from neorl_core.testing._input_laws import equations
from neorl_core.testing._transforms import (
    as_rows,
    everywhere,
    row_count,
    split_options,
    take,
    variants,
)


def oracle(
    fn: Callable[..., Any],
    reference: Callable[..., Any],
    *rows: Any,
    rtol: float = RTOL,
    atol: float = ATOL,
    **options: Any,
) -> Any:
    """Runs :func:`everywhere`, and compares every row with an independent reference.

    Each leaf of each row is judged by its own size, or by how far the reference itself moves if its
    arguments change by the relative amount ``atol``. So a difference of large numbers may carry
    their rounding error, but a small probability next to large arguments may not.

    Args:
        fn: The function under test.
        reference: The same mathematics in NumPy, called with one row at a time and float64 leaves.
        *rows: As for :func:`everywhere`.
        rtol: Relative tolerance of the float32 result.
        atol: Absolute tolerance, as a fraction of the largest number of a leaf.
        **options: Keyword arguments for both functions.

    Returns:
        The stacked result.

    Raises:
        AssertionError: If a row differs from the reference.
    """
    result = everywhere(fn, *rows, rtol=rtol, atol=atol, **options)
    rows_match(result, reference, rows, options, rtol=rtol, atol=atol)
    return result


def rows_match(
    result: Any,
    reference: Callable[..., Any],
    rows: tuple,
    options: dict[str, Any],
    *,
    rtol: float,
    atol: float,
    least: float = 0.0,
) -> None:
    """Checks that every row of a stacked result equals the reference for that row."""
    exact, results = to_numpy(as_rows(rows)), to_numpy(result)
    for index in range(row_count(result)):
        row = take(exact, index)
        assert_stable(
            take(results, index),
            reference(*row, **options),
            functools.partial(rounding, reference, row, options, atol),
            rtol=rtol,
            atol=atol,
            message=f"row {index} differs from the oracle",
            least=least,
        )


def no_recompile(fn: Callable[..., Any], first: tuple, second: tuple, **options: Any) -> None:
    """Checks that a second call with other values of equal shapes reuses the trace of the first.

    Args:
        fn: A function of one sample.
        first: The positional arguments of one call.
        second: Positional arguments of another call, built separately: a lambda or an unequal
            static field per instance causes a retrace, and so does a Python float in place of an
            array.
        **options: Shared keyword arguments; floats are changed slightly for the second call.

    Raises:
        AssertionError: If ``fn`` is traced twice.
    """
    traced, static = split_options(options)
    traces = []

    def count_traces(args: tuple, options: dict) -> Any:
        traces.append(1)
        return fn(*args, **options, **{name: value for name, value, _ in static})

    compiled = jax.jit(count_traces)
    compiled.eval_shape(first, traced)
    compiled.eval_shape(second, jax.tree.map(lambda leaf: leaf * 0.999, traced))
    assert len(traces) == 1, f"{_name(fn)} was traced {len(traces)} times for equal shapes"


def state_keeps_form(step: Callable[..., Any], state: Any, *data: Any, **options: Any) -> None:
    """Checks that ``step`` returns a state with the structure, shapes and dtypes of its argument.

    Args:
        step: ``step(state, *data, **options)``, which returns the state, or a tuple with the state
            first.
        state: An initial state.
        *data: One sample.
        **options: Keyword arguments.

    Raises:
        AssertionError: If they differ, even in weak typing, since ``scan`` would reject such a
            state.
    """
    result = jax.eval_shape(lambda state, data: step(state, *data, **options), state, data)
    before = jax.eval_shape(lambda state: state, state)
    same = jax.tree.structure(result) == jax.tree.structure(before)
    after = result if same else result[0]
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert _form(old) == _form(new), f"state leaf {_form(old)} became {_form(new)}"
    assert jax.tree.structure(before) == jax.tree.structure(after), "the state changed structure"


def pure(fn: Callable[..., Any], *rows: Any, **options: Any) -> None:
    """Checks that the traced program has no effects and calls nothing outside the device.

    Raises:
        AssertionError: If it has an effect or a callback; the message names the primitive.
    """
    traced, static = split_options(options)
    row = take(as_rows(rows), 0)
    program = jax.make_jaxpr(variants(fn, static).single)(row, traced)
    assert not program.effects, f"{_name(fn)} has effects: {program.effects}"
    names = [equation.primitive.name for equation in equations(program.jaxpr)]
    calls = [name for name in names if "callback" in name]
    assert not calls, f"{_name(fn)} calls back to the host: {calls}"


def dtype_preserved(
    fn: Callable[..., Any],
    *rows: Any,
    dtypes: tuple[str, ...] = ("bfloat16", "float32", "float64"),
    **options: Any,
) -> None:
    """Checks, for each of ``dtypes``, that floating results have the dtype of the arguments.

    Dtypes below float64 are tried with and without 64-bit mode: an intermediate array such as
    ``jnp.zeros(n)`` widens the result only in that mode.

    Raises:
        AssertionError: If a floating leaf of the result has another dtype.
    """
    modes = [(name, mode) for name in dtypes for mode in (False, True) if mode or name != "float64"]
    for name, mode in modes:
        with jax.enable_x64(mode):
            row = jax.tree.map(lambda leaf, name=name: _row_form(leaf, name), as_rows(rows))
            shapes = jax.eval_shape(lambda row: fn(*row, **options), row)
            for leaf in jax.tree.leaves(shapes):
                if jnp.issubdtype(leaf.dtype, jnp.floating):
                    assert leaf.dtype == name, f"{name} became {leaf.dtype} in {_name(fn)}"


def batch_independent(fn: Callable[..., Any], *rows: Any, **options: Any) -> None:
    """Checks that rows are independent under ``vmap``: NaN in one leaves the bits of the others.

    Raises:
        AssertionError: If another row changes.
    """
    traced, static = split_options(options)
    call = variants(fn, static).batch_jit
    rows = as_rows(rows)
    original, last = to_numpy(call(rows, traced)), row_count(rows) - 1
    poisoned = jax.tree.map(_poison, rows)
    with_nan = to_numpy(call(poisoned, traced))
    for actual, expected in zip(jax.tree.leaves(with_nan), jax.tree.leaves(original), strict=True):
        np.testing.assert_array_equal(
            actual[:last], expected[:last], err_msg=f"{_name(fn)} mixes the rows of a batch"
        )


def _poison(leaf: jax.Array) -> jax.Array:
    """NaN in the last row; computed in NumPy, which compiles nothing."""
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    poisoned = np.array(leaf)
    poisoned[-1] = np.nan
    return jnp.asarray(poisoned)


def _row_form(leaf: jax.Array, name: str) -> jax.ShapeDtypeStruct:
    """Shape and dtype of one row, with floats of dtype ``name``."""
    dtype = jnp.dtype(name) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf.dtype
    return jax.ShapeDtypeStruct(leaf.shape[1:], dtype)


def _form(leaf: jax.ShapeDtypeStruct) -> tuple:
    return leaf.shape, leaf.dtype, leaf.weak_type


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", repr(fn))
