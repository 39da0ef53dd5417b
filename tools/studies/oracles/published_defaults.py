"""Compare the table of published defaults with the scripts that it is made from.

Usage:
    python tools/studies/oracles/published_defaults.py corl=CLONE osrl=CLONE ...

Each CLONE is a git clone of the repository that ``published_defaults.toml`` names for the key; a
script is read at the commit that stands there. Sources without a clone are passed over and named.
Defaults are read from the syntax tree, so nothing is run or installed: of ``add_argument``, of
``DEFINE_*``, of the fields of configuration classes, and of ``ConfigDict`` and ``dict``. The exit
code is 1 if an argument of the table is missing in its script or has another value there.
"""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "packages/neorl-agents/tests/algorithms/fixtures/published_defaults.toml"


def main() -> None:
    clones = dict(word.split("=", 1) for word in sys.argv[1:])
    if not clones or clones.keys() & {"-h", "--help"}:
        raise SystemExit(__doc__)
    table, faults = tomllib.loads(TABLE.read_text()), 0
    for name, learner in table["learners"].items():
        key = learner["source"]
        if key not in clones:
            print(f"{name}: not compared, because there is no clone of {key}")
            continue
        published: dict[str, Any] = {}
        for file in filter(None, (learner["file"], learner.get("config"))):
            place = f"{table['sources'][key]['commit']}:{file}"
            command = ["git", "-C", clones[key], "show", place]
            script = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            for argument, value in defaults(ast.parse(script)):
                published.setdefault(argument, value)
        for argument, value, *_ in learner["arguments"]:
            there = published.get(argument, "not there")
            if there != value:
                faults += 1
                print(f"{name}: {argument} is {value!r} here, and {there!r} in {learner['file']}")
        print(f"{name}: {len(learner['arguments'])} arguments compared")
    raise SystemExit(faults > 0)


def defaults(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """Arguments of a script with their defaults; the first of a name is the one that holds."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [(ast.unparse(call.func).rpartition(".")[2], call) for call in calls]
    for function, call in named:
        if function == "add_argument":
            yield plain(call.args[0]).lstrip("-"), plain(_keyword(call, "default"))
        elif function.startswith("DEFINE_") and len(call.args) > 1:
            yield plain(call.args[0]), plain(call.args[1])
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name.lower().endswith(("config", "args")):
            yield from _fields(node)
    for function, call in named:
        if function in ("dict", "ConfigDict"):
            yield from ((str(keyword.arg), plain(keyword.value)) for keyword in call.keywords)
            mappings = [value for value in call.args if isinstance(value, ast.Dict)]
            yield from (
                (plain(key), plain(value))
                for mapping in mappings
                for key, value in zip(mapping.keys, mapping.values, strict=True)
            )
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            yield ast.unparse(node.targets[0]), plain(node.value)


def _fields(configuration: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    for field in configuration.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            value = field.value
            if isinstance(value, ast.Call):  # of dataclasses.field
                value = _keyword(value, "default") or value
            yield field.target.id, plain(value)


def _keyword(call: ast.Call, name: str) -> ast.AST | None:
    return next((one.value for one in call.keywords if one.arg == name), None)


def plain(node: ast.AST | None) -> Any:
    """A literal as the table writes it, or the source of an expression."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "int":
        number = plain(node.args[0])
        return int(number) if isinstance(number, float) else ast.unparse(node)
    try:
        value = None if node is None else ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)
    return "none" if value is None else _lists(value)


def _lists(value: Any) -> Any:
    """Tuples as lists, at every depth, because TOML has no tuples."""
    return [_lists(one) for one in value] if isinstance(value, (list, tuple)) else value


if __name__ == "__main__":
    main()
