"""A step as a list of array operations that needs only NumPy: the form without JAX.

The export derives the list from the very program that it exports (``export/_operations.py``). Each
operation has one of the names below, so the list is data: it cannot loop, open a file or call
anything else.
"""

from __future__ import annotations

import functools
import io
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from neorl_deploy._errors import BundleError
from neorl_deploy.bundle import _files as bundle_files
from neorl_deploy.bundle._manifest import ArrayEntry
from neorl_deploy.bundle._strict_json import dump_compact, head, parse_strict, require_head

MAX_NUMBERS = 2**24
"""Largest number of elements in one array."""

TYPES = frozenset({"bool", "float32", "int32", "uint32", "int8", "uint8", "int16", "uint16"})


class Operation(NamedTuple):
    """One operation.

    Attributes:
        name: Its name in :data:`NAMES`.
        inputs: Numbers of its inputs: inputs of the list, constants or earlier operations.
        shape: Shape of its result.
        dtype: Data type of its result.
        settings: Its further arguments, as plain numbers.
    """

    name: str
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str
    settings: Mapping[str, Any] = {}


class Operations(NamedTuple):
    """A function of arrays as a list of operations.

    Attributes:
        inputs: Inputs; they are numbered from zero.
        constants: Constant arrays; they are numbered after the inputs.
        operations: The list; every operation has the next number.
        outputs: Numbers of the outputs.
    """

    inputs: tuple[ArrayEntry, ...]
    constants: tuple[np.ndarray, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[int, ...]


def as_function(listed: Operations) -> Callable[..., tuple[np.ndarray, ...]]:
    """The list as a function of NumPy arrays.

    Raises:
        ValueError: If an operation is unknown, uses a later result, is too large or does not give
            the stated shape and type.
    """
    n_inputs = len(listed.inputs)
    held: list[Any] = [None] * n_inputs + [_constant(constant) for constant in listed.constants]
    begin = len(held)
    plan = []
    for at, operation in enumerate(listed.operations, begin):
        if operation.name not in NAMES:
            raise ValueError(f"the operation {operation.name!r} is unknown")
        if not all(0 <= number < at for number in operation.inputs):
            raise ValueError(f"operation {at} uses a later result")
        if math.prod(operation.shape) > MAX_NUMBERS or operation.dtype not in TYPES:
            raise ValueError(f"operation {at} gives {operation.shape} of {operation.dtype}")
        plan.append((at, _function(operation), operation.inputs))
        held.append(None)
    if not all(0 <= number < len(held) for number in listed.outputs):
        raise ValueError("an output is not among its operations")
    outputs = listed.outputs

    def run(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        values = held.copy()
        values[:n_inputs] = arrays
        # NaN and overflow are answers here, which the guard in the list deals with.
        with np.errstate(all="ignore"):
            for at, function, inputs in plan:
                values[at] = function(*[values[number] for number in inputs])
        return tuple(np.asarray(values[number]) for number in outputs)

    # Run once here: a result of another shape or type is detected before use.
    _require_stated(listed, held, plan)
    return run


def _require_stated(listed: Operations, held: list[Any], plan: Sequence[Any]) -> None:
    """Raises unless every operation, applied to zeros, gives the shape and type in the list."""
    values = list(held)
    values[: len(listed.inputs)] = [np.zeros(e.shape, e.dtype) for e in listed.inputs]
    with np.errstate(all="ignore"):
        for (at, function, inputs), operation in zip(plan, listed.operations, strict=True):
            result = function(*[values[number] for number in inputs])
            if (np.shape(result), result.dtype.name) != (operation.shape, operation.dtype):
                raise ValueError(
                    f"operation {at} ({operation.name}) gives {np.shape(result)} of "
                    f"{result.dtype}, not {operation.shape} of {operation.dtype}"
                )
            values[at] = result


def _constant(constant: np.ndarray) -> Any:
    # A scalar is cheaper for NumPy than an array without axes.
    return constant[()] if constant.ndim == 0 else constant


def _function(operation: Operation) -> Callable[..., Any]:
    if operation.name in PLAIN:
        return PLAIN[operation.name]
    return WITH_SETTINGS[operation.name](operation, **operation.settings)


def _select(which: Any, *cases: Any) -> Any:
    """``cases[which]``, element by element; a boolean selects the second case if true."""
    if np.ndim(which) == 0:  # one choice for all elements
        return cases[int(which)]
    if len(cases) == 2:
        return np.where(which, cases[1], cases[0])
    return np.choose(which, cases)


def _logistic(x: Any) -> Any:
    return np.float32(1) / (np.float32(1) + np.exp(-x))


def _rsqrt(x: Any) -> Any:
    return np.float32(1) / np.sqrt(x)


def _dot(left: Any, right: Any) -> Any:
    return np.asarray(left @ right)


def _scatter(ufunc: np.ufunc, x: Any, at: Any, values: Any) -> Any:
    """``x`` with each row of ``values`` combined into the row that ``at`` gives."""
    # Unlike ``result[at] = ...``, ``ufunc.at`` counts an index as often as it occurs.
    result = np.array(x)
    ufunc.at(result, at[..., 0], values)
    return result


PLAIN: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "and": np.bitwise_and,
    "ceil": np.ceil,
    "cos": np.cos,
    "div": np.divide,
    "dot": _dot,
    "eq": np.equal,
    "exp": np.exp,
    "expm1": np.expm1,
    "floor": np.floor,
    "ge": np.greater_equal,
    "gt": np.greater,
    "is_finite": np.isfinite,
    "le": np.less_equal,
    "log": np.log,
    "log1p": np.log1p,
    "logistic": _logistic,
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "nextafter": np.nextafter,
    "not": np.invert,
    "or": np.bitwise_or,
    "pow": np.power,
    "rem": np.fmod,
    "rsqrt": _rsqrt,
    "scatter_add": functools.partial(_scatter, np.add),
    "scatter_max": functools.partial(_scatter, np.maximum),
    "scatter_min": functools.partial(_scatter, np.minimum),
    "select_n": _select,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "sign": np.sign,
    "sin": np.sin,
    "sqrt": np.sqrt,
    "square": np.square,
    "sub": np.subtract,
    "tanh": np.tanh,
    "xor": np.bitwise_xor,
}
"""Operations without settings."""


def _reduce(ufunc: np.ufunc, operation: Operation, *, axes: Sequence[int]) -> Callable[..., Any]:
    return functools.partial(ufunc.reduce, axis=tuple(axes))


def _broadcast(operation: Operation, *, axes: Sequence[int]) -> Callable[[Any], Any]:
    shape, places = operation.shape, tuple(axes)

    def broadcast(x: Any) -> Any:
        widths = [1] * len(shape)
        for place, width in zip(places, np.shape(x), strict=True):
            widths[place] = width
        return np.broadcast_to(np.reshape(x, widths), shape)

    return broadcast


def _convert(operation: Operation) -> Callable[[Any], Any]:
    dtype = np.dtype(operation.dtype)
    return lambda x: x.astype(dtype)


def _same_bits(operation: Operation) -> Callable[[Any], Any]:
    dtype = np.dtype(operation.dtype)
    return lambda x: x.view(dtype)


def _reshape(operation: Operation) -> Callable[[Any], Any]:
    return lambda x: np.reshape(x, operation.shape)


def _transpose(operation: Operation, *, axes: Sequence[int]) -> Callable[[Any], Any]:
    return lambda x: np.transpose(x, axes)


def _concatenate(operation: Operation, *, axis: int) -> Callable[..., Any]:
    return lambda *parts: np.concatenate(parts, axis)


def _stack(operation: Operation, *, axis: int) -> Callable[..., Any]:
    return lambda *parts: np.stack(parts, axis)


def _slice(
    operation: Operation, *, start: Sequence[int], stop: Sequence[int], step: Sequence[int]
) -> Callable[[Any], Any]:
    part = tuple(slice(*ends) for ends in zip(start, stop, step, strict=True))
    return lambda x: x[part]


def _take(operation: Operation) -> Callable[[Any, Any], Any]:
    """Rows of the first input at the indices in the second (last axis of width one), clipped."""
    # Clipped because the compiled program clips too; NumPy's default raises.
    return lambda x, at: np.take(x, at[..., 0], axis=0, mode="clip")


def _whole_power(operation: Operation, *, power: int) -> Callable[[Any], Any]:
    exponent = np.float32(power)
    return lambda x: np.power(x, exponent)


def _first_of(function: Callable[..., Any], operation: Operation, *, axis: int):
    dtype = np.dtype(operation.dtype)
    return lambda x: function(x, axis).astype(dtype)


WITH_SETTINGS: dict[str, Callable[..., Callable[..., Any]]] = {
    "argmax": functools.partial(_first_of, np.argmax),
    "argmin": functools.partial(_first_of, np.argmin),
    "bitcast": _same_bits,
    "broadcast": _broadcast,
    "concatenate": _concatenate,
    "convert": _convert,
    "integer_pow": _whole_power,
    "reduce_and": functools.partial(_reduce, np.bitwise_and),
    "reduce_max": functools.partial(_reduce, np.maximum),
    "reduce_min": functools.partial(_reduce, np.minimum),
    "reduce_or": functools.partial(_reduce, np.bitwise_or),
    "reduce_sum": functools.partial(_reduce, np.add),
    "reshape": _reshape,
    "slice": _slice,
    "stack": _stack,
    "take": _take,
    "transpose": _transpose,
}
"""Operations that are built from their settings and from the shape and type of their result."""

NAMES = frozenset({*PLAIN, *WITH_SETTINGS})
"""Every available operation."""


# The files of a bundle's NumPy-only form: operations and constants, written and read.


KIND, VERSION = "operations", 1
INITIAL, CONSTANT = "initial", "constant"
ENTRY_FIELDS = frozenset({"op", "in", "shape", "dtype"})


def operation_files(listed: Operations, initial: Sequence[np.ndarray]) -> dict[str, bytes]:
    """The files of a step, its operations and their constants; equal steps give equal bytes."""
    arrays = {f"{CONSTANT}_{i}": array for i, array in enumerate(listed.constants)}
    arrays |= {f"{INITIAL}_{i}": np.asarray(array) for i, array in enumerate(initial)}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    document = {
        **head(KIND, VERSION),
        "constants": len(listed.constants),
        "operations": [
            {
                "op": operation.name,
                "in": list(operation.inputs),
                "shape": list(operation.shape),
                "dtype": operation.dtype,
                **operation.settings,
            }
            for operation in listed.operations
        ],
        "outputs": list(listed.outputs),
    }
    return {
        bundle_files.OPERATIONS: dump_compact(document),
        bundle_files.WEIGHTS: buffer.getvalue(),
    }


def read_operations(
    files: Mapping[str, bytes], inputs: Sequence[ArrayEntry], source: str
) -> tuple[Operations, list[np.ndarray]]:
    """Inverse of :func:`operation_files`; the inputs of the step name the carry first.

    Raises:
        BundleError: If the files are missing, damaged or inconsistent.
    """
    if bundle_files.OPERATIONS not in files or bundle_files.WEIGHTS not in files:
        raise BundleError(
            f"{source} has no form for NumPy alone; `neorl-deploy inspect` says why; to run it, "
            "install the extra jax"
        )
    where = f"{source}: {bundle_files.OPERATIONS}"
    document = parse_strict(files[bundle_files.OPERATIONS], where)
    require_head(document, KIND, VERSION, where, BundleError)
    arrays = _read_arrays(files[bundle_files.WEIGHTS], f"{source}: {bundle_files.WEIGHTS}")
    try:
        count = document["constants"]
        names = {f"{CONSTANT}_{i}" for i in range(count)}
        names |= {f"{INITIAL}_{i}" for i in range(len(inputs) - 2)}
        if names != set(arrays):
            raise ValueError("weights and operations are of different steps")
        listed = Operations(
            inputs=tuple(inputs),
            constants=tuple(arrays[f"{CONSTANT}_{i}"] for i in range(count)),
            operations=tuple(_operation(entry) for entry in document["operations"]),
            outputs=tuple(int(number) for number in document["outputs"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BundleError(f"{where} is malformed: {error!r}; fetch the bundle again") from error
    initial = [arrays[f"{INITIAL}_{i}"] for i in range(len(inputs) - 2)]
    for entry, array in zip(inputs, initial, strict=False):
        if (array.shape, array.dtype.name) != (entry.shape, entry.dtype):
            raise BundleError(f"{where}: its initial carry is not that of the manifest")
    return listed, initial


def _operation(entry: Mapping[str, Any]) -> Operation:
    settings = {name: value for name, value in entry.items() if name not in ENTRY_FIELDS}
    shape = tuple(int(width) for width in entry["shape"])
    if min(shape, default=0) < 0:
        raise ValueError(f"a shape of {shape}")
    inputs = tuple(int(number) for number in entry["in"])
    return Operation(str(entry["op"]), inputs, shape, str(entry["dtype"]), settings)


def _read_arrays(data: bytes, source: str) -> dict[str, np.ndarray]:
    largest = bundle_files.LARGEST[bundle_files.WEIGHTS]
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > largest:
                raise BundleError(f"{source} would unpack to more than {largest} bytes")
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except BundleError:
        raise
    except Exception as error:  # zipfile, zlib and the parser of array headers raise many kinds
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BundleError(f"{source} is not an archive of plain arrays: {reason:.200}") from error
