"""Break the mathematics on purpose and count how often the tests notice.

Usage:
    python tools/mutation.py returns losses     run these groups of modules (all without a name)
    python tools/mutation.py --report           print the committed result
    python tools/mutation.py --show returns     print the survivors of a group, as differences

mutmut changes one operator, number or argument of neorl-core at a time, and only the tests that
reach the changed function run, with Hypothesis' ``mutation`` profile. Workers fork from a server
that has imported JAX and never used it: forking a process in which JAX has threads dead-locks.
The result, ``tools/mutants/results.json``, names every survivor. ``tools/mutants/equivalent.toml``
lists the mutants that no test can kill, each with the reason; the score leaves them out. The
target is 90 %. It takes about two seconds a mutant and core, so it is not part of ``.ci/run``.

Needs ``mutmut==3.8.1`` beside ``neorl-core[testing]``.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "packages" / "neorl-core"
RECORDS = ROOT / "tools" / "mutants"
WORK = ROOT / ".cache" / "mutation"
TARGET = 0.9


class Group(NamedTuple):
    """Modules that are changed, and what is to notice: files of the table and of tests."""

    modules: tuple[str, ...]
    table: tuple[str, ...]
    tests: tuple[str, ...] = ()


GROUPS = {
    "returns": Group(
        ("_discounted", "_lambda_returns", "_n_step", "_recurrence", "_time_series"),
        ("returns",),
    ),
    "targets": Group(
        ("_double_td", "_regularised_td", "_safety_targets", "_td", "_pid_multiplier"),
        ("cost_targets", "multiplier", "td_targets"),
        ("test_golden_rules",),
    ),
    "losses": Group(
        (
            "_cql",
            "_edac",
            "_expectile",
            "_gaussian_nll",
            "_gumbel",
            "_policy_losses",
            "_regression",
        ),
        ("conservative", "expectile", "likelihoods", "policy_losses", "regression"),
    ),
    "policy regression": Group(
        ("_advantage_weights", "_masked_mean", "_penalty", "_polyak", "_td3_bc"),
        ("masked_mean", "policy_regression"),
        ("test_golden_rules",),
    ),
    "distributions": Group(
        ("_categorical", "_diagonal_gaussian", "_tanh_gaussian"),
        ("categorical", "diagonal_gaussian", "tanh_gaussian"),
        ("test_distributions",),
    ),
    "feedback": Group(
        ("_pid", "_limits", "_feedback_policies", "_simple_policies", "_scaling"),
        ("feedback",),
        ("test_pid", "test_channels"),
    ),
    "statistics": Group(
        (
            "_bootstrap",
            "_intervals",
            "_moments",
            "_multiple_tests",
            "_normalised_score",
            "_paired_tests",
            "_proportions",
            "_quantile_functions",
            "_ranks",
            "_score_aggregates",
        ),
        (
            "bootstrap",
            "intervals",
            "moments",
            "paired_tests",
            "quantile_functions",
            "ranks",
            "score_aggregates",
        ),
        ("test_statistics",),
    ),
    "sampling": Group(
        (
            "_episode_rows",
            "_history",
            "_permutation",
            "_priority_tree",
            "_ring_buffer",
            "_sampling",
        ),
        ("replay", "sampling"),
        ("test_replay", "test_sampling"),
    ),
    "estimators": Group(
        ("_doubly_robust", "_importance_sampling", "_magic", "_marginalised", "_simplex"),
        ("off_policy",),
        ("test_off_policy",),
    ),
    "bounds": Group(
        ("_concentration", "_conformal", "_tail_risk"),
        ("bounds",),
        ("test_conformal", "test_off_policy"),
    ),
    "linear control": Group(
        (
            "_identification",
            "_linear_checks",
            "_riccati",
            "_stability",
            "_zero_order_hold",
        ),
        ("linear_systems",),
        ("test_control",),
    ),
    "graphs": Group(("_graphs", "_message_passing"), ("graphs",), ("test_graphs",)),
    "aggregation": Group(
        (
            "_client_updates",
            "_coordinate_rules",
            "_gossip",
            "_krum",
            "_private_mean",
            "_robust_centres",
        ),
        ("aggregation",),
        ("test_aggregation", "test_gossip"),
    ),
}

SETTINGS = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = {modules}
process_isolation = "forkserver"
forkserver_warmup = "import"
preload_modules_file = "preload.txt"
track_dependencies = false
use_git_change_detection = false
timeout_multiplier = 8.0
timeout_constant = 60.0
pytest_add_cli_args = ["-p", "no:cacheprovider", "-W", "ignore",
    "-k", "not the_table and not named"]
pytest_add_cli_args_test_selection = {tests}

[tool.pytest.ini_options]
addopts = "--import-mode=importlib"
markers = ["slow: takes more than a few seconds"]
"""
PRELOAD = ["jax", "jax.numpy", "jaxtyping", "numpy", "hypothesis.extra.numpy", "scipy.stats"]


def prepare(group: str) -> Path:
    """A copy of the package with mutmut's settings for one group."""
    chosen, folder = GROUPS[group], WORK / group
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(CORE / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests" / "table").mkdir(parents=True)
    tests = ["test_table", *chosen.tests]
    for name in ("conftest", *tests, *(f"table/{name}" for name in chosen.table)):
        shutil.copy(CORE / "tests" / f"{name}.py", folder / "tests" / f"{name}.py")
    files = [f"src/neorl_core/{name}.py" for name in chosen.modules]
    settings = SETTINGS.format(
        modules=json.dumps(files), tests=json.dumps([f"tests/{name}.py" for name in tests])
    )
    (folder / "pyproject.toml").write_text(settings)
    (folder / "preload.txt").write_text("\n".join(PRELOAD))
    return folder


def mutmut(folder: Path, *arguments: str, capture: bool = False) -> str:
    """Runs mutmut in ``folder``; what it prints is returned, or written to ``mutmut.log``."""
    environment = {
        **os.environ,
        "NEORL_HYPOTHESIS_PROFILE": "mutation",
        "JAX_COMPILATION_CACHE_DIR": str(WORK / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0",
    }
    command = [sys.executable, "-m", "mutmut", *arguments]
    if capture:
        done = subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True)
        return done.stdout
    with (folder / "mutmut.log").open("w") as log:
        subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=log, check=True)
    return ""


def statuses(folder: Path) -> dict[str, str]:
    """Mutant name to what became of it."""
    lines = mutmut(folder, "results", "--all", "true", capture=True).splitlines()
    pairs = [line.strip().rsplit(": ", 1) for line in lines if "__mutmut_" in line]
    return {name: status for name, status in pairs}


def changed_lines(folder: Path, mutant: str) -> str:
    """What the mutant changes: the removed and the added lines, without file names."""
    difference = mutmut(folder, "show", mutant, capture=True).splitlines()
    marks = [line for line in difference if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return "\n".join(" ".join([line[0], line[1:].strip()]) for line in marks)


def function_of(mutant: str) -> str:
    """``neorl_core._td.x_td_target__mutmut_3`` is a change of ``_td.td_target``."""
    module, _, name = mutant.removeprefix("neorl_core.").partition(".x")
    return f"{module}.{name.partition('__mutmut_')[0].strip('_ǁ').replace('ǁ', '.')}"


def equivalents() -> dict[tuple[str, str], str]:
    """(function, changed lines) of the mutants that compute the same, to the reason."""
    listed = tomllib.loads((RECORDS / "equivalent.toml").read_text())["mutant"]
    return {(entry["function"], entry["change"].strip()): entry["reason"] for entry in listed}


def result_of(group: str, folder: Path) -> dict:
    """Counts and survivors of a finished run."""
    reasons, survivors, same = equivalents(), [], 0
    found = statuses(folder)
    for mutant, status in found.items():
        if status == "killed":
            continue
        change, function = changed_lines(folder, mutant), function_of(mutant)
        if (function, change) in reasons:
            same += 1
        else:
            survivors.append({"function": function, "status": status, "change": change})
    counted = len(found) - same
    return {
        "mutants": len(found),
        "equivalent": same,
        "killed": counted - len(survivors),
        "score": round((counted - len(survivors)) / max(counted, 1), 4),
        "survivors": sorted(survivors, key=lambda entry: (entry["function"], entry["change"])),
    }


def report(results: dict[str, dict]) -> bool:
    """Prints one line per group; whether all reach the target."""
    print(f"{'group':<16}{'mutants':>9}{'equivalent':>12}{'killed':>8}{'score':>9}")
    for group, row in sorted(results.items()):
        counts = f"{row['mutants']:>9}{row['equivalent']:>12}{row['killed']:>8}"
        print(f"{group:<16}{counts}{row['score']:>9.1%}")
    return all(row["score"] >= TARGET for row in results.values())


def show(survivors: list[dict]) -> None:
    """Prints what was changed and not noticed."""
    for entry in survivors:
        print(f"\n{entry['function']} ({entry['status']})\n{entry['change']}")


def main(arguments: list[str] | None = None) -> int:
    """Runs groups and updates the record; exit code 1 if a group misses the target."""
    parser = argparse.ArgumentParser(description="Count how often the tests notice broken code.")
    parser.add_argument("groups", nargs="*", help=f"some of {', '.join(GROUPS)}; all by default")
    parser.add_argument("--report", action="store_true", help="print the committed result only")
    parser.add_argument("--show", action="store_true", help="print the survivors of the groups")
    parser.add_argument("--again", action="store_true", help="judge the last run again")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes at once")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.groups) - set(GROUPS))
    if unknown:
        parser.error(f"no group {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    groups = options.groups or list(GROUPS)
    record = RECORDS / "results.json"
    results = json.loads(record.read_text()) if record.exists() else {}
    if not (options.report or options.show):
        for group in groups:
            folder = WORK / group if options.again else prepare(group)
            if not options.again:
                mutmut(folder, "run", "--max-children", str(options.workers))
            results[group] = result_of(group, folder)
            record.write_text(
                json.dumps(results, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
            )
    if options.show:
        show([entry for group in groups for entry in results[group]["survivors"]])
    return 0 if report(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
