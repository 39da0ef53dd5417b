"""Break the mathematics on purpose and count how often the tests notice.

Usage:
    python tools/mutation.py returns losses     run these namespaces (all without a name)
    python tools/mutation.py --report           print the last result
    python tools/mutation.py --show returns     print the survivors of a namespace, as differences

mutmut changes one operator, number or argument of a namespace of neorl-core at a time and tells
which tests reach the changed function, among those of the namespace (``tests/NAMESPACE``, its rows
of the table included) and the cross-cutting ones. These run, with Hypothesis' ``mutation`` profile,
in processes that live on from mutant to mutant (``tools/mutants/worker.py``). The result,
``.cache/mutation/results.json``, names every survivor; it is not committed, since it is of no other
tree than the one that was measured. ``tools/mutants/equivalent.toml`` lists the
mutants that no test can kill, each with the reason; the score leaves them out. The target is 90 %.
It takes about two seconds a mutant and core, so it is not part of ``.ci/run``; an interrupted
namespace goes on with ``--resume``, and after a change ``--since-last`` judges only what was not
killed before or now reads differently.

Needs ``mutmut==3.8.1`` beside ``neorl-core[testing]``.
"""

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "packages" / "neorl-core"
RECORDS = ROOT / "tools" / "mutants"
WORK = ROOT / ".cache" / "mutation"
TARGET = 0.9
STATUSES = "statuses.jsonl"


# Tests of all namespaces, next to those in the folder of a namespace.
CROSS_CUTTING = [
    "test_matrices_under_jit.py",
    "test_published_results.py",
    "test_traced_values.py",
    "test_integers.py",
]
OF_THE_TABLE = ["test_table.py"]


def groups() -> dict[str, Path]:
    """The folder of every namespace of core by the name of its tests' folder; the kit is left out.

    ``_vocabulary`` is tested in ``tests/vocabulary``, and so it is called.
    """
    folders = sorted(file.parent for file in (CORE / "src" / "neorl_core").glob("*/__init__.py"))
    return {folder.name.strip("_"): folder for folder in folders if folder.name != "testing"}


def tests_of(group: str) -> list[str]:
    """Files below ``tests`` that are to notice a change in a namespace."""
    own = sorted(path.name for path in (CORE / "tests" / group).glob("test_*.py"))
    table = OF_THE_TABLE if any((CORE / "tests" / group).glob("table_*.py")) else []
    return [*table, *CROSS_CUTTING, *(f"{group}/{name}" for name in own)]


SETTINGS = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = {modules}
track_dependencies = false
use_git_change_detection = false
pytest_add_cli_args = ["-p", "no:cacheprovider", "-W", "ignore",
    "-p", "clear_jax_caches", "-k", "not the_table and not of_an_export", "-m", "not nightly"]
pytest_add_cli_args_test_selection = {tests}

[tool.pytest.ini_options]
addopts = "--import-mode=importlib"
markers = ["slow: takes more than a few seconds", "nightly: rare or long"]
"""
PATIENCE = (60.0, 10.0)
"""Seconds that any mutant gets, and how often the time that its tests took before."""
LIFETIME = 100
"""Mutants that one process tries before it makes way for a new one."""
CHECKED = 10
"""Every so many, a kill is followed by the same tests on the original."""
CODES = {0: "survived", 1: "killed", 3: "killed"}


def prepare(group: str, *, since_last: bool = False) -> Path:
    """A copy of the package with mutmut's settings for one namespace.

    ``since_last`` takes over the kills of mutants whose function reads as it did in the last run.
    """
    last, folder = WORK / group, WORK / f"{group} in the making"
    before, judged = (texts(last), statuses(last)) if since_last else ({}, {})
    dead = {
        before[name] for name, status in judged.items() if status == "killed" and name in before
    }
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(CORE / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    # The table is that of the namespace alone.
    shutil.copytree(
        CORE / "tests",
        folder / "tests",
        ignore=lambda place, names: [
            name
            for name in names
            if name == "__pycache__" or (name.startswith("table_") and Path(place).name != group)
        ],
    )
    files = [str(file.relative_to(CORE)) for file in sorted(groups()[group].glob("*.py"))]
    tests = tests_of(group)
    settings = SETTINGS.format(
        modules=json.dumps(files), tests=json.dumps([f"tests/{name}" for name in tests])
    )
    (folder / "pyproject.toml").write_text(settings)
    mutmut(folder, "run", "none")
    with (folder / STATUSES).open("w") as record:
        for name, text in texts(folder).items():
            if text in dead:
                record.write(json.dumps([name, "killed"]) + "\n")
    shutil.rmtree(last, ignore_errors=True)
    return folder.rename(last)


def texts(folder: Path) -> dict[str, str]:
    """Mutant name to module and code of the changed function, without the mutant's number."""
    codes = {}
    source = folder / "mutants" / "src"
    for file in source.rglob("*.py"):
        module = ".".join(file.relative_to(source).with_suffix("").parts)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name[-1].isdigit():
                name, mark, _ = node.name.partition("__mutmut_")
                if mark:
                    full, node.name = f"{module}.{node.name}", name
                    codes[full] = f"{module}\n{ast.unparse(node)}"
    return codes


def variables() -> dict[str, str]:
    """The environment of everything that runs tests."""
    return {
        **os.environ,
        "NEORL_HYPOTHESIS_PROFILE": "mutation",
        "JAX_COMPILATION_CACHE_DIR": str(WORK / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": os.pathsep.join(["src", str(RECORDS)]),
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0",
    }


def mutmut(folder: Path, *arguments: str) -> str:
    """What mutmut prints. ``run none`` makes the mutants, and times the tests of each function."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    completed = subprocess.run(command, cwd=folder, env=variables(), text=True, capture_output=True)
    if completed.returncode and "nothing matches" not in completed.stderr:
        raise RuntimeError(
            f"mutmut {' '.join(arguments)} failed:\n{completed.stdout}\n{completed.stderr}"
        )
    return completed.stdout


def work(folder: Path) -> dict[str, tuple[float, list[str]]]:
    """For every mutant the seconds that its tests took before, and the tests, fastest first."""
    place = folder / "mutants"
    seen = json.loads((place / "mutmut-stats.json").read_text())
    durations = {}
    for file in sorted(place.rglob("*.meta")):
        for name in json.loads(file.read_text())["exit_code_by_key"]:
            tests = seen["tests_by_mangled_function_name"].get(name.partition("__mutmut_")[0], [])
            seconds = seen["duration_by_test"]
            tests = sorted(tests, key=lambda test: seconds[test])
            durations[name] = sum(seconds[test] for test in tests), tests
    return dict(sorted(durations.items(), key=lambda pair: pair[1][0]))


class Worker:
    """One process that runs the tests of one mutant after another."""

    def __init__(self, folder: Path, tests: list[str]) -> None:
        command = [sys.executable, str(RECORDS / "worker.py"), *tests]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, cwd=folder / "mutants", env=variables(), stdin=pipe, stdout=pipe, text=True
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.questions, self.answers = self.process.stdin, self.process.stdout
        self.tried, self.late = 0, False
        self.answer(PATIENCE[0] * 5)

    def answer(self, seconds: float) -> str:
        """The next line, or nothing if the process died or was killed for being late."""
        alarm = threading.Timer(seconds, self.kill)
        alarm.start()
        line = self.answers.readline()
        alarm.cancel()
        return line.strip()

    def kill(self) -> None:
        """Ends the process in the middle of a mutant."""
        self.late = True
        self.process.kill()

    def judge(self, mutant: str, tests: list[str], seconds: float) -> str:
        """What became of one mutant."""
        self.tried += 1
        self.questions.write(json.dumps([mutant, *tests]) + "\n")
        self.questions.flush()
        line = self.answer(PATIENCE[0] + PATIENCE[1] * seconds)
        if line:
            return CODES.get(int(line), f"exit code {line}")
        return "timeout" if self.late else "crashed"

    def check(self, tests: list[str], seconds: float) -> None:
        """The original must pass what has just failed: what a mutant left behind would kill all."""
        status = self.judge("", tests, seconds)
        if status != "survived":
            raise RuntimeError(f"without a mutant, {tests[0]} and its like end as {status}")

    @property
    def worn(self) -> bool:
        """Whether it is time for a new process."""
        return self.tried >= LIFETIME or self.process.poll() is not None


def execute(folder: Path, workers: int) -> None:
    """Judges every mutant that has no status yet, and prints how far it is."""
    todo, completed = work(folder), statuses(folder)
    tests = sorted({test.partition("::")[0] for _, names in todo.values() for test in names})
    queue = [name for name in reversed(todo) if name not in completed]
    lock, record = threading.Lock(), (folder / STATUSES).open("a")

    def serve(_: int) -> None:
        worker = None
        while True:
            with lock:
                if not queue:
                    break
                name = queue.pop()
            seconds, names = todo[name]
            status = "no tests"
            if names:
                if worker is None or worker.worn:
                    retire(worker)
                    worker = Worker(folder, tests)
                status = worker.judge(name, names, seconds)
                if status == "killed" and worker.tried % CHECKED == 0:
                    worker.check(names, seconds)
            with lock:
                completed[name] = status
                record.write(json.dumps([name, status]) + "\n")
                record.flush()
                killed = sum(one == "killed" for one in completed.values())
                print(f"\r{folder.name}: {len(completed)} of {len(todo)}, {killed} killed", end="")
                sys.stdout.flush()
        retire(worker)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(serve, range(workers)))
    print()


def retire(worker: Worker | None) -> None:
    """Ends a process, if there is one."""
    if worker is not None:
        worker.kill()


def statuses(folder: Path) -> dict[str, str]:
    """Mutant name to what became of it, so far."""
    file = folder / STATUSES
    return dict(map(json.loads, file.read_text().splitlines())) if file.exists() else {}


def changed_lines(folder: Path, mutant: str) -> str:
    """What the mutant changes: the removed and the added lines, without file names."""
    difference = mutmut(folder, "show", mutant).splitlines()
    marks = [line for line in difference if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return "\n".join(" ".join([line[0], line[1:].strip()]) for line in marks)


def function_of(mutant: str) -> str:
    """``neorl_core.targets._td.x_td_target__mutmut_3`` is a change of ``_td.td_target``."""
    module, _, name = mutant.removeprefix("neorl_core.").partition(".x")
    return f"{module}.{name.partition('__mutmut_')[0].strip('_ǁ').replace('ǁ', '.')}"


def equivalents() -> dict[tuple[str, str], str]:
    """(function, changed lines) of the mutants that compute the same, to the reason."""
    listed = tomllib.loads((RECORDS / "equivalent.toml").read_text())["mutant"]
    return {(entry["function"], entry["change"].strip()): entry["reason"] for entry in listed}


def result_of(group: str, folder: Path) -> dict:
    """Counts and survivors of a finished run."""
    reasons, survivors, same = equivalents(), [], 0
    outcomes = statuses(folder)
    for mutant, status in outcomes.items():
        if status == "killed":
            continue
        change, function = changed_lines(folder, mutant), function_of(mutant)
        if (function, change) in reasons:
            same += 1
        else:
            survivors.append({"function": function, "status": status, "change": change})
    counted = len(outcomes) - same
    return {
        "mutants": len(outcomes),
        "equivalent": same,
        "killed": counted - len(survivors),
        "score": round((counted - len(survivors)) / max(counted, 1), 4),
        "survivors": sorted(survivors, key=lambda entry: (entry["function"], entry["change"])),
    }


def report(results: dict[str, dict]) -> bool:
    """Prints one line per namespace; whether all reach the target."""
    print(f"{'namespace':<24}{'mutants':>9}{'equivalent':>12}{'killed':>8}{'score':>9}")
    for group, row in sorted(results.items()):
        counts = f"{row['mutants']:>9}{row['equivalent']:>12}{row['killed']:>8}"
        note = f"  {row['note']}" if "note" in row else ""
        print(f"{group:<24}{counts}{row['score']:>9.1%}{note}")
    return all(row["score"] >= TARGET for row in results.values())


def show(survivors: list[dict]) -> None:
    """Prints what was changed and not noticed."""
    for entry in survivors:
        print(f"\n{entry['function']} ({entry['status']})\n{entry['change']}")


def main(arguments: list[str] | None = None) -> int:
    """Runs namespaces and updates the record; exit code 1 if one misses the target."""
    available = groups()
    parser = argparse.ArgumentParser(description="Count how often the tests notice broken code.")
    parser.add_argument("groups", nargs="*", help=f"some of {', '.join(available)}; all by default")
    parser.add_argument("--report", action="store_true", help="print the last result only")
    parser.add_argument("--show", action="store_true", help="print the survivors of the namespaces")
    parser.add_argument("--again", action="store_true", help="judge the last run again")
    parser.add_argument("--resume", action="store_true", help="go on where the last run stopped")
    parser.add_argument(
        "--since-last", action="store_true", help="keep the kills of unchanged functions"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes at once")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.groups) - set(available))
    if unknown:
        parser.error(f"no namespace {', '.join(unknown)}; there are {', '.join(available)}")
    chosen = options.groups or list(available)
    record = WORK / "results.json"
    results = json.loads(record.read_text()) if record.exists() else {}
    if not (options.report or options.show):
        for group in chosen:
            kept = (WORK / group / STATUSES).exists() and (options.again or options.resume)
            folder = WORK / group if kept else prepare(group, since_last=options.since_last)
            if not options.again:
                execute(folder, options.workers)
            results[group] = result_of(group, folder)
            record.write_text(
                json.dumps(results, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
            )
    if options.show:
        show([entry for group in chosen for entry in results[group]["survivors"]])
    return 0 if report(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
