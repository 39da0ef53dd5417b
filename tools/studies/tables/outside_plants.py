"""Are the answers right on plants that nobody here wrote, from exports alone?

Usage, in an environment with all packages:
    python tools/studies/tables/outside_plants.py [CASE ...]   the cases that have no result yet
    python tools/studies/tables/outside_plants.py --page       print the table alone

The plants are those of ``outside_simulators.py``. PC-Gym needs an environment of its own, because it
asks for more than its equations use: ``pip install --no-deps pcgym==0.1.8`` there, and
``PCGYM=.../site-packages/pcgym`` here.

Each case is one log: a plant, a tuning (*sensible*; *sluggish* with 0.4 times its gains; *tight*
with 2.2 times its gains and 0.7 times its integral times), and whether a tenth of its rows is in
manual. It has 20 episodes of 600 rows, since ``run`` refuses fewer than three settling times. Or it
is a sensible loop with one fault: a valve that sticks, gains declared three times too large, outputs
exported as a fraction where percent is declared, or no move by anybody. The export has three gaps,
noise, three decimals and 0.2 % bad values. It is read by ``neorl-envs init`` and ``convert``, whose
TODO lines are completed as a user would, and answered by ``neorl-train run`` (1,500 updates and 8
generations, as in the demo). ``neorl-train loop`` is asked too where there is a fault. The truth is
the difference that the proposed gains make on the simulator, with its fault: 30,000 rows in
automatic, with the same load, noise and set points, which move as often as in the log, per episode.
Results: tools/studies/benchmarks/results/outside_plants.json, a row for each case.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from neorl_agents import load_policy
from neorl_core.infrastructure import write_text
from outside_simulators import PLANTS, OutsidePlant, Rows, Tuning, record, worth

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "outside_plants.json"
EPISODES, LENGTH = 20, 600
TUNINGS = {"sensible": (1.0, 1.0), "sluggish": (0.4, 1.0), "tight": (2.2, 0.7)}
FAULTS = {
    "sticking valve": "valve sticks",
    "wrong gains": "the rows of the log show",
    "fraction": "fraction of 1",
    "no moves": "is independent of them|follows from the measurement",
}
"""Each fault, and the words by which a command names it."""
STICKBAND = 3.0
TRUTH_SEEDS = range(100, 105)
CASES = {
    **{
        f"{plant} {tuning} {kind}": (plant, tuning, kind)
        for kind in ("manual", "auto")
        for tuning in ("sluggish", "sensible", "tight")
        for plant in PLANTS
    },
    **{f"{plant} {fault}": (plant, "sensible", fault) for fault in FAULTS for plant in PLANTS},
}


def tuning_of(plant: OutsidePlant, name: str) -> Tuning:
    """The gains and integral times of a tuning by name."""
    gain, integral = TUNINGS[name]
    return Tuning(
        tuple(gain * one.gain for one in plant.loops),
        tuple(integral * one.integral for one in plant.loops),
    )


def recorded(plant: OutsidePlant, tuning: str, kind: str) -> Rows:
    """The recording of a case."""
    manual = kind not in ("auto", "no moves")
    return _operated(plant, tuning_of(plant, tuning), kind, EPISODES * LENGTH, 0, manual=manual)


def _operated(
    plant: OutsidePlant, tuning: Tuning, kind: str, rows: int, seed: int, *, manual: bool
) -> Rows:
    """Some rows of operation, with the fault of a kind of log."""
    sticks = [STICKBAND] * len(plant.loops) if kind == "sticking valve" else []
    moves = 0 if kind == "no moves" else rows // 600
    return record(plant, tuning, rows, seed, manual=manual, moves=moves, stickband=sticks)


def export(path: Path, plant: OutsidePlant, rows: Rows, *, fraction: bool) -> None:
    """Writes the recording as a historian would."""
    rng = np.random.default_rng(3)
    heads = [f"{x.tag}.{y}" for x in plant.loops for y in ("PV", "SP", "OP", "MODE")]
    units = [u for x in plant.loops for u in (f" [{x.unit}]", f" [{x.unit}]", " [%]", "")]
    lines = [",".join(["Timestamp", *map("".join, zip(heads, units, strict=True))])]
    kept = np.ones(len(rows.manual), bool)
    for share, length in ((0.2, 40), (0.5, 200), (0.85, 15)):
        begin = int(share * len(kept))
        kept[begin : begin + length] = False
    scale = 0.01 if fraction else 1.0
    for i in np.flatnonzero(kept):
        stamp = datetime(2026, 3, 2) + timedelta(seconds=float(i * plant.period))
        cells = [f"{stamp:%Y-%m-%d %H:%M:%S}"]
        mode = "MAN" if rows.manual[i] else "AUTO"
        for j in range(len(plant.loops)):
            value = "Bad" if rng.uniform() < 0.002 else f"{rows.measured[i, j]:.3f}"
            cells += [value, f"{rows.setpoint[i, j]:.3f}", f"{scale * rows.output[i, j]:.5g}", mode]
        lines.append(",".join(cells))
    path.write_text("\n".join(lines) + "\n")


def completed(draft: str, plant: OutsidePlant, declared: Tuning) -> str:
    """The draft of plant.toml with its TODO lines as a user of this plant writes them."""
    names = [one.tag.replace("-", "_") for one in plant.loops]
    worths = [
        f"- abs({name}_PV - {name}_SP) / {one.weight} - 0.02 * abs({name}_OP - before_{name}_OP)"
        for name, one in zip(names, plant.loops, strict=True)
    ]
    text = re.sub(r'expression = "0".*', f'expression = "0 {" ".join(worths)}"', draft)
    text = text.replace('time_zone = "UTC"  # TODO', 'time_zone = "UTC"  #')
    text = re.sub(r"# length = \d+", f"length = {LENGTH}", text)
    parts = text.split("[[tag]]")
    for name, one in zip(names, plant.loops, strict=True):
        for i, part in enumerate(parts):
            if f'name = "{name}_PV"' in part or f'name = "{name}_SP"' in part:
                part = re.sub(r"low = .*", f"low = {float(one.low)}", part, count=1)
                parts[i] = re.sub(r"high = .*", f"high = {float(one.high)}", part, count=1)
            elif f'name = "{name}_OP"' in part:
                part = re.sub(r"low = .*", "low = 0.0", part, count=1)
                parts[i] = re.sub(r"high = .*", "high = 100.0", part, count=1)
    text = "[[tag]]".join(parts)
    head, *drafts = text.split("# [[loop]]")
    assert len(drafts) == len(plant.loops), "init did not find every loop by its tags"
    loops = []
    for j, name in enumerate(names):
        gain = declared.gain[j]
        loops.append(
            f'[[loop]]\nname = "{plant.loops[j].tag}"\ncontrolled = "{name}_PV"\n'
            f'manipulated = "{name}_OP"\nsetpoint_channel = "{name}_SP"\n'
            f'direction = "{"reverse" if gain > 0 else "direct"}"\ngain = {abs(gain):.6g}\n'
            f"integral = {declared.integral[j]}\n"
        )
    return head + "\n".join(loops)


def command(folder: Path, *words: str) -> tuple[int, str]:
    """The exit code and the printed text of a command of this environment."""
    program = Path(sys.executable).parent / words[0]
    done = subprocess.run(
        [program, *words[1:]], cwd=folder, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False, env=os.environ | {"COLUMNS": "400"},
    )  # fmt: skip
    return done.returncode, done.stdout


def true_gain(plant: OutsidePlant, before: Tuning, after: Tuning, kind: str) -> list[float]:
    """Mean difference of the objective in an episode, and the ends of its 95 % interval."""
    differences = []
    for seed in TRUTH_SEEDS:
        one, other = (
            worth(plant, _operated(plant, tuning, kind, 6_000, seed, manual=False))
            for tuning in (before, after)
        )
        whole = len(one) // LENGTH * LENGTH
        differences.append((other - one)[:whole].reshape(-1, LENGTH).sum(axis=1))
    every = np.concatenate(differences)
    reach = 1.96 * every.std(ddof=1) / np.sqrt(len(every))
    return [round(float(x), 3) for x in (every.mean(), every.mean() - reach, every.mean() + reach)]


def answered(name: str) -> dict[str, Any]:
    """The row of one case."""
    plant_name, tuning, kind = CASES[name]
    plant = PLANTS[plant_name]
    before = tuning_of(plant, tuning)
    factor = 3.0 if kind == "wrong gains" else 1.0
    declared = Tuning(tuple(factor * gain for gain in before.gain), before.integral)
    row: dict[str, Any] = {"case": name, "plant": plant_name, "tuning": tuning, "log": kind}
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        export(
            folder / "log.csv", plant, recorded(plant, tuning, kind), fraction=kind == "fraction"
        )
        _, said = command(folder, "neorl-envs", "init", "log.csv")
        draft = folder / "plant.toml"
        draft.write_text(completed(draft.read_text(), plant, declared))
        code, said = command(folder, "neorl-envs", "convert", "plant.toml", "--out", "log.h5")
        if code:
            return row | {"convert": said.strip().splitlines()[-1]}
        row["convert"] = [line for line in said.splitlines() if "warning" in line]
        spoken = {"convert": said}
        if kind in FAULTS:
            _, spoken["loop"] = command(folder, "neorl-train", "loop", "log.h5")
        words = ("--retuning.updates", "1500", "--retuning.generations", "8")
        _, said = command(folder, "neorl-train", "run", "log.h5", *words, "--output.no-tracking")
        row["run"] = _run_answer(folder, said, plant, before, kind)
        if kind in FAULTS:
            spoken["run"] = said
            row["named"] = {
                name: found
                for name, text in spoken.items()
                if (found := [x.strip() for x in text.splitlines() if re.search(FAULTS[kind], x)])
            }
        return row


def _run_answer(
    folder: Path, said: str, plant: OutsidePlant, before: Tuning, kind: str
) -> dict[str, Any]:
    """The verdict of a run, the gains that it proposes, and what they are worth."""
    verdicts = list((folder / "runs").glob("*/verdict.json"))
    if not verdicts:
        return {"answer": "refused", "said": said.strip().splitlines()[-1]}
    verdict = json.loads(verdicts[0].read_text())
    clauses = {one["name"]: one for one in verdict["clauses"]}
    gain = clauses["return"]
    wider = re.search(r"with the model's error on logged episodes (\S+) to ([^\s;]+)", said)
    result: dict[str, Any] = {
        "answer": verdict["answer"],
        "model": clauses["model"]["sentence"],
        "failed": [one["sentence"] for one in clauses.values() if not one["holds"]],
        "predicted": [round(gain[end], 3) for end in ("value", "low", "high")],
        "with the model's error": wider and [*wider.groups()],
        "judged on": gain["statistic"],
    }
    policy = load_policy(verdicts[0].parent / "policies" / "retuned-0.safetensors").policy
    loops: Any = getattr(policy, "loops", policy)
    proposed = Tuning(
        tuple(float(x) for x in np.asarray(loops.kp)),
        tuple(float(x) for x in np.asarray(loops.kp) / np.asarray(loops.ki)),
    )
    result |= {"gain": proposed.gain, "integral": proposed.integral}
    return result | {"truth": true_gain(plant, before, proposed, kind)}


def page() -> str:
    """The table of the results as Markdown, and what it counts to."""
    rows, trials, inside, harm, faulty, named = _stored(), 0, 0, 0, 0, 0
    lines = [
        "| Log | Answer | Predicted gain | True gain | The fault is named by |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        run = row.get("run", {"answer": "not converted"})
        predicted, truth = run.get("predicted"), run.get("truth")
        if run["answer"] == "worth a trial":
            trials += 1
            inside += predicted[1] <= truth[0] <= predicted[2]
            harm += truth[2] < 0
        shown = (predicted, truth) if predicted and any(predicted) else ("", "")  # else it is kept
        ends = [f"{x[0]:.3g} [{x[1]:.3g}, {x[2]:.3g}]" if x else "-" for x in shown]
        by = "-"
        if "named" in row:
            faulty, named = faulty + 1, named + bool(row["named"])
            by = ", ".join(f"`{one}`" for one in row["named"]) or "nothing"
        cells = (
            row["case"].replace("_", " ") + "*" * ("of before" in row),
            run["answer"],
            *ends,
            by,
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        f"Answered so far: {len(rows)} of {len(CASES)} logs. Worth a trial: {trials}, of which "
        f"{inside} with the true gain inside the interval (aim: 85 %) and {harm} harmful (aim: 0). "
        f"Of {faulty} logs with a fault, {named} were named for it.",
    ]
    before = {row["of before"]: row["case"] for row in rows if "of before" in row}
    if before:
        lines += ["", f"\\* answered before {', or before '.join(before)}."]
    return "\n".join(lines)


def main() -> None:
    """Answers the cases that have no result yet, and stores each at once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", help="names of cases; all by default")
    parser.add_argument("--page", action="store_true", help="print the table of the results alone")
    options = parser.parse_args()
    for name in [] if options.page else options.cases or CASES:
        if any(row["case"] == name for row in _stored()):
            continue
        row = answered(name)
        print(json.dumps(row), flush=True)
        stored = {one["case"]: one for one in _stored()} | {name: row}
        order = sorted(stored.values(), key=lambda one: list(CASES).index(one["case"]))
        write_text(RESULTS, json.dumps(order, indent=1) + "\n")
    print(page())


def _stored() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else []


if __name__ == "__main__":
    main()
