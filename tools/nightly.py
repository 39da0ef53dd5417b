"""Run the nightly tests in pieces, and keep a table of what each of them gave.

Usage:
    python -m hatch run tests:nightly                     what has no row, failed, or is out of date
    python -m hatch run tests:nightly --missing           what has no row, and the cases that failed
    python -m hatch run tests:nightly packages/neorl-core what stands below a path
    python -m hatch run tests:nightly --minutes 60        begins nothing after an hour
    python -m hatch run tests:nightly --list              prints what would run, and runs nothing

One piece is one file. The table, tests/gates/nightly.csv, has a line for each test function: its
identifier, the commit, seconds of clock of all its cases together, and the result. It is written
after every function, so an interrupted run loses only the one that was running; start the command
again to continue. With ``--missing`` the cases of a test that passed are not run again, and its row
keeps the commit at which all of them were run. A row is out of date if a file under
``packages/*/src`` differs between its commit and today's; a release refuses such rows.

Some tests have environments of their own, because what they need is large or has narrow bounds.
They run there, through the program ``hatch``, which must be on the path.
"""

import argparse
import csv
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = Path(__file__).resolve()
TABLE = ROOT / "tests" / "gates" / "nightly.csv"
SOURCES = ":(glob)packages/*/src/**"
LONGEST = 3 * 3600
"""Seconds after which a process is stopped."""
CASES = 200
"""Most cases in one process: a process that dies loses these alone, and memory is given back."""
LINES = 200
"""Lines of a failed process that are printed, which is enough for the trace of a crash."""

ENVIRONMENTS = {
    "packages/neorl-train/tests/command/test_open_in_browser.py": "site",
    "packages/neorl-train/tests/studies/test_cluster.py": "cluster",
    "packages/neorl-train/tests/federation/test_flower.py": "flower",
    "packages/neorl-train/tests/runs/test_tracking.py::test_a_real_server": "mlflow-server",
    "packages/neorl-deploy/tests/mlflow_model": "mlflow-model",
    "tests/installs": "installs",
    "tests/pages/test_browser.py": "site",
}
"""Environment of the tests whose identifier begins so."""


class Row(NamedTuple):
    """One line of the table: the result of the last run of a test.

    Attributes:
        test: Identifier of the test function, as pytest prints it.
        commit: Commit of the checkout; followed by ``+`` if tracked files had been changed.
        cases: How many cases it has.
        seconds: Clock seconds of all cases with their set-ups.
        result: ``passed``, ``failed: cases``, or ``skipped: why`` if all cases were skipped.
    """

    test: str
    commit: str
    cases: str
    seconds: str
    result: str


def read_table(file: Path = TABLE) -> dict[str, Row]:
    """The rows by test; empty where there is no table."""
    if not file.is_file():
        return {}
    with file.open(newline="") as lines:
        return {row["test"]: Row(**row) for row in csv.DictReader(lines)}


def write_table(rows: Iterable[Row], file: Path = TABLE) -> None:
    """Writes the table, sorted by test; an interruption leaves the old one."""
    temporary = file.with_suffix(".tmp")
    with temporary.open("w", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(sorted(rows))
    os.replace(temporary, file)


def nightly_tests(paths: Sequence[str] = ()) -> dict[str, list[str]]:
    """Every nightly test function, or those below some paths, with its cases.

    Raises:
        RuntimeError: If the tests cannot be collected.
    """
    words = [
        "--nightly",
        "-m",
        "nightly",
        "--collect-only",
        "-q",
        *(paths or ("packages", "tests")),
    ]
    environment = {**os.environ, "NEORL_INSTALLS": "1", "PYTEST_ADDOPTS": ""}
    process = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode not in (0, 5):
        raise RuntimeError(f"the tests cannot be collected:\n{process.stdout[-3000:]}")
    tests: dict[str, list[str]] = {}
    for line in process.stdout.splitlines():
        if "::" in line:
            tests.setdefault(line.partition("[")[0], []).append(line)
    return tests


def commit() -> str:
    """Today's commit, with ``+`` if tracked files differ from it; the table does not count."""
    lines = _git("status", "--porcelain", "--untracked-files=no").splitlines()
    changed = [line for line in lines if not line.endswith(TABLE.name)]
    return _git("rev-parse", "--short=10", "HEAD").strip() + ("+" if changed else "")


def fault(row: Row | None, unchanged: set[str]) -> str:
    """Why a row does not hold today, or nothing.

    Args:
        row: Row of the test, if it has one.
        unchanged: Commits whose sources are those of today, as of :func:`unchanged_commits`.
    """
    if row is None:
        return "never run"
    if row.result != "passed" and not row.result.startswith("skipped"):
        return row.result
    return "" if row.commit in unchanged else f"run at {row.commit}, and sources changed since"


def unchanged_commits(rows: Iterable[Row]) -> set[str]:
    """The commits of some rows whose sources equal those of the checkout."""
    return {name for name in {row.commit for row in rows} if _is_unchanged(name)}


def faults(package: str, table: Path = TABLE) -> list[str]:
    """Why a release of a package must wait for the night, one sentence a test; or nothing.

    Args:
        package: Package such as ``neorl-core``; the rows of its tests and of the workspace's count.
        table: The table of results.
    """
    ours = (f"packages/{package}/", "tests/")
    rows = [row for row in read_table(table).values() if row.test.startswith(ours)]
    if not any(row.test.startswith(ours[0]) for row in rows):
        return [f"{table.name} has no row of {package}; run `python -m hatch run tests:nightly`"]
    unchanged = unchanged_commits(rows)
    reasons = ((row.test, fault(row, unchanged)) for row in rows)
    return [f"{test}: {reason}" for test, reason in reasons if reason]


def pieces(tests: Iterable[str]) -> dict[tuple[str, str], list[str]]:
    """Tests by environment and file; an empty name is the environment of the command."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for test in tests:
        own = (name for start, name in ENVIRONMENTS.items() if test.startswith(start))
        grouped.setdefault((next(own, ""), test.partition("::")[0]), []).append(test)
    return grouped


class Night:
    """The table while pieces run side by side.

    Attributes:
        rows: The rows by test.
        commit: Commit of the checkout that runs.
        tests: The cases of every test that are to run.
        kept: Rows of tests of which only the cases that failed are to run.
    """

    def __init__(self, tests: Mapping[str, Sequence[str]]) -> None:
        self.tests, self.commit, self.rows = dict(tests), commit(), read_table()
        self.kept: dict[str, Row] = {}
        self._lock = threading.Lock()

    def keep_passed_cases(self) -> None:
        """Of a test that failed only the cases that its row names are to run."""
        for test, row in self.rows.items():
            failed = row.result.removeprefix("failed: ").split(", ")
            if test in self.tests and set(failed) < set(self.tests[test]):
                self.kept[test], self.tests[test] = row, failed

    def note(self, test: str, cases: Sequence["Case"], why: str = "") -> None:
        """Stores the result of one test, and prints it.

        Args:
            test: The test function.
            cases: Its cases that ended.
            why: Why there are fewer of them than there should be.
        """
        failed = [case.name for case in cases if case.result == "failed"]
        skipped = {case.result for case in cases if case.result != "passed"}
        result = "passed"
        if failed or why:
            result = f"failed: {', '.join(failed) or why}"
        elif len(skipped) == 1 and all(case.result in skipped for case in cases):
            result = skipped.pop()
        seconds = sum(case.seconds for case in cases)
        row = Row(test, self.commit, str(len(self.tests[test])), f"{seconds:.1f}", result)
        if test in self.kept:
            row = self.kept[test]._replace(result=result)
        with self._lock:
            self.rows[test] = row
            write_table(self.rows.values())
            print(f"{seconds:8.1f} s  {row.cases:>4s}  {result[:60]:8s}  {test}", flush=True)

    def run(self, environment: str, tests: list[str]) -> None:
        """Runs one piece; what has no result by its end was stopped, or its process died."""
        python = [sys.executable]
        if environment:
            hatch = shutil.which("hatch")
            if hatch is None:
                print(f"not run: {tests[0]} and others need hatch on the path", flush=True)
                return
            python = [hatch, "run", f"{environment}:python"]
        cases = [case for test in tests for case in self.tests[test]]
        ended: dict[str, list[Case]] = {test: [] for test in tests}
        code = 0
        for first in range(0, len(cases), CASES):
            code = self._process(python, cases[first : first + CASES], ended) or code
        for test, of_test in ended.items():
            self.note(test, of_test, f"its process ended with {code} before all cases had run")

    def _process(self, python: list[str], cases: list[str], ended: dict[str, list["Case"]]) -> int:
        """Runs some cases in one process, and notes each test whose last case has ended.

        Args:
            python: How to start Python in the environment of the cases.
            cases: Identifiers of the cases.
            ended: By test the cases that have ended; a test that is noted is taken out.

        Returns:
            The exit status of the process.
        """
        # Versions that this environment is held to do not hold in one with other dependencies.
        held = ("UV_CONSTRAINT", "UV_BUILD_CONSTRAINT")
        environment = {name: value for name, value in os.environ.items() if name not in held}
        process = subprocess.Popen(
            [*python, str(SCRIPT), "--piece", *cases],
            cwd=ROOT,
            env={**environment, "PYTEST_ADDOPTS": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        end = threading.Timer(LONGEST, process.kill)
        end.start()
        last: deque[str] = deque(maxlen=LINES)
        with process:
            for line in process.stdout or ():
                if line.startswith(MARK):
                    case = Case.from_line(line)
                    test = case.name.partition("[")[0]
                    ended[test].append(case)
                    if len(ended[test]) == len(self.tests[test]):
                        self.note(test, ended.pop(test))
                else:
                    last.append(line)
        end.cancel()
        if process.returncode:
            print("".join(last), flush=True)
        return process.returncode


MARK = "nightly\t"


class Case(NamedTuple):
    """How one case of a test ended."""

    name: str
    seconds: float
    result: str

    @classmethod
    def from_line(cls, line: str) -> "Case":
        """The case of a line that :class:`_Printer` printed."""
        name, seconds, result = line[len(MARK) :].rstrip("\n").split("\t")
        return cls(name, float(seconds), result)


class _Printer:
    """A pytest plugin that prints a line for every test that ends."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.result: dict[str, str] = {}

    def pytest_runtest_logreport(self, report) -> None:
        test = report.nodeid
        self.seconds[test] = self.seconds.get(test, 0.0) + report.duration
        if report.failed:
            self.result[test] = "failed"
        elif report.skipped and not self.result.get(test):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "expected"
            self.result[test] = " ".join(f"skipped: {reason.removeprefix('Skipped: ')}".split())
        if report.when == "teardown":
            result = self.result.get(test, "passed")
            # With a newline before it, since pytest prints dots.
            print(f"\n{MARK}{test}\t{self.seconds[test]:.1f}\t{result}", flush=True)


def _run_piece(tests: list[str]) -> int:
    import pytest

    os.environ["NEORL_INSTALLS"] = "1"
    os.chdir(ROOT)
    # Without the captured log, of which a long test has more lines than are printed of a process.
    words = ["--nightly", "-m", "nightly", "-q", "--show-capture=no", *tests]
    return pytest.main(words, plugins=[_Printer()])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", help="folders or files of tests (all)")
    parser.add_argument("--missing", action="store_true", help="keep rows that are out of date")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing later")
    parser.add_argument("--workers", type=int, default=2, help="pieces side by side (2)")
    parser.add_argument("--list", action="store_true", help="print what would run")
    parser.add_argument("--piece", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.piece:
        return _run_piece(options.paths)
    tests = nightly_tests(options.paths)
    night = Night(tests)
    if not options.paths:
        night.rows = {test: row for test, row in night.rows.items() if test in tests}
    unchanged = unchanged_commits(night.rows.values())
    if options.missing:
        unchanged = {row.commit for row in night.rows.values()}
        night.keep_passed_cases()
    due = [test for test in tests if fault(night.rows.get(test), unchanged)]
    print(f"{len(tests)} nightly tests, {len(due)} of them to run, at commit {night.commit}")
    if options.list:
        print(*due, sep="\n")
        return 0
    _run_all(night, pieces(due), options.minutes, options.workers)
    unchanged.add(night.commit)
    failed = sorted(test for test in due if fault(night.rows.get(test), unchanged))
    print(f"{len(due) - len(failed)} of {len(due)} passed or were skipped")
    print(*failed, sep="\n")
    return 1 if failed else 0


def _run_all(
    night: Night, due: dict[tuple[str, str], list[str]], minutes: float, workers: int
) -> None:
    latest = time.monotonic() + 60 * minutes

    def one(piece: tuple[tuple[str, str], list[str]]) -> None:
        (environment, _), tests = piece
        if time.monotonic() < latest:
            night.run(environment, tests)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, due.items()))


def _is_unchanged(name: str) -> bool:
    words = ["git", "diff", "--quiet", name.rstrip("+"), "--", SOURCES]
    known = subprocess.run(words, cwd=ROOT, capture_output=True, check=False).returncode == 0
    return known and not name.endswith("+")


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
