"""Are the causes right that ``neorl-train loop`` names? Simulated loops of known cause.

Each kind has as many loops as are asked for, drawn at random; the dead time is 0 to 5 times the
lag. Every log has 4 to 20 moves of the setpoint; ``--still`` takes them away. The settings of the
analysis were chosen on seeds below 100, and none of them is reported.

Run as ``python tools/studies/tables/loop_causes.py --count 200`` in the environment ``hatch-test``;
the result is written to ``tools/studies/benchmarks/results/loop_causes.json``.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import loop_cases
from neorl_agents.loops import LoopRecord, loop_reports

RESULT = Path(__file__).parents[1] / "benchmarks/results/loop_causes.json"
SEED = 100
KINDS = {
    "stiction_choudhury": "stiction", "stiction_he": "stiction", "outside": "outside",
    "tight": "tight", "sluggish": "sluggish", "saturation": "saturation", "noise": "noise",
    "healthy": "healthy",
}  # fmt: skip


def records(kind: str, count: int, rows: int, still: bool, seed: int) -> list[LoopRecord]:
    """The loops of a kind."""
    cases = loop_cases.draw_cases(kind, count, seed)
    if still:
        cases = cases._replace(moves=np.zeros(count))
    found = loop_cases.simulate(cases, rows, seed + 1)
    return [
        LoopRecord(
            f"{kind} {i}", found.measurement[i], found.output[i], found.setpoint[i],
            np.ones(rows, bool), np.zeros(rows, int), 1.0, "%", "%", (0.0, 100.0), (0.0, 100.0),
        )
        for i in range(count)
    ]  # fmt: skip


def main() -> None:
    """Judges the loops and writes how often each answer was given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--still", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    began = time.process_time()
    kinds = {}
    for kind, cause in KINDS.items():
        answers: Counter[str] = Counter()
        for record in records(kind, options.count, options.rows, options.still, options.seed):
            (report,) = loop_reports([record])
            answers[f"{report.cause.answer}: {report.cause.kind}"] += 1
        right = loop_cases.CAUSES[kind]
        share = sum(n for answer, n in answers.items() if answer.startswith(right)) / options.count
        named = sum(n for answer, n in answers.items() if answer.endswith(f": {cause}"))
        kinds[kind] = {
            "right": share,
            "cause_named": named / options.count,
            "given_gains": sum(n for a, n in answers.items() if a.startswith("retune"))
            / options.count,
            "answers": dict(answers.most_common()),
        }
        print(kind, kinds[kind], flush=True)
        document = {
            "count": options.count, "rows": options.rows, "seed": options.seed,
            "setpoint_moves": not options.still, "kinds": kinds,
            "processor_seconds": round(time.process_time() - began, 1),
        }  # fmt: skip
        options.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
