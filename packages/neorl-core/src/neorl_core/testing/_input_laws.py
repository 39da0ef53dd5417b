"""Laws of a function's inputs, checked on traced programs and annotations without compiling."""

import inspect
import itertools
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.testing._compare import is_float, is_key
from neorl_core.testing._transforms import as_rows, take

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
                _form(fn, row, options | {name: bad})
        with pytest.raises(ValueError, match=name):
            jax.eval_shape(lambda number, name=name: fn(*row, **options | {name: number}), 2)
        expected = _form(fn, row, options)
        for number in (np.int64(good), jnp.asarray(good)):
            assert _form(fn, row, options | {name: number}) == expected, f"{name} as {type(number)}"


def one_number_is_no_array(fn: Callable[..., Any], *rows: Any, **options: Any) -> None:
    """Every parameter annotated as one float rejects an array, which would enlarge the result."""
    row = take(as_rows(rows), 0)
    for name, good in _parameters_annotated(fn, len(row), options, is_one_number):
        for shape in NO_ONE_NUMBER:
            with pytest.raises(ValueError, match=f"{name} must be one number"):
                _form(fn, row, options | {name: jnp.full(shape, good)})


def hyperparameters_leave_dtypes(fn: Callable[..., Any], *rows: Any, **options: Any) -> None:
    """A hyperparameter in float64 gives the same dtypes as a Python float."""
    with jax.enable_x64(True):
        row = take(as_rows(rows), 0)
        wide = {k: np.float64(v) if isinstance(v, float) else v for k, v in options.items()}
        actual, expected = _form(fn, row, wide), _form(fn, row, options)
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
    actual, expected = _form(fn, lists, options), _form(fn, row, options)
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


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a program and of its nested programs."""
    for equation in jaxpr.eqns:
        yield equation
        for leaf in jax.tree.leaves(equation.params, is_leaf=_is_program):
            if _is_program(leaf):
                yield from equations(getattr(leaf, "jaxpr", leaf))


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


def _form(fn: Callable[..., Any], row: tuple, options: dict[str, Any]) -> list[tuple]:
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


def _is_program(leaf: Any) -> bool:
    return hasattr(leaf, "eqns") or hasattr(leaf, "jaxpr")
