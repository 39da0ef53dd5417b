"""Check that code is not written twice, and name files and functions that are long.

Usage:
    python tools/sizes.py           exit 1 and name what is over the budget
    python tools/sizes.py --table   print the figures of every package as well

At most 5 % of the windows of six code lines (comments, docstrings, imports and blank lines aside)
stand in more than one file: of the tree as a whole, and of every folder of a package among its own
files. Of the learners, which are easily copied from each other, at most 3 %.

A file of more than 600 lines (an `__init__.py`, which is an index, and rows of a table of laws,
`table_*.py`, aside) and a function of more than 70 (docstring aside) are warnings and no faults:
one that holds one idea and reads from top to bottom is better long than cut to a number.
"""

import argparse
import ast
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES, FUNCTION_LINES, WINDOW, REPEATED = 600, 70, 6, 0.05
REPEATED_IN = {"packages/neorl-agents/src/neorl_agents/algorithms": 0.03}


def source_files(root: Path) -> list[Path]:
    """The code of the packages and of the tools; oracles run once, elsewhere."""
    scripts = [path for path in root.glob("tools/**/*.py") if "oracles" not in path.parts]
    return sorted([*root.glob("packages/*/src/**/*.py"), *scripts])


def test_files(root: Path) -> list[Path]:
    """The tests, of which long files are named; tables are as long as they are."""
    files = [*root.glob("packages/*/tests/**/*.py"), *root.glob("tests/**/*.py")]
    return sorted(path for path in files if not path.name.startswith("table_"))


def functions(tree: ast.AST) -> Iterator[tuple[str, int, int]]:
    """Name, first line and number of lines of every function, docstring aside."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node, clean=False)
            prose = documented.count("\n") + 1 if documented else 0
            yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1 - prose


def code_lines(text: str) -> list[str]:
    """The lines that say something: no comments, docstrings, imports or blank lines."""
    tree = ast.parse(text)
    silent: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            silent.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    numbered = enumerate(text.splitlines(), 1)
    lines = [line.strip() for number, line in numbered if number not in silent]
    return [line for line in lines if line and not line.startswith("#")]


def repeated_windows(files: list[Path]) -> tuple[float, list[tuple[Path, Path, str]]]:
    """Fraction of six-line windows that stand in another file too, and one example per pair."""
    owners: dict[tuple[str, ...], set[Path]] = defaultdict(set)
    windows: dict[Path, list[tuple[str, ...]]] = {}
    for file in files:
        lines = code_lines(file.read_text())
        windows[file] = [tuple(lines[i : i + WINDOW]) for i in range(len(lines) - WINDOW + 1)]
        for window in windows[file]:
            owners[window].add(file)
    total = sum(len(of_file) for of_file in windows.values())
    twice = sum(len(owners[w]) > 1 for of_file in windows.values() for w in of_file)
    pairs: dict[tuple[Path, Path], str] = {}
    for window, files_with in owners.items():
        first, *rest = sorted(files_with)
        for other in rest:
            pairs.setdefault((first, other), window[0])
    return twice / max(total, 1), [(*pair, line) for pair, line in sorted(pairs.items())]


def faults(root: Path) -> list[str]:
    """One line for everything that is over a budget."""
    messages: list[str] = []
    places: dict[str, list[Path]] = {"": source_files(root)}
    for file in root.glob("packages/*/src/**/*.py"):
        places.setdefault(file.parent.relative_to(root).as_posix(), []).append(file)
    for place, files in sorted(places.items()):
        messages += repetition(root, place, sorted(files))
    return messages


def warnings(root: Path) -> list[str]:
    """One line for every long file and function, which someone may want to look at again."""
    lengths = {file: file.read_text().count("\n") for file in source_files(root) + test_files(root)}
    return [
        f"warning: {file.relative_to(root)}: {lines} lines, more than {FILE_LINES}"
        for file, lines in lengths.items()
        if lines > FILE_LINES and file.name != "__init__.py"
    ] + [
        f"warning: {file.relative_to(root)}:{first}: {name} has {lines} lines, more than "
        f"{FUNCTION_LINES}"
        for file in source_files(root)
        for name, first, lines in functions(ast.parse(file.read_text()))
        if lines > FUNCTION_LINES
    ]


def repetition(root: Path, place: str, files: list[Path]) -> list[str]:
    """One line for a place in which too much is written twice, and one for every pair of files."""
    limit = REPEATED_IN.get(place, REPEATED)
    fraction, pairs = repeated_windows(files)
    if fraction <= limit:
        return []
    where = f"{place}: " if place else ""
    head = f"{where}{fraction:.1%} of six-line windows are repeated, at most {limit:.0%}:"
    return [
        head,
        *(
            f"  {one.relative_to(root)} and {two.relative_to(root)}: {line}"
            for one, two, line in pairs
        ),
    ]


def table(root: Path) -> str:
    """Files, lines, median file and median function of every package, and the repeated fraction."""
    rows = [f"{'':14}{'files':>6}{'lines':>7}{'median file':>13}{'median function':>17}"]
    for folder in [*sorted(root.glob("packages/*")), root / "tools"]:
        files = [file for file in source_files(root) if folder in file.parents]
        sizes = [len(file.read_text().splitlines()) for file in files]
        lengths = [n for file in files for *_, n in functions(ast.parse(file.read_text()))]
        medians = [statistics.median(values or [0]) for values in (sizes, lengths)]
        row = f"{folder.name:14}{len(files):6}{sum(sizes):7}{medians[0]:13.0f}{medians[1]:17.0f}"
        rows.append(row)
    return "\n".join([*rows, f"repeated: {repeated_windows(source_files(root))[0]:.1%}"])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check that code is not written twice.")
    parser.add_argument("--table", action="store_true", help="print the figures as well")
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    options = parser.parse_args(arguments)
    if options.table:
        print(table(options.root))
    messages = faults(options.root)
    for line in warnings(options.root):
        print(line)
    print("\n".join(messages) if messages else "sizes: code is not written twice")
    return int(bool(messages))


if __name__ == "__main__":
    sys.exit(main())
