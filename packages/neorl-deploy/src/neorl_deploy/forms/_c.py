"""Prints a form as C: a header and a source that need no library but ``math.h``.

All memory lies in one struct of fixed size. ``NAME_init`` sets it to what it is before the first
step, and ``NAME_step`` computes one period.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from neorl_deploy.forms._body import Language, body_of, wrapped
from neorl_deploy.forms._form import Form, Variable
from neorl_deploy.forms._graph import Entry, number

TYPES = {"real": "{real}", "int": "int32_t", "bool": "bool", "word": "uint32_t"}
OPERATIONS = {
    "abs": "fabs({0})",
    "add": "{0} + {1}",
    "and": "{0} && {1}",
    "cos": "cos({0})",
    "div": "{0} / {1}",
    "eq": "{0} == {1}",
    "exp": "exp({0})",
    "finite": "fabs({0}) <= LARGEST",
    "ge": "{0} >= {1}",
    "gt": "{0} > {1}",
    "le": "{0} <= {1}",
    "limit": "limit({0}, {1}, {2})",
    "log": "log({0})",
    "lt": "{0} < {1}",
    "max": "larger({0}, {1})",
    "min": "smaller({0}, {1})",
    "mul": "{0} * {1}",
    "ne": "{0} != {1}",
    "not": "!{0}",
    "or": "{0} || {1}",
    "select": "{0} ? {2} : {1}",
    "sin": "sin({0})",
    "sqrt": "sqrt({0})",
    "sub": "{0} - {1}",
    "to_real": "(real)({0})",
}
HELPERS = """\
#define LARGEST 3.4028234663852886e38{suffix} /* numbers beyond it count as infinite */
#define larger(a, b) ((a) > (b) ? (a) : (b))
#define smaller(a, b) ((a) < (b) ? (a) : (b))
static inline {real} limit({real} x, {real} low, {real} high) {{
  return x < low ? low : x > high ? high : x;
}}
"""
SINGLE = ("fabs", "cos", "exp", "log", "sin", "sqrt")
"""Functions of ``math.h`` with a version for single precision."""


def c_source(form: Form, *, double: bool = False) -> dict[str, str]:
    """The files of a form in C, ``NAME.h`` and ``NAME.c``.

    Args:
        form: The form.
        double: Whether to compute in double precision.
    """
    return {f"{form.name}.h": _header(form, double), f"{form.name}.c": _source(form, double)}


def _language(double: bool) -> Language:
    real = "double" if double else "float"
    operations = {
        name: pattern.replace("(real)", f"({real})") for name, pattern in OPERATIONS.items()
    }
    if not double:
        for name, pattern in operations.items():
            for function in SINGLE:
                if pattern.startswith(f"{function}("):
                    operations[name] = pattern.replace(f"{function}(", f"{function}f(")
    return Language(
        operations=operations,
        literal=lambda entry: _literal(entry, double),
        variable=lambda role, name: (
            f"{ {'input': 'in', 'output': 'out', 'memory': 'm'}[role] }->{name}"
        ),
        assign=lambda name, text: f"{name} = {text};",
        loop=_loop,
        comment=lambda text: f"/* {text.replace('*/', '* /')} */",
        word=_word,
    )


def _literal(entry: Entry, double: bool) -> str:
    if entry.kind == "bool":
        return "true" if entry.value else "false"
    if entry.kind == "int":
        return str(entry.value)
    value = number(entry.value, np.float64 if double else np.float32)
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = repr(float(value)) if double else f"{np.float32(value)!s}"
    return (text if any(c in text for c in ".e") else f"{text}.0") + ("" if double else "f")


def _word(pairs: Sequence[tuple[int, str]]) -> str:
    parts = [f"({text} ? 0x{1 << bit:x}u : 0u)" for bit, text in pairs]
    return " | ".join(parts) or "0u"


def _loop(index: str, count: int, statements: list[str]) -> list[str]:
    head = f"for (int {index} = 0; {index} < {count}; {index}++) {{"
    return [head, *(f"  {line}" for line in statements), "}"]


def _declared(variables: Sequence[Variable], double: bool) -> Iterator[str]:
    real = "double" if double else "float"
    for variable in variables:
        kind = TYPES[variable.kind].format(real=real)
        yield f"  {kind} {variable.name}; /* {variable.words.replace('*/', '* /')} */"


def _header(form: Form, double: bool) -> str:
    name, guard = form.name, f"{form.name.upper()}_H"
    structs = (
        ("inputs", form.inputs),
        ("outputs", [variable for variable, _ in form.outputs]),
        ("state", [variable for variable, _ in form.memory]),
    )
    lines = [
        f"/* A guarded step of {form.dt:g} s, printed from a bundle.",
        f"   Seal sha256:{form.seal}",
        f"   Bundle sha256:{form.digest} */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "#include <stdbool.h>",
        "#include <stdint.h>",
        "",
        f'#define {name.upper()}_SEAL "{form.seal}"',
        f"#define {name.upper()}_PERIOD {form.dt!r}",
    ]
    for label, variables in structs:
        lines += ["", "typedef struct {", *_declared(variables, double), f"}} {name}_{label};"]
    lines += [
        "",
        "/* Sets the inputs to their values without a plant: signals good, nothing read back. */",
        f"void {name}_default_inputs({name}_inputs *in);",
        "/* Before the first step; the block begins stopped, until release rises. */",
        f"void {name}_init({name}_state *m);",
        "/* One period. */",
        f"void {name}_step({name}_state *m, const {name}_inputs *in, {name}_outputs *out);",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _source(form: Form, double: bool) -> str:
    name, real = form.name, "double" if double else "float"
    body = body_of(form, _language(double))
    types = {kind: text.format(real=real) for kind, text in TYPES.items()}

    def initial(variable: Variable) -> str:
        kind = "int" if variable.kind == "word" else variable.kind
        return _literal(Entry("constant", (), kind, 0, variable.initial), double)

    lines = [
        f'#include "{name}.h"',
        "#include <math.h>",
        "",
        HELPERS.format(real=real, suffix="" if double else "f"),
    ]
    for table, values in body.tables.items():
        row = ", ".join(_literal(Entry("constant", (), "real", 0, v), double) for v in values)
        lines += wrapped(f"static const {real} {table}[{len(values)}] = {{{row}}};")
    for label, pointer, variables in (
        ("default_inputs", f"{name}_inputs *in", form.inputs),
        ("init", f"{name}_state *m", [variable for variable, _ in form.memory]),
    ):
        who = pointer.rsplit("*", 1)[1]
        lines += ["", f"void {name}_{label}({pointer}) {{"]
        lines += [f"  {who}->{v.name} = {initial(v)};" for v in variables]
        lines.append("}")
    lines += [
        "",
        f"void {name}_step({name}_state *m, const {name}_inputs *in, {name}_outputs *out) {{",
    ]
    by_type: dict[str, list[str]] = {}
    for one in body.local:
        by_type.setdefault(types[one.kind], []).append(
            f"{one.name}[{one.width}]" if one.width else one.name
        )
    for kind, names in by_type.items():
        lines += wrapped(f"  {kind} {', '.join(names)};")
    lines += [line for text in body.statements for line in wrapped(f"  {text}" if text else "")]
    return "\n".join([*lines, "}", ""])
