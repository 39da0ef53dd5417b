"""The NumPy-only form of a guarded policy, checked to answer as trained (extra ``export``)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from neorl_deploy.bundle._manifest import PARITY_TOLERANCE, ArrayEntry
from neorl_deploy.bundle._test_vectors import relative_difference
from neorl_deploy.export._read import GuardedParts, entries
from neorl_deploy.export._stablehlo import carry_entries, flat_step
from neorl_deploy.runtime._decision import findings
from neorl_deploy.runtime._operations import (
    PLAIN,
    TYPES,
    Operation,
    Operations,
    as_function,
    operation_files,
)

# Translates a JAX program to NumPy operations, if all have a counterpart (extra ``export``).
#
# The program is traced as it is for export. Nested calls are inlined, expressions that depend only
# on constants are evaluated here, and duplicates are merged.


LARGEST_FOLDED = 4096
"""Largest size of a constant that is evaluated here; larger ones are computed in each step."""

CALLS = frozenset(
    {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat2"}
)
SAME = frozenset({"stop_gradient", "copy", "copy_p", "optimization_barrier"})
RENAMED = {
    "shift_right_arithmetic": "shift_right",
    "shift_right_logical": "shift_right",
    "bitcast_convert_type": "bitcast",
    "convert_element_type": "convert",
    "broadcast_in_dim": "broadcast",
    "squeeze": "reshape",
    "gather": "take",
    "scatter-min": "scatter_min",
    "scatter-max": "scatter_max",
    "scatter-add": "scatter_add",
}
FLOATS_ONLY = frozenset({"div", "pow", "integer_pow", "sqrt", "rsqrt", "exp", "log", "tanh"})
WITHOUT_SETTINGS = frozenset({*PLAIN, "reshape", "convert", "bitcast", "take"})


class NoSuchOperationError(ValueError):
    """A program cannot be expressed as a list of operations; the message is the reason."""


def operation_list(
    function: Callable[..., Sequence[Any]], inputs: Sequence[ArrayEntry]
) -> Operations:
    """Translates a pure JAX function of arrays to a list of operations.

    Raises:
        NoSuchOperationError: If it contains an operation that the list cannot express, such as a
            loop.
    """
    import jax

    shapes = [jax.ShapeDtypeStruct(entry.shape, entry.dtype) for entry in inputs]
    closed = jax.make_jaxpr(function)(*shapes)
    draft = _Draft(tuple(inputs))
    outputs = draft.translate(closed.jaxpr, closed.consts, range(len(inputs)))
    return draft.finish(outputs)


Operand = int | np.ndarray
"""The number of an input or of an operation's result, or a constant array."""


class _Draft:
    """A list under construction. Inputs are numbered from zero, then the results of operations."""

    def __init__(self, inputs: tuple[ArrayEntry, ...]) -> None:
        self._inputs = inputs
        self._operations: list[tuple[str, tuple[Operand, ...], tuple[int, ...], str, dict]] = []
        self._known: dict[Any, int] = {}

    def translate(self, jaxpr: Any, constants: Sequence[Any], given: Sequence[Operand]):
        """Translates a program and returns where its outputs are, given where its inputs are."""
        operands: dict[Any, Operand] = dict(
            zip(jaxpr.constvars, map(np.asarray, constants), strict=True)
        )
        operands |= dict(zip(jaxpr.invars, given, strict=True))

        def operand(variable: Any) -> Operand:
            literal = hasattr(variable, "val")
            return np.asarray(variable.val, variable.aval.dtype) if literal else operands[variable]

        for equation in jaxpr.eqns:
            inputs = [operand(variable) for variable in equation.invars]
            name = equation.primitive.name
            if name in CALLS:
                inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
                body, consts = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
                results = self.translate(body, consts, inputs)
            elif name in SAME:
                results = inputs
            elif name == "platform_index":
                results = [_other_platform(equation.params["platforms"])]
            elif name == "cond":
                results = self._both_branches(inputs, equation)
            else:
                aval = equation.outvars[0].aval
                results = [
                    self._translate_one(name, inputs, tuple(aval.shape), aval.dtype.name, equation)
                ]
            operands |= dict(zip(equation.outvars, results, strict=False))
        return [operand(variable) for variable in jaxpr.outvars]

    def _translate_one(
        self, name: str, inputs: list[Operand], shape: tuple[int, ...], dtype: str, equation: Any
    ) -> Operand:
        _require_types(name, dtype, equation)
        if name == "convert_element_type" and equation.invars[0].aval.dtype.name == dtype:
            return inputs[0]
        if name == "select_n" and isinstance(inputs[0], np.ndarray) and inputs[0].size == 1:
            return inputs[1 + int(inputs[0].item())]
        if name == "iota" and np.prod(shape) <= LARGEST_FOLDED:
            return np.indices(shape, dtype)[int(equation.params["dimension"])]
        if name == "clamp":
            low, x, high = inputs
            return self._add("min", (self._add("max", (x, low), shape, dtype), high), shape, dtype)
        if name == "dot_general":
            return self._product(inputs, shape, dtype, equation)
        if name == "gather":
            _require_rows(equation)
        if name in ("scatter-min", "scatter-max", "scatter-add"):
            _require_scattered_rows(inputs, equation)
        name = RENAMED.get(name, name)
        return self._add(name, tuple(inputs), shape, dtype, _settings(name, equation))

    def _both_branches(self, inputs: list[Operand], equation: Any) -> list[Operand]:
        """Computes both branches and selects one, because a list of operations cannot branch.

        If the condition is a constant, only the branch taken is computed.
        """
        which, operands = inputs[0], inputs[1:]
        branches = equation.params["branches"]
        if isinstance(which, np.ndarray):
            branch = branches[int(which)]
            return self.translate(branch.jaxpr, branch.consts, operands)
        branches = [self.translate(branch.jaxpr, branch.consts, operands) for branch in branches]
        return [
            self._add("select_n", (which, *answers), tuple(out.aval.shape), out.aval.dtype.name)
            for answers, out in zip(zip(*branches, strict=True), equation.outvars, strict=True)
        ]

    def _product(
        self, inputs: list[Operand], shape: tuple[int, ...], dtype: str, equation: Any
    ) -> Operand:
        """A product over one axis: of two matrices, with a vector, or of stacked matrices."""
        (left_axes, right_axes), batch = equation.params["dimension_numbers"]
        left, right = (variable.aval.ndim for variable in equation.invars)
        sides = list(inputs)
        if len(left_axes) == 1 and [*map(len, batch)] == [1, 1] and left == right == 3:
            for i, (over, along) in enumerate(zip(batch, (left_axes, right_axes), strict=True)):
                (free,) = {0, 1, 2} - {over[0], along[0]}
                inner = [free, along[0]] if i == 0 else [along[0], free]
                axes = [int(axis) for axis in (over[0], *inner)]
                if axes != [0, 1, 2]:
                    transposed_shape = tuple(equation.invars[i].aval.shape[axis] for axis in axes)
                    sides[i] = self._add(
                        "transpose", (sides[i],), transposed_shape, dtype, {"axes": axes}
                    )
            return self._add("dot", tuple(sides), shape, dtype)
        if batch != ((), ()) or len(left_axes) != 1:
            raise NoSuchOperationError("a product over several axes")
        if max(left, right) > 2:
            return self._flat_product(inputs, shape, dtype, equation)
        transposes = (left == 2 and left_axes[0] == 0, right == 2 and right_axes[0] == 1)
        for i, transposed in enumerate(transposes):
            if transposed:
                transposed_shape = tuple(reversed(equation.invars[i].aval.shape))
                sides[i] = self._add(
                    "transpose", (sides[i],), transposed_shape, dtype, {"axes": [1, 0]}
                )
        return self._add("dot", tuple(sides), shape, dtype)

    def _flat_product(
        self, inputs: list[Operand], shape: tuple[int, ...], dtype: str, equation: Any
    ) -> Operand:
        """A product over one axis of arrays of any rank, computed as one product of two matrices.

        Several networks applied to the same rows form such a product: only one side has the axis of
        the networks.
        """
        sides: list[Operand] = []
        counts: list[int] = []
        along = equation.params["dimension_numbers"][0]
        for i, (operand, (axis,)) in enumerate(zip(inputs, along, strict=True)):
            sizes = equation.invars[i].aval.shape
            free = [other for other in range(len(sizes)) if other != axis]
            axes = [*free, int(axis)] if i == 0 else [int(axis), *free]
            transposed, rows = tuple(sizes[a] for a in axes), math.prod(sizes[a] for a in free)
            if axes != sorted(axes):
                operand = self._add("transpose", (operand,), transposed, dtype, {"axes": axes})
            counts.append(rows)
            flat = (rows, sizes[axis]) if i == 0 else (sizes[axis], rows)
            sides.append(self._add("reshape", (operand,), flat, dtype))
        product = self._add("dot", tuple(sides), tuple(counts), dtype)
        return self._add("reshape", (product,), shape, dtype)

    def _add(
        self,
        name: str,
        inputs: tuple[Operand, ...],
        shape: tuple[int, ...],
        dtype: str,
        settings: dict[str, Any] | None = None,
    ) -> Operand:
        chosen = settings or {}
        if all(isinstance(operand, np.ndarray) for operand in inputs) and np.prod(shape) < (
            LARGEST_FOLDED if name != "transpose" else np.inf
        ):
            return _compute(name, inputs, shape, dtype, chosen)
        key = (name, tuple(map(_identity, inputs)), shape, dtype, json.dumps(chosen))
        if key not in self._known:
            self._known[key] = len(self._inputs) + len(self._operations)
            self._operations.append((name, inputs, shape, dtype, chosen))
        return self._known[key]

    def finish(self, outputs: Sequence[Operand]) -> Operations:
        """The list without operations that no output needs, and with numbered constants."""
        n_inputs = len(self._inputs)
        needed = {operand for operand in outputs if isinstance(operand, int)}
        # Backwards, because an operation needs earlier results alone.
        for at in range(len(self._operations) - 1, -1, -1):
            if at + n_inputs in needed:
                needed |= {p for p in self._operations[at][1] if isinstance(p, int)}
        needed_indices = [at for at in range(len(self._operations)) if at + n_inputs in needed]
        constants: dict[Any, int] = {}
        arrays: list[np.ndarray] = []
        used = [p for at in needed_indices for p in self._operations[at][1]] + list(outputs)
        for operand in used:
            if isinstance(operand, np.ndarray) and _identity(operand) not in constants:
                constants[_identity(operand)] = n_inputs + len(arrays)
                arrays.append(np.ascontiguousarray(operand).reshape(operand.shape))
        begin = n_inputs + len(arrays)
        number = {at + n_inputs: begin + i for i, at in enumerate(needed_indices)}
        number |= {i: i for i in range(n_inputs)}

        def numbered(operand: Operand) -> int:
            return (
                constants[_identity(operand)]
                if isinstance(operand, np.ndarray)
                else number[operand]
            )

        operations = tuple(
            Operation(name, tuple(map(numbered, inputs)), shape, dtype, settings)
            for name, inputs, shape, dtype, settings in (
                self._operations[at] for at in needed_indices
            )
        )
        return Operations(
            self._inputs, tuple(arrays), operations, tuple(numbered(operand) for operand in outputs)
        )


def _compute(
    name: str, inputs: Sequence[Any], shape: tuple[int, ...], dtype: str, settings: dict[str, Any]
) -> np.ndarray:
    operation = Operation(name, tuple(range(len(inputs))), shape, dtype, settings)
    try:
        return as_function(Operations((), tuple(inputs), (operation,), (len(inputs),)))()[0]
    except ValueError as error:
        raise NoSuchOperationError(str(error)) from error


def _identity(operand: Operand) -> Any:
    if isinstance(operand, np.ndarray):
        return operand.dtype.name, operand.shape, operand.tobytes()
    return operand


def _other_platform(platforms: Sequence[tuple[str, ...] | None]) -> np.ndarray:
    """The branch of ``jax.lax.platform_dependent`` for platforms without their own.

    All branches give the same numbers; the others are only arranged for a compiler. If every
    platform has its own branch, the CPU's is used.
    """
    for index, names in enumerate(platforms):
        if names is None or (None not in platforms and "cpu" in names):
            return np.asarray(index, np.int32)
    raise NoSuchOperationError(f"a form for {platforms} only")


def _require_types(name: str, dtype: str, equation: Any) -> None:
    dtypes = [variable.aval.dtype for variable in equation.invars]
    if dtype not in TYPES:
        raise NoSuchOperationError(f"numbers of type {dtype}")
    if name in FLOATS_ONLY and dtypes[0].kind != "f":
        raise NoSuchOperationError(f"{name} of {dtypes[0].name}")
    if name == "convert_element_type" and dtypes[0].kind == "f" and dtype != dtypes[0].name:
        raise NoSuchOperationError("a rounding to integers")
    if name == "shift_right_logical" and dtypes[0].kind == "i":
        raise NoSuchOperationError("a logical shift of signed numbers")
    if name == "bitcast_convert_type" and dtypes[0].itemsize != np.dtype(dtype).itemsize:
        raise NoSuchOperationError("a change of the width of numbers")


def _settings(name: str, equation: Any) -> dict[str, Any]:
    """Arguments of an operation other than its inputs, as plain numbers."""
    if name in WITHOUT_SETTINGS:
        return {}
    if name not in SETTINGS:
        raise NoSuchOperationError(f"the operation {name}")
    return SETTINGS[name](equation.params)


def _of_slice(params: Any) -> dict[str, Any]:
    start, stop = params["start_indices"], params["limit_indices"]
    return {"start": [*start], "stop": [*stop], "step": [*(params["strides"] or (1,) * len(start))]}


def _axes(params: Any) -> dict[str, Any]:
    return {"axes": [int(axis) for axis in params["axes"]]}


SETTINGS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "argmax": lambda given: {"axis": int(given["axes"][0])},
    "argmin": lambda given: {"axis": int(given["axes"][0])},
    "broadcast": lambda given: {"axes": [int(axis) for axis in given["broadcast_dimensions"]]},
    "concatenate": lambda given: {"axis": int(given["dimension"])},
    "integer_pow": lambda given: {"power": int(given["y"])},
    "reduce_and": _axes,
    "reduce_max": _axes,
    "reduce_min": _axes,
    "reduce_or": _axes,
    "reduce_sum": _axes,
    "slice": _of_slice,
    "stack": lambda given: {"axis": int(given.get("axis", given.get("dimension", 0)))},
    "transpose": lambda given: {"axes": [int(axis) for axis in given["permutation"]]},
}
"""Settings of an operation, derived from JAX's parameters."""


def _require_rows(equation: Any) -> None:
    """Requires that a gather selects rows of the first axis, one index each."""
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    operand, indices = (variable.aval for variable in equation.invars)
    first = indices.ndim - 1
    rows = (
        tuple(numbers.collapsed_slice_dims) == (0,)
        and tuple(numbers.start_index_map) == (0,)
        and not numbers.operand_batching_dims
        and tuple(sizes) == (1, *operand.shape[1:])
        and tuple(numbers.offset_dims) == tuple(range(first, first + operand.ndim - 1))
        and "FILL" not in str(equation.params["mode"])
    )
    if not rows:
        raise NoSuchOperationError("a gather of anything but rows")


def _require_scattered_rows(inputs: Sequence[Operand], equation: Any) -> None:
    """Requires that a scatter writes to rows of the first axis at known indices within range."""
    numbers, operand = equation.params["dimension_numbers"], equation.invars[0].aval
    indices, updates = inputs[1], equation.invars[2].aval
    rows = (
        isinstance(indices, np.ndarray)
        and bool(((indices >= 0) & (indices < operand.shape[0])).all())
        and indices.ndim == 2
        and tuple(numbers.inserted_window_dims) == (0,)
        and tuple(numbers.scatter_dims_to_operand_dims) == (0,)
        and not numbers.operand_batching_dims
        and tuple(numbers.update_window_dims) == tuple(range(1, updates.ndim))
    )
    if not rows:
        raise NoSuchOperationError("a scatter to anything but rows at constant indices")


# The NumPy-only form of a guarded policy, with a check that it answers as trained.


def numpy_form(
    guarded: GuardedParts, flags: Mapping[str, int], vectors: Mapping[str, Mapping[str, np.ndarray]]
) -> tuple[dict[str, bytes], str]:
    """The files of the NumPy-only form, if the guarded policy has one.

    There is none if the program contains something that NumPy operations cannot express, such as a
    loop, or if its answer to a test vector differs from the training side's.

    Returns:
        Content by name, empty if there is no such form; and the reason, empty if there is one.
    """
    import jax

    policy, spec = guarded.policy, guarded.spec
    inputs = [
        *carry_entries(policy),
        ArrayEntry("obs", (spec.n_obs,), "float32"),
        ArrayEntry("last_sent", (spec.n_action,), "float32"),
    ]
    try:
        operations = operation_list(flat_step(policy), inputs)
    except NoSuchOperationError as error:
        return {}, f"it holds {error}"
    initial = [np.asarray(leaf) for leaf in jax.tree.leaves(policy.initial_carry())]
    run, worst, same_flags = as_function(operations), 0.0, True
    for section, stored in vectors.items():
        actions, raised_flags = _answers(run, initial, stored, fresh=section == "single")
        difference = relative_difference(
            entries(spec.action), actions, stored["action"], stored["rounding"]
        )
        checked_bits = np.uint32(findings(flags))
        worst = max(worst, difference)
        same_flags = same_flags and np.array_equal(
            raised_flags & checked_bits, stored["flags"] & checked_bits
        )
    if not (worst <= PARITY_TOLERANCE and same_flags):
        comparison = "equal" if same_flags else "different"
        return {}, f"its answers differ by {worst:.1e} of a channel's size, flags are {comparison}"
    return operation_files(operations, initial), ""


def _answers(
    run: Any, initial: Sequence[np.ndarray], stored: Mapping[str, np.ndarray], *, fresh: bool
) -> tuple[np.ndarray, np.ndarray]:
    carry, actions, flags = tuple(initial), [], []
    for obs, last_sent in zip(stored["obs"], stored["last_sent"], strict=True):
        outputs = run(*(initial if fresh else carry), obs, last_sent)
        carry = outputs[: len(initial)]
        actions.append(outputs[len(initial)])
        flags.append(outputs[len(initial) + 1])
    return np.stack(actions), np.array(flags, np.uint32)
