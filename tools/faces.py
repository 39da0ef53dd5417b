"""Check that tests and tools import the packages by their public names, not from private modules.

Usage:
    python tools/faces.py          exit 1 and name every import that the list does not know
    python tools/faces.py --write  take entries off the list that nothing needs any more

The rule: a name with a leading underscore belongs to the folder that holds it, as does a name that
a namespace of one file leaves out of its `__all__`. Tests and tools import the faces of rooms; a
file then moves freely, for nobody but its own room names it. A face offers what other rooms need.

- The tests of a package stand in it, and import the public modules of its private rooms as well,
  such as `neorl_train._job.run`. The tests and tools at the top stand outside of all packages.
- The tests of a room may open a private module of that room, and a study what it measures, where
  `tests/gates/private_imports.txt` names it, one file and module a line. The list only shrinks.
- The entry points of commands, `neorl_*._command.main`, stand in every `pyproject.toml`: free.
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
    unlisted = names_left_out(root)
    return {
        f"{file} {module}"
        for place in PLACES
        for file in (path.relative_to(root).as_posix() for path in root.glob(place))
        for module in _imported(ast.parse((root / file).read_text(encoding="utf-8")))
        if module in unlisted or (_is_private(module) and not _is_open_to(file, module))
    }


def names_left_out(root: Path) -> set[str]:
    """The functions and classes of public files that are not in the `__all__` of their file."""
    found = set()
    for source in root.glob("packages/*/src"):
        for file in source.rglob("*.py"):
            name = ".".join(file.relative_to(source).with_suffix("").parts)
            tree = ast.parse(file.read_text(encoding="utf-8"))
            assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
            lists = [one.value for one in assigned if ast.unparse(one.targets[0]) == "__all__"]
            if file.name == "__init__.py" or not lists:
                continue
            defined = {getattr(node, "name", "") for node in tree.body}
            defined |= {ast.unparse(one.targets[0]) for one in assigned}
            found |= {f"{name}.{one}" for one in defined - {*ast.literal_eval(lists[0])}}
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    """The full name of everything that a file imports; for a private file of a room, the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inside = node.module.split(".")[2:]
            if any(part.startswith("_") for part in inside):
                yield node.module
            else:  # a name may be a private module, or private itself
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_private(module: str) -> bool:
    package, *parts = module.split(".")
    if parts[:2] == ["_command", "main"]:
        return any(part.startswith("_") for part in parts[2:])
    return package.startswith("neorl_") and any(part.startswith("_") for part in parts)


def _is_open_to(file: str, module: str) -> bool:
    """Whether a public module of a private room is imported by a test of the same package."""
    package, _, *inside = module.split(".")
    own = file.startswith(f"packages/{package.replace('_', '-')}/tests/")
    return own and not any(part.startswith("_") for part in inside)


def _may_be_listed(line: str) -> bool:
    """Whether an import is one of a test of the room itself, or of a study."""
    file, _, module = line.partition(" ")
    package, room, *_ = module.split(".")
    own = f"packages/{package.replace('_', '-')}/tests/{room.removeprefix('_')}/"
    return file.startswith((own, "tools/studies/"))


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
    foreign = {line for line in listed if not _may_be_listed(line)}
    for line in sorted(foreign):
        print(f"{LIST} names {line}, which is another room: import its face, or test through that")
    for line in sorted(present - listed):
        file, _, module = line.partition(" ")
        print(f"{file} imports {module}: take it from the face of its room, or test through that")
    for line in sorted(listed - present):
        print(f"{LIST} still names {line}: python tools/faces.py --write")
    return int(bool(foreign) or present != listed)


if __name__ == "__main__":
    sys.exit(main())
