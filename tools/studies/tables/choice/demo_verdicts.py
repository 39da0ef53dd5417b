"""The verdict of the README's demo on logs of several seeds, and what its candidate changed.

Usage:
    python tools/studies/tables/choice/demo_verdicts.py             the seeds that have no result yet
    python tools/studies/tables/choice/demo_verdicts.py --seeds 5   another log
    python tools/studies/tables/choice/demo_verdicts.py --page      print the tables alone

Runs ``tools/demo.py`` with ``--data.seed``: log, split, plant model, search and training differ
from seed to seed, and the other settings are the demo's. The starts of the evaluation differ too,
because their seed is derived from all settings of a run, of which ``data.seed`` is one.
Result: tools/studies/baselines/choice/demo_verdicts.json.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from neorl_core.infrastructure import write_text

ROOT = Path(__file__).resolve().parents[4]
RESULT = ROOT / "tools/studies/baselines/choice/demo_verdicts.json"
PREDICTED = re.compile(r"^(\S+)(?: \(.*\))?: predicted gain (\S+) \[(\S+), (\S+)\]; (.*)$")
"""A line of the record on one candidate: name, predicted gain, its interval, and objections."""
COMMAND = (sys.executable, str(ROOT / "tools/demo.py"))


def measured(seed: int, folder: Path) -> dict[str, Any]:
    """Runs the demo on the log of a seed and reads its verdict, choice and gain."""
    subprocess.run([*COMMAND, "--data.seed", str(seed)], cwd=folder, check=True)
    (run,) = (folder / "runs").glob("0*")
    return row_of(seed, run)


def row_of(seed: int, run: Path) -> dict[str, Any]:
    """Verdict, choice and gain of a finished run."""
    record, verdict = (json.loads((run / f"{n}.json").read_text()) for n in ("run", "verdict"))
    return {
        "seed": seed,
        "answer": verdict["answer"],
        "candidate": verdict["candidate"],
        "clauses": {
            clause["name"]: {key: clause[key] for key in ("value", "low", "high", "holds")}
            for clause in verdict["clauses"]
        },
        "changes": record["changes"],
        "choice": record["choice"],
    }


def pool(row: dict[str, Any]) -> dict[str, tuple[list[float], bool]]:
    """Predicted gain with its interval of every candidate, and whether it may be preferred."""
    matches = [match.groups() for line in row["choice"] if (match := PREDICTED.match(line))]
    return {
        name: ([float(number) for number in numbers], objections == "it may be preferred")
        for name, *numbers, objections in matches
    }


def table(rows: list[dict[str, Any]]) -> str:
    """What the pools and their predictions are worth, and one line for each log."""
    deployed = sum(row["answer"] == "deploy" for row in rows)
    below = sum(
        row["clauses"]["return"]["value"] < pool(row)[row["candidate"]][0][1] for row in rows
    )
    others = [allowed for row in rows for name, (_, allowed) in pool(row).items()
              if not name.startswith("retuned")]  # fmt: skip
    lines = [
        f"Of {len(rows)} logs, the demo ends in *deploy* on {deployed}. Beside the retuned "
        f"controllers, {len(others)} learners and means of their seeds competed, of which the rule "
        f"allowed {sum(others)}. On {below} of the {len(rows)} logs the gain on the plant is below "
        "the interval of the predicted gain.",
        "",
        "| Seed of the log | Verdict | Candidate | Predicted gain (its interval) | Gain on the "
        "plant (95 %) | What was changed |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        changes = "; ".join(row["changes"]) or "-"
        gain = row["clauses"]["return"]
        numbers = (pool(row)[row["candidate"]][0], [gain[key] for key in ("value", "low", "high")])
        intervals = [f"{value:.3g} ({low:.3g} to {high:.3g})" for value, low, high in numbers]
        cells = (row["seed"], row["answer"], row["candidate"], *intervals, changes)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> int:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    rows = json.loads(RESULT.read_text()) if RESULT.exists() else []
    missing = [seed for seed in given.seeds if seed not in {row["seed"] for row in rows}]
    for seed in () if given.page else missing:
        with tempfile.TemporaryDirectory() as folder:
            rows = sorted([*rows, measured(seed, Path(folder))], key=lambda row: row["seed"])
        write_text(RESULT, json.dumps(rows, indent=1) + "\n")
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
