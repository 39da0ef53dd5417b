"""Store how long the tests take, and compare a run with what the daily tests may cost.

Usage:
    python -m hatch run tests:record              measures all tests, then the daily ones
    python tools/test_times.py tests.xml          writes tests/gates/durations.json from such a file
    python tools/test_times.py --raise daily.xml  takes the larger of stored and measured
    python tools/test_times.py --check daily.xml  compares with tests/gates/time_budget.toml

The files are JUnit files of the tests, written with ``--junitxml``. A duration is processor time,
of child processes too, in seconds of a machine that does the reference piece of work of
tests/support/workspace_plugin.py in its stated time, so it hardly depends on how busy or how old
the machine is. What several tests share is set up by one of them and stored apart. Among fewer
tests a test may compile what another one had compiled before: hence the second measurement, of the
daily tests alone.

Exit code 1 of ``--check``: a package takes more than its budget and the stated slack, or a process
takes too much memory.
"""

import argparse
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
import daily_set

SHORTEST = 0.05
"""Seconds below which a test is not stored: it is cheap, whatever it takes exactly."""

SLACK = 2.0
"""How far over its budget a measured package may be: a busy machine takes more processor time."""

MOST_MEGABYTES = 3_000
"""What a process of the tests may take, so that two of them fit on a small machine."""


class Measured(NamedTuple):
    """What one test took.

    Attributes:
        test: Its identifier.
        seconds: Processor seconds, without set-ups that other tests share.
        setups: Seconds of such set-ups that it made, by their name.
        compilations: Programs that it compiled, or read from disk.
        megabytes: The most memory that its process had had by its end.
    """

    test: str
    seconds: float
    setups: dict[str, float]
    compilations: int
    megabytes: int


def measured(file: Path) -> list[Measured]:
    """Every test of a JUnit file that was not skipped before it began.

    Raises:
        ValueError: If a test that ran lacks its cost.
    """
    tests = []
    for case in ElementTree.parse(file).getroot().iter("testcase"):
        values = {str(p.get("name")): str(p.get("value")) for p in case.iter("property")}
        if "test" in values:
            start = daily_set.SETUP
            shared = {
                k.removeprefix(start): float(v) for k, v in values.items() if k.startswith(start)
            }
            counts = int(values["compilations"]), int(values["peak_megabytes"])
            seconds = float(values["processor_seconds"])
            tests.append(Measured(values["test"], seconds, shared, *counts))
        elif case.find("skipped") is None:
            raise ValueError(f"{file}: {case.get('name')} lacks its cost; it did not finish")
    return tests


def recorded(tests: list[Measured], before: Mapping[str, Any]) -> dict[str, Any]:
    """What the file of durations holds after a run, each at least as long as in ``before``."""
    stored = {name: dict(of_file) for name, of_file in before["tests"].items()}
    setups = dict(before["setups"])
    for test in tests:
        path, _, name = test.test.partition("::")
        if test.seconds >= SHORTEST:
            of_file = stored.setdefault(path, {})
            of_file[name] = max(round(test.seconds, 2), of_file.get(name, 0.0))
        for key, seconds in test.setups.items():
            if seconds >= SHORTEST:
                setups[key] = max(round(seconds, 2), setups.get(key, 0.0))
    return {"tests": stored, "setups": setups, "chosen": before["chosen"]}


def spent(tests: list[Measured]) -> dict[str, tuple[int, int, float]]:
    """Number of tests, programs and processor seconds of every package."""
    total: dict[str, tuple[int, int, float]] = {}
    for test in tests:
        package = daily_set.package_of(test.test)
        count, programs, seconds = total.get(package, (0, 0, 0.0))
        seconds += test.seconds + sum(test.setups.values())
        total[package] = count + 1, programs + test.compilations, seconds
    return total


def check(tests: list[Measured], budget: Mapping[str, float]) -> list[str]:
    """Prints the cost of every package beside its budget, and returns what exceeds it."""
    total = spent(tests)
    print(f"{'':10s} {'tests':>6s} {'programs':>9s}  processor seconds")
    for package, (count, programs, seconds) in sorted(total.items(), key=lambda row: -row[1][2]):
        limit = budget.get(package, 0)
        print(f"{package:10s} {count:6d} {programs:9d}  {seconds:7.1f} of {limit:4.0f}")
    columns = list(zip(*total.values(), strict=True)) or [(), (), ()]
    count, programs, seconds = (sum(column) for column in columns)
    print(f"{'in all':10s} {count:6d} {programs:9d}  {seconds:7.1f} of {sum(budget.values()):4.0f}")
    most = max(tests, key=lambda test: test.megabytes, default=Measured("no test", 0, {}, 0, 0))
    memory = f"{most.megabytes} of {MOST_MEGABYTES} MB, by the end of {most.test}"
    print(f"most memory of a process: {memory}")
    over = [
        f"{package}: {seconds:.0f} seconds, far over the budget of {budget.get(package, 0):.0f}; "
        "make tests cheaper, or let fewer be daily"
        for package, (_, _, seconds) in sorted(total.items())
        if seconds > SLACK * budget.get(package, 0)
    ]
    return over + ([f"too much memory: {memory}"] if most.megabytes > MOST_MEGABYTES else [])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="written by pytest --junitxml")
    parser.add_argument("--raise", action="store_true", dest="larger", help="never store less")
    parser.add_argument("--check", action="store_true", help="compare with the budget")
    options = parser.parse_args(arguments)
    if not options.file.is_file():
        print(f"{options.file}: no such file; did the tests run?", file=sys.stderr)
        return 2
    tests = measured(options.file)
    if options.check:
        over = check(tests, daily_set.rule()["seconds"])
        print(*over, sep="\n", end="\n" if over else "", file=sys.stderr)
        return 1 if over else 0
    before = daily_set.stored()
    if not options.larger:
        before = {"tests": {}, "setups": {}, "chosen": before["chosen"]}
    daily_set.write(recorded(tests, before))
    print(f"wrote {daily_set.DURATIONS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
