"""Lowers the sealed list of operations of a bundle to the intermediate form of :mod:`_graph`.

Every kind of constraint, monitor and controller is in that list already, so each lowers here once.
Flags are kept as single bits, so that a test of a flag becomes the condition behind it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neorl_deploy._errors import DeployError
from neorl_deploy.forms._graph import SMALLEST, UNIT, Graph, Node
from neorl_deploy.runtime._operations import (
    PART,
    WITH_SETTINGS,
    Operation,
    Operations,
    operation_of,
)

WIDE = 8
"""Length from which a result of a layer stays a row."""
MAX_NODES = 60_000
"""Nodes after which a step counts as too large for a controller's scan."""
MAX_WIDTH = 64
"""Largest width of a layer."""
MAX_TURNS = 64
"""Most turns of a loop that is written out."""


class NoFormError(DeployError):
    """A bundle has no form for a controller; the message says why."""


class Bits:
    """A 32-bit number as conditions by bit; a bit that is not named is not set."""

    def __init__(self, bits: dict[int, Node]) -> None:
        self.bits = bits


class Pattern:
    """The bit pattern of a real number, of which only the sign or the size is used."""

    def __init__(self, of: Node, part: str = "all") -> None:
        self.of, self.part = of, part


STRUCTURE = frozenset(
    {"broadcast", "concatenate", "flip", "pad", "reshape", "slice", "stack", "transpose"}
)
"""Operations that only move numbers, for which NumPy itself moves the nodes."""
DIRECT = {
    "abs": "abs",
    "add": "add",
    "cos": "cos",
    "div": "div",
    "exp": "exp",
    "log": "log",
    "max": "max",
    "min": "min",
    "mul": "mul",
    "sin": "sin",
    "sqrt": "sqrt",
    "sub": "sub",
    "is_finite": "finite",
    **{name: name for name in ("eq", "ne", "lt", "gt", "le", "ge")},
}
WITHOUT = {
    "while": "a loop without a fixed number of turns: its guard searches over limits on sums of "
    "several channels; limit single channels instead, or run the bundle itself beside the plant",
    "sort": "a sort",
    "largest": "a choice of the largest numbers",
}
"""What people know an operation by that has no counterpart."""
REDUCTIONS = {
    "reduce_and": ("and", True),
    "reduce_or": ("or", False),
    "reduce_max": ("max", None),
    "reduce_min": ("min", None),
    "reduce_sum": ("add", None),
}


def lower(graph: Graph, listed: Operations, given: Sequence[Any]) -> list[np.ndarray]:
    """The outputs of a list of operations as arrays of nodes.

    Args:
        graph: Where the nodes go.
        listed: The list.
        given: Its inputs as arrays of nodes, or of :class:`Bits` for unsigned numbers.

    Raises:
        NoFormError: If an operation cannot be printed for a controller; it is named.
    """
    widths = [max(a.shape) for a in listed.constants if a.ndim == 2 and min(a.shape) > MAX_WIDTH]
    if widths:  # its single numbers alone may be more than MAX_NODES, which would say less
        raise NoFormError(f"a layer of {max(widths)} (at most {MAX_WIDTH})")
    values = [*given, *(_constants(graph, array) for array in listed.constants)]
    return _run(graph, listed.operations, listed.outputs, values)


def _run(
    graph: Graph, operations: Sequence[Operation], outputs: Sequence[int], values: list[Any]
) -> list[Any]:
    rules = _Rules(graph)
    for operation in operations:
        values.append(rules.result(operation, [values[number] for number in operation.inputs]))
        if len(graph.nodes) > MAX_NODES:
            raise NoFormError(f"its step has more than {MAX_NODES} operations on single numbers")
    return [values[number] for number in outputs]


def _constants(graph: Graph, array: np.ndarray) -> np.ndarray:
    if array.dtype == np.uint32:
        return _each(lambda value: _bits_of(graph, int(value)), array)
    return _each(lambda value: graph.constant(value.item()), array)


def _bits_of(graph: Graph, value: int) -> Bits:
    return Bits({bit: graph.true for bit in range(32) if value >> bit & 1})


def _each(function: Callable[..., Any], *arrays: Any) -> np.ndarray:
    """A function of single elements for arrays, broadcast against one another."""
    out = np.empty(np.broadcast_shapes(*(np.shape(array) for array in arrays)), object)
    whole = [np.broadcast_to(array, out.shape) for array in arrays]
    for at in np.ndindex(out.shape):
        out[at] = function(*(array[at] for array in whole))
    return out


class _Rules:
    """What each operation of the list becomes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def result(self, operation: Operation, inputs: list[Any]) -> Any:
        name = operation.name
        if name in STRUCTURE:
            function = WITH_SETTINGS[name](operation, **operation.settings)
            return _as_objects(function(*inputs), operation.shape)
        if name == PART:
            return inputs[0][operation.settings["index"]]
        if name in DIRECT:
            return self._numbers(DIRECT[name], operation, inputs)
        if name in REDUCTIONS:
            return self._reduced(operation, inputs[0])
        rule = getattr(self, f"_{name}", None)
        if rule is None:
            raise NoFormError(WITHOUT.get(name, f"the operation {name}"))
        return rule(operation, *inputs)

    def _numbers(self, op: str, operation: Operation, inputs: list[Any]) -> np.ndarray:
        first = inputs[0].flat[0] if inputs[0].size else None
        if isinstance(first, Bits | Pattern):
            return _each(lambda a, b: self._word_comparison(op, a, b), *inputs)
        return self._apply(lambda *nodes: self.graph.add(op, *nodes), operation.shape, inputs)

    def _apply(
        self, function: Callable[..., Node], shape: tuple[int, ...], inputs: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Element by element, or as one operation on rows if an input is the row of a layer."""
        size = math.prod(shape)
        whole = [np.broadcast_to(array, shape).ravel().tolist() for array in inputs]
        rows = [self._whole_row(nodes) for nodes in whole]
        if size >= WIDE and any(row is not None for row in rows):
            given = [nodes[0] if len(set(nodes)) == 1 else self.graph.row(nodes) for nodes in whole]
            return _objects(self.graph.parts(function(*given)), shape)
        return _each(function, *inputs)

    def _whole_row(self, nodes: list[Node]) -> Node | None:
        entries = self.graph.nodes
        if not nodes or entries[nodes[0]].op != "index":
            return None
        row = self.graph.row(nodes)
        return row if entries[row].op != "pack" else None

    def _word_comparison(self, op: str, a: Any, b: Any) -> Node:
        graph = self.graph
        if isinstance(a, Pattern):
            size, bits = graph.add("abs", a.of), self._known_bits(b)
            if a.part != "size" or bits is None or op not in ("lt", "gt"):
                raise NoFormError("a step compares the bit patterns of real numbers")
            end = graph.constant(float(np.uint32(bits).view(np.float32)))
            below = graph.add("lt" if op == "lt" else "le", size, end)
            return below if op == "lt" else graph.add("not", below)
        if op not in ("eq", "ne"):
            raise NoFormError(f"the operation {op} on flags")
        differs = graph.false
        for bit in {*a.bits, *b.bits}:
            one, other = (word.bits.get(bit, graph.false) for word in (a, b))
            differs = graph.add("or", differs, self._xor_nodes(one, other))
        return differs if op == "ne" else graph.add("not", differs)

    def _known_bits(self, word: Any) -> int | None:
        known = isinstance(word, Bits) and all(
            node == self.graph.true for node in word.bits.values()
        )
        return sum(1 << bit for bit in word.bits) if known else None

    def _xor_nodes(self, a: Node, b: Node) -> Node:
        graph = self.graph
        return graph.add("select", a, b, graph.add("not", b))

    def _reduced(self, operation: Operation, x: np.ndarray) -> np.ndarray:
        op, start = REDUCTIONS[operation.name]
        axes = [int(axis) for axis in operation.settings["axes"]]
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        rows = np.transpose(x, [*kept, *axes]).reshape(math.prod(operation.shape), -1)
        out = []
        for row in rows.tolist():
            whole = self._whole_row(row)
            if op == "add" and whole is not None:
                out.append(self.graph.total(whole))
                continue
            total = self.graph.constant(start) if start is not None else row[0]
            for node in row if start is not None else row[1:]:
                total = self.graph.add(op, total, node)
            out.append(total)
        return _objects(out, operation.shape)

    def _logical(self, op: str, operation: Operation, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
        graph = self.graph

        def one(a: Any, b: Any) -> Any:
            if isinstance(a, Pattern) or isinstance(b, Pattern):
                pattern, mask = (a, b) if isinstance(a, Pattern) else (b, a)
                if op == "and" and self._known_bits(mask) == 2**31 - 1:
                    return Pattern(pattern.of, "size")
                raise NoFormError("a step changes the bit pattern of a real number")
            if not isinstance(a, Bits):
                return self._xor_nodes(a, b) if op == "xor" else graph.add(op, a, b)
            bits = {}
            for bit in {*a.bits, *b.bits}:
                pair = a.bits.get(bit, graph.false), b.bits.get(bit, graph.false)
                node = self._xor_nodes(*pair) if op == "xor" else graph.add(op, *pair)
                if node != graph.false:
                    bits[bit] = node
            return Bits(bits)

        return _each(one, *inputs)

    def _and(self, operation: Operation, *inputs: np.ndarray) -> np.ndarray:
        return self._logical("and", self._no_integers(operation, "and"), inputs)

    def _or(self, operation: Operation, *inputs: np.ndarray) -> np.ndarray:
        return self._logical("or", self._no_integers(operation, "or"), inputs)

    def _xor(self, operation: Operation, *inputs: np.ndarray) -> np.ndarray:
        return self._logical("xor", self._no_integers(operation, "xor"), inputs)

    def _no_integers(self, operation: Operation, name: str) -> Operation:
        if operation.dtype not in ("bool", "uint32"):
            raise NoFormError(f"the operation {name} on the bits of whole numbers")
        return operation

    def _not(self, operation: Operation, x: np.ndarray) -> np.ndarray:
        if operation.dtype != "bool":
            raise NoFormError("the operation not on the bits of whole numbers")
        return self._apply(lambda node: self.graph.add("not", node), operation.shape, [x])

    def _neg(self, operation: Operation, x: np.ndarray) -> np.ndarray:
        zero = self.graph.constant(0 if operation.dtype == "int32" else 0.0)
        return self._apply(lambda n: self.graph.add("sub", zero, n), operation.shape, [x])

    def _square(self, operation: Operation, x: np.ndarray) -> np.ndarray:
        return self._apply(lambda n: self.graph.add("mul", n, n), operation.shape, [x])

    def _integer_pow(self, operation: Operation, x: np.ndarray) -> np.ndarray:
        power = int(operation.settings["power"])
        if not 1 <= power <= 8:
            raise NoFormError(f"the power {power}")

        def raised(node: Node) -> Node:
            total = node
            for _ in range(power - 1):
                total = self.graph.add("mul", total, node)
            return total

        return self._apply(raised, operation.shape, [x])

    def _rsqrt(self, operation: Operation, x: np.ndarray) -> np.ndarray:
        one, add = self.graph.constant(1.0), self.graph.add
        return self._apply(lambda n: add("div", one, add("sqrt", n)), operation.shape, [x])

    def _tanh(self, operation: Operation, x: np.ndarray) -> np.ndarray:
        """``1 - 2 / (exp(2 x) + 1)``, as structured text has no hyperbolic functions."""
        one, two, add = self.graph.constant(1.0), self.graph.constant(2.0), self.graph.add

        def of(n: Node) -> Node:
            grown = add("add", add("exp", add("mul", n, two)), one)
            return add("sub", one, add("div", two, grown))

        return self._apply(of, operation.shape, [x])

    def _logistic(self, operation: Operation, x: np.ndarray) -> np.ndarray:
        zero, one, add = self.graph.zero, self.graph.constant(1.0), self.graph.add

        def of(n: Node) -> Node:
            return add("div", one, add("add", add("exp", add("sub", zero, n)), one))

        return self._apply(of, operation.shape, [x])

    def _sign(self, operation: Operation, x: np.ndarray) -> np.ndarray:
        zero, add = self.graph.zero, self.graph.add
        one, minus = self.graph.constant(1.0), self.graph.constant(-1.0)

        def of(n: Node) -> Node:
            rest = add("select", add("gt", n, zero), n, one)  # zero, or NaN as it is
            return add("select", add("lt", n, zero), rest, minus)

        return self._apply(of, operation.shape, [x])

    def _nextafter(self, operation: Operation, x: np.ndarray, towards: np.ndarray) -> np.ndarray:
        graph, add = self.graph, self.graph.add
        unit, smallest = graph.constant(UNIT), graph.constant(SMALLEST)

        def of(n: Node, to: Node) -> Node:
            space = add("add", add("mul", add("abs", n), unit), smallest)
            down = add("select", add("gt", n, to), n, add("sub", n, space))
            return add("select", add("lt", n, to), down, add("add", n, space))

        return self._apply(of, operation.shape, [x, towards])

    def _select_n(self, operation: Operation, which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
        graph = self.graph
        if len(cases) != 2:
            raise NoFormError(f"a choice between {len(cases)} cases")

        def one(chosen: Node, no: Any, yes: Any) -> Any:
            if not isinstance(no, Bits):
                return graph.add("select", chosen, no, yes)
            bits = {}
            for bit in {*no.bits, *yes.bits}:
                pair = (word.bits.get(bit, graph.false) for word in (no, yes))
                node = graph.add("select", chosen, *pair)
                if node != graph.false:
                    bits[bit] = node
            return Bits(bits)

        if cases[0].size and isinstance(cases[0].flat[0], Bits):
            return _each(one, which, *cases)
        return self._apply(one, operation.shape, [which, *cases])

    def _convert(self, operation: Operation, x: np.ndarray) -> np.ndarray:
        return _each(lambda one: self._converted(one, operation.dtype), x)

    def _converted(self, one: Any, to: str) -> Any:
        graph = self.graph
        if isinstance(one, Pattern):
            if (one.part, to) != ("sign", "bool"):
                raise NoFormError("a step reads the bit pattern of a real number")
            return graph.add("lt", one.of, graph.zero)
        if isinstance(one, Bits):
            if to != "bool":
                raise NoFormError(f"flags as numbers of type {to}")
            return self._word_comparison("ne", one, Bits({}))
        kind = graph.nodes[one].kind
        if kind == "bool" and to == "uint32":
            return Bits({0: one} if one != graph.false else {})
        if kind == "bool" and to in ("int32", "float32"):
            ends = (0, 1) if to == "int32" else (0.0, 1.0)
            return graph.add("select", one, *map(graph.constant, ends))
        if to == "bool":
            return graph.add("ne", one, graph.constant(0 if kind == "int" else 0.0))
        if (kind, to) != ("int", "float32"):
            raise NoFormError(f"a conversion to {to}")
        return graph.add("to_real", one)

    def _bitcast(self, operation: Operation, x: np.ndarray) -> np.ndarray:
        return _each(Pattern, x)

    def _shift_right(self, operation: Operation, x: np.ndarray, by: np.ndarray) -> np.ndarray:
        def one(word: Any, places: Node) -> Any:
            if isinstance(word, Pattern) and self.graph.value(places) == 31:
                return Pattern(word.of, "sign")
            raise NoFormError("a shift of bits")

        return _each(one, x, by)

    def _take(self, operation: Operation, x: np.ndarray, at: np.ndarray) -> np.ndarray:
        function = WITH_SETTINGS["take"](operation)
        if at.size == 1 and self.graph.value(at.flat[0]) is None:
            return self._looked_up(list(x), at.flat[0]).reshape(operation.shape)
        return _as_objects(
            function(x, self._whole_numbers(at, "a choice of rows")), operation.shape
        )

    def _window(self, operation: Operation, x: np.ndarray, *starts: np.ndarray) -> np.ndarray:
        function = WITH_SETTINGS["window"](operation)
        computed = [i for i, one in enumerate(starts) if self.graph.value(one.flat[0]) is None]
        if len(computed) != 1:
            known = [self._whole_numbers(start, "several parts of an array") for start in starts]
            return _as_objects(function(x, *known), operation.shape)
        (axis,) = computed
        known = [
            np.int32(0) if i == axis else self._whole_numbers(start, "a part of an array")
            for i, start in enumerate(starts)
        ]
        places = range(x.shape[axis] - operation.shape[axis] + 1)
        parts = [function(x, *known[:axis], np.int32(at), *known[axis + 1 :]) for at in places]
        return self._looked_up(parts, starts[axis].flat[0])

    def _looked_up(self, rows: Sequence[np.ndarray], at: Node) -> np.ndarray:
        """One of several rows, at a computed number; beyond the ends, the first or the last."""
        if len(rows) > MAX_TURNS:
            raise NoFormError(f"a table of {len(rows)} rows (at most {MAX_TURNS})")
        row, add = rows[0], self.graph.add
        for number in range(1, len(rows)):
            reached = add("ge", at, self.graph.constant(number))
            row = _each(functools.partial(add, "select", reached), row, rows[number])
        return row

    def _scatter_min(
        self, operation: Operation, x: np.ndarray, at: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        """Rows of an array, each at most as large as a value (the cap of an override)."""
        out = x.copy()
        rows = self._whole_numbers(at, "a choice of rows").reshape(-1)
        for row, cap in zip(rows, values.reshape(len(rows), *x.shape[1:]), strict=True):
            if 0 <= row < len(out):  # others are left out
                out[row] = _each(lambda a, b: self.graph.add("min", a, b), out[row], cap)[()]
        return out

    def _whole_numbers(self, nodes: np.ndarray, what: str) -> np.ndarray:
        values = [self.graph.value(node) for node in nodes.ravel().tolist()]
        if None in values:
            raise NoFormError(f"{what} that is computed in the step")
        return np.array(values, np.int32).reshape(nodes.shape)

    def _dot(self, operation: Operation, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        if left.ndim > 2 or right.ndim > 2:
            raise NoFormError("several networks at once (an average of policies)")
        if left.ndim == 1 and right.ndim == 1:
            return _objects([self._sum_of_products(left, right)], ())
        if right.ndim == 1:
            return self._rows_times(left.T, [right]).reshape(operation.shape)
        return self._rows_times(right, list(np.atleast_2d(left))).reshape(operation.shape)

    def _rows_times(self, matrix: np.ndarray, rows: Sequence[np.ndarray]) -> np.ndarray:
        values = [self.graph.value(node) for node in matrix.ravel().tolist()]
        if None in values or matrix.size < WIDE:
            columns = matrix.T
            out = [self._sum_of_products(row, column) for row in rows for column in columns]
            return _objects(out, (len(out),))
        if max(matrix.shape) > MAX_WIDTH:
            raise NoFormError(f"a layer of {max(matrix.shape)} (at most {MAX_WIDTH})")
        table, out = np.array(values, np.float64).reshape(matrix.shape), []
        for row in rows:
            product = self.graph.product(self.graph.row(list(row)), table)
            out += self.graph.parts(product)
        return _objects(out, (len(out),))

    def _sum_of_products(self, left: np.ndarray, right: np.ndarray) -> Node:
        terms = [self.graph.add("mul", a, b) for a, b in zip(left, right, strict=True)]
        total = terms[0]
        for term in terms[1:]:
            total = self.graph.add("add", total, term)
        return total

    def _scan(self, operation: Operation, *inputs: np.ndarray) -> list[np.ndarray]:
        """A loop over rows, written out."""
        given = operation.settings
        carry, rows, count = given["carry"], given["rows"], given["count"]
        if count > MAX_TURNS:
            raise NoFormError(f"a loop of {count} turns (at most {MAX_TURNS})")
        state, columns = list(inputs[:carry]), inputs[carry : carry + rows]
        order = range(count - 1, -1, -1) if given["reverse"] else range(count)
        turns: list[list[np.ndarray]] = []
        for i in order:
            row = [_as_objects(column[i], column.shape[1:]) for column in columns]
            results = self._held(given["body"], [*state, *row, *inputs[carry + rows :]])
            state, further = results[:carry], results[carry:]
            turns.append(further)
        if given["reverse"]:
            turns.reverse()
        return [*state, *(np.stack(column) for column in zip(*turns, strict=True))]

    def _branch(
        self, operation: Operation, which: np.ndarray, *given: np.ndarray
    ) -> list[np.ndarray]:
        """All branches are computed, and the result of one is taken."""
        graph, lists, at, results = self.graph, operation.settings["lists"], 0, []
        for listed in lists:
            results.append(self._held(listed, list(given[at : at + listed["takes"]])))
            at += listed["takes"]
        chosen = results[-1]
        for number in range(len(lists) - 2, -1, -1):
            here = _each(lambda n, i=number: graph.add("le", n, graph.constant(i)), which)
            chosen = [
                self._select_n(Operation("select_n", (), one.shape, ""), here, other, one)
                for one, other in zip(results[number], chosen, strict=True)
            ]
        return chosen

    def _held(self, listed: Any, given: list[np.ndarray]) -> list[np.ndarray]:
        operations = [operation_of(entry) for entry in listed["operations"]]
        return _run(self.graph, operations, listed["outputs"], given)


def _objects(nodes: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray:
    out = np.empty(len(nodes), object)
    out[:] = nodes
    return out.reshape(shape)


def _as_objects(array: Any, shape: tuple[int, ...]) -> np.ndarray:
    if isinstance(array, np.ndarray) and array.dtype == object:
        return array.reshape(shape)
    return _objects([array], shape)
