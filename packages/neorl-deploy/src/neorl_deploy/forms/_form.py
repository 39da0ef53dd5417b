"""The guarded step of a bundle as one small form, which every printer prints.

A form names its inputs, outputs and memory; each output and each part of the memory is a node of
the graph. What a person does (stop, release, take over) and whether a signal is good are inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from neorl_deploy.bundle._files import seal
from neorl_deploy.bundle._manifest import ArrayEntry, Manifest
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.forms._graph import FOLDED, Entry, Graph, Node, number
from neorl_deploy.forms._lowering import Bits, NoFormError, lower
from neorl_deploy.runtime._forms import sealed_operations
from neorl_deploy.runtime._operations import Operations

MAX_MEMORY = 512
"""Most numbers that a step may remember."""
MAX_LAYERS = 2
"""Most hidden layers of a network."""
BEATS = 32_767
"""Largest value of the heartbeat, which then begins again at one."""
FALLBACK = "fallback_used"
SECTIONS = ("inputs", "controller", "fallback", "supervision", "guard", "report")
STOPPED = (".supervisor.tripped", ".supervisor.latched", ".supervisor.stopped")
BENDING = frozenset({"abs", "cos", "exp", "limit", "max", "min", "select", "sin", "sqrt"})
"""Operations on a row that make a layer of a product."""
NOBODY = -1
"""Memory of who acted last if neither policy nor fallback did."""


class Variable(NamedTuple):
    """An input, an output or a part of the memory.

    Attributes:
        name: Its name, valid in every language.
        kind: ``"real"``, ``"int"``, ``"bool"`` or ``"word"``.
        initial: Its value before the first step.
        words: What it is, for a comment.
    """

    name: str
    kind: str
    initial: Any
    words: str


class Form(NamedTuple):
    """A guarded step.

    Attributes:
        name: A name, valid in every language.
        nodes: All nodes; a node comes after those that it takes.
        tables: Matrices of layers, each of shape ``(inputs, outputs)``.
        inputs: Variables that are read only.
        outputs: Variables of the answer, each with its node.
        memory: Variables that one step leaves for the next, each with its next value.
        sections: For every node, its index in :data:`SECTIONS`.
        seal: The digest of the bundle's manifest that its programs carry.
        digest: Digest of the bundle.
        dt: Period of a step in seconds.
        words: Sentences about each section.
    """

    name: str
    nodes: tuple[Entry, ...]
    tables: tuple[np.ndarray, ...]
    inputs: tuple[Variable, ...]
    outputs: tuple[tuple[Variable, Node], ...]
    memory: tuple[tuple[Variable, Node], ...]
    sections: tuple[int, ...]
    seal: str
    digest: str
    dt: float
    words: dict[str, tuple[str, ...]]


def form_of(bundle: Bundle) -> Form:
    """The form of a bundle's guarded step.

    Args:
        bundle: A verified bundle with the NumPy form.

    Raises:
        NoFormError: If the step holds something that a controller cannot compute; it is named.
        BundleError: If the bundle has no list of operations.
    """
    manifest, (listed, initial) = bundle.manifest, sealed_operations(bundle)
    try:
        drafted = _settled(manifest, listed, initial)
        layers = hidden_layers(drafted.graph.nodes)
        if layers > MAX_LAYERS:
            raise NoFormError(f"a network of {layers} hidden layers (at most {MAX_LAYERS})")
    except NoFormError as error:
        raise NoFormError(f"{bundle.path} has no form for a controller: {error}") from error
    graph = drafted.graph
    return Form(
        name=word(f"neorl_{bundle.path.stem}"),
        nodes=tuple(graph.nodes),
        tables=tuple(graph.tables),
        inputs=tuple(drafted.inputs),
        outputs=tuple(drafted.outputs),
        memory=tuple(drafted.used_memory()),
        sections=_sections(graph, drafted),
        seal=seal(manifest.document),
        digest=bundle.digest,
        dt=manifest.dt,
        words=_words(manifest),
    )


def _settled(manifest: Manifest, listed: Operations, initial: Sequence[Any]) -> _Draft:
    """A draft that uses what holds in every step, by induction.

    What no step changes is a constant. Numbers that are finite at first, and finite after a step if
    all of them were before, are finite for ever.
    """
    drafted = _Draft(manifest, listed, initial, {}, frozenset())
    unchanging = drafted.unchanging()
    finite = frozenset(
        name
        for name, (variable, _) in drafted.memory.items()
        if variable.kind == "real" and np.isfinite(variable.initial)
    )
    while True:
        drafted = _Draft(manifest, listed, initial, unchanging, finite)
        ranges = drafted.graph.ranges
        held = frozenset(name for name in finite if ranges[drafted.memory[name][1]].finite)
        if held == finite:
            return drafted
        finite = held


def operations_of(form: Form) -> int:
    """Operations on single numbers in one step, which is the same number in every step."""
    count = 0
    for node in reached(form.nodes, [node for _, node in (*form.outputs, *form.memory)]):
        entry = form.nodes[node]
        if entry.op == "dot":
            count += 2 * form.tables[entry.value].size
        elif entry.op not in ("read", "constant", "index", "pack"):
            count += max(entry.width, 1)
    return count


def hidden_layers(nodes: Sequence[Entry]) -> int:
    """Hidden layers of a network: products with a matrix, one after another, less the last.

    Products count as one where no :data:`BENDING` lies between them: an observer has several.
    """
    straight, bent = [0] * len(nodes), [0] * len(nodes)
    layers = 0
    for node, entry in enumerate(nodes):
        straight[node] = max((straight[arg] for arg in entry.args), default=0)
        bent[node] = max((bent[arg] for arg in entry.args), default=0)
        if entry.op == "dot":
            straight[node] = max(straight[node], bent[node] + 1)
            layers = max(layers, straight[node])
        elif entry.width and entry.op in BENDING:
            straight[node], bent[node] = 0, max(straight[node], bent[node])
    return max(layers - 1, 0)


def reached(nodes: Sequence[Entry], roots: Sequence[Node]) -> list[Node]:
    """The nodes that the given ones need, themselves included, in order."""
    needed, left = set(), list(roots)
    while left:
        node = left.pop()
        if node not in needed:
            needed.add(node)
            left += nodes[node].args
    return sorted(needed)


class _Draft:
    """Inputs, outputs and memory of a bundle, with names for people."""

    def __init__(
        self,
        manifest: Manifest,
        listed: Operations,
        initial: Sequence[Any],
        unchanging: dict[str, Any],
        finite: frozenset[str],
    ) -> None:
        self.graph = Graph()
        self.manifest, self.inputs = manifest, []
        self.memory: dict[str, tuple[Variable, Node]] = {}
        self._unchanging, self._finite = unchanging, finite
        n_carry, unchanged = len(initial), []
        for i in range(n_carry):
            from_outside = manifest.carry[i].name in STOPPED
            unchanged.append(listed.outputs[i] == i and not from_outside)
        hands = self._hands()
        given: list[Any] = []
        for entry, start, fixed in zip(manifest.carry, initial, unchanged, strict=True):
            given.append(self._constant(start) if fixed else self._memory(entry, start, *hands))
        given += [self._signals("in", manifest.obs), self._signals("sent", manifest.action)]
        results = lower(self.graph, listed, given)
        for entry, result, fixed in zip(manifest.carry, results, unchanged, strict=False):
            if not fixed:
                self._remember(entry, result)
        self.outputs: list[tuple[Variable, Node]] = []
        self._answer(*(results[n_carry + i] for i in (0, 1, 4)))
        self._require_different_names()

    def _require_different_names(self) -> None:
        given = [*self.inputs, *(v for v, _ in self.outputs), *(v for v, _ in self.memory.values())]
        seen: set[str] = set()
        for variable in given:
            if variable.name.lower() in seen:  # structured text does not know capital letters
                raise NoFormError(
                    f"two of its channels would both be called {variable.name}; rename one"
                )
            seen.add(variable.name.lower())

    def unchanging(self) -> dict[str, Any]:
        """The parts of the memory that every step leaves at their initial value."""
        return {
            name: variable.initial
            for name, (variable, node) in self.memory.items()
            if self.graph.value(node) is not None
            and repr(self.graph.value(node)) == repr(variable.initial)
        }

    def used_memory(self) -> Iterator[tuple[Variable, Node]]:
        """The parts of the memory that an output needs, now or in a later step."""
        roots, count = [node for _, node in self.outputs], -1
        used: dict[str, tuple[Variable, Node]] = {}
        while count != len(used):
            count = len(used)
            needed = reached(self.graph.nodes, [*roots, *(node for _, node in used.values())])
            read = {self.graph.nodes[n].value for n in needed if self.graph.nodes[n].op == "read"}
            used = {name: self.memory[name] for name in self.memory if name in read}
        if len(used) > MAX_MEMORY:
            raise NoFormError(f"it remembers {len(used)} numbers (at most {MAX_MEMORY})")
        yield from used.values()

    def _input(self, name: str, kind: str, initial: Any, words: str) -> Node:
        self.inputs.append(Variable(name, kind, initial, words))
        return self.graph.read(name, kind)

    def _own(self, name: str, kind: str, initial: Any, words: str) -> Node:
        known = name in self._unchanging
        node = (
            self.graph.constant(initial)
            if known
            else self.graph.read(name, kind, finite=name in self._finite)
        )
        self.memory[name] = Variable(name, kind, initial, words), node
        return node

    def _hands(self) -> tuple[Node, Node, Node]:
        """What persons do: stop, release on its rising edge, and whether another took over."""
        add = self.graph.add
        stop = self._input("stop", "bool", False, "emergency stop: the fallback acts")
        release = self._input("release", "bool", False, "rising edge: ends a stop or a latch")
        over = self._input("taking_over", "bool", False, "another controller acted until now")
        before = self._own("m_release", "bool", False, "release in the last step")
        self.memory["m_release"] = self.memory["m_release"][0], release
        edge = add("and", release, add("not", before))
        return stop, add("and", edge, add("not", stop)), over

    def _memory(
        self, entry: ArrayEntry, start: Any, stop: Node, release: Node, over: Node
    ) -> np.ndarray:
        add, constant = self.graph.add, self.graph.constant
        out = np.empty(entry.shape, object)
        for at in np.ndindex(entry.shape):
            name, value = self._name(entry, at), np.asarray(start)[at]
            if entry.dtype == "uint32":
                out[at] = self._bits(entry, name, int(value))
                continue
            kind = {"float32": "real", "int32": "int", "bool": "bool"}.get(entry.dtype)
            if kind is None:
                raise NoFormError(f"it remembers numbers of type {entry.dtype}")
            first = True if entry.name in STOPPED else value.item()
            node = self._own(name, kind, first, entry.name.lstrip("."))
            if entry.name in STOPPED:
                node = add("or", stop, add("and", node, add("not", release)))
                if entry.name == ".supervisor.tripped":
                    node = add("or", stop, self.memory[name][1])
            elif entry.name == ".supervisor.trips":
                node = add("select", release, node, constant(0))
            elif entry.name == ".acted":
                node = add("select", over, node, constant(NOBODY))
            out[at] = node
        return out

    def _bits(self, entry: ArrayEntry, name: str, value: int) -> Bits:
        names = self.manifest.document["flags"] if entry.name == ".report.flags" else {}
        known = {flag: label for label, flag in names.items()}
        bits = {}
        for bit in range(32):
            label = f"{name}_{known.get(1 << bit, bit)}"
            bits[bit] = self._own(label, "bool", bool(value >> bit & 1), "in the last step")
        return Bits(bits)

    def _remember(self, entry: ArrayEntry, result: Any) -> None:
        names = self.manifest.document["flags"] if entry.name == ".report.flags" else {}
        known = {flag: label for label, flag in names.items()}
        for at in np.ndindex(entry.shape):
            name, node = self._name(entry, at), result[at]
            if not isinstance(node, Bits):
                self.memory[name] = self.memory[name][0], node
                continue
            for bit in range(32):
                label = f"{name}_{known.get(1 << bit, bit)}"
                following = node.bits.get(bit, self.graph.false)
                self.memory[label] = self.memory[label][0], following

    def _name(self, entry: ArrayEntry, at: tuple[int, ...]) -> str:
        channels = [channel.name for channel in self.manifest.action]
        places = [str(i + 1) for i in at]
        if entry.shape == (len(channels),):
            places = [channels[at[0]]]
        return word("_".join(["m", entry.name, *places]))

    def _constant(self, array: np.ndarray) -> np.ndarray:
        out = np.empty(np.shape(array), object)
        for at in np.ndindex(np.shape(array)):
            out[at] = self.graph.constant(np.asarray(array)[at].item())
        return out

    def _signals(self, prefix: str, channels: Sequence[Any]) -> np.ndarray:
        """Channels with their quality; one that is not good is unknown."""
        lost, nodes = self.graph.constant(float("nan")), []
        for channel in channels:
            what = "measured" if prefix == "in" else "what the plant received last, read back"
            name, span = word(f"{prefix}_{channel.name}"), f"{channel.low:g} to {channel.high:g}"
            oldest = self.manifest.max_age.get(channel.name) if prefix == "in" else None
            words = f"{channel.name}, {channel.unit or '1'}, {what}, {span}"
            quality = "" if oldest is None else f"; FALSE if older than {oldest:g} s"
            value = self._input(name, "real", 0.0, words)
            good = self._input(f"{name}_ok", "bool", prefix == "in", f"quality of {name}{quality}")
            nodes.append(self.graph.add("select", good, lost, value))
        out = np.empty(len(nodes), object)
        out[:] = nodes
        return out

    def _answer(self, action: Any, flags: Any, alarms: Any) -> None:
        graph, document = self.graph, self.manifest.document
        for channel, node in zip(self.manifest.action, action, strict=True):
            words = f"{channel.name}, {channel.unit or '1'}, {channel.low:g} to {channel.high:g}"
            self.outputs.append((Variable(word(f"out_{channel.name}"), "real", 0.0, words), node))
        bits = flags[()].bits
        place = int(document["flags"][FALLBACK]).bit_length() - 1
        on_fallback = Variable("on_fallback", "bool", True, "the fallback acts")
        self.outputs.append((on_fallback, bits.get(place, graph.false)))
        for name, bits_of, words in (
            ("flags", flags, "why: a sum of the numbers under Report"),
            ("alarms", alarms, "monitors that alarm: likewise"),
        ):
            set_bits = sorted(bits_of[()].bits.items())
            self.outputs.append((Variable(name, "word", 0, words), graph.word(set_bits)))
        beat = self._own("m_heartbeat", "int", 0, "heartbeat in the last step")
        one = graph.constant(1)
        following = graph.add(
            "select", graph.add("ge", beat, graph.constant(BEATS)), graph.add("add", beat, one), one
        )
        self.memory["m_heartbeat"] = self.memory["m_heartbeat"][0], following
        self.outputs.append((Variable("heartbeat", "int", 0, "rises in every step"), following))


def _sections(graph: Graph, draft: _Draft) -> tuple[int, ...]:
    """The section of every node, derived from the memory that it reads and what it leads to."""
    acts = _led_to(graph, [node for v, node in draft.outputs if v.name.startswith("out_")])
    roots = [n for name, (_, n) in draft.memory.items() if name.startswith("m_supervisor")]
    watches = _led_to(graph, roots)
    groups: list[frozenset[str]] = []
    sections: list[int] = []
    for node, entry in enumerate(graph.nodes):
        own = {_group(entry)} if entry.op in ("read", "dot") else set()
        group = frozenset(own.union(*(groups[n] for n in entry.args)))
        groups.append(group)
        if group <= {"signal"}:
            section = "inputs"
        elif group <= {"signal", "policy", "acted"}:
            section = "controller"
        elif group <= {"signal", "fallback", "acted"}:
            section = "fallback"
        elif node in watches and entry.kind in ("bool", "int"):
            section = "supervision"
        else:
            section = "guard" if node in acts else "report"
        place = SECTIONS.index(section)
        sections.append(max([place, *(sections[n] for n in entry.args)]))
    return tuple(sections)


def _led_to(graph: Graph, roots: Sequence[Node]) -> frozenset[Node]:
    return frozenset(reached(graph.nodes, roots))


def _group(entry: Entry) -> str:
    name = str(entry.value)
    if entry.op == "dot" or name.startswith("m_policy"):
        return "policy"
    if name.startswith(("in_", "sent_")):
        return "signal"
    if name.startswith("m_fallback"):
        return "fallback"
    return "acted" if name in ("m_acted", "taking_over") else "guard"


def _words(manifest: Manifest) -> dict[str, tuple[str, ...]]:
    document = manifest.document
    provenance = document["provenance"]
    monitors = {one["name"]: 1 << i for i, one in enumerate(document["guard"]["monitors"])}
    controllers = {
        section: tuple(filter(None, (provenance[part]["kind"], provenance[part].get("words", ""))))
        for section, part in (("controller", "policy"), ("fallback", "fallback"))
    }
    return {
        "inputs": ("a lost or bad signal is unknown (NaN) from here on",),
        **controllers,
        "supervision": tuple(document["guard"]["words"]),
        "guard": tuple(document["constraint_words"]),
        "report": (
            f"flags is the sum of {_bits(document['flags'])}",
            f"alarms is the sum of {_bits(monitors)}",
        ),
    }


def _bits(values: dict[str, int]) -> str:
    ordered = sorted(values.items(), key=lambda item: item[1])
    return ", ".join(f"{value} {name}" for name, value in ordered) or "nothing"


def word(text: str) -> str:
    """A name that every language allows: letters, digits and single underscores."""
    return re.sub(r"_+", "_", re.sub(r"\W", "_", text, flags=re.ASCII)).strip("_")


class Evaluation:
    """A form that is computed here, number by number, in one precision.

    Args:
        form: The form.
        dtype: ``np.float32`` or ``np.float64``.
    """

    def __init__(self, form: Form, dtype: Any = np.float32) -> None:
        self._form, self._dtype = form, dtype
        self._needed = reached(form.nodes, [n for _, n in (*form.outputs, *form.memory)])
        self._tables = [table.astype(dtype) for table in form.tables]
        self.memory = {variable.name: variable.initial for variable, _ in form.memory}

    def step(self, **inputs: Any) -> dict[str, Any]:
        """One step; an input that is not named has its initial value.

        Returns:
            The outputs by name; :attr:`memory` then holds what is remembered.
        """
        given = {variable.name: variable.initial for variable in self._form.inputs}
        given |= self.memory | inputs
        values: dict[Node, Any] = {}
        with np.errstate(all="ignore"):
            for node in self._needed:
                values[node] = self._value(self._form.nodes[node], values, given)
        self.memory = {variable.name: values[node] for variable, node in self._form.memory}
        return {variable.name: values[node] for variable, node in self._form.outputs}

    def _value(self, entry: Entry, values: dict[Node, Any], given: dict[str, Any]) -> Any:
        args, real = [values[node] for node in entry.args], self._dtype
        if entry.op == "read":
            return real(given[entry.value]) if entry.kind == "real" else given[entry.value]
        if entry.op == "constant":
            if entry.kind != "real":
                return entry.value
            return np.array(entry.value, real) if entry.width else number(entry.value, real)
        if entry.op == "dot":
            return args[0] @ self._tables[entry.value]
        if entry.op == "index":
            return args[0][entry.value]
        if entry.op == "pack":
            return np.array(args)
        if entry.op == "word":
            return sum(1 << bit for bit, held in zip(entry.value, args, strict=True) if held)
        if entry.op == "to_real":
            return real(args[0])
        return COMPUTED[entry.op](*args)


COMPUTED: dict[str, Any] = {
    **FOLDED,
    "and": np.logical_and,
    "limit": lambda x, low, high: low if x < low else high if x > high else x,
    "not": np.logical_not,
    "or": np.logical_or,
    "select": lambda which, no, yes: (
        np.where(which, yes, no) if np.ndim(which) else (yes if which else no)
    ),
    "total": np.sum,
}
