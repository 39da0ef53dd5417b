"""Are the causes right that ``neorl-train loop`` names? Simulated loops of known cause.

Each kind has as many loops as are asked for, drawn at random; the dead time is 0 to 5 times the
lag. Every log has 4 to 20 moves of the setpoint; ``--still`` takes them away. The settings of the
analysis were chosen on seeds below 100, and none of them is reported.

Run as ``python tools/studies/tables/loop_causes.py --count 200`` in the environment ``hatch-test``;
the result is written to ``tools/studies/benchmarks/results/loop_causes.json``. Loops are judged in
turns of ten of every kind, and a run goes on where the file ends, so it may be stopped at any time;
with other sources it begins anew.
"""

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import loop_cases
import neorl_agents.loops
from neorl_agents.loops import LoopRecord, loop_reports

RESULT = Path(__file__).parents[1] / "benchmarks/results/loop_causes.json"
SEED = 100
TURN = 10
"""Loops of a kind that are drawn together."""
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


def sources() -> str:
    """Digest of the analysis of loops and of the cases."""
    files = [
        *sorted(Path(neorl_agents.loops.__file__).parent.glob("*.py")),
        Path(loop_cases.__file__),
    ]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def summary(kind: str, found: list[str]) -> dict[str, Any]:
    """How often each answer was given, and how often the right one."""
    right, cause = loop_cases.CAUSES[kind], f": {KINDS[kind]}"
    return {
        "count": len(found),
        "right": sum(one.startswith(right) for one in found) / len(found),
        "cause_named": sum(one.endswith(cause) for one in found) / len(found),
        "given_gains": sum(one.startswith("retune") for one in found) / len(found),
        "answers": dict(Counter(found).most_common()),
        "loops": found,
    }


def main() -> None:
    """Judges the loops and writes how often each answer was given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--still", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    head = {"rows": options.rows, "seed": options.seed, "setpoint_moves": not options.still}
    head |= {"sources": sources()}
    document = json.loads(options.output.read_text()) if options.output.is_file() else {}
    if {name: document.get(name) for name in head} != head:
        document = {**head, "processor_seconds": 0.0, "kinds": {}}
    kinds, before = document["kinds"], document["processor_seconds"]
    for turn in range(-(-options.count // TURN)):
        for kind in KINDS:
            found = list(kinds.get(kind, {"loops": []})["loops"])
            if len(found) > turn * TURN:
                continue
            # The seed after each is that of the simulation.
            seed = options.seed + 2 * turn
            for record in records(kind, TURN, options.rows, options.still, seed):
                (report,) = loop_reports([record])
                found.append(f"{report.cause.answer}: {report.cause.kind}")
            kinds[kind] = summary(kind, found)
            document["processor_seconds"] = round(before + time.process_time(), 1)
            options.output.write_text(json.dumps(document, indent=1) + "\n")
            shown = {name: value for name, value in kinds[kind].items() if name != "loops"}
            print(kind, shown, flush=True)


if __name__ == "__main__":
    main()
