"""A step as a list of array operations that needs only NumPy: the form without JAX.

The export derives the list from the very program that it exports (``export/_numpy_form.py``). Each
operation has one of the names below, so the list is data: it cannot open a file or call anything
else. A loop or a branch holds lists of its own, and a loop ends after at most ``MAX_TURNS`` turns.
"""

from __future__ import annotations

import functools
import io
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from neorl_deploy._errors import BundleError
from neorl_deploy.bundle import _files as bundle_files
from neorl_deploy.bundle._manifest import ArrayEntry
from neorl_deploy.bundle._strict_json import dump_compact, head, parse_strict, require_head

MAX_NUMBERS = 2**24
"""Largest number of elements in one array."""

MAX_TURNS = 10_000
"""Turns after which a loop that has not ended is an error."""

MAX_DEPTH = 4
"""How deep loops and branches may lie in one another."""

TYPES = frozenset({"bool", "float32", "int32", "uint32", "int8", "uint8", "int16", "uint16"})

SEVERAL = "several"
"""Stated type of an operation with several results, which :data:`PART` picks from."""

PART = "part"


class Operation(NamedTuple):
    """One operation.

    Attributes:
        name: Its name in :data:`OPERATION_NAMES`.
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
        BundleError: When the function is called, if a loop does not end.
    """
    constants = [_constant(constant) for constant in listed.constants]
    # Run once here: a result of another shape or type is detected before use.
    steps = _Steps(listed.operations, listed.outputs, len(listed.inputs) + len(constants), depth=0)
    zeros = [np.zeros(entry.shape, entry.dtype) for entry in listed.inputs]
    with np.errstate(all="ignore"):
        steps.tried(*zeros, *constants)

    def run(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        # NaN and overflow are answers here, which the guard in the list deals with.
        with np.errstate(all="ignore"):
            return tuple(np.asarray(result) for result in steps(*arrays, *constants))

    return run


class _Steps:
    """Operations in order, as a function of ``n_given`` arrays; a loop or a branch holds others."""

    def __init__(
        self,
        operations: Sequence[Operation],
        outputs: Sequence[int],
        n_given: int,
        *,
        depth: int,
    ) -> None:
        self._operations, self._outputs, self.n_given = operations, tuple(outputs), n_given
        if depth > MAX_DEPTH:
            raise ValueError(f"loops and branches lie deeper than {MAX_DEPTH} in one another")
        self._plan: list[tuple[Callable[..., Any], tuple[int, ...]]] = []
        for at, operation in enumerate(operations, n_given):
            if operation.name not in OPERATION_NAMES:
                raise ValueError(f"the operation {operation.name!r} is unknown")
            if not all(0 <= number < at for number in operation.inputs):
                raise ValueError(f"operation {at} uses a later result")
            several = operation.name in WITH_SEVERAL_RESULTS
            fits = operation.dtype == SEVERAL if several else operation.dtype in TYPES
            if math.prod(operation.shape) > MAX_NUMBERS or not fits:
                raise ValueError(f"operation {at} gives {operation.shape} of {operation.dtype}")
            self._plan.append((_function(operation, depth), operation.inputs))
        if not all(0 <= number < n_given + len(operations) for number in outputs):
            raise ValueError("an output is not among its operations")

    def __call__(self, *given: Any) -> tuple[Any, ...]:
        values = list(given)
        for function, inputs in self._plan:
            values.append(function(*[values[number] for number in inputs]))
        return tuple(values[number] for number in self._outputs)

    def tried(self, *given: Any) -> tuple[Any, ...]:
        """As a call, but raises unless every operation gives the stated shape and type.

        A loop runs its lists once, and a branch all of them, whatever their conditions say.
        """
        if len(given) != self.n_given:
            raise ValueError(f"a list takes {self.n_given} arrays, and {len(given)} are given")
        values = list(given)
        for (function, inputs), operation in zip(self._plan, self._operations, strict=True):
            result = getattr(function, "tried", function)(*[values[number] for number in inputs])
            if operation.dtype != SEVERAL and _kind(result) != (operation.shape, operation.dtype):
                raise ValueError(
                    f"operation {len(values)} ({operation.name}) gives {np.shape(result)} of "
                    f"{result.dtype}, not {operation.shape} of {operation.dtype}"
                )
            values.append(result)
        return tuple(values[number] for number in self._outputs)


def _kind(array: Any) -> tuple[tuple[int, ...], str]:
    return np.shape(array), array.dtype.name


def _constant(constant: np.ndarray) -> Any:
    # A scalar is cheaper for NumPy than an array without axes.
    return constant[()] if constant.ndim == 0 else constant


def _function(operation: Operation, depth: int) -> Callable[..., Any]:
    if operation.name in PLAIN:
        return PLAIN[operation.name]
    if operation.name in HOLDING_LISTS:
        return HOLDING_LISTS[operation.name](depth + 1, **operation.settings)
    return WITH_SETTINGS[operation.name](operation, **operation.settings)


def _held(listed: Mapping[str, Any], n_first: int, depth: int) -> _Steps:
    """The list of a loop or branch, which takes ``n_first`` arrays and others of its own."""
    operations = tuple(operation_of(entry) for entry in listed["operations"])
    outputs = [int(number) for number in listed["outputs"]]
    return _Steps(operations, outputs, n_first + int(listed["takes"]), depth=depth)


def _require_carried(before: Sequence[Any], after: Sequence[Any]) -> None:
    if [_kind(array) for array in before] != [_kind(array) for array in after]:
        raise ValueError("a loop changes the shape or the type of what it carries")


class _While:
    """Repeats ``body`` while ``condition`` holds; the carry comes first, then what either takes."""

    def __init__(
        self, depth: int, *, carry: int, condition: Mapping[str, Any], body: Mapping[str, Any]
    ) -> None:
        self._carry = int(carry)
        self._condition = _held(condition, self._carry, depth)
        self._body = _held(body, self._carry, depth)
        self._split = self._condition.n_given

    def __call__(self, *given: Any) -> tuple[Any, ...]:
        state, own, of_body = self._parts(given)
        for _ in range(MAX_TURNS):
            if not self._condition(*state, *own)[0]:
                return state
            state = self._body(*state, *of_body)
        raise BundleError(f"a loop of this bundle did not end after {MAX_TURNS} turns")

    def tried(self, *given: Any) -> tuple[Any, ...]:
        state, own, of_body = self._parts(given)
        if [_kind(answer) for answer in self._condition.tried(*state, *own)] != [((), "bool")]:
            raise ValueError("the condition of a loop is not one boolean")
        after = self._body.tried(*state, *of_body)
        _require_carried(state, after)
        return after

    def _parts(self, given: tuple[Any, ...]) -> tuple[tuple[Any, ...], ...]:
        return given[: self._carry], given[self._carry : self._split], given[self._split :]


class _Scan:
    """Repeats ``body`` once for each row; carry, arrays of rows, and what the body takes."""

    def __init__(
        self, depth: int, *, carry: int, rows: int, count: int, reverse: bool, body: Any
    ) -> None:
        if not 0 < count <= MAX_TURNS:
            raise ValueError(f"a scan has 1 to {MAX_TURNS} turns, got {count}")
        self._carry, self._end = int(carry), int(carry) + int(rows)
        self._order = range(count - 1, -1, -1) if reverse else range(count)
        self._body = _held(body, self._end, depth)

    def __call__(self, *given: Any) -> tuple[Any, ...]:
        return self._run(given, self._body)

    def tried(self, *given: Any) -> tuple[Any, ...]:
        after = self._run(given, self._body.tried)
        _require_carried(given[: self._carry], after[: self._carry])
        return after

    def _run(self, given: tuple[Any, ...], body: Callable[..., Any]) -> tuple[Any, ...]:
        state, rows = given[: self._carry], given[self._carry : self._end]
        further, turns = given[self._end :], []
        for i in self._order:
            results = body(*state, *(array[i] for array in rows), *further)
            state = results[: self._carry]
            turns.append(results[self._carry :])
        if self._order.step < 0:
            turns.reverse()
        return (*state, *(np.stack(column) for column in zip(*turns, strict=True)))


class _Branch:
    """Runs one of several lists; the first input says which, and each takes arrays of its own."""

    def __init__(self, depth: int, *, lists: Sequence[Mapping[str, Any]]) -> None:
        self._lists = [_held(listed, 0, depth) for listed in lists]
        if not self._lists:
            raise ValueError("a branch has no list")
        ends = np.cumsum([1, *(listed.n_given for listed in self._lists)])
        self._places = [slice(*ends) for ends in itertools.pairwise(ends)]

    def __call__(self, which: Any, *given: Any) -> tuple[Any, ...]:
        chosen = min(max(int(which), 0), len(self._lists) - 1)
        return self._lists[chosen](*(which, *given)[self._places[chosen]])

    def tried(self, which: Any, *given: Any) -> tuple[Any, ...]:
        every = [
            listed.tried(*(which, *given)[place])
            for listed, place in zip(self._lists, self._places, strict=True)
        ]
        for answer in every:
            _require_carried(every[0], answer)
        return every[0]


HOLDING_LISTS: dict[str, Callable[..., Callable[..., tuple[Any, ...]]]] = {
    "branch": _Branch,
    "scan": _Scan,
    "while": _While,
}
"""Operations that hold lists of operations."""


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


def _scatter(ufunc: np.ufunc | None, x: Any, at: Any, values: Any) -> Any:
    """``x`` with rows of ``values`` put into, or combined with, the rows that ``at`` gives.

    An index outside of ``x`` is left out, as in the compiled program.
    """
    result = np.array(x)
    rows, new = np.reshape(at[..., 0], -1), np.reshape(values, (-1, *result.shape[1:]))
    inside = (rows >= 0) & (rows < len(result))
    if ufunc is None:
        result[rows[inside]] = new[inside]
    else:  # unlike ``result[rows] = ...``, it counts an index as often as it occurs
        ufunc.at(result, rows[inside], new[inside])
    return result


def _starts(starts: Sequence[Any], shape: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    """A part of an array that begins where stated, moved inside as the compiled program does."""
    first = [min(max(int(s), 0), n - size) for s, n, size in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(at, at + size) for at, size in zip(first, sizes, strict=True))


def _update(x: Any, part: Any, *starts: Any) -> Any:
    result = np.array(x)
    result[_starts(starts, result.shape, np.shape(part))] = part
    return result


def _to_integers(x: Any) -> Any:
    """Towards zero; NaN gives 0, and the ends of the type stand for what lies beyond them."""
    ends = np.iinfo(np.int32)
    whole = np.trunc(np.nan_to_num(np.asarray(x, np.float64), nan=0.0, posinf=ends.max))
    return np.clip(whole, ends.min, ends.max).astype(np.int32)


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
    "scatter": functools.partial(_scatter, None),
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
    "to_integers": _to_integers,
    "update": _update,
    "xor": np.bitwise_xor,
}
"""Operations without settings."""


def _reduce(ufunc: np.ufunc, operation: Operation, *, axes: Sequence[int]) -> Callable[..., Any]:
    # Without its type, NumPy adds small integers as larger ones.
    return functools.partial(ufunc.reduce, axis=tuple(axes), dtype=np.dtype(operation.dtype))


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
    """Parts of the first input at indices of its first axes, along the last axis of the second."""

    def take(x: Any, at: Any) -> Any:
        # Clipped because the compiled program clips too; NumPy's default raises.
        if at.shape[-1] == 1:
            return np.take(x, at[..., 0], axis=0, mode="clip")
        last = np.array(np.shape(x)[: at.shape[-1]]) - 1
        return x[tuple(np.moveaxis(np.clip(at, 0, last), -1, 0))]

    return take


def _whole_power(operation: Operation, *, power: int) -> Callable[[Any], Any]:
    exponent = np.float32(power)
    return lambda x: np.power(x, exponent)


def _part_of(operation: Operation, *, index: int) -> Callable[[Any], Any]:
    return lambda results: results[index]


def _window(operation: Operation) -> Callable[..., Any]:
    return lambda x, *starts: x[_starts(starts, np.shape(x), operation.shape)]


def _accumulate(
    ufunc: np.ufunc, operation: Operation, *, axis: int, reverse: bool
) -> Callable[[Any], Any]:
    run = functools.partial(ufunc.accumulate, axis=axis, dtype=np.dtype(operation.dtype))
    return (lambda x: np.flip(run(np.flip(x, axis)), axis)) if reverse else run


def _pad(operation: Operation, *, low: Sequence[int], between: Sequence[int]) -> Callable[..., Any]:
    """An array within a larger one, with gaps; what lies outside of it is left out."""

    def pad(x: Any, fill: Any) -> Any:
        result = np.full(operation.shape, fill, x.dtype)
        places = [
            start + (gap + 1) * np.arange(width)
            for start, gap, width in zip(low, between, np.shape(x), strict=True)
        ]
        inside = [(at >= 0) & (at < n) for at, n in zip(places, operation.shape, strict=True)]
        kept = [at[is_in] for at, is_in in zip(places, inside, strict=True)]
        result[np.ix_(*kept)] = x[np.ix_(*inside)]
        return result

    return pad


def _flip(operation: Operation, *, axes: Sequence[int]) -> Callable[[Any], Any]:
    return lambda x: np.flip(x, tuple(axes))


def _largest(operation: Operation, *, count: int) -> Callable[[Any], Any]:
    """The largest numbers of the last axis and their indices; NaN first, then the lowest index."""

    def largest(x: Any) -> tuple[Any, Any]:
        order = np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
        at = np.shape(x)[-1] - 1 - order[..., :count]
        return np.take_along_axis(x, at, -1), at.astype(np.int32)

    return largest


def _sort(operation: Operation, *, axis: int) -> Callable[..., Any]:
    """The first array in order, and the others as it is; NaN last."""

    def sort(*arrays: Any) -> tuple[Any, ...]:
        order = np.argsort(arrays[0], axis=axis, kind="stable")
        return tuple(np.take_along_axis(array, order, axis) for array in arrays)

    return sort


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
    "cumulative_max": functools.partial(_accumulate, np.maximum),
    "cumulative_min": functools.partial(_accumulate, np.minimum),
    "cumulative_sum": functools.partial(_accumulate, np.add),
    "flip": _flip,
    "integer_pow": _whole_power,
    "largest": _largest,
    "pad": _pad,
    PART: _part_of,
    "reduce_and": functools.partial(_reduce, np.bitwise_and),
    "reduce_max": functools.partial(_reduce, np.maximum),
    "reduce_min": functools.partial(_reduce, np.minimum),
    "reduce_or": functools.partial(_reduce, np.bitwise_or),
    "reduce_sum": functools.partial(_reduce, np.add),
    "reshape": _reshape,
    "slice": _slice,
    "sort": _sort,
    "stack": _stack,
    "take": _take,
    "transpose": _transpose,
    "window": _window,
}
"""Operations that are built from their settings and from the shape and type of their result."""

WITH_SEVERAL_RESULTS = frozenset({*HOLDING_LISTS, "largest", "sort"})

OPERATION_NAMES = frozenset({*PLAIN, *WITH_SETTINGS, *HOLDING_LISTS})
"""Every available operation."""


# The files of a bundle's NumPy-only form: operations and constants, written and read.


KIND, VERSION = "operations", 1
INITIAL, CONSTANT = "initial", "constant"
ENTRY_FIELDS = frozenset({"op", "in", "shape", "dtype"})


def operation_files(
    listed: Operations, initial: Sequence[np.ndarray], seal: str
) -> dict[str, bytes]:
    """The files of a step, its operations and their constants; equal steps give equal bytes.

    The seal of the manifest is among them, as it is in the names of the programs.
    """
    arrays = {f"{CONSTANT}_{i}": array for i, array in enumerate(listed.constants)}
    arrays |= {f"{INITIAL}_{i}": np.asarray(array) for i, array in enumerate(initial)}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    document = {
        **head(KIND, VERSION),
        "seal": seal,
        "constants": len(listed.constants),
        "operations": [entry_of(operation) for operation in listed.operations],
        "outputs": list(listed.outputs),
    }
    return {
        bundle_files.OPERATIONS: dump_compact(document),
        bundle_files.WEIGHTS: buffer.getvalue(),
    }


def read_operations(
    files: Mapping[str, bytes], inputs: Sequence[ArrayEntry], source: str, seal: str
) -> tuple[Operations, list[np.ndarray]]:
    """Inverse of :func:`operation_files`; the inputs of the step name the carry first.

    A list from before it held a seal is accepted without one.

    Raises:
        BundleError: If the files are missing, damaged or inconsistent, or were not sealed with this
            manifest.
    """
    if bundle_files.OPERATIONS not in files or bundle_files.WEIGHTS not in files:
        raise BundleError(
            f"{source} has no form for NumPy alone; `neorl-deploy inspect` says why; to run it, "
            "install the extra jax"
        )
    where = f"{source}: {bundle_files.OPERATIONS}"
    document = parse_strict(files[bundle_files.OPERATIONS], where)
    require_head(document, KIND, VERSION, where, BundleError)
    if document.get("seal", seal) != seal:
        raise BundleError(
            f"{source}: the operations were not sealed with this manifest; its limits, period, "
            "channels, flags, guard or words were changed after the export: fetch the bundle again"
        )
    arrays = bundle_files.read_arrays(
        files, bundle_files.WEIGHTS, f"{source}: {bundle_files.WEIGHTS}"
    )
    try:
        count = document["constants"]
        names = {f"{CONSTANT}_{i}" for i in range(count)}
        names |= {f"{INITIAL}_{i}" for i in range(len(inputs) - 2)}
        if names != set(arrays):
            raise ValueError("weights and operations are of different steps")
        listed = Operations(
            inputs=tuple(inputs),
            constants=tuple(arrays[f"{CONSTANT}_{i}"] for i in range(count)),
            operations=tuple(operation_of(entry) for entry in document["operations"]),
            outputs=tuple(int(number) for number in document["outputs"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BundleError(f"{where} is malformed: {error!r}; fetch the bundle again") from error
    initial = [arrays[f"{INITIAL}_{i}"] for i in range(len(inputs) - 2)]
    for entry, array in zip(inputs, initial, strict=False):
        if (array.shape, array.dtype.name) != (entry.shape, entry.dtype):
            raise BundleError(f"{where}: its initial carry is not that of the manifest")
    return listed, initial


def entry_of(operation: Operation) -> dict[str, Any]:
    """An operation as plain JSON."""
    return {
        "op": operation.name,
        "in": list(operation.inputs),
        "shape": list(operation.shape),
        "dtype": operation.dtype,
        **operation.settings,
    }


def operation_of(entry: Mapping[str, Any]) -> Operation:
    """Inverse of :func:`entry_of`."""
    settings = {name: value for name, value in entry.items() if name not in ENTRY_FIELDS}
    shape = tuple(int(width) for width in entry["shape"])
    if min(shape, default=0) < 0:
        raise ValueError(f"a shape of {shape}")
    inputs = tuple(int(number) for number in entry["in"])
    return Operation(str(entry["op"]), inputs, shape, str(entry["dtype"]), settings)
