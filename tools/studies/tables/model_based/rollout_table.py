r"""Learners on rollouts in a model on NeoRL-2's DMSD log and on a log of Pipeline, normalised.

Usage:
    python tools/studies/tables/model_based/rollout_table.py --seeds 0 1
    python tools/studies/tables/model_based/rollout_table.py --seeds 0 1 2 3 4 --updates 60000
    python tools/studies/tables/model_based/rollout_table.py --settings "penalty 0" --learners rambo
    python tools/studies/tables/model_based/rollout_table.py --show  the table so far, and into its page

The model of a log is fitted once a seed and given to every learner; its processor time stands
beside that of the learners. One setting serves both plants: networks of 64 and 64, batches of 128,
rates of 3e-4 (the temperature's 1e-3), the model of every learner's default. What differs is a
declaration: the targets of DMSD are exogenous. Other settings are a penalty of none, of a fifth and
of five times its default, and rollouts of 1 and of 15 steps. NeoRL-2's own log of Pipeline is not
among the shared data, so that one of 100,000 mixed steps is collected on the plant, which is
restated step for step. The table is ``OUT/PLANT.jsonl``, in the form of ``cell_table.py``; a cell
that is there is left out.
"""

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from neorl_agents import ALGORITHMS, LearnerState
from neorl_agents.learning import for_run
from neorl_agents.testing import sized
from neorl_core import InputError, Transition, unit_interval
from neorl_core.infrastructure import keep_compiled_programs
from neorl_core.infrastructure.command_line import cache_directory
from neorl_core.statistics import normalised_score, student_interval
from neorl_envs import Dataset, collect_log, make, read_dataset
from neorl_envs.recording import quality
from neorl_envs.scoring import score_episodes
from neorl_train import train
from neorl_train.data import TrainingData, training_data
from neorl_train.judging import NEORL2_RETURNS
from neorl_train.training import UNWATCHED, Plan, devices_for, offline_seeds, run_loop

sys.path.append(str(Path(__file__).resolve().parents[1]))

from cell_table import add_cell, made_on, read_table  # pyright: ignore[reportMissingImports]

ROOT = Path(__file__).resolve().parents[4]
OUT = ROOT / "tools" / "studies" / "benchmarks" / "results" / "model_based"
DMSD_LOG = ROOT.parent / "shared" / "data" / "neorl2" / "DMSD-high-100000-train.npz"
LEARNERS = ("mopo", "mobile", "combo", "rambo", "morel")
PENALTIES = {
    "mopo": "penalty_weight",
    "mobile": "penalty_weight",
    "combo": "conservative_weight",
    "rambo": "adversarial_weight",
    "morel": "halt_margin",
}
FEW = {"mobile": {"n_samples": 2}, "combo": {"n_samples": 3}}
"""In place of ten draws, whose time is most of an update's."""
EXOGENOUS = {"DMSD": ("target1", "target2"), "Pipeline": ()}
UPDATES, LONGER = 30_000, 60_000
CHUNK = 500


def learner(name: str, plant: str, setting: str) -> Any:
    """A learner with the setting of both plants, and one change."""
    made = sized(
        ALGORITHMS[name](), hidden=(64, 64), batch_size=128, actor_learning_rate=3e-4,
        temperature_learning_rate=1e-3, **FEW.get(name, {}),
    )  # fmt: skip
    made = dataclasses.replace(
        made, model=dataclasses.replace(made.model, exogenous=EXOGENOUS[plant])
    )
    kind, _, value = setting.partition(" ")
    if kind == "penalty":
        field = PENALTIES[name]
        return dataclasses.replace(made, **{field: float(value) * getattr(made, field)})
    if kind == "rollouts":
        return dataclasses.replace(
            made, rollouts=dataclasses.replace(made.rollouts, length=int(value), starts=400)
        )
    return made


SETTINGS = ("default", "penalty 0", "penalty 0.2", "penalty 5", "rollouts 1", "rollouts 15")


def log_of(plant: str) -> Dataset:
    """The published log in the units of the plant, or one that is collected on it."""
    env = make(f"{plant}-v0")
    if plant != "DMSD":
        policies, plan = quality(env, "mixed")
        return collect_log(env, policies, n_steps=100_000, key=jax.random.key(0), plan=plan)
    log = read_dataset(DMSD_LOG)
    rows, box = log.transitions, unit_interval(env.spec.action)

    def physical(action: Any) -> np.ndarray:
        return np.asarray(box.to_physical(jax.numpy.asarray(action)), np.float32)

    converted: Transition = rows._replace(action=physical(rows.action), next_action=None)
    converted = converted._replace(next_action=np.zeros_like(converted.action))
    return dataclasses.replace(
        log, transitions=converted, spec=dataclasses.replace(env.spec, cost=log.spec.cost)
    )


def fitted(name: str, plant: str, data: TrainingData, seed: int) -> tuple[LearnerState, float]:
    """The model of a log, and the processor seconds that its fit took."""
    fit = learner(name, plant, "default").fits()["model"]
    started_at = time.process_time()
    trained = train(fit.learner, data, (seed,), Plan(fit.updates, CHUNK, fit.updates))
    return trained.states()[0], time.process_time() - started_at


def score(plant: str, policy: Any) -> float:
    """The normalised score of 100 episodes."""
    env, keys = make(f"{plant}-v0"), jax.random.split(jax.random.key(11), 100)
    total = np.asarray(jax.jit(lambda one: score_episodes(env, one, keys).total)(policy))
    low, high = NEORL2_RETURNS[plant]
    return float(normalised_score(total.mean(), low=low, high=high))


def cell(
    made: Any, plant: str, data: TrainingData, model: LearnerState, seed: int, updates: int
) -> dict[str, Any]:
    """One training in a fitted model, and what came of it."""
    made, started_at = for_run(made, updates), time.process_time()
    queues = offline_seeds(made, data, (seed,), devices_for((seed,)), contexts=[{"model": model}])
    plan = Plan(updates, CHUNK, updates)
    try:
        done = run_loop(queues, made, plan, UNWATCHED, None, None, lambda: False)
        result: dict[str, Any] = {"score": round(score(plant, done.policies[0]), 2)}
    except InputError as error:
        result = {"score": None, "failure": str(error)}
    return result | {"seconds": round(time.process_time() - started_at, 1)}


def show(plant: str, path: Path) -> None:
    print(f"{plant}: normalised score, one line a learner; seconds of processor time")
    cells = read_table(path).cells
    for name in LEARNERS:
        mine = [one for one in cells if one["learner"] == name]
        for setting, updates in sorted({(one["setting"], one["updates"]) for one in mine}):
            these = [one for one in mine if (one["setting"], one["updates"]) == (setting, updates)]
            seconds = np.mean([one["seconds"] for one in these])
            scores = [one["score"] for one in these]
            print(f"  {name:8} {setting:12} {updates:,} {scores}  {seconds:.0f} s")


def page_rows() -> list[str]:
    """One row for each learner and plant; a setting is the mean of its seeds."""
    settings = " | ".join(SETTINGS[1:])
    rows = [
        f"| learner | plant | base setting, by seed | {LONGER:,} updates | {settings} "
        "| best less worst | seconds |"
    ]
    rows.append("|---" * (len(SETTINGS) + 5) + "|")
    for plant in EXOGENOUS:
        cells = read_table(OUT / f"{plant}.jsonl").cells
        for name in LEARNERS:
            all_of_it = [one for one in cells if one["learner"] == name]
            mine = [one for one in all_of_it if one["updates"] == UPDATES]
            longer = [one["score"] for one in all_of_it if one["updates"] == LONGER]
            by_setting = {
                setting: [one["score"] for one in mine if one["setting"] == setting]
                for setting in SETTINGS
            }
            words = [f"`{name}`", plant, ", ".join(map(_text, by_setting["default"]))]
            words.append(_interval_words(longer))
            words += [_mean_words(by_setting[setting]) for setting in SETTINGS[1:]]
            words.append(_spread_words(by_setting))
            usual = [one["seconds"] for one in mine if one["setting"] == "default"]
            words.append(f"{np.mean(usual):.0f}" if usual else "")
            rows.append(f"| {' | '.join(words)} |")
    return rows


def _mean_words(found: list[float | None]) -> str:
    """The mean of a setting's seeds, and how many they are; failures are counted, not averaged."""
    if not found:
        return ""
    scores = [score for score in found if score is not None]
    if not scores:
        return "failed"
    lost = f", {len(found) - len(scores)} failed" if len(scores) < len(found) else ""
    return f"{np.mean(scores):.1f} ({len(scores)}{lost})"


def _interval_words(found: list[float | None]) -> str:
    """The mean of a setting's seeds with its 95 % interval, and how many they are."""
    scores = [score for score in found if score is not None]
    if len(scores) < 2:
        return _mean_words(found)
    student = student_interval(np.asarray(scores), level=0.95)
    mean, _, number = _mean_words(found).partition(" ")
    return f"{mean} [{student.low:.1f}, {student.high:.1f}] {number}"


def _spread_words(by_setting: dict[str, list[float | None]]) -> str:
    """The largest mean of a setting less the smallest, where more than one was measured."""
    measured = {
        setting: np.mean([score for score in found if score is not None])
        for setting, found in by_setting.items()
        if any(score is not None for score in found)
    }
    if len(measured) < 2:
        return ""
    return f"{max(measured.values()) - min(measured.values()):.1f} ({len(measured)} settings)"


def _text(score: float | None) -> str:
    return "failed" if score is None else f"{score:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plants", nargs="+", default=list(EXOGENOUS), choices=list(EXOGENOUS))
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS), choices=LEARNERS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--updates", type=int, default=UPDATES)
    parser.add_argument("--settings", nargs="+", default=["default"], choices=SETTINGS)
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the tables ({OUT})")
    parser.add_argument("--show", action="store_true", help="print the tables and train nothing")
    args = parser.parse_args()
    keep_compiled_programs(cache_directory())
    args.out.mkdir(parents=True, exist_ok=True)
    for plant in args.plants:
        path = args.out / f"{plant}.jsonl"
        if not args.show:
            _fill(args, plant, path)
        show(plant, path)


def _fill(args: argparse.Namespace, plant: str, path: Path) -> None:
    data = training_data(log_of(plant))
    for seed in args.seeds:
        todo = [
            (name, setting)
            for setting in args.settings
            for name in args.learners
            if not any(
                (one["learner"], one["setting"], one["seed"], one["updates"])
                == (name, setting, seed, args.updates)
                for one in read_table(path).cells
            )
        ]
        if not todo:
            continue
        model, seconds = fitted("mopo", plant, data, seed)
        for name, setting in todo:
            made = learner(name, plant, setting)
            result = cell(made, plant, data, model, seed, args.updates)
            line = {"learner": name, "setting": setting, "seed": seed, "updates": args.updates}
            line |= result | {"model_seconds": round(seconds, 1)} | made_on()
            add_cell(path, line, ("learner", "setting", "seed", "updates"))


if __name__ == "__main__":
    main()
