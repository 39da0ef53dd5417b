"""Name the public names of a package that no code of the workspace uses: what is library alone.

Usage:
    python tools/callers.py                 every namespace of neorl-core
    python tools/callers.py --package safety

A name counts as used where a module other than its own, index or test kit of any package imports or
reads it. It is a look by name: what is found through a registry or `getattr` is missed, and a name
that two things share counts for both. A name without a caller is no fault: core is a library.
"""

import argparse
import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def readers(root: Path) -> dict[str, set[Path]]:
    """The modules of all packages that import or read each name; indexes and test kits aside."""
    reading: dict[str, set[Path]] = defaultdict(set)
    for path in root.glob("packages/*/src/*/**/*.py"):
        if path.name == "__init__.py" or "testing" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.Attribute):
                names = [node.attr]
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                names = [node.id]
            else:
                continue
            for name in names:
                reading[name].add(path)
    return reading


def exported(index: Path) -> dict[str, Path]:
    """The names that a namespace takes from its modules, and the module of each.

    The names of a namespace that is one file are those of its ``__all__``.
    """
    tree = ast.parse(index.read_text())
    if index.name != "__init__.py":
        lists = [
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ]
        return {name: index for names in lists for name in ast.literal_eval(names)}
    source, package = index.parents[2], index.parents[1].name
    return {
        alias.asname or alias.name: source / f"{node.module.replace('.', '/')}.py"
        for node in ast.walk(tree)  # also below `if TYPE_CHECKING`
        if isinstance(node, ast.ImportFrom) and node.module
        if node.module.startswith(f"{package}.{index.parent.name}.")
        for alias in node.names
    }


def without_a_caller(root: Path, package: str) -> dict[str, tuple[int, list[str]]]:
    """For every namespace: how many names it has, and those that no module but their own uses."""
    known, rows = readers(root), {}
    place = root / f"packages/neorl-{package}/src/neorl_{package}"
    for index in sorted([*place.glob("[!_]*/__init__.py"), *place.glob("[!_]*.py")]):
        namespace = index.parent.name if index.name == "__init__.py" else index.stem
        names = exported(index)
        alone = sorted(name for name, module in names.items() if not known[name] - {module})
        if namespace != "testing":
            rows[namespace] = len(names), alone
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Name public names that no package calls.")
    parser.add_argument("--package", default="core", help="without `neorl-` (default: core)")
    rows = without_a_caller(ROOT, parser.parse_args(arguments).package)
    for namespace, (count, alone) in rows.items():
        print(f"{namespace}: {len(alone)} of {count}", *alone, sep="\n  ")
    print(f"in all {sum(len(a) for _, a in rows.values())} of {sum(n for n, _ in rows.values())}")


if __name__ == "__main__":
    main()
