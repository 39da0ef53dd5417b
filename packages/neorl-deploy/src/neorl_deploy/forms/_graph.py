"""The intermediate form of a step: single numbers, their operations, and rules that shorten them.

Every node is one number, or one row of numbers for the layers of a network. An operation on nodes
first tries to answer from what is known of them (constants, ranges, whether they can be NaN), so a
step comes out as short as its constants allow. The sign of a zero is not kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Node = int
"""Place of a node in :attr:`Graph.nodes`."""

UNIT, SMALLEST = "UNIT", "SMALLEST"
"""Constants that lead to the next number: see :func:`number`."""
BEYOND = float(np.finfo(np.float32).max)
"""Numbers beyond it count as infinite in every precision, as in the bundle."""

COMPARISONS = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
LOGIC = frozenset({"and", "or", "not"})
FOLDED = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "max": np.maximum,
    "min": np.minimum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "gt": np.greater,
    "le": np.less_equal,
    "ge": np.greater_equal,
    "finite": lambda x: np.abs(x) <= BEYOND,
    "to_real": lambda x: float(x),
}


class Entry(NamedTuple):
    """One node.

    Attributes:
        op: What it does, such as ``"add"``, ``"select"``, ``"read"`` or ``"constant"``.
        args: The nodes that it takes.
        kind: ``"real"``, ``"int"``, ``"bool"`` or ``"word"`` (32 bits).
        width: 0 for one number, else the length of a row.
        value: Value of a constant, name of a variable, number of a table, index or bits.
    """

    op: str
    args: tuple[Node, ...]
    kind: str
    width: int
    value: Any = None


class Range(NamedTuple):
    """What is known of a number: it lies between two ends, or it is NaN if it may be."""

    low: float = -math.inf
    high: float = math.inf
    nan: bool = True

    @property
    def finite(self) -> bool:
        """Whether it is certainly neither NaN nor infinite."""
        return not self.nan and self.low >= -BEYOND and self.high <= BEYOND


ANY = Range()


def number(value: Any, dtype: Any) -> Any:
    """A constant in a precision; ``UNIT`` and ``SMALLEST`` lead to the next number.

    The next number after ``x`` is ``x + (UNIT |x| + SMALLEST)`` and the one before it is
    ``x - (UNIT |x| + SMALLEST)`` (Rump, Zimmermann, Boldo, Melquiond, BIT 49, 2009). Very close to
    zero, steps are of the smallest normal number of single precision, as some compilers refuse
    smaller literals.
    """
    unit = float(np.finfo(dtype).eps) / 2
    smallest = float(np.finfo(np.float32).smallest_normal)
    known = {UNIT: unit * (1 + 2 * unit), SMALLEST: smallest}
    return np.dtype(dtype).type(known.get(value, value))


class Graph:
    """Nodes under construction; equal nodes are one."""

    def __init__(self) -> None:
        self.nodes: list[Entry] = []
        self.ranges: list[Range] = []
        self.tables: list[np.ndarray] = []
        self._known: dict[Any, Node] = {}
        self._finite_if: dict[Node, Node] = {}
        self.true, self.false = self.constant(True), self.constant(False)
        self.zero = self.constant(0.0)

    def constant(self, value: Any) -> Node:
        """A constant: a boolean, an integer, a real number or a row of real numbers."""
        if isinstance(value, tuple):
            row = tuple(float(one) + 0.0 for one in value)
            return self._append(Entry("constant", (), "real", len(row), row), ANY)
        if isinstance(value, str):
            return self._append(Entry("constant", (), "real", 0, value), Range(0.0, 1.0, False))
        if isinstance(value, bool | np.bool_):
            return self._append(Entry("constant", (), "bool", 0, bool(value)), ANY)
        if isinstance(value, int | np.integer):
            known = Range(int(value), int(value), False)
            return self._append(Entry("constant", (), "int", 0, int(value)), known)
        real = float(value) + 0.0
        known = ANY if math.isnan(real) else Range(real, real, False)
        return self._append(Entry("constant", (), "real", 0, real), known)

    def read(self, name: str, kind: str, *, finite: bool = False) -> Node:
        """The value of a variable: an input, or what the last step remembered."""
        known = ANY if kind == "real" else Range(nan=False)
        if finite:
            known = Range(-BEYOND, BEYOND, False)
        return self._append(Entry("read", (), kind, 0, name), known)

    def value(self, node: Node) -> Any:
        """Value of a constant that does not depend on the precision; ``None`` for other nodes."""
        entry = self.nodes[node]
        plain = entry.op == "constant" and not isinstance(entry.value, str)
        return entry.value if plain else None

    def row(self, nodes: Sequence[Node]) -> Node:
        """A row of single numbers, or the row that they already are."""
        first = self.nodes[nodes[0]]
        if first.op == "index" and self.nodes[first.args[0]].width == len(nodes):
            same = all(
                self.nodes[node].op == "index"
                and self.nodes[node].args == first.args
                and self.nodes[node].value == i
                for i, node in enumerate(nodes)
            )
            if same:
                return first.args[0]
        values = [self.value(node) for node in nodes]
        if None not in values:
            return self.constant(tuple(float(value) for value in values))
        kind = first.kind
        return self._append(Entry("pack", tuple(nodes), kind, len(nodes)), ANY)

    def parts(self, row: Node) -> list[Node]:
        """The single numbers of a row."""
        entry = self.nodes[row]
        if entry.op == "constant":
            return [self.constant(value) for value in entry.value]
        if entry.op == "pack":
            return list(entry.args)
        return [
            self._append(Entry("index", (row,), entry.kind, 0, i), self.ranges[row])
            for i in range(entry.width)
        ]

    def product(self, row: Node, matrix: np.ndarray) -> Node:
        """A row times a constant matrix of shape ``(rows, columns)``."""
        key = matrix.shape, matrix.tobytes()
        if key not in self._known:
            self._known[key] = len(self.tables)
            self.tables.append(np.asarray(matrix, np.float64))
        return self._append(Entry("dot", (row,), "real", matrix.shape[1], self._known[key]), ANY)

    def total(self, row: Node) -> Node:
        """The sum of a row."""
        return self._append(Entry("total", (row,), "real", 0), ANY)

    def word(self, bits: Sequence[tuple[int, Node]]) -> Node:
        """Thirty-two bits in one word, of which the given ones may be set."""
        places = tuple(bit for bit, _ in bits)
        return self._append(Entry("word", tuple(node for _, node in bits), "word", 0, places), ANY)

    def add(self, op: str, *args: Node) -> Node:
        """The result of an operation: a known node if possible, else a new one."""
        values = [self.value(node) for node in args]
        widths = [self.nodes[node].width for node in args]
        if None not in values and op in FOLDED and not any(widths):
            with np.errstate(all="ignore"):
                answer = FOLDED[op](*values)
            if self.nodes[args[0]].kind == "int" and op in ("add", "sub", "mul", "max", "min"):
                return self.constant(int(answer))
            return (
                self.constant(bool(answer) if answer.dtype == bool else float(answer))
                if (isinstance(answer, np.generic))
                else self.constant(answer)
            )
        short = self._through_selection(op, args, values) or self._shorter(op, args, values)
        if short is not None:
            return short
        if op in COMPARISONS or op in LOGIC or op == "finite":
            kind = "bool"
        elif op == "to_real":
            kind = "real"
        else:
            kind = self.nodes[args[-1]].kind
        return self._append(Entry(op, args, kind, max(widths)), self._range(op, args))

    def _append(self, entry: Entry, known: Range) -> Node:
        key = (*entry[:4], repr(entry.value))
        if key not in self._known:
            self._known[key] = len(self.nodes)
            self.nodes.append(entry)
            self.ranges.append(known)
        return self._known[key]

    def _through_selection(self, op: str, args: tuple[Node, ...], values: list[Any]) -> Node | None:
        """An operation on a choice of two constants is a choice of its two results."""
        chosen = [at for at, value in enumerate(values) if value is None]
        if op not in FOLDED or len(chosen) != 1:
            return None
        which, *cases = self.nodes[args[chosen[0]]].args or (0,)
        entry = self.nodes[args[chosen[0]]]
        if entry.op != "select" or entry.width or any(self.value(case) is None for case in cases):
            return None
        results = (self.add(op, *args[: chosen[0]], case, *args[chosen[0] + 1 :]) for case in cases)
        return self.add("select", which, *results)

    def _shorter(self, op: str, args: tuple[Node, ...], values: list[Any]) -> Node | None:
        if op in LOGIC:
            return self._logic(op, args, values)
        if op == "select":
            return self._select(args, values)
        if op in COMPARISONS:
            return self._comparison(op, *args)
        if op == "finite":
            short = self._finite(args[0])
            if short is not None:
                self._finite_if[args[0]] = short
            return short
        if op in ("max", "min"):
            return self._extreme(op, *args)
        return self._arithmetic(op, args, values)

    def _arithmetic(self, op: str, args: tuple[Node, ...], values: list[Any]) -> Node | None:
        widths = [self.nodes[node].width for node in args]
        unknown = [v for v in values if isinstance(v, float) and math.isnan(v)]
        if unknown and not any(widths):
            return self.constant(math.nan)
        known = self._range(op, args)
        real = self.nodes[args[0]].kind == "real"
        if known.low == known.high and not known.nan and real and not any(widths):
            return self.constant(known.low)
        neutral = 0 if op in ("add", "sub") else 1
        if op in ("add", "sub", "mul", "div") and values[1] == neutral:
            return args[0]
        return args[1] if op in ("add", "mul") and values[0] == neutral else None

    def _negation(self, node: Node) -> Node | None:
        entry, value = self.nodes[node], self.value(node)
        if value is not None:
            return self.constant(not value)
        if entry.op == "not":
            return entry.args[0]
        exact = entry.op in ("eq", "ne") or (
            entry.op in COMPARISONS and not any(self.ranges[n].nan for n in entry.args)
        )
        return self.add(COMPARISONS[entry.op], *entry.args) if exact else None

    def _logic(self, op: str, args: tuple[Node, ...], values: list[Any]) -> Node | None:
        if op == "not":
            return self._negation(args[0])
        decisive = op == "or"
        if decisive in values:
            return self.constant(decisive)
        for at in (0, 1):
            if values[at] is not None:
                return args[1 - at]
        if args[0] == args[1]:
            return args[0]
        if self._opposite(*args):
            return self.constant(decisive)
        for one, other in (args, args[::-1]):  # a AND (a AND b), a OR (a OR b)
            if self.nodes[other].op == op and one in self.nodes[other].args:
                return other
        return None

    def _opposite(self, a: Node, b: Node) -> bool:
        one, other = self.nodes[a], self.nodes[b]
        return (one.op == "not" and one.args[0] == b) or (other.op == "not" and other.args[0] == a)

    def _select(self, args: tuple[Node, ...], values: list[Any]) -> Node | None:
        which, no, yes = args
        if values[0] is not None:
            return yes if values[0] else no
        entry = self.nodes[which]
        if no == yes:
            return no
        if entry.op == "not":
            return self.add("select", entry.args[0], yes, no)
        if self.nodes[no].kind == "bool" and not self.nodes[no].width:
            if values[1] is not None:
                negated = self.add("not", which)
                return self.add("or", negated, yes) if values[1] else self.add("and", which, yes)
            if values[2] is not None:
                negated = self.add("not", which)
                return self.add("or", which, no) if values[2] else self.add("and", negated, no)
        for at, node in ((1, no), (2, yes)):  # the same condition once more
            inner = self.nodes[node]
            if inner.op == "select" and inner.args[0] == which:
                case = inner.args[at]
                return self.add("select", which, *((case, yes) if at == 1 else (no, case)))
        inner = self.nodes[no]
        if (
            entry.op == "lt"
            and entry.args[1] == yes
            and inner.op == "select"
            and inner.args[1] == entry.args[0]
            and self.nodes[inner.args[0]] == Entry("gt", (entry.args[0], inner.args[2]), "bool", 0)
            and not self.ranges[entry.args[0]].nan
        ):
            return self.add("limit", entry.args[0], yes, inner.args[2])
        return None

    def _comparison(self, op: str, a: Node, b: Node) -> Node | None:
        left, right = self.ranges[a], self.ranges[b]
        if self.nodes[a].width or self.nodes[b].width or self.nodes[a].kind == "bool":
            return None
        if a == b:
            if op in ("lt", "gt"):
                return self.false
            if not left.nan:
                return self.constant(op in ("eq", "le", "ge"))
            return None
        if self.value(a) is not None and self.value(b) is None:
            return self.add(MIRRORED[op], b, a)
        if any(isinstance(v, float) and math.isnan(v) for v in (self.value(a), self.value(b))):
            return self.constant(op == "ne")
        below, above = left.high < right.low, left.low > right.high
        never = {"lt": left.low >= right.high, "gt": left.high <= right.low, "eq": below or above}
        never |= {"le": above, "ge": below}
        if never.get(op, False):
            return self.false
        always = {"lt": below, "gt": above, "ne": below or above}
        always |= {"le": left.high <= right.low, "ge": left.low >= right.high}
        if always.get(op, False) and (op == "ne" or not (left.nan or right.nan)):
            return self.true
        return None

    def _finite(self, node: Node) -> Node | None:
        entry = self.nodes[node]
        if self.ranges[node].finite:
            return self.true
        if entry.op == "select" and not entry.width:
            which, *cases = entry.args
            if any(self.ranges[n].finite or self.value(n) is not None for n in cases):
                return self.add("select", which, *(self.add("finite", n) for n in cases))
        if entry.op == "abs":
            return self.add("finite", entry.args[0])
        return None

    def _extreme(self, op: str, a: Node, b: Node) -> Node | None:
        """A maximum or minimum that is NaN if one of both is."""
        if self.nodes[a].kind == "int":
            return None
        if self.value(a) is not None:
            a, b = b, a
        if self.nodes[a].width or self.nodes[b].width:
            return self.add("select", self.add("lt" if op == "max" else "gt", a, b), a, b)
        left, right = self.ranges[a], self.ranges[b]
        low, high = (left, right) if op == "max" else (right, left)
        if low.low >= high.high and not right.nan and not left.nan:
            return a
        if not left.nan and not right.nan:
            return None
        worse = self.add("lt" if op == "max" else "gt", a, b)
        chosen = self.add("select", worse, a, b)
        return chosen if not right.nan else self.add("select", self.add("ne", b, b), chosen, b)

    def _range(self, op: str, args: tuple[Node, ...]) -> Range:
        first, *others = (self.ranges[node] for node in args)
        nan = first.nan or any(known.nan for known in others)
        if op == "select":
            no = self._given(args[0], args[1], held=False)
            yes = self._given(args[0], args[2], held=True)
            return Range(min(no.low, yes.low), max(no.high, yes.high), no.nan or yes.nan)
        if self.nodes[args[0]].kind == "int":
            return Range(nan=False)
        if op == "limit":
            return Range(others[0].low, max(others[1].high, others[0].low), nan)
        if op in ("max", "min"):
            chosen = max if op == "max" else min
            low, high = (chosen(first[i], others[0][i]) for i in (0, 1))
            return Range(low, high, nan)
        if op == "abs":
            return Range(0.0, max(abs(first.low), abs(first.high)), nan)
        if op == "exp":
            with np.errstate(all="ignore"):
                return Range(0.0, _wider(float(np.exp(first.high)), 1), nan)
        ends = _ends(op, first, *others) if op in ("add", "sub", "mul", "div") else None
        return ANY if ends is None else Range(_wider(ends[0], -1), _wider(ends[1], 1), nan)

    def _given(self, which: Node, node: Node, held: bool) -> Range:
        """Range of a case of a selection, which is used only where the condition is ``held``."""
        entry, known = self.nodes[which], self.ranges[node]
        if held and entry.op == "and":
            first = self._given(entry.args[0], node, True)
            second = self._given(entry.args[1], node, True)
            return Range(
                max(first.low, second.low), min(first.high, second.high), first.nan and second.nan
            )
        if held and (
            entry == ("finite", (node,), "bool", 0, None) or self._finite_if.get(node) == which
        ):
            return Range(max(known.low, -BEYOND), min(known.high, BEYOND), False)
        if entry.op == "ne" and entry.args == (node, node) and not held:
            return known._replace(nan=False)
        if entry.op in ("lt", "gt", "le", "ge") and entry.args[0] == node:
            other = self.ranges[entry.args[1]]
            above = (entry.op in ("gt", "ge")) == held
            nan = known.nan and not held
            if other.nan and not held:
                return known
            if above:
                return Range(max(known.low, other.low), known.high, nan)
            return Range(known.low, min(known.high, other.high), nan)
        return known


def _ends(op: str, a: Range, b: Range) -> tuple[float, float] | None:
    """The ends of a result; ``None`` if infinities may cancel or the divisor may be zero."""
    if op in ("mul", "div"):
        if not (a.finite and b.finite) or (op == "div" and b.low <= 0 <= b.high):
            return None
        pairs = [(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        with np.errstate(all="ignore"):
            results = [x * y if op == "mul" else float(np.divide(x, y)) for x, y in pairs]
        return min(results), max(results)
    if op == "sub":
        b = Range(-b.high, -b.low, b.nan)
    if not (a.finite or b.finite):
        return None
    return a.low + b.low, a.high + b.high


def _wider(end: float, sign: int) -> float:
    """An end of a range moved outward by more than rounding can move a number, or infinite."""
    if math.isinf(end) or end == 0:
        return end
    if abs(end) > 1e37:  # single precision may have overflowed
        return sign * math.inf if sign * end > 0 else end
    return end + sign * 1e-6 * abs(end)
