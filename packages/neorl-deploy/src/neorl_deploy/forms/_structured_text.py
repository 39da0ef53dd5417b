"""Prints a form as one function block in structured text, IEC 61131-3.

The block uses standard functions only (``SEL``, ``LIMIT``, ``MAX``, ``MIN``, ``ABS``, ``EXP`` and
the like), loops of a fixed number of turns, and memory of a fixed size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from neorl_deploy.forms._body import Body, Language, body_of, wrapped
from neorl_deploy.forms._form import Form, Variable, operations_of
from neorl_deploy.forms._graph import BEYOND, Entry, number

OPERATIONS = {
    "abs": "ABS({0})",
    "add": "{0} + {1}",
    "and": "{0} AND {1}",
    "cos": "COS({0})",
    "div": "{0} / {1}",
    "eq": "{0} = {1}",
    "exp": "EXP({0})",
    "finite": "ABS({0}) <= largest",
    "ge": "{0} >= {1}",
    "gt": "{0} > {1}",
    "le": "{0} <= {1}",
    "limit": "LIMIT({1}, {0}, {2})",
    "log": "LN({0})",
    "lt": "{0} < {1}",
    "max": "MAX({0}, {1})",
    "min": "MIN({0}, {1})",
    "mul": "{0} * {1}",
    "ne": "{0} <> {1}",
    "not": "NOT {0}",
    "or": "{0} OR {1}",
    "select": "SEL({0}, {1}, {2})",
    "sin": "SIN({0})",
    "sqrt": "SQRT({0})",
    "sub": "{0} - {1}",
    "to_real": "DINT_TO_{real}({0})",
}
HEAD = """\
{name}: one step of a guarded controller, printed from a sealed bundle of neorl.

Call this block once in every period of {dt:g} s, from a cyclic task or behind a timer. It computes
in {real}, with fixed loops and fixed memory: {count} operations in every step. Numbers must follow
IEEE 754: where the controller traps on NaN, this block cannot be used.

in_X       a measurement in its unit, and in_X_ok its quality (FALSE: lost)
sent_X     what the plant received last, read back, and sent_X_ok whether it was read
stop       emergency stop: the fallback acts until a person raises release
release    its rising edge ends a stop; the block begins stopped, so give it once at the start
taking_over  TRUE while another controller acts: both controllers track sent_X without a bump
out_X      what to send; finite for every input
on_fallback, flags, alarms  who acts and why; heartbeat rises in every step

seal sha256:{seal}
bundle sha256:{digest}"""


class Declared(NamedTuple):
    """A variable of a block, spelled in the language.

    Attributes:
        name: Its name.
        kind: Its type, or the type of one number of its row, such as ``"REAL"``.
        width: Length of its row; zero for a single value.
        values: Its initial values, one for each number; empty for a value within a step.
        words: What it is.
    """

    name: str
    kind: str
    width: int
    values: tuple[str, ...]
    words: str


class Declarations(NamedTuple):
    """Variables with one keyword, such as ``"VAR_INPUT"``, and what they have in common."""

    keyword: str
    note: str
    variables: tuple[Declared, ...]


class Block(NamedTuple):
    """A function block, before it is written as a text or as a document for import.

    Attributes:
        name: Its name.
        head: What it is and how it is connected, in lines.
        declarations: Its variables.
        statements: Lines of its body.
    """

    name: str
    head: str
    declarations: tuple[Declarations, ...]
    statements: tuple[str, ...]


def block_of(form: Form, *, long: bool = False) -> Block:
    """A form as a function block.

    Args:
        form: The form.
        long: Whether to compute in ``LREAL`` (double precision) instead of ``REAL``.
    """
    real = "LREAL" if long else "REAL"
    body = body_of(form, _language(real))
    head = HEAD.format(
        name=form.name,
        count=operations_of(form),
        dt=form.dt,
        real=real,
        seal=form.seal,
        digest=form.digest,
    )
    statements = (line for text in body.statements for line in wrapped(text))
    return Block(
        form.name,
        head,
        tuple(_declarations(form, real, body)),
        (*_beginning(form, real), *statements),
    )


def structured_text(form: Form, *, long: bool = False) -> str:
    """A form as the text of one function block.

    Args:
        form: The form.
        long: Whether to compute in ``LREAL`` (double precision) instead of ``REAL``.
    """
    block = block_of(form, long=long)
    first, *further = block.head.splitlines()
    comment = ["(* " + first, *(f"   {line}".rstrip() for line in further)]
    return "\n".join(
        [
            *comment[:-1],
            comment[-1] + " *)",
            f"FUNCTION_BLOCK {block.name}",
            *(line for group in block.declarations for line in _declared(group)),
            "",
            *block.statements,
            "END_FUNCTION_BLOCK",
            "",
        ]
    )


def _declared(group: Declarations) -> Iterator[str]:
    """The lines of a group; values within a step share a line with others of their type."""
    yield group.keyword
    if group.note:
        yield f"  {_comment(group.note)}"
    within: dict[str, list[str]] = {}
    for one in group.variables:
        kind = f"ARRAY[0..{one.width - 1}] OF {one.kind}" if one.width else one.kind
        if not one.values:
            within.setdefault(kind, []).append(one.name)
            continue
        value = f"[{', '.join(one.values)}]" if one.width else one.values[0]
        words = f" {_comment(one.words)}" if one.words else ""
        declared = f"  {one.name} : {kind} := {value};{words}"
        yield from wrapped(declared) if one.width else [declared]
    for kind, names in within.items():
        yield from wrapped(f"  {', '.join(names)} : {kind};")
    yield "END_VAR"


def types(real: str) -> dict[str, str]:
    """The language's name of every kind of variable."""
    return {"real": real, "int": "DINT", "bool": "BOOL", "word": "DWORD"}


def initial(variable: Variable, real: str) -> str:
    """Initial value of a variable; an unknown one is set by the first step."""
    if variable.kind == "real" and not math.isfinite(variable.initial):
        return "0.0"
    if variable.kind == "word":
        return f"DWORD#16#{variable.initial:X}"
    return _literal(Entry("constant", (), variable.kind, 0, variable.initial), real)


def _language(real: str) -> Language:
    return Language(
        operations={name: text.replace("{real}", real) for name, text in OPERATIONS.items()},
        literal=lambda entry: _typed(entry, real),
        variable=lambda role, name: name,
        assign=lambda name, text: f"{name} := {text};",
        loop=_loop,
        comment=_comment,
        word=_word,
    )


def _literal(entry: Entry, real: str) -> str:
    if entry.kind == "bool":
        return "TRUE" if entry.value else "FALSE"
    if entry.kind == "int":
        return str(entry.value)
    value = number(entry.value, np.float64 if real == "LREAL" else np.float32)
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    digits, _, exponent = str(value).partition("e")
    digits = digits if "." in digits else f"{digits}.0"
    return f"{digits}E{int(exponent):+03d}" if exponent else digits


def _typed(entry: Entry, real: str) -> str:
    """A literal with its type: without it, a compiler may compute in double precision."""
    text = _literal(entry, real)
    return f"{real}#{text}" if text.lstrip("-")[0].isdigit() and entry.kind == "real" else text


def _word(pairs: Sequence[tuple[int, str]]) -> str:
    parts = [f"SEL({text}, DWORD#16#0, DWORD#16#{1 << bit:X})" for bit, text in pairs]
    return " OR ".join(parts) or "DWORD#16#0"


def _loop(index: str, count: int, statements: list[str]) -> list[str]:
    return [
        f"FOR {index} := 0 TO {count - 1} DO",
        *(f"  {line}" for line in statements),
        "END_FOR;",
    ]


def _comment(text: str) -> str:
    return f"(* {text.replace('(*', '( *').replace('*)', '* )')} *)"


def _declarations(form: Form, real: str, body: Body) -> Iterator[Declarations]:
    kinds = types(real)

    def declared(variables: Sequence[Variable]) -> tuple[Declared, ...]:
        return tuple(
            Declared(one.name, kinds[one.kind], 0, (initial(one, real),), one.words)
            for one in variables
        )

    yield Declarations("VAR_INPUT", "", declared(form.inputs))
    yield Declarations("VAR_OUTPUT", "", declared([variable for variable, _ in form.outputs]))
    started = Variable("started", "bool", False, "whether there was a step before")
    memory = declared([*(variable for variable, _ in form.memory), started])
    yield Declarations("VAR", "memory: what one step leaves for the next", memory)
    within = [("i", "INT", 0), ("j", "INT", 0), ("infinite", real, 0), ("unknown", real, 0)]
    within += [(local.name, kinds[local.kind], local.width) for local in body.local]
    values = tuple(Declared(*one, (), "") for one in within)
    yield Declarations("VAR", "values within a step", values)
    largest = _literal(Entry("constant", (), "real", 0, BEYOND), real)
    constants = [
        Declared("seal", "STRING", 0, (f"'{form.seal}'",), ""),
        Declared("largest", real, 0, (largest,), "numbers beyond it count as infinite"),
    ]
    for name, row in body.tables.items():
        numbers = (_literal(Entry("constant", (), "real", 0, value), real) for value in row)
        constants.append(Declared(name, real, len(row), tuple(numbers), ""))
    yield Declarations("VAR CONSTANT", "", tuple(constants))


def _beginning(form: Form, real: str) -> Iterator[str]:
    yield _comment("Infinity and unknown (NaN) have no literal")
    yield "infinite := largest * largest;"
    if real == "LREAL":  # compilers may refuse a larger literal
        yield from ["infinite := infinite * infinite;"] * 4
    yield "unknown := infinite - infinite;"
    yield "IF NOT started THEN"
    yield "  started := TRUE;"
    for variable, _ in form.memory:
        if variable.kind == "real" and not math.isfinite(variable.initial):
            entry = Entry("constant", (), "real", 0, variable.initial)
            yield f"  {variable.name} := {_literal(entry, 'REAL')};"
    yield "END_IF;"
