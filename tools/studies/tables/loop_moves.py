"""How many moves of the set point does a model of a loop need before its margins can be promised?

Usage, in an environment with all packages:
    python tools/studies/tables/loop_moves.py [--count 40] [--seed 100]

Loops of ``loop_cases.py`` that are healthy, sluggish or tight, each with 2, 3, 4, 6 and 10 moves of
the set point within 8,000 rows and none in manual. From the rows a model is identified and gains are
searched, as ``neorl-train loop`` does, whatever ails the loop. Counted are the proposals whose sheet
says Ms at most 2 and gain margin at least 1.7, and how many of these have both around the process
that was simulated. Stored loop by loop in
``tools/studies/benchmarks/results/loop_moves.json``; a run goes on where it ends.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import loop_cases
from neorl_agents.loops import LoopRecord, loop_model, propose
from neorl_core import InputError
from neorl_core.loops import PIDGains, SampledModel, loop_margins

OUT = Path(__file__).parents[1] / "benchmarks/results/loop_moves.json"
KINDS, MOVES = ("healthy", "sluggish", "tight"), (2, 3, 4, 6, 10)
ROWS, TURN = 8000, 5
SENSITIVITY, GAIN_MARGIN = 2.0, 1.7


def main() -> None:
    """Judges the loops that have no row yet, in turns of every kind, and prints the shares."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=40, help="loops of a kind and number of moves")
    parser.add_argument("--seed", type=int, default=100)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = json.loads(OUT.read_text()) if OUT.is_file() else []
    known = {(row["kind"], row["moves"], row["case"]) for row in rows}
    for turn in range(-(-options.count // TURN)):
        for moves in MOVES:
            for kind in KINDS:
                first = turn * TURN
                if all((kind, moves, first + i) in known for i in range(TURN)):
                    continue
                rows += judged(kind, moves, first, options.seed + 2 * turn)
                OUT.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))


def judged(kind: str, moves: int, first: int, seed: int) -> Iterator[dict[str, Any]]:
    """The rows of one turn."""
    cases = loop_cases.draw_cases(kind, TURN, seed)._replace(moves=np.full(TURN, moves))
    found = loop_cases.simulate(cases, ROWS, seed + 1, still=ROWS // 5)
    for i in range(TURN):
        record = LoopRecord(
            f"{kind} {i}", found.measurement[i], found.output[i], found.setpoint[i],
            np.ones(ROWS, bool), np.zeros(ROWS, int), 1.0, "%", "%", (0.0, 100.0), (0.0, 100.0),
        )  # fmt: skip
        case = loop_cases.Cases(*(np.asarray(x)[i] for x in cases))
        row = {"kind": kind, "moves": moves, "case": first + i}
        yield row | answer(record, case)


def answer(record: LoopRecord, case: loop_cases.Cases) -> dict[str, Any]:
    """What is proposed from the rows of one loop, and whether the process keeps the promise."""
    model = loop_model(record)
    if not model.usable:
        return {"said": False, "why": model.why_not}
    sign = np.sign(case.gain)
    today = PIDGains(float(sign * case.kp), float(sign * case.ki), 0.0, 0.0)
    try:
        proposal = propose(model, today, period=1.0, output_span=100.0, noise=float(case.noise))
    except InputError as error:
        return {"said": False, "why": str(error)}
    chosen = proposal.chosen
    sensitivity, margin = true_margins(case, chosen.gains)
    widths = {
        name: [round(float(x), 4) for x in interval]
        for name, interval in (
            ("gain", model.gain), ("dead_time", model.dead_time), ("lag", model.time_constants[0])
        )
    }  # fmt: skip
    truth = [float(case.gain), float(case.dead_time), float(case.lag)]
    return {
        "said": chosen.margins.accepted and not proposal.kept,
        "today_is_kept": proposal.kept,
        "kept": bool(sensitivity <= SENSITIVITY and margin >= GAIN_MARGIN),
        "sensitivity": [chosen.margins.peak_sensitivity.high, sensitivity],
        "gain_margin": [chosen.margins.gain_margin.low, margin],
        "held_out": round(float(model.held_out), 4),
        "model": widths,
        "process": [round(x, 4) for x in truth],
    }


def true_margins(case: loop_cases.Cases, gains: PIDGains) -> tuple[float, float]:
    """Peak sensitivity and gain margin around the simulated process; infinite and one if unstable.

    Two lags, each exact at the period, behind the dead time and one row.
    """
    one, two = (float(np.exp(-1 / max(lag, 1e-3))) for lag in (case.lag, case.second_lag))
    process = SampledModel(
        jnp.asarray([one + two, -one * two]),
        jnp.asarray([float(case.gain) * (1 - one) * (1 - two)]),
        jnp.asarray(int(case.dead_time)),
    )
    margins = loop_margins(process, gains, dt=1.0)
    if not margins.stable:
        return np.inf, 1.0
    return float(margins.peak_sensitivity), float(margins.gain_margin)


def table(rows: list[dict[str, Any]]) -> str:
    """Proposals and kept promises by the number of moves, as Markdown."""
    lines = [
        "| Moves | Loops | Models refused | Proposals | Promise kept |",
        "|---|---|---|---|---|",
    ]
    for moves in MOVES:
        some = [row for row in rows if row["moves"] == moves]
        said = [row for row in some if row["said"]]
        kept = sum(row["kept"] for row in said)
        refused = sum("why" in row for row in some)
        lines.append(f"| {moves} | {len(some)} | {refused} | {len(said)} | {kept} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
