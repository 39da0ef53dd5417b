"""Check that tests and tools import the packages by their public names, not from private modules.

Usage:
    python tools/faces.py          exit 1 and name every import that the list does not know
    python tools/faces.py --write  take entries off the list that nothing needs any more

A module is private if a part of its name begins with an underscore. A file moves freely while
nobody but its own room names it, so a test takes what the room's face exports and reaches the rest
through that. `tests/gates/private_imports.txt` lists the imports that were there when the rule
came, one file and module a line; the list only shrinks. The entry points of commands,
`neorl_*._command.main`, stand in every `pyproject.toml` and are free.
"""

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = "tests/gates/private_imports.txt"
PLACES = ("packages/*/tests/**/*.py", "tests/**/*.py", "tools/**/*.py")


def private_imports(root: Path) -> set[str]:
    """The file and the private module of every such import, as lines of the list."""
    return {
        f"{file.relative_to(root).as_posix()} {module}"
        for place in PLACES
        for file in root.glob(place)
        for module in _imported(ast.parse(file.read_text(encoding="utf-8")))
        if _is_private(module)
    }


def _imported(tree: ast.Module) -> Iterator[str]:
    """Every module or name that a file imports, with its full name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # A private name counts as well as a private module, such as `from neorl_x import _y`.
            private = [alias.name for alias in node.names if alias.name.startswith("_")]
            yield from (f"{node.module}.{name}" for name in private)
            yield from [] if len(private) == len(node.names) else [node.module]


def _is_private(module: str) -> bool:
    package, *parts = module.split(".")
    if parts[:2] == ["_command", "main"]:
        return any(part.startswith("_") for part in parts[2:])
    return package.startswith("neorl_") and any(part.startswith("_") for part in parts)


def known(root: Path) -> set[str]:
    """The lines of the list."""
    return set((root / LIST).read_text(encoding="utf-8").splitlines())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="take what is gone off the list")
    options = parser.parse_args(arguments)
    present, listed = private_imports(ROOT), known(ROOT)
    if options.write:
        (ROOT / LIST).write_text("".join(f"{line}\n" for line in sorted(listed & present)))
        listed &= present
    for line in sorted(present - listed):
        file, _, module = line.partition(" ")
        print(f"{file} imports {module}: take it from the face of its room, or test through that")
    for line in sorted(listed - present):
        print(f"{LIST} still names {line}: python tools/faces.py --write")
    return int(present != listed)


if __name__ == "__main__":
    sys.exit(main())
