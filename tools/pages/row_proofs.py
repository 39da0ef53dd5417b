"""The rows of the acceptance list and the tests that prove them, from the markers of docstrings.

A test proves a row if its docstring has a sentence that begins with ``Row N04:``. The record beside
the gates keeps which data every such test reads: names of plants and logs, files with their
digests, and stored results, which are measured again, without. The gate fails if a row has no test,
or a test reads other data than was recorded.

Usage:
    python tools/pages/row_proofs.py record  write the record anew, after the change was reviewed
"""

import ast
import csv
import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "tests/gates/row_proofs.csv"
GROUPS = {
    "N": ("Offline learning in industry", 37),
    "P": ("Graphs and federation", 13),
    "S": ("Several players", 15),
    "R": ("The published benchmark", 8),
    "E": ("Parts of the ecosystem", 8),
}
"""Title and number of rows of every letter."""
MARKER = re.compile(r"Row ([NPSRE]\d\d): (.+?)(?=\s*Row [NPSRE]\d\d:|\n\s*\n|$)", re.DOTALL)
NAME = re.compile(r"\w+-v\d+(-\w+)*")
STORED = {"benchmark": "results/{}.json", "stored": "{}"}
"""The functions that read a stored result, and which file their arguments name."""
SUFFIXES = (".json", ".jsonl", ".toml", ".csv", ".npz", ".gz", ".h5", ".hdf5")


class Proof(NamedTuple):
    """A marked test.

    Attributes:
        row: Identifier of the row, such as ``N04``.
        says: What the docstring says is proven.
        test: Path and name of the test.
        nightly: Whether it runs by night only.
        data: The data that it names, files with their digests but for stored results.
    """

    row: str
    says: str
    test: str
    nightly: bool
    data: str


def all_rows() -> list[str]:
    """The identifiers of all rows, in order."""
    return [f"{letter}{i:02d}" for letter, (_, n) in GROUPS.items() for i in range(1, n + 1)]


def proofs() -> list[Proof]:
    """Every marked test, by row and then by path."""
    paths = [*ROOT.glob("packages/*/tests/**/*.py"), *ROOT.glob("tests/**/*.py")]
    found = [proof for path in sorted(paths) for proof in _proofs_in(path)]
    return sorted(found, key=lambda proof: (all_rows().index(proof.row), proof.test))


def _proofs_in(path: Path) -> Iterator[Proof]:
    text = path.read_text(encoding="utf-8")
    if not MARKER.search(text):
        return
    tree = ast.parse(text)
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            markers = MARKER.findall(ast.get_docstring(node) or "")
            where = f"{path.relative_to(ROOT).as_posix()}::{node.name}"
            nightly = any("nightly" in ast.unparse(mark) for mark in node.decorator_list)
            data = _data(path, node, constants) if markers else ""
            for row, says in markers:
                yield Proof(row, " ".join(says.split()), where, nightly, data)


def _data(path: Path, test: ast.FunctionDef, constants: dict[str, ast.expr]) -> str:
    """Names of plants and logs, and files, in a test and the constants of its module it uses."""
    used = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    trees = [test, *(value for name, value in constants.items() if name in used)]
    words = {
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    entries = {word for word in words if NAME.fullmatch(word)}
    for call in (node for node in ast.walk(test) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Name) and call.func.id in STORED:
            parts = [part.value for part in call.args if isinstance(part, ast.Constant)]
            entries.add(STORED[call.func.id].format("/".join(map(str, parts))))
    for word in words:
        if word.endswith(SUFFIXES) and "\n" not in word:
            places = [place / word for place in (path.parent, path.parent / "fixtures", ROOT)]
            file = next((place for place in places if place.is_file()), None)
            if file is not None:
                digest = hashlib.sha256(file.read_bytes()).hexdigest()[:12]
                entries.add(f"{file.relative_to(ROOT).as_posix()} {digest}")
    return "; ".join(sorted(entries))


def recorded() -> list[tuple[str, str, str]]:
    """Row, test and data as they were recorded."""
    with RECORD.open(newline="", encoding="utf-8") as file:
        return [(line["row"], line["test"], line["data"]) for line in csv.DictReader(file)]


def faults() -> list[str]:
    """What is wrong with the proofs, one sentence each; empty if nothing is."""
    now = {(proof.row, proof.test): proof.data for proof in proofs()}
    then = {(row, test): data for row, test, data in recorded()}
    proven = {row for row, _ in now}
    sentences = [f"row {row} has no test" for row in all_rows() if row not in proven]
    for (row, test), data in then.items():
        if (row, test) not in now:
            sentences.append(f"row {row}: {test} is gone, or lost its marker")
        elif now[row, test] != data:
            sentences.append(
                f"row {row}: {test} read {data or 'no data'}, and reads "
                f"{now[row, test] or 'none'} now"
            )
    new = [f"row {row}: {test} is not recorded" for row, test in now if (row, test) not in then]
    return sentences + new


def table() -> str:
    """The page's tables, one for each letter.

    Raises:
        ValueError: If a row has no test, or a test reads other data than was recorded.
    """
    wrong = faults()
    if wrong:
        raise ValueError(
            f"{'; '.join(wrong)}; review the change, then run `python tools/pages/row_proofs.py "
            "record`"
        )
    by_row: dict[str, list[Proof]] = {}
    for proof in proofs():
        by_row.setdefault(proof.row, []).append(proof)
    parts = []
    for letter, (title, _) in GROUPS.items():
        lines = [f"## {title}", "", "| Row | What is tested | Test | When |", "|---|---|---|---|"]
        for row in filter(lambda row: row[0] == letter, all_rows()):
            for proof in by_row[row]:
                says = proof.says.replace("|", "\\|")
                when = "by night" if proof.nightly else "by day"
                lines.append(f"| {row} | {says} | `{proof.test.split('/')[-1]}` | {when} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def write_record() -> None:
    """Writes the record of all marked tests and their data."""
    with RECORD.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("row", "test", "data"))
        writer.writerows((proof.row, proof.test, proof.data) for proof in proofs())


if __name__ == "__main__":
    if sys.argv[1:] != ["record"]:
        sys.exit(__doc__)
    write_record()
