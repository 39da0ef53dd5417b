"""The list of operations of a bundle as a JAX function, from which programs are made anew."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from neorl_deploy.runtime._operations import Operation, Operations, operation_of

Given = Sequence[Any]


def as_jax(listed: Operations) -> Callable[..., tuple[Any, ...]]:
    """The list as a function that JAX can trace; the meaning of each operation is that of NumPy's.

    Args:
        listed: A list that :func:`~neorl_deploy.runtime._operations.as_function` accepts.
    """
    constants = [jnp.asarray(constant) for constant in listed.constants]

    def run(*arrays: Any) -> tuple[Any, ...]:
        return _run(listed.operations, listed.outputs, [*arrays, *constants])

    return run


def _run(operations: Sequence[Operation], outputs: Sequence[int], values: list) -> tuple[Any, ...]:
    for operation in operations:
        given = [values[number] for number in operation.inputs]
        if operation.name in PLAIN:
            values.append(PLAIN[operation.name](*given))
        else:
            values.append(WITH_SETTINGS[operation.name](operation, given, **operation.settings))
    return tuple(values[number] for number in outputs)


def _held(listed: Mapping[str, Any], given: Given) -> tuple[Any, ...]:
    """Runs the list inside a loop or a branch."""
    operations = [operation_of(entry) for entry in listed["operations"]]
    return _run(operations, listed["outputs"], list(given))


def _while(_: Operation, given: Given, *, carry: int, condition: Any, body: Any) -> Any:
    split = carry + condition["takes"]
    own, of_body = given[carry:split], given[split:]
    return lax.while_loop(
        lambda state: _held(condition, [*state, *own])[0],
        lambda state: _held(body, [*state, *of_body]),
        tuple(given[:carry]),
    )


def _scan(
    _: Operation, given: Given, *, carry: int, rows: int, count: int, reverse: bool, body: Any
) -> Any:
    def turn(state: tuple[Any, ...], row: tuple[Any, ...]) -> tuple[Any, Any]:
        results = _held(body, [*state, *row, *given[carry + rows :]])
        return results[:carry], results[carry:]

    start, columns = tuple(given[:carry]), tuple(given[carry : carry + rows])
    final, turns = lax.scan(turn, start, columns, length=count, reverse=reverse)
    return (*final, *turns)


def _branch(_: Operation, given: Given, *, lists: Sequence[Any]) -> Any:
    ends = np.cumsum([1, *(listed["takes"] for listed in lists)])
    parts = [given[begin:end] for begin, end in itertools.pairwise(ends)]
    runs = [functools.partial(_held, *pair) for pair in zip(lists, parts, strict=True)]
    return lax.switch(jnp.asarray(given[0], jnp.int32), runs)


def _scatter(method: str, x: Any, at: Any, values: Any) -> Any:
    rows = jnp.reshape(at[..., 0], -1)
    # JAX would count a negative index from the end; here it is outside, as beyond the other end.
    rows = jnp.where(rows < 0, len(x), rows)
    return getattr(x.at[rows], method)(jnp.reshape(values, (-1, *x.shape[1:])), mode="drop")


def _inside(starts: Given, shape: Sequence[int], sizes: Sequence[int]) -> list[Any]:
    return [jnp.clip(s, 0, n - size) for s, n, size in zip(starts, shape, sizes, strict=True)]


def _update(x: Any, part: Any, *starts: Any) -> Any:
    return lax.dynamic_update_slice(x, part, _inside(starts, x.shape, part.shape))


def _take(operation: Operation, given: Given) -> Any:
    x, at = given
    sizes = x.shape[: at.shape[-1]]
    return x[tuple(jnp.clip(at[..., i], 0, size - 1) for i, size in enumerate(sizes))]


def _pad(operation: Operation, given: Given, *, low: Given, between: Given) -> Any:
    x, fill = given
    config = []
    for start, gap, width, size in zip(low, between, x.shape, operation.shape, strict=True):
        covered = start + width + gap * max(width - 1, 0)
        config.append((start, size - covered, gap))
    return lax.pad(x, fill, config)


def _reduce(function: Any, neutral: Callable[[Any], Any]) -> Callable[..., Any]:
    def reduce(operation: Operation, given: Given, *, axes: Given) -> Any:
        dtype = np.dtype(operation.dtype)
        return lax.reduce(given[0], np.array(neutral(dtype), dtype), function, tuple(axes))

    return reduce


def _lowest(dtype: np.dtype) -> Any:
    return -np.inf if dtype.kind == "f" else 0 if dtype.kind == "b" else np.iinfo(dtype).min


def _highest(dtype: np.dtype) -> Any:
    return np.inf if dtype.kind == "f" else 1 if dtype.kind == "b" else np.iinfo(dtype).max


def _all_bits(dtype: np.dtype) -> Any:
    return True if dtype.kind == "b" else np.invert(np.zeros((), dtype))


PLAIN: dict[str, Callable[..., Any]] = {
    "abs": jnp.abs,
    "add": jnp.add,
    "and": jnp.bitwise_and,
    "ceil": jnp.ceil,
    "cos": jnp.cos,
    "div": jnp.divide,
    "dot": jnp.matmul,
    "eq": jnp.equal,
    "exp": jnp.exp,
    "expm1": jnp.expm1,
    "floor": jnp.floor,
    "ge": jnp.greater_equal,
    "gt": jnp.greater,
    "is_finite": jnp.isfinite,
    "le": jnp.less_equal,
    "log": jnp.log,
    "log1p": jnp.log1p,
    "logistic": jax.nn.sigmoid,
    "lt": jnp.less,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "mul": jnp.multiply,
    "ne": jnp.not_equal,
    "neg": jnp.negative,
    "nextafter": jnp.nextafter,
    "not": jnp.invert,
    "or": jnp.bitwise_or,
    "pow": jnp.power,
    "rem": lax.rem,
    "rsqrt": lax.rsqrt,
    "scatter": functools.partial(_scatter, "set"),
    "scatter_add": functools.partial(_scatter, "add"),
    "scatter_max": functools.partial(_scatter, "max"),
    "scatter_min": functools.partial(_scatter, "min"),
    "select_n": lax.select_n,
    "shift_left": jnp.left_shift,
    "shift_right": jnp.right_shift,
    "sign": jnp.sign,
    "sin": jnp.sin,
    "sqrt": jnp.sqrt,
    "square": jnp.square,
    "sub": jnp.subtract,
    "tanh": jnp.tanh,
    "to_integers": lambda x: jnp.asarray(x).astype(jnp.int32),
    "update": _update,
    "xor": jnp.bitwise_xor,
}
"""Operations without settings."""

WITH_SETTINGS: dict[str, Callable[..., Any]] = {
    "argmax": lambda o, x, *, axis: lax.argmax(x[0], axis, np.dtype(o.dtype)),
    "argmin": lambda o, x, *, axis: lax.argmin(x[0], axis, np.dtype(o.dtype)),
    "bitcast": lambda o, x: lax.bitcast_convert_type(x[0], np.dtype(o.dtype)),
    "branch": _branch,
    "broadcast": lambda o, x, *, axes: lax.broadcast_in_dim(x[0], o.shape, tuple(axes)),
    "concatenate": lambda o, x, *, axis: lax.concatenate(x, axis),
    "convert": lambda o, x: lax.convert_element_type(x[0], np.dtype(o.dtype)),
    "cumulative_max": lambda o, x, *, axis, reverse: lax.cummax(x[0], axis, reverse),
    "cumulative_min": lambda o, x, *, axis, reverse: lax.cummin(x[0], axis, reverse),
    "cumulative_sum": lambda o, x, *, axis, reverse: lax.cumsum(x[0], axis, reverse),
    "flip": lambda o, x, *, axes: lax.rev(x[0], tuple(axes)),
    "integer_pow": lambda o, x, *, power: lax.integer_pow(x[0], power),
    "largest": lambda o, x, *, count: lax.top_k(x[0], count),
    "pad": _pad,
    "part": lambda o, x, *, index: x[0][index],
    "reduce_and": _reduce(lax.bitwise_and, _all_bits),
    "reduce_max": _reduce(lax.max, _lowest),
    "reduce_min": _reduce(lax.min, _highest),
    "reduce_or": _reduce(lax.bitwise_or, lambda dtype: 0),
    "reduce_sum": _reduce(lax.add, lambda dtype: 0),
    "reshape": lambda o, x: jnp.reshape(x[0], o.shape),
    "scan": _scan,
    "slice": lambda o, x, *, start, stop, step: lax.slice(x[0], start, stop, step),
    "sort": lambda o, x, *, axis: lax.sort(tuple(x), dimension=axis, num_keys=1),
    "stack": lambda o, x, *, axis: jnp.stack(x, axis),
    "take": _take,
    "transpose": lambda o, x, *, axes: lax.transpose(x[0], axes),
    "while": _while,
    "window": lambda o, x: lax.dynamic_slice(x[0], _inside(x[1:], x[0].shape, o.shape), o.shape),
}
"""Operations with settings, or that depend on the shape and type of their result."""
