"""Train BC, TD3+BC and IQL on every plant and compare them with its classical controllers.

Usage:
    python tools/studies/tables/plant_learning.py [NAME ...]    plants without a result yet; all by default
    python tools/studies/tables/plant_learning.py --again NAME  measure a plant again
    python tools/studies/tables/plant_learning.py --judge       judge finished runs by the rule of today
    python tools/studies/tables/plant_learning.py --page        print the tables alone

Each plant goes through the main job, ``neorl-train run --data.source NAME``, with its own log of
mixed quality, penalties and limits, five seeds an algorithm. A run that was interrupted is resumed.
Stored in ``tools/studies/benchmarks/results/plants/NAME.json``: returns and costs of every policy behind
its guard, of the tunings and of the log, and the verdict on every learned policy, against the
plant's ordinary controller (the incumbent of a run by default) and against its reference.
"""

import argparse
import dataclasses
import datetime
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from neorl_envs import environment_names, make
from neorl_train import verdict
from neorl_train.judging import PolicyRow, ResultTables, policy_rows, read_evaluation

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "tools/studies/benchmarks/results/plants"
ALGORITHMS = ("bc", "td3_bc", "iql")
SEEDS, STARTS = 5, 100


def main() -> int:
    """Measures what is missing, then prints the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/plant-learning")
    parser.add_argument("--updates", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=120_000)
    arguments = parser.parse_args()
    if not arguments.page:
        for name in arguments.names or environment_names():
            path = RESULTS / f"{name}.json"
            runs = sorted((arguments.folder / name).glob("[0-9]*"))
            if arguments.judge and runs and path.exists():
                stored = json.loads(path.read_text())
                path.write_text(json.dumps(stored | judged(runs[-1]), indent=1) + "\n")
            elif not arguments.judge and (arguments.again or not path.exists()):
                measure(name, path, arguments)
    print(page())
    return 0


def measure(name: str, path: Path, arguments: argparse.Namespace) -> None:
    """One plant through the main job; what an earlier, interrupted run did is not done again."""
    folder = arguments.folder / name
    folder.mkdir(parents=True, exist_ok=True)
    before = sorted(folder.glob("[0-9]*"))
    command = [sys.executable, "-m", "neorl_train"]
    if before and not arguments.again:
        command += ["resume", str(before[-1])]
    else:
        options = {
            "--data.source": name,
            "--data.steps": arguments.steps,
            "--training.updates": arguments.updates,
            "--evaluation.starts": STARTS,
            "--output.directory": folder,
        }
        command += ["run", *(str(word) for pair in options.items() for word in pair)]
        command += ["--training.seeds", *(str(seed) for seed in range(SEEDS))]
        command += ["--training.algorithms", *ALGORITHMS, "--output.no-tracking"]
    started = time.monotonic()
    subprocess.run(command, check=False)  # exit code 3 is a verdict
    run = sorted(folder.glob("[0-9]*"))[-1]
    tables = read_evaluation(run).tables
    if tables is None:
        raise SystemExit(f"{name}: the run in {run} has no results")
    results = {
        "plant": name,
        "unit": tables.reward_unit,
        "updates": arguments.updates,
        "steps": arguments.steps,
        "seeds": SEEDS,
        "starts": STARTS,
        "seconds": round(time.monotonic() - started),
        "rows": [row_of(row) for row in tables.rows],
        **judged(run),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")


def row_of(row: PolicyRow) -> dict[str, Any]:
    """What is kept of a policy."""
    return {
        "name": row.name,
        "group": row.group,
        "role": row.role,
        "guarded": row.guarded,
        "return": [row.returns.value, row.returns.low, row.returns.high],
        "costs": {cost.name: [cost.total.value, cost.violating.value] for cost in row.costs},
    }


def judged(run: Path) -> dict[str, Any]:
    """How often each answer is given, against the ordinary controller and the reference."""
    evaluation = read_evaluation(run)
    tables = evaluation.tables
    paired = [result for result in evaluation.results if result.role != "log"]
    answers: dict[str, Any] = {"ordinary": tables.reference, "judged": f"{datetime.date.today()}"}
    best = make(tables.environment).reference
    for name, other in (("verdicts", tables.reference), ("beside_reference", best)):
        rows = policy_rows(paired, tables.spec, reference=other, level=tables.level)
        judged_tables = dataclasses.replace(tables, reference=other, rows=rows)
        answers[name], answers[f"{name}_failed"] = verdicts(judged_tables)
    return answers | {"reference": best}


def verdicts(tables: ResultTables) -> tuple[dict[str, Counter[str]], dict[str, Counter[str]]]:
    """How often each answer is given to the seeds of each algorithm, and each clause fails."""
    answers: dict[str, Counter[str]] = {}
    failed: dict[str, Counter[str]] = {}
    for row in tables.rows:
        if row.role == "learner" and row.guarded:
            decided = verdict(dataclasses.replace(tables, candidate=row.name))
            answers.setdefault(row.group, Counter())[decided.answer] += 1
            names = [clause.name for clause in decided.clauses if not clause.holds]
            failed.setdefault(row.group, Counter()).update(names)
    return answers, failed


def page() -> str:
    """The page of all stored results."""
    results = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    note = [f"\n{text}" for text in [_summary(results), _missing(results)] if text]
    return "\n".join([HEAD, *note, *(part for result in results for part in section(result)), ""])


def _summary(results: list[dict[str, Any]]) -> str:
    """How many policies may be deployed, of each learner."""
    lines = [
        "| learner | deploy against the ordinary controller | deploy against the reference |",
        "|---|---|---|",
    ]
    for group in ALGORITHMS:
        cells = []
        for name in ("verdicts", "beside_reference"):
            groups = [result[name][group] for result in results if group in result[name]]
            total = sum(sum(one.values()) for one in groups)
            cells.append(f"{sum(one.get('deploy', 0) for one in groups)} of {total}")
        lines.append(f"| {group} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _missing(results: list[dict[str, Any]]) -> str:
    """Which plants, and which learners on the others, have no rows."""
    left = [name for name in environment_names() if name not in {r["plant"] for r in results}]
    parts = [f"the plants {', '.join(left)}"] if left else []
    for result in results:
        without = [f"`{name}`" for name in ALGORITHMS if name not in result["verdicts"]]
        parts += [f"{', '.join(without)} on {result['plant']}"] if without else []
    return f"Not measured yet: {'; '.join(parts)}." if parts else ""


HEAD = f"""# Learning on every plant

The build of the site makes this page from the results that
`tools/studies/tables/plant_learning.py` has stored. It ran the whole job
(`neorl-train run`) on every plant, with the plant's own log of mixed quality, penalties and
limits. There are {SEEDS} seeds for every algorithm and {STARTS} paired episodes for every
policy; settings are the defaults, and nothing is tuned to a plant. Learned policies act behind
their guard. Returns are means over episodes, with the range of the seeds' means for learners
and 95 % intervals for controllers. A cost is shown as its mean per episode and, after the
slash, the share of episodes over its limit. Verdicts follow [the rule](../explanation/verdict.md), whose
clauses
are not all in a table: a policy with a better mean can fail, for example, by its worst episode.
The stored results do not say by which clause, except where it is named. A policy is judged once
against the plant's *ordinary* controller, with which a run compares by default, and once
against its *reference*, the best controller known for it. Whether a policy can be picked
without the plant is another question; see [choosing without the
plant](../explanation/choosing-without-the-plant.md)."""


def section(result: dict[str, Any]) -> list[str]:
    """One plant."""
    names = list(result["rows"][0]["costs"])
    lines = [
        f"\n## {result['plant']}\n",
        f"{result['steps']} steps logged, {result['updates']} updates; unit: {result['unit']}; "
        f"ordinary controller: {result['ordinary']}; reference: {result['reference']}.\n",
        "| policy | return | "
        + "".join(f"{name} | " for name in names)
        + "against the ordinary controller | against the reference |",
        "|---|---|" + "---|" * len(names) + "---|---|",
    ]
    rows = [row for row in result["rows"] if row["role"] != "learner"]
    lines += [line([row], row["name"], " | ", names) for row in rows if not row["guarded"]]
    for group, answers in result["verdicts"].items():
        mine = [r for r in result["rows"] if r["group"] == group and r["guarded"]]
        counts = [answers, result["beside_reference"][group]]
        answers_text = " | ".join(
            ", ".join(f"{n} {answer}" for answer, n in one.items()) for one in counts
        )
        lines.append(line(mine, f"{group}, {len(mine)} seeds", answers_text, names))
    if "verdicts_failed" in result:
        lines.append("\n" + _failed_clauses(result["verdicts_failed"]))
    return lines


def _failed_clauses(failed: dict[str, dict[str, int]]) -> str:
    """How many seeds failed each clause against the ordinary controller."""
    counts = [
        f"`{group}` " + (", ".join(f"{name} ({n})" for name, n in one.items()) or "none")
        for group, one in failed.items()
    ]
    return "Clauses that failed against the ordinary controller (seeds): " + "; ".join(counts) + "."


def line(rows: list[dict[str, Any]], name: str, answers_text: str, costs: list[str]) -> str:
    """One line of a table: one policy, or the seeds of one algorithm."""
    means = [row["return"][0] for row in rows]
    ends = [min(means), max(means)] if len(rows) > 1 else rows[0]["return"][1:]
    cells = [f"{sum(means) / len(means):.4g} [{ends[0]:.4g}, {ends[1]:.4g}]"]
    for cost in costs:
        pairs = [row["costs"][cost] for row in rows]
        mean, share = (sum(pair[i] for pair in pairs) / len(pairs) for i in (0, 1))
        cells.append(f"{mean:.3g} / {100 * share:.0f} %")
    return f"| {name} | " + " | ".join(cells) + f" | {answers_text} |"


if __name__ == "__main__":
    raise SystemExit(main())
