"""The NumPy-only form of a guarded policy, checked to answer as trained (extra ``export``)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from neorl_deploy.bundle._files import seal
from neorl_deploy.bundle._manifest import PARITY_TOLERANCE, ArrayEntry
from neorl_deploy.bundle._test_vectors import compared
from neorl_deploy.export._read import GuardedParts, entries
from neorl_deploy.export._stablehlo import carry_entries, flat_step
from neorl_deploy.runtime._decision import findings
from neorl_deploy.runtime._operations import (
    MAX_TURNS,
    PART,
    PLAIN,
    SEVERAL,
    TYPES,
    Operation,
    Operations,
    as_function,
    entry_of,
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
    "expand_dims": "reshape",
    "rev": "flip",
    "cumsum": "cumulative_sum",
    "cummax": "cumulative_max",
    "cummin": "cumulative_min",
    "gather": "take",
    "dynamic_slice": "window",
    "dynamic_update_slice": "update",
    "scatter-min": "scatter_min",
    "scatter-max": "scatter_max",
    "scatter-add": "scatter_add",
}
FLOATS_ONLY = frozenset({"div", "pow", "integer_pow", "sqrt", "rsqrt", "exp", "log", "tanh"})
WITHOUT_SETTINGS = frozenset({*PLAIN, "reshape", "convert", "bitcast", "take", "window"})
SCATTERS = frozenset({"scatter", "scatter-min", "scatter-max", "scatter-add"})


class NoSuchOperationError(ValueError):
    """A program cannot be expressed as a list of operations; the message is the reason."""


def operation_list(
    function: Callable[..., Sequence[Any]], inputs: Sequence[ArrayEntry]
) -> Operations:
    """Translates a pure JAX function of arrays to a list of operations.

    Raises:
        NoSuchOperationError: If it contains an operation that the list cannot express.
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

        for equation in _needed(jaxpr):
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
            elif name in HELD:
                results = getattr(self, HELD[name])(inputs, equation)
            elif name in ("split", "unstack"):
                results = self._parts_of(inputs[0], equation)
            elif name in ("top_k", "sort"):
                results = self._with_several(*_sorting(name, equation), inputs, equation.outvars)
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
        if name in SCATTERS:
            _require_scattered_rows(equation)
        if name == "convert_element_type" and equation.invars[0].aval.dtype.kind == "f":
            return self._add("to_integers", tuple(inputs), shape, dtype)
        name = RENAMED.get(name, name)
        return self._add(name, tuple(inputs), shape, dtype, _settings(name, equation))

    def _branch(self, inputs: list[Operand], equation: Any) -> list[Operand]:
        """One of several lists; if the condition is a constant, the branch taken alone."""
        which, operands = inputs[0], inputs[1:]
        branches = equation.params["branches"]
        if isinstance(which, np.ndarray):
            branch = branches[min(max(int(which), 0), len(branches) - 1)]
            return self.translate(branch.jaxpr, branch.consts, operands)
        lists, taken = [], []
        for branch in branches:
            listed, constants = _held_list(branch, equation.invars[1:])
            lists.append(listed | {"takes": len(operands) + len(constants)})
            taken += [*operands, *constants]
        return self._with_several("branch", {"lists": lists}, [which, *taken], equation.outvars)

    def _while(self, inputs: list[Operand], equation: Any) -> list[Operand]:
        given, variables = equation.params, equation.invars
        ends = given["cond_nconsts"], given["cond_nconsts"] + given["body_nconsts"]
        carry, own = inputs[ends[1] :], (slice(0, ends[0]), slice(*ends))
        settings: dict[str, Any] = {"carry": len(carry)}
        taken: list[Operand] = list(carry)
        for name, at in zip(("condition", "body"), own, strict=True):
            jaxpr = given["cond_jaxpr" if name == "condition" else "body_jaxpr"]
            # JAX passes what a list takes before the carry, and the list expects it after it.
            order = [*range(at.stop - at.start, len(jaxpr.in_avals)), *range(at.stop - at.start)]
            listed, constants = _held_list(jaxpr, [*variables[ends[1] :], *variables[at]], order)
            settings[name] = listed | {"takes": len(inputs[at]) + len(constants)}
            taken += [*inputs[at], *constants]
        return self._with_several("while", settings, taken, equation.outvars)

    def _scan(self, inputs: list[Operand], equation: Any) -> list[Operand]:
        given = equation.params
        if "ft_in" in given:  # JAX from 0.11 on, which keeps the trees of what a scan takes
            n_own, n_carry = (len(part) for part in given["ft_in"].unpack()[:2])
        else:
            n_own, n_carry = given["num_consts"], given["num_carry"]
        body, count = given["jaxpr"], int(given["length"])
        if not 0 < count <= MAX_TURNS:
            raise NoSuchOperationError(f"a loop of {count} turns")
        order = [*range(n_own, len(body.in_avals)), *range(n_own)]
        listed, constants = _held_list(body, [body.in_avals[i] for i in order], order)
        settings = {
            "carry": n_carry,
            "rows": len(inputs) - n_own - n_carry,
            "count": count,
            "reverse": bool(given["reverse"]),
            "body": listed | {"takes": n_own + len(constants)},
        }
        taken = [*(inputs[i] for i in order), *constants]
        return self._with_several("scan", settings, taken, equation.outvars)

    def _with_several(
        self, name: str, settings: dict[str, Any], inputs: Sequence[Operand], outvars: Sequence[Any]
    ) -> list[Operand]:
        """An operation with several results, and those results."""
        at = self._append(name, tuple(inputs), (), SEVERAL, settings)
        return [
            self._append(PART, (at,), tuple(out.aval.shape), out.aval.dtype.name, {"index": i})
            for i, out in enumerate(outvars)
        ]

    def _parts_of(self, operand: Operand, equation: Any) -> list[Operand]:
        """Consecutive slices along one axis, which parts of one row each do not keep."""
        axis, start, parts = equation.params["axis"], 0, []
        whole, apart = tuple(equation.invars[0].aval.shape), equation.primitive.name == "unstack"
        for out in equation.outvars:
            dtype, size = out.aval.dtype.name, 1 if apart else out.aval.shape[axis]
            shape = (*whole[:axis], size, *whole[axis + 1 :])
            first = [start if i == axis else 0 for i in range(len(shape))]
            last = [begin + size for begin, size in zip(first, shape, strict=True)]
            settings = {"start": first, "stop": last, "step": [1] * len(shape)}
            part = self._add("slice", (operand,), shape, dtype, settings)
            parts.append(
                self._add("reshape", (part,), shape[:axis] + shape[axis + 1 :], dtype)
                if apart
                else part
            )
            start += size
        return parts

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
        return self._append(name, inputs, shape, dtype, chosen)

    def _append(
        self,
        name: str,
        inputs: tuple[Operand, ...],
        shape: tuple[int, ...],
        dtype: str,
        chosen: dict[str, Any],
    ) -> int:
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


def _needed(jaxpr: Any) -> list[Any]:
    """The equations on which an output depends; a fresh random key that nobody reads is none."""
    wanted, needed = {id(variable) for variable in jaxpr.outvars}, []
    for equation in reversed(jaxpr.eqns):
        if any(id(variable) in wanted for variable in equation.outvars):
            needed.append(equation)
            wanted |= {id(variable) for variable in equation.invars}
    return needed[::-1]


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
    rounds = name == "convert_element_type" and dtypes[0].kind == "f" and dtype != dtypes[0].name
    if rounds and dtype != "int32":
        raise NoSuchOperationError(f"a rounding to {dtype}")
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


def _accumulated(params: Any) -> dict[str, Any]:
    return {"axis": int(params["axis"]), "reverse": bool(params["reverse"])}


SETTINGS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "argmax": lambda given: {"axis": int(given["axes"][0])},
    "argmin": lambda given: {"axis": int(given["axes"][0])},
    "broadcast": lambda given: {"axes": [int(axis) for axis in given["broadcast_dimensions"]]},
    "cumulative_max": _accumulated,
    "cumulative_min": _accumulated,
    "cumulative_sum": _accumulated,
    "flip": lambda given: {"axes": [int(axis) for axis in given["dimensions"]]},
    "concatenate": lambda given: {"axis": int(given["dimension"])},
    "integer_pow": lambda given: {"power": int(given["y"])},
    "pad": lambda given: {
        "low": [int(low) for low, _, _ in given["padding_config"]],
        "between": [int(between) for _, _, between in given["padding_config"]],
    },
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
    """Requires that a gather selects whole parts at indices of the first axes."""
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    operand, indices = (variable.aval for variable in equation.invars)
    indexed, first = indices.shape[-1], indices.ndim - 1
    leading = tuple(range(indexed))
    rows = (
        tuple(numbers.collapsed_slice_dims) == leading
        and tuple(numbers.start_index_map) == leading
        and not numbers.operand_batching_dims
        and tuple(sizes) == (1,) * indexed + tuple(operand.shape[indexed:])
        and tuple(numbers.offset_dims) == tuple(range(first, first + operand.ndim - indexed))
        and "FILL" not in str(equation.params["mode"])
    )
    if not rows:
        raise NoSuchOperationError("a gather of anything but whole parts of the first axes")


def _require_scattered_rows(equation: Any) -> None:
    """Requires that a scatter writes to rows of the first axis, and leaves out others."""
    numbers, mode = equation.params["dimension_numbers"], str(equation.params["mode"])
    indices, updates = (variable.aval for variable in equation.invars[1:])
    rows = (
        tuple(numbers.inserted_window_dims) == (0,)
        and tuple(numbers.scatter_dims_to_operand_dims) == (0,)
        and not numbers.operand_batching_dims
        and tuple(numbers.update_window_dims) == tuple(range(indices.ndim - 1, updates.ndim))
        and ("FILL" in mode or "PROMISE" in mode)
    )
    if not rows:
        raise NoSuchOperationError("a scatter to anything but rows")


HELD = {"cond": "_branch", "while": "_while", "scan": "_scan"}
"""Methods for operations that hold lists of operations, by JAX's names."""


def _held_list(
    closed: Any, given: Sequence[Any], order: Sequence[int] | None = None
) -> tuple[dict[str, Any], tuple[np.ndarray, ...]]:
    """A program inside a loop or branch as a list, without its number of inputs; its constants.

    Args:
        closed: The program.
        given: Variables or shapes of its inputs, in the order in which the list takes them.
        order: Place of each of them in the program; ``None`` if the order is that of the program.
    """
    avals = [getattr(one, "aval", one) for one in given]
    inputs = tuple(
        ArrayEntry(str(i), tuple(aval.shape), aval.dtype.name) for i, aval in enumerate(avals)
    )
    draft, operands = _Draft(inputs), dict(enumerate(range(len(inputs))))
    if order is not None:
        operands = {place: i for i, place in enumerate(order)}
    numbers = [operands[place] for place in range(len(inputs))]
    listed = draft.finish(draft.translate(closed.jaxpr, closed.consts, numbers))
    entries = [entry_of(operation) for operation in listed.operations]
    return {"operations": entries, "outputs": list(listed.outputs)}, listed.constants


def _sorting(name: str, equation: Any) -> tuple[str, dict[str, Any]]:
    given, operand = equation.params, equation.invars[0].aval
    if name == "top_k":
        if given.get("axis", -1) not in (-1, operand.ndim - 1):
            raise NoSuchOperationError("the largest numbers of another axis than the last")
        return "largest", {"count": int(given["k"])}
    if given["num_keys"] != 1:
        raise NoSuchOperationError("a sort by several arrays")
    return "sort", {"axis": int(given["dimension"])}


# The NumPy-only form of a guarded policy, with a check that it answers as trained.


def numpy_form(
    guarded: GuardedParts,
    manifest: Mapping[str, Any],
    vectors: Mapping[str, Mapping[str, np.ndarray]],
) -> tuple[dict[str, bytes], str]:
    """The files of the NumPy-only form, if the guarded policy has one.

    There is none if the program contains something that NumPy operations cannot express, or if its
    answer to a test vector differs from the training side's.

    Args:
        guarded: The guarded policy.
        manifest: The manifest so far, of which the files hold the seal.
        vectors: The test vectors with the training side's answers.

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
        return {}, f"the list of operations cannot hold {error}"
    initial = [np.asarray(leaf) for leaf in jax.tree.leaves(policy.initial_carry())]
    run, worst, same_flags = as_function(operations), 0.0, True
    for section, stored in vectors.items():
        answers = _answers(run, initial, stored, fresh=section == "single")
        checked = findings(manifest["flags"])
        difference, same = compared(entries(spec.action), checked, answers, stored)
        worst, same_flags = max(worst, difference), same_flags and same
    if not (worst <= PARITY_TOLERANCE and same_flags):
        comparison = "equal" if same_flags else "different"
        return {}, f"its answers differ by {worst:.1e} of a channel's size, flags are {comparison}"
    return operation_files(operations, initial, seal(manifest)), ""


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
