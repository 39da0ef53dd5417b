"""Laws of form that every pure function obeys, whatever it computes, and laws of its inputs."""

import functools
import inspect
import itertools
from collections.abc import Callable
from types import NoneType
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.infrastructure import equations
from neorl_core.testing._compare import (
    ATOL,
    RTOL,
    assert_stable,
    is_float,
    is_key,
    rounding,
    to_numpy,
)
from neorl_core.testing._transforms import (
    as_rows,
    everywhere,
    row_count,
    split_options,
    take,
    variants,
)

# Laws of a function's inputs, checked on traced programs and annotations without compiling.


NOT_INTEGERS = (1.5, True, None, "2", -1)
NO_ONE_NUMBER = ((1,), (4, 1))
PICKS: dict[str, Callable[[int], bool]] = {
    "all": lambda count: True,
    "one in two": lambda count: count % 2 == 0,
    "the others": lambda count: count % 2 == 1,
}
SUMS = {
    *("reduce_sum", "reduce_prod", "cumsum", "cumprod", "cumlogsumexp", "reduce_window_sum"),
    *("scatter-add", "scatter_add"),
}
LOOPS = {"scan", "while"}


def counts_are_integers(fn: Callable[..., Any], *rows: Any, **options: Any) -> None:
    """Every parameter annotated as an int accepts integers of any type, and nothing else.

    A value that is traced, negative or not an integer raises an error that names the parameter;
    integers of NumPy and JAX give the same results as those of Python.
    """
    row = take(as_rows(rows), 0)
    for name, good in _parameters_annotated(fn, len(row), options, _is_whole):
        for bad in NOT_INTEGERS:
            with pytest.raises(ValueError, match=name):
                _traced_form(fn, row, options | {name: bad})
        with pytest.raises(ValueError, match=name):
            jax.eval_shape(lambda number, name=name: fn(*row, **options | {name: number}), 2)
        expected = _traced_form(fn, row, options)
        for number in (np.int64(good), jnp.asarray(good)):
            assert _traced_form(fn, row, options | {name: number}) == expected, (
                f"{name} as {type(number)}"
            )


def one_number_is_no_array(fn: Callable[..., Any], *rows: Any, **options: Any) -> None:
    """Every parameter annotated as one float rejects an array, which would enlarge the result."""
    row = take(as_rows(rows), 0)
    for name, good in _parameters_annotated(fn, len(row), options, is_one_number):
        for shape in NO_ONE_NUMBER:
            with pytest.raises(ValueError, match=f"{name} must be one number"):
                _traced_form(fn, row, options | {name: jnp.full(shape, good)})


def hyperparameters_leave_dtypes(fn: Callable[..., Any], *rows: Any, **options: Any) -> None:
    """A hyperparameter in float64 gives the same dtypes as a Python float."""
    with jax.enable_x64(True):
        row = take(as_rows(rows), 0)
        wide = {k: np.float64(v) if isinstance(v, float) else v for k, v in options.items()}
        actual, expected = _traced_form(fn, row, wide), _traced_form(fn, row, options)
    assert actual == expected, f"hyperparameters in float64 give {actual}, Python floats {expected}"


def one_numbers(fn: Callable[..., Any], options: dict[str, Any]) -> list[str]:
    """The names of the given options that are annotated as a single float."""
    return [
        name for name, _ in _parameters_annotated(fn, 0, options, is_one_number) if name in options
    ]


def lists_are_arrays(fn: Callable[..., Any], *rows: Any, **options: Any) -> None:
    """Python lists are accepted like arrays of the same numbers if an array is annotated."""
    row = take(as_rows(rows), 0)
    annotations = [str(p.annotation) for p in inspect.signature(fn).parameters.values()]
    lists = tuple(
        _as_list(leaf) if "Array" in annotation else leaf
        for leaf, annotation in itertools.zip_longest(row, annotations[: len(row)], fillvalue="")
    )
    actual, expected = _traced_form(fn, lists, options), _traced_form(fn, row, options)
    assert actual == expected, f"lists give {actual}, arrays {expected}"


def integers_are_floats(fn: Callable[..., Any], *rows: Any, **options: Any) -> None:
    """Integers in place of floats give the same result as floats, or a one-line error.

    A result is truncated if its dtype is that of the integers, or if the program for integers
    converts floats to integers and the program for floats does not.
    """
    row = take(as_rows(rows), 0)
    floats = _program(fn, row, options)
    for words, pick in PICKS.items():
        try:
            integers = _program(fn, _whole(row, pick), options)
        except ValueError as error:
            if "must be floating point, got" not in str(error):
                raise
            continue
        dtypes = [out.dtype for out in integers.out_avals]
        assert dtypes == [out.dtype for out in floats.out_avals], f"{words} as integers"
        assert _cuts(integers.jaxpr) <= _cuts(floats.jaxpr), f"{words} as integers are cut"


def sums_are_wide(fn: Callable[..., Any], *rows: Any, **options: Any) -> None:
    """No sum is accumulated in bfloat16, where a sum of ones stops at 256, or bfloat16 is an error.

    Sums and the carries of loops must use wider floats. Products of matrices accumulate in wider
    floats by themselves, and round once.
    """

    def narrow(leaf: Any) -> Any:
        return leaf.astype(jnp.bfloat16) if is_float(leaf) else leaf

    row = jax.tree.map(narrow, take(as_rows(rows), 0))
    try:
        program = _program(fn, row, options)
    except ValueError as error:
        if "astype(jnp.float32)" not in str(error):
            raise
        return
    for equation in equations(program.jaxpr):
        name = equation.primitive.name
        outs = equation.outvars
        if name in LOOPS:
            outs = _loop_values(equation)
        elif name not in SUMS:
            continue
        short = [out.aval for out in outs if getattr(out.aval, "dtype", None) == jnp.bfloat16]
        assert not short, f"{name} adds up in bfloat16: {short}"


def _loop_values(loop: Any) -> list[Any]:
    """The values that a loop carries from step to step; stacked outputs have one more axis."""
    body = loop.params.get("jaxpr")
    if body is None:
        return list(loop.outvars)
    pairs = zip(loop.outvars, body.jaxpr.outvars, strict=True)
    return [out for out, inner in pairs if out.aval.shape == inner.aval.shape]


def stops_gradients(fn: Callable[..., Any], *rows: Any, **options: Any) -> bool:
    """Whether the program of ``fn`` stops a gradient."""
    program = _program(fn, take(as_rows(rows), 0), options)
    return any(each.primitive.name == "stop_gradient" for each in equations(program.jaxpr))


def is_one_number(annotation: Any) -> bool:
    """Whether an annotation is a float, or an array without axes."""
    parts = [part for part in get_args(annotation) or (annotation,) if part is not NoneType]
    return float in parts and all(
        part is float or getattr(part, "dim_str", None) == "" for part in parts
    )


def _is_whole(annotation: Any) -> bool:
    return annotation in (int, int | tuple[int, ...])


def _parameters_annotated(
    fn: Callable[..., Any], given: int, options: dict[str, Any], predicate: Callable[[Any], bool]
) -> list[tuple[str, Any]]:
    """Names and valid values of the parameters with the wanted annotation, given or default.

    The first ``given`` parameters are positional.
    """
    annotated = []
    for name, parameter in list(inspect.signature(fn).parameters.items())[given:]:
        value = options.get(name, parameter.default)
        if predicate(parameter.annotation) and isinstance(value, int | float | np.number):
            annotated.append((name, value))
    return annotated


def _program(fn: Callable[..., Any], row: tuple, options: dict[str, Any]) -> Any:
    """Traces the program as for a user, whose dtypes may mix."""
    with jax.numpy_dtype_promotion("standard"):
        return jax.make_jaxpr(lambda row: fn(*row, **options))(row)


def _traced_form(fn: Callable[..., Any], row: tuple, options: dict[str, Any]) -> list[tuple]:
    """Shape and dtype of every leaf of the result for concrete arguments, as in eager calls."""
    with jax.numpy_dtype_promotion("standard"):
        result = jax.eval_shape(lambda: fn(*row, **options))
    return [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(result)]


def _as_list(leaf: Any) -> Any:
    if is_key(leaf) or not isinstance(leaf, jax.Array):
        return leaf
    return np.asarray(leaf).tolist()


def _whole(row: tuple, pick: Callable[[int], bool]) -> tuple:
    """The row with some float arrays as integers: those whose index ``pick`` accepts."""
    leaves, structure = jax.tree.flatten(row)
    for count, index in enumerate([i for i, leaf in enumerate(leaves) if is_float(leaf)]):
        if pick(count):
            leaves[index] = jnp.zeros(np.shape(leaves[index]), jnp.int32)
    return jax.tree.unflatten(structure, leaves)


def _cuts(jaxpr: Any) -> int:
    """How often a program converts floats to integers."""
    return sum(
        is_float(equation.invars[0].aval)
        and bool(jnp.issubdtype(equation.params["new_dtype"], jnp.integer))
        for equation in equations(jaxpr)
        if equation.primitive.name == "convert_element_type"
    )


# Laws of form that every pure function obeys, whatever it computes.


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
