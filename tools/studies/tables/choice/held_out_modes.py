"""Predict every controller of a log in a model that was fitted without its episodes.

Usage:
    python tools/studies/tables/choice/held_out_modes.py [NAME ...] [--seeds 0 1]   what has no result yet
    python tools/studies/tables/choice/held_out_modes.py --page                     print the tables alone

The logs are those of the table of retuned controllers (120,000 steps, of all controllers of a plant
with their operators), and so are the settings of the model. For each controller, a model is fitted
to the episodes of the others alone, and predicts its return and costs in held-out episodes of the
others. That is compared with its logged means without what the operators changed, and with its mean
in episodes of the plant (tools/studies/baselines/NAME.json), which no check may see. The costs of every
controller in its own held-out episodes, in the model of the whole log, are compared with the log.
Result: tools/studies/baselines/choice/held_out_modes.json, a row for each plant, log and controller.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from neorl_agents.retuning import (
    SURE,
    ChoiceRule,
    HeldOutMode,
    Mode,
    ModeOutcome,
    OwnReplay,
    PlantFacts,
    held_out_mode,
    learned_plants,
    logged_outcomes,
    mode_outcome,
    own_replay,
)
from neorl_core.infrastructure import write_text
from neorl_envs import collect_log, environment_names, make
from neorl_train.judging import MAX_REPLAY_ERROR

sys.path.append(str(Path(__file__).resolve().parents[1]))

from choice.retuning_page import LOGS, PICK, Kind, kind_of
from choice.retuning_page import answer as answer_of_pick

ROOT = Path(__file__).resolve().parents[4]
RESULT = ROOT / "tools/studies/baselines/choice/held_out_modes.json"
STEPS = 120_000
RULE = ChoiceRule()
GOOD, BAD, OUTSIDE, UNCERTAIN = "within", "exceeded", "refused as a candidate", "not known"

Rows = list[dict[str, Any]]


def measured(name: str, seed: int) -> list[dict[str, Any]]:
    """One row for every controller of one log."""
    env = make(name)
    tunings = env.tunings()
    log = collect_log(env, tunings, n_steps=STEPS, key=jax.random.key(seed))
    behaviours, filled = log.attributes["behaviours"], np.asarray(log.behaviour)
    facts = PlantFacts(env.action_rates(), env.exogenous, env.interlock, env.objective)
    started_at = time.time()
    plants = learned_plants(log.transitions, env.spec, seed, facts)
    fitted = time.time() - started_at
    modes = [Mode(b, tunings[b], filled == i) for i, b in enumerate(behaviours)]
    replays = {mode.name: own_replay(plants, mode, seed, facts) for mode in modes}
    outcomes = {mode: mode_outcome(replay) for mode, replay in replays.items()}
    spread = logged_outcomes(plants.rows, env.spec).std(axis=0)
    stored = json.loads((ROOT / f"tools/studies/baselines/{name}.json").read_text())["rows"]
    on_plant = {row["policy"]: row for row in stored}
    rows = []
    for mode in modes:
        started_at = time.time()
        others = [other for other in modes if other is not mode]
        # The ordinary controller runs today; where it is left out, the reference does.
        names = [other.name for other in others]
        today = others[0 if mode is not modes[0] else names.index(env.reference)]
        order = [outcomes[mode.name], *(outcomes[other.name] for other in others)]
        held_out = held_out_mode(plants, mode, order, seed, facts, incumbent=today.policy)
        own = held_out.outcome
        row = {
            "plant": name,
            "seed": seed,
            "mode": mode.name,
            "logged": own.logged.tolist(),
            "expected": own.expected.tolist(),
            "expected_error": own.error.tolist(),
            "episodes": [own.episodes, own.replayed, held_out.episodes],
            "predicted": held_out.predicted.tolist(),
            "chance": held_out.chance.tolist(),
            "between_modes": held_out.spread.tolist(),
            "between_episodes": spread.tolist(),
            "today": today.name,
            "outside": [held_out.outside, held_out.outside_incumbent],
            "plant_return": [on_plant[mode.name][x] for x in ("return", "return_error")],
            "own": own_costs(replays[mode.name], env.spec),
            "seconds": [round(fitted, 1), round(time.time() - started_at, 1)],
        }
        rows.append(row)
        print(f"{name} {seed} without {mode.name}: {words(row)}", flush=True)
    return rows


def own_costs(replay: OwnReplay, spec: Any) -> dict[str, Any]:
    """Return and costs of a controller in its own held-out episodes, predicted and logged."""
    limits = np.asarray([c.limit for c in spec.cost])
    return {
        "predicted": replay.predicted.mean(axis=(0, 1)).tolist(),
        "logged": replay.logged.mean(axis=0).tolist(),
        "over_predicted": np.mean(replay.predicted[..., 1:] > limits, axis=(0, 1)).tolist(),
        "over_logged": np.mean(replay.logged[:, 1:] > limits, axis=0).tolist(),
        "over_all_logged": np.mean(replay.all_logged[:, 1:] > limits, axis=0).tolist(),
    }


def words(row: dict[str, Any]) -> str:
    """One line of progress."""
    numbers = [row[key][0] for key in ("predicted", "expected", "chance", "between_modes")]
    true = row["plant_return"][0]
    return (
        "predicted {:.5g}, expected {:.5g}, chance {:.3g}, between modes {:.4g}".format(*numbers)
        + f", on the plant {true:.5g}, {row['seconds']} s"
    )


def mode_of(row: dict[str, Any]) -> HeldOutMode:
    """The stored row as the rule reads it."""
    logged, expected, error = (
        np.asarray(row[key]) for key in ("logged", "expected", "expected_error")
    )
    n_logged, n_held_out, n_replayed = row["episodes"]
    outcome = ModeOutcome(logged, expected, error, n_logged, n_held_out)
    predicted, chance, spread = (
        np.asarray(row[key]) for key in ("predicted", "chance", "between_modes")
    )
    outside, outside_today = row["outside"]
    return HeldOutMode(
        row["mode"], outcome, predicted, chance, spread, n_replayed, outside, outside_today
    )


def answer(row: dict[str, Any]) -> str:
    """What the error of a mode says of the model."""
    mode = mode_of(row)
    if mode.is_refused(RULE):
        return OUTSIDE
    if mode.is_uncertain(RULE):
        return UNCERTAIN
    return GOOD if mode.share <= RULE.held_out else BAD


def by_today(rows: Rows, *, reference: bool) -> dict[str, Rows]:
    """The rows of every plant in which another mode than that of today's controller is left out."""
    result: dict[str, Rows] = {}
    for row in rows:
        env = make(row["plant"])
        today = env.reference if reference else next(iter(env.tunings()))
        if row["mode"] != today:
            result.setdefault(f"{row['plant']} {row['seed']}", []).append(row)
    return result


def counted(rows: Rows) -> str:
    """What the checks say of the models, in sentences."""
    answers = [answer(row) for row in rows]
    words = [
        f"Of {len(rows)} controllers left out, the error is within {100 * RULE.held_out:.0f} % for "
        f"{answers.count(GOOD)} and significantly larger for {answers.count(BAD)}. "
        f"{answers.count(OUTSIDE)} leave the data of the others so far that the rule refuses them "
        f"as candidates, and for {answers.count(UNCERTAIN)} chance is too large to tell."
    ]
    for reference, whose in ((False, "an ordinary controller"), (True, "a reference")):
        plants = by_today(rows, reference=reference)
        refused = [name.split()[0] for name, some in plants.items() if BAD in map(answer, some)]
        picks = [answered for name in refused for answered in picks_of(name, reference=reference)]
        words.append(
            f"If {whose} runs today, the models of {len(refused)} of {len(plants)} logs are "
            f"refused ({', '.join(refused) or 'none'}). Of the {len(picks)} picks in the table "
            f"above for {whose} of {'this plant' if len(refused) == 1 else 'these plants'}, "
            f"{picks.count('deploy')} were deployed, {picks.count('kept')} kept and "
            f"{picks.count('harm')} did harm."
        )
    return " ".join(words)


def picks_of(name: str, *, reference: bool) -> list[str]:
    """What became of the picks from the logs of all controllers of a plant, one for each log."""
    kind = Kind(LOGS[0], reference, PICK)
    stored = json.loads((ROOT / f"tools/studies/baselines/retuning/{name}.json").read_text())
    return [answer_of_pick(row) for row in stored if kind_of(row) == kind]


def own_differences(rows: Rows, *, returns: bool) -> list[tuple[str, float]]:
    """Differences of predicted and logged means in own episodes, in spreads between episodes.

    Args:
        rows: The stored rows.
        returns: Whether those of the return are asked for, instead of those of the costs.
    """
    return [
        (f"{row['mode']} on {row['plant']}", (predicted - logged) / spread)
        for row in rows
        for column, (predicted, logged, spread) in enumerate(
            zip(row["own"]["predicted"], row["own"]["logged"], row["between_episodes"], strict=True)
        )
        if (column == 0) == returns and spread > 0
    ]


def costs(rows: Rows) -> str:
    """How return and costs of the controllers in their own episodes compare with the log."""
    found = own_differences(rows, returns=False)
    values = [value for _, value in found]
    low = [name for name, value in found if value < -MAX_REPLAY_ERROR]
    high = [name for name, value in found if value > MAX_REPLAY_ERROR]
    never = sum(spread == 0 for row in rows for spread in row["between_episodes"][1:])
    far = [n for n, value in own_differences(rows, returns=True) if abs(value) > MAX_REPLAY_ERROR]
    return (
        f"In their own held-out episodes, {len(found)} mean costs of these controllers differ from "
        f"the logged ones by {min(values):.2f} to {max(values):+.2f} spreads between episodes. "
        f"Too low by more than a quarter: {', '.join(low) or 'none'}. Too high by more than that: "
        f"{', '.join(high) or 'none'}. In {never} cases a cost is zero in the whole log. "
        f"The mean return differs by more than a quarter for {len(far)} of {len(rows)} controllers "
        f"({', '.join(far) or 'none'}), partly because their operators are not replayed."
    )


def table(rows: Rows) -> str:
    """One line for every controller that was left out."""
    lines = [
        "| Plant | Left out | Return: predicted | Expected from the log | On the plant | Error | "
        "Distance (allowed) | 10 % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        mode = mode_of(row)
        value, sigma = row["plant_return"]
        raw = float(mode.error[0] / mode.spread[0])
        lines.append(
            f"| {row['plant']} | {row['mode']} | {mode.predicted[0]:.4g} | "
            f"{mode.outcome.expected[0]:.4g} (± {SURE * mode.chance[0]:.2g}) | "
            f"{value:.4g} (± {SURE * sigma:.2g}) | {100 * raw:.0f} %, surely "
            f"{100 * mode.share:.0f} % | {mode.outside:.3g} "
            f"({RULE.farthest(mode.outside_incumbent):.3g}) | {answer(row)} |"
        )
    return "\n".join(lines)


def page() -> str:
    """The section from the stored rows."""
    rows = json.loads(RESULT.read_text())
    plants = len({row["plant"] for row in rows})
    logs = len({(row["plant"], row["seed"]) for row in rows})
    measured_on = f"Measured on {logs} logs of {plants} plants."
    return "\n\n".join([f"{measured_on} {counted(rows)}", costs(rows), table(rows)])


def main() -> int:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    if not arguments.page:
        for seed in arguments.seeds:
            for name in arguments.names or environment_names():
                rows = json.loads(RESULT.read_text()) if RESULT.is_file() else []
                made = [row for row in rows if (row["plant"], row["seed"]) == (name, seed)]
                if made and all("today" in row for row in made):
                    continue
                rows = [row for row in rows if row not in made] + measured(name, seed)
                rows.sort(key=lambda row: (row["plant"], row["seed"]))
                write_text(RESULT, json.dumps(rows, indent=1) + "\n")
                jax.clear_caches()  # programs of one plant are no use to the next
    print(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
