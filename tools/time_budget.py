"""Compare what the tests of every package cost with the budget in tests/time_budget.toml.

Usage:
    python tools/time_budget.py tests.xml

The file is one of `python -m hatch test` with `--junitxml`. Two figures are checked, and neither
depends on how busy or how old the machine is: the programs that the tests compiled (or would have,
had they not been on disk), and their processor time, in seconds of a machine that does the
reference piece of work of tests/support/workspace_plugin.py in its stated time. Exit code 1: over
the budget by more than the stated slack. The most memory that any process had is printed.
"""

import argparse
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

BUDGET = Path(__file__).resolve().parent.parent / "tests" / "time_budget.toml"
SLACK = 2.0
"""How far over its budget a package may be: a busy machine takes more processor seconds."""

MOST_MEGABYTES = 3_000
"""What a process of the tests may take, so that two of them fit on a small machine."""


class Cost(NamedTuple):
    """What the tests of one package cost.

    Attributes:
        tests: Number of tests.
        compilations: Programs that were compiled, or read from disk instead.
        seconds: Processor seconds, of child processes too.
    """

    tests: int = 0
    compilations: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":  # type: ignore[override]
        return Cost(
            self.tests + other.tests,
            self.compilations + other.compilations,
            self.seconds + other.seconds,
        )


def costs(file: Path) -> dict[str, Cost]:
    """The cost of every package, and of the workspace's own tests as ``workspace``.

    Raises:
        ValueError: If a test lacks its cost.
    """
    total: dict[str, Cost] = defaultdict(Cost)
    for case in ElementTree.parse(file).getroot().iter("testcase"):
        words = (case.get("classname") or "").split(".")
        package = words[1].removeprefix("neorl-") if words[0] == "packages" else "workspace"
        properties = {p.get("name"): p.get("value") for p in case.iter("property")}
        if case.find("skipped") is None and "compilations" not in properties:
            raise ValueError(
                f"{file}: {case.get('name')} lacks its cost; run it from the root of the checkout"
            )
        one = (
            int(properties.get("compilations") or 0),
            float(properties.get("processor_seconds") or 0),
        )
        total[package] += Cost(1, *one)
    return dict(total)


def overruns(spent: dict[str, Cost], budget: dict[str, dict[str, float]]) -> list[str]:
    """One sentence per package and figure that is over the budget, or has none."""
    messages = []
    for package, cost in sorted(spent.items()):
        limits = budget.get(package)
        if limits is None:
            messages.append(f"{package} has no budget in {BUDGET.name}")
            continue
        for name in ("compilations", "seconds"):
            value, limit = getattr(cost, name), limits[name]
            if value > SLACK * limit:
                messages.append(
                    f"{package}: {value:.0f} {name}, far over the budget of {limit:.0f}; share "
                    "compilations, mark what is rare or long as nightly, or raise the budget"
                )
    return messages


def table(spent: dict[str, Cost], budget: dict[str, dict[str, float]]) -> str:
    """Cost and budget, one line per package."""
    lines = [f"{'':10s} {'tests':>6s} {'compilations':>18s} {'processor seconds':>18s}"]
    for package, cost in sorted(spent.items(), key=lambda item: -item[1].seconds):
        limits = budget.get(package, {})
        figures = (
            f"{value:8.0f} of {limits.get(name, 0):6.0f}"
            for name, value in (("compilations", cost.compilations), ("seconds", cost.seconds))
        )
        lines.append(f"{package:10s} {cost.tests:6d} {' '.join(figures)}")
    whole = sum(spent.values(), Cost())
    lines.append(f"{'in all':10s} {whole.tests:6d} {whole.compilations:8d} {whole.seconds:19.0f}")
    return "\n".join(lines)


def memory(file: Path) -> str:
    """The most memory that a process of the tests had, and the test by whose end it had it."""
    peaks = [
        (int(p.get("value") or 0), f"{case.get('classname')}::{case.get('name')}")
        for case in ElementTree.parse(file).getroot().iter("testcase")
        for p in case.iter("property")
        if p.get("name") == "peak_megabytes"
    ]
    most, test = max(peaks, key=lambda peak: peak[0], default=(0, "no test"))
    return f"most memory of a process: {most} of {MOST_MEGABYTES} MB, by the end of {test}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compare the cost of the tests with the budget.")
    parser.add_argument("file", type=Path, help="written by pytest --junitxml")
    file = parser.parse_args(arguments).file
    if not file.is_file():
        print(f"{file}: no such file; did the tests run?", file=sys.stderr)
        return 2
    budget = tomllib.loads(BUDGET.read_text())
    spent = costs(file)
    print(table(spent, budget))
    print(memory(file))
    over = overruns(spent, budget)
    for sentence in over:
        print(sentence, file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
