"""Prints a form as one function block in structured text, IEC 61131-3.

The block uses standard functions only (``SEL``, ``LIMIT``, ``MAX``, ``MIN``, ``ABS``, ``EXP`` and
the like), loops of a fixed number of turns, and memory of a fixed size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

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


def structured_text(form: Form, *, long: bool = False) -> str:
    """A form as the text of one function block.

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
    ).splitlines()
    comment = ["(* " + head[0], *(f"   {line}".rstrip() for line in head[1:])]
    return "\n".join(
        [
            *comment[:-1],
            comment[-1] + " *)",
            f"FUNCTION_BLOCK {form.name}",
            *_declarations(form, real, body),
            "",
            *_beginning(form, real),
            *(line for text in body.statements for line in wrapped(text)),
            "END_FUNCTION_BLOCK",
            "",
        ]
    )


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
        literal=lambda entry: _literal(entry, real),
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


def _declarations(form: Form, real: str, body: Body) -> Iterator[str]:
    kinds = types(real)

    def declared(variables: Sequence[Variable]) -> Iterator[str]:
        for variable in variables:
            value = f" := {initial(variable, real)}"
            yield f"  {variable.name} : {kinds[variable.kind]}{value}; {_comment(variable.words)}"

    yield from ("VAR_INPUT", *declared(form.inputs), "END_VAR")
    yield from ("VAR_OUTPUT", *declared([variable for variable, _ in form.outputs]), "END_VAR")
    yield from ("VAR", "  (* memory: what one step leaves for the next *)")
    yield from declared([variable for variable, _ in form.memory])
    yield from ("  started : BOOL := FALSE;", "  (* values within a step *)")
    by_type: dict[str, list[str]] = {"INT": ["i", "j"], real: ["infinite", "unknown"]}
    for local in body.local:
        width = f"ARRAY[0..{local.width - 1}] OF " if local.width else ""
        by_type.setdefault(f"{width}{kinds[local.kind]}", []).append(local.name)
    for kind, names in by_type.items():
        yield from wrapped(f"  {', '.join(names)} : {kind};")
    yield from ("END_VAR", "VAR CONSTANT")
    yield f"  seal : STRING := '{form.seal}';"
    largest = _literal(Entry("constant", (), "real", 0, BEYOND), real)
    yield f"  largest : {real} := {largest}; (* numbers beyond it count as infinite *)"
    for name, values in body.tables.items():
        row = ", ".join(_literal(Entry("constant", (), "real", 0, value), real) for value in values)
        yield from wrapped(f"  {name} : ARRAY[0..{len(values) - 1}] OF {real} := [{row}];")
    yield "END_VAR"


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
