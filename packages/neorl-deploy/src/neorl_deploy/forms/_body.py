"""The statements of a form in any language: what is computed, in which order, and under which name.

A node that is used once is written where it is used, unless the line would be long. A row of a
layer is computed in a loop whose number of turns is fixed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from neorl_deploy.forms._form import SECTIONS, Form, Variable, reached
from neorl_deploy.forms._graph import Entry, Node

LONGEST = 90
"""Length of an expression, in characters, from which it gets a name."""
WIDEST = 100
"""Longest line."""
PREFIXES = dict(zip(SECTIONS, ("inp", "ctl", "fbk", "sup", "grd", "rep"), strict=True))
"""Beginning of the names of local values, by section."""


class Language(NamedTuple):
    """How a language spells what a form contains.

    Attributes:
        operations: A pattern for every operation, with its operands as ``{0}``, ``{1}``, ``{2}``.
        literal: A constant.
        variable: A variable from its role (``"input"``, ``"output"``, ``"memory"``) and its name.
        assign: A statement from a name and an expression.
        loop: A loop from the name of its index, its number of turns and its statements.
        comment: A line of comment.
        word: A word of bits, from pairs of a bit and a condition.
    """

    operations: Mapping[str, str]
    literal: Callable[[Entry], str]
    variable: Callable[[str, str], str]
    assign: Callable[[str, str], str]
    loop: Callable[[str, int, list[str]], list[str]]
    comment: Callable[[str], str]
    word: Callable[[Sequence[tuple[int, str]]], str]


class Local(NamedTuple):
    """A value within a step: its name, its kind and the length of its row, zero for one number."""

    name: str
    kind: str
    width: int


class Body(NamedTuple):
    """What a printer wraps: statements, local values, and tables of constants by name."""

    statements: list[str]
    local: list[Local]
    tables: dict[str, tuple[float, ...]]


def body_of(form: Form, language: Language) -> Body:
    """The statements of one step."""
    writer = _Writer(form, language)
    return Body(list(writer.statements()), writer.local, writer.tables)


def wrapped(text: str) -> list[str]:
    """A statement as lines of bounded length; the further ones are indented."""
    indent = " " * (len(text) - len(text.lstrip()) + 4)
    return textwrap.wrap(
        text,
        WIDEST,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    ) or [""]


class _Writer:
    def __init__(self, form: Form, language: Language) -> None:
        self._form, self._language, self._nodes = form, language, form.nodes
        roots = [node for _, node in (*form.outputs, *form.memory)]
        self._needed = sorted(
            reached(form.nodes, roots), key=lambda node: (form.sections[node], node)
        )
        self._uses = dict.fromkeys(self._needed, 0)
        for node in (*roots, *(arg for n in self._needed for arg in form.nodes[n].args)):
            self._uses[node] += 1
        self._held = {
            arg
            for node in self._needed
            for arg in form.nodes[node].args
            if form.nodes[node].op in ("dot", "index", "total", "pack")
        }
        self._text: dict[Node, str] = {}
        self._reads: dict[Node, frozenset[str]] = {}
        self._calls: set[Node] = set()
        self._roles = {variable.name: "input" for variable in form.inputs}
        self._roles |= {variable.name: "memory" for variable, _ in form.memory}
        self._names = self._suggested()
        self._count = dict.fromkeys(SECTIONS, 0)
        self.local: list[Local] = []
        self.tables: dict[str, tuple[float, ...]] = {}

    def statements(self) -> Iterator[str]:
        section = -1
        for node in self._needed:
            lines = list(self._lines(node))
            if lines and self._form.sections[node] != section:
                section = self._form.sections[node]
                yield from self._heading(SECTIONS[section])
            yield from lines
        written = set(self._names.values())
        for variable, node in self._form.outputs:
            name = self._language.variable("output", variable.name)
            if name not in written or self._text[node] != name:
                yield self._language.assign(name, self._text[node])
        yield ""
        yield self._language.comment("Memory for the next step")
        yield from self._memory()

    def _heading(self, section: str) -> Iterator[str]:
        yield ""
        yield self._language.comment(section.capitalize())
        for sentence in self._form.words.get(section, ()):
            yield self._language.comment(f"  {sentence}")

    def _suggested(self) -> dict[Node, str]:
        """Names for nodes that mean something: outputs, flags, known signals, the next memory."""
        names: dict[Node, str] = {}
        for variable, node in self._form.memory:
            names[node] = f"new_{variable.name.removeprefix('m_')}"
        for node, entry in enumerate(self._nodes):
            if entry.op != "and":
                continue
            first, second = (self._nodes[arg] for arg in entry.args)
            if first.op == "read" and second.op == "finite" and first.value.endswith("_ok"):
                names[node] = f"{first.value.removesuffix('_ok')}_known"
        for variable, node in self._form.outputs:
            if variable.kind == "real" or variable.name == "on_fallback":
                names[node] = self._language.variable("output", variable.name)
        plain = {node for node, entry in enumerate(self._nodes) if entry.op in ("read", "constant")}
        return {node: name for node, name in names.items() if node not in plain}

    def _lines(self, node: Node) -> Iterator[str]:
        """The statements that a node needs, if it gets a name; else none."""
        entry = self._nodes[node]
        if entry.op in ("read", "constant", "index"):
            self._text[node], self._reads[node] = self._plain(node, entry)
            return
        reads = frozenset().union(*(self._reads[arg] for arg in entry.args))
        if entry.op in ("dot", "total", "pack"):
            name = self._named(node)
            yield from self._row(entry, name)
            self._text[node], self._reads[node] = name, frozenset()
            return
        text = self._expression(node)
        output = self._names.get(node, "") in self._outputs()
        simple = entry.op == "not" and self._atomic(entry.args[0])
        again = self._uses[node] > 1 and not simple
        if again or output or node in self._held or len(text) > LONGEST:
            name = self._named(node)
            if entry.width:
                element = f"{name}[i]"
                yield from self._language.loop(
                    "i", entry.width, [self._language.assign(element, text)]
                )
            else:
                yield self._language.assign(name, text)
            text, reads = name, frozenset()
        self._text[node], self._reads[node] = text, reads

    def _outputs(self) -> set[str]:
        return {self._language.variable("output", v.name) for v, _ in self._form.outputs}

    def _plain(self, node: Node, entry: Entry) -> tuple[str, frozenset[str]]:
        if entry.op == "read":
            role = self._roles.get(entry.value, "memory")
            mine = frozenset({entry.value} if role == "memory" else ())
            return self._language.variable(role, entry.value), mine
        if entry.op == "index":
            return f"{self._text[entry.args[0]]}[{entry.value}]", frozenset()
        if entry.width:
            name = f"k{len(self.tables) + 1}"
            self.tables[name] = entry.value
            return name, frozenset()
        return self._language.literal(entry), frozenset()

    def _named(self, node: Node) -> str:
        entry = self._nodes[node]
        section = SECTIONS[self._form.sections[node]]
        name = self._names.get(node)
        if name in self._outputs():
            return name or ""
        if name is None:
            self._count[section] += 1
            name = f"{PREFIXES[section]}_{self._count[section]}"
        self.local.append(Local(name, entry.kind, entry.width))
        return name

    def _row(self, entry: Entry, name: str) -> Iterator[str]:
        say, given = self._language, [self._text[arg] for arg in entry.args]
        if entry.op == "pack":
            for i, text in enumerate(given):
                yield say.assign(f"{name}[{i}]", text)
            return
        zero = say.literal(Entry("constant", (), "real", 0, 0.0))
        element, count = f"{given[0]}[j]", self._nodes[entry.args[0]].width
        if entry.op == "total":
            yield say.assign(name, zero)
            yield from say.loop("j", count, [say.assign(name, f"{name} + {element}")])
            return
        matrix = self._form.tables[entry.value]
        table = f"w{entry.value + 1}"
        self.tables[table] = tuple(matrix.T.ravel().tolist())
        target = f"{name}[i]"
        product = f"{target} + {table}[{count} * i + j] * {element}"
        inner = say.loop("j", count, [say.assign(target, product)])
        yield from say.loop("i", entry.width, [say.assign(target, zero), *inner])

    def _expression(self, node: Node) -> str:
        entry = self._nodes[node]
        if entry.op == "word":
            pairs = [(bit, self._text[n]) for bit, n in zip(entry.value, entry.args, strict=True)]
            return self._language.word(pairs)
        pattern = self._language.operations[entry.op]
        call = pattern.endswith(")") and pattern.partition("(")[0].isidentifier()
        if call:
            self._calls.add(node)
        return pattern.format(*(self._operand(arg, bare=call) for arg in entry.args))

    def _operand(self, node: Node, *, bare: bool) -> str:
        text = self._text[node]
        if self._nodes[node].width and text.isidentifier():
            text = f"{text}[i]"
        return text if bare or self._atomic(node) else f"({text})"

    def _atomic(self, node: Node) -> bool:
        text = self._text[node]
        return node in self._calls or (" " not in text and not text.startswith("-"))

    def _memory(self) -> Iterator[str]:
        """Assignments of the memory in an order in which none reads what was replaced before."""
        say = self._language
        left: dict[str, tuple[Variable, Node]] = {
            variable.name: (variable, node)
            for variable, node in self._form.memory
            if self._text[node] != say.variable("memory", variable.name)
        }
        while left:
            free = [
                name
                for name in left
                if not any(
                    name in self._reads[n] for other, (_, n) in left.items() if other != name
                )
            ]
            if not free:  # parts that change places: compute all of them before one is replaced
                for name, (variable, node) in left.items():
                    self.local.append(Local(f"next_{name}", variable.kind, 0))
                    yield say.assign(f"next_{name}", self._text[node])
                for name in left:
                    yield say.assign(say.variable("memory", name), f"next_{name}")
                return
            for name in free:
                _, node = left.pop(name)
                yield say.assign(say.variable("memory", name), self._text[node])
