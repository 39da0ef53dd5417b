r"""Train learners on one log and score them on its plant: one table a log, resumable.

Usage:
    python tools/studies/tables/learning_table.py --data ../shared/data/neorl2/DMSD-high-100000-train.npz \
        --environment DMSD-v0 --algorithms bc td3_bc iql --seeds 0 1 2 --updates 100000
    python tools/studies/tables/learning_table.py --environment CSTR-v0 --quality medium  own log
    python tools/studies/tables/learning_table.py --environment DMSD-v0 --table  only the table so far
    python tools/studies/tables/learning_page.py            the page of all tables

A cell is an algorithm with a seed. The log's table, ``LOG.jsonl``, holds its returns of all
episodes, how many of them tripped, the last training metrics, the date and what it was made of; a
cell that is there is left out, so that a run that was cut short goes on where it stopped. With
``--other NAME`` a cell of other settings than the table's goes to ``learning_settings.jsonl``.
Scores are returns less the plant's declared penalties, which the training reward has taken off too;
for the tasks of NeoRL-2 they are normalised by its references. Tunings of the plant stand in the
same table. A log without a plant (Simglucose) is trained on but not scored, for there is no
simulator of it here: with ``--held-out`` the policies' actions are compared with those of a log
that was not trained on.
"""

import argparse
import dataclasses
import functools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cell_table import add_also, add_cell, made_on, read_table
from learner_settings import flat_settings, learner_with, same_settings
from learning_page import OTHERS, beside_the_log, table
from neorl_agents import ALGORITHMS, LearnerState
from neorl_agents.learning import for_run
from neorl_core import CostChannel, InputError, Transition, unit_interval
from neorl_core.infrastructure import keep_compiled_programs
from neorl_core.infrastructure.command_line import cache_directory
from neorl_core.statistics import normalised_score
from neorl_envs import Dataset, collect_log, make, read_dataset
from neorl_envs.recording import quality
from neorl_envs.scoring import score_episodes, scores, test_mode
from neorl_envs.wrappers import shifted
from neorl_train import train
from neorl_train.data import TrainingData, training_data
from neorl_train.judging import NEORL2_RETURNS, training_signs
from neorl_train.training import Plan, Trained, Watcher, devices_for, offline_seeds, run_loop

OUT = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "learning"
LOGGED = sorted(name for name, kind in ALGORITHMS.items() if not kind.needs_rollouts)
AT_BOUND = 0.99  # of half the range, as the saturated share of Simglucose is counted


def prices(env: Any, costs: Sequence[CostChannel]) -> jax.Array:
    """Reward that one unit of each cost takes off; nothing where there is no plant."""
    weights = env.penalty_weights() if env is not None else {}
    return jnp.asarray([weights.get(cost.name, 0.0) for cost in costs], jnp.float32)


def penalised_data(env: Any, log: Dataset) -> TrainingData:
    """A log to be trained on, with its prices for learners that do not read its costs."""
    return training_data(log, penalty_weights=prices(env, log.spec.cost).tolist())


def main() -> None:
    args = _arguments()
    keep_compiled_programs(cache_directory())
    env = make(args.environment) if args.environment else None
    path = OTHERS if args.other else args.out / f"{_log_name(args)}.jsonl"
    if not args.table:
        data = _training_data(args, env)
        for algorithm in args.algorithms:
            _cells(args, env, data, path, algorithm)
        if env is not None and not args.other:
            _controllers(args, env, path)
    if not args.other:
        print(table(path) if env is not None else beside_the_log(path))


def _log_name(args: argparse.Namespace) -> str:
    name = args.environment or Path(args.data).stem
    return name if args.data else f"{name}-{args.quality}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="log to train on; without it one of the plant's own")
    parser.add_argument("--held-out", help="log without a plant to compare actions with")
    parser.add_argument("--environment", default="", help="plant to score on, such as DMSD-v0")
    parser.add_argument("--algorithms", nargs="+", default=LOGGED)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--updates", type=int, default=100_000)
    parser.add_argument("--chunk", type=int, default=500)
    parser.add_argument("--hidden", nargs="+", type=int, help="widths; the algorithms' own if left")
    parser.add_argument("--batch-size", type=int, help="rows; the algorithms' own if left")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="other fields")
    parser.add_argument(
        "--quality", default="mixed", help="of a log of the plant: random, medium, mixed, expert"
    )
    parser.add_argument("--steps", type=int, default=100_000, help="rows of a collected log")
    parser.add_argument("--episodes", type=int, default=200, help="episodes of every score")
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of tables ({OUT})")
    parser.add_argument("--other", default="", metavar="NAME", help="of settings to compare with")
    parser.add_argument("--table", action="store_true", help="print the table and train nothing")
    args = parser.parse_args()
    if not (args.data or args.environment):
        parser.error("give --data, --environment or both")
    unknown = set(args.algorithms) - set(ALGORITHMS)
    if unknown:
        parser.error(f"unknown algorithms {', '.join(sorted(unknown))}")
    return args


def _training_data(args: argparse.Namespace, env: Any) -> TrainingData:
    if args.data:
        dataset = read_dataset(args.data)
        dataset = dataset if env is None else in_units_of(env, dataset)
    else:
        policies, plan = quality(env, args.quality)
        dataset = collect_log(env, policies, n_steps=args.steps, key=jax.random.key(0), plan=plan)
    return penalised_data(env, dataset)


def in_units_of(env: Any, dataset: Dataset) -> Dataset:
    """A log whose actions are in [-1, 1] in the units and with the channels of its plant."""
    if len(dataset.spec.obs) != env.spec.n_obs or len(dataset.spec.action) != env.spec.n_action:
        raise SystemExit(
            f"the log has {len(dataset.spec.obs)} observations and {len(dataset.spec.action)} "
            f"actions, {env.name} has {env.spec.n_obs} and {env.spec.n_action}"
        )
    rows, box = dataset.transitions, unit_interval(env.spec.action)

    def physical(action: Any) -> np.ndarray:
        return np.asarray(box.to_physical(jnp.asarray(action)), np.float32)

    ends = np.asarray(rows.terminated) | np.asarray(rows.truncated)
    following = None if rows.next_action is None else physical(rows.next_action)
    if following is not None:
        following = np.where(ends[:, None], 0, following).astype(np.float32)
    converted: Transition = rows._replace(action=physical(rows.action), next_action=following)
    spec = dataclasses.replace(env.spec, cost=dataset.spec.cost)
    return dataclasses.replace(dataset, transitions=converted, spec=spec)


class _Last(Watcher):
    """Keeps the last metrics, and says how far it is."""

    def __init__(self, updates: int) -> None:
        self.metrics: list[dict[str, float]] = []
        self._updates, self._begun = updates, time.monotonic()

    def chunk(self, step: int, metrics: list[dict[str, float]]) -> None:
        self.metrics = metrics
        if step % 5_000 == 0:
            rate = step / (time.monotonic() - self._begun)
            print(f"  {step} of {self._updates}, {rate:.0f}/s", flush=True)


def _cells(args: argparse.Namespace, env: Any, data: TrainingData, path: Path, name: str) -> None:
    """All seeds of a learner that the table does not have, trained by one program."""
    learner = _learner(args, name, env)
    known = _known(args, path, name, learner)
    seeds = tuple(seed for seed in args.seeds if seed not in known)
    if not seeds:
        print(f"{path.name} has all seeds of {name}", flush=True)
        return
    print(f"{path.stem}: {name}, seeds {seeds}", flush=True)
    try:
        _stored(args, env, data, path, name, learner, seeds)
    except InputError:  # what diverged is a result too, and no other seed's
        for seed in seeds:
            try:
                _stored(args, env, data, path, name, learner, (seed,))
            except InputError as error:
                _add(args, path, {"algorithm": name, "seed": seed, "failure": str(error)}, learner)


def _known(args: argparse.Namespace, path: Path, name: str, learner: Any) -> set[int]:
    """The seeds of a learner that the table has; refuses a table of other settings."""
    known = set()
    for stored in read_table(path).cells:
        if stored["algorithm"] != name:
            continue
        if args.other and stored.get("name") != f"{args.other}-{stored['seed']}":
            continue
        alike = same_settings(learner, stored["hyperparameters"])
        if not alike or stored["updates"] != args.updates:
            raise SystemExit(f"{path}: {name} has other updates or settings there; give --out")
        known.add(stored["seed"])
    return known


def _stored(
    args: argparse.Namespace,
    env: Any,
    data: TrainingData,
    path: Path,
    name: str,
    learner: Any,
    seeds: tuple[int, ...],
) -> None:
    """Trains seeds side by side and stores a cell of each."""
    watcher = _Last(args.updates)
    started_at = time.monotonic()
    trained = _trained(learner, data, seeds, Plan(args.updates, args.chunk, args.updates), watcher)
    seconds = (time.monotonic() - started_at) / len(seeds)
    for seed, policy, metrics in zip(seeds, trained.policies, watcher.metrics, strict=True):
        line = {"kind": "chunk", "algorithm": name, "seed": seed, "step": args.updates}
        line["metrics"] = metrics
        result = {
            "algorithm": name,
            "seed": seed,
            "failure": "",
            "metrics": metrics,
            "signs": training_signs([line], {name: flat_settings(learner)}),
            "seconds": round(seconds, 1),
        }
        if env is not None:
            result["scores"], result["trips"] = _scores(args, env, policy)
            tested, result["test_trips"] = _scores(args, _in_test(env), policy)
            result["test_mode"] = float(f"{np.mean(tested):.6g}")
        elif args.held_out:
            result["held_out"] = _beside_the_log(policy, read_dataset(args.held_out))
        _add(args, path, result, learner)


MODELS: dict[tuple[int, str], LearnerState] = {}
"""Models of the log by seed and settings, which all learners of one command share."""


def _trained(
    learner: Any, data: TrainingData, seeds: tuple[int, ...], plan: Plan, watcher: Watcher
) -> Trained:
    """Trains seeds side by side, in the models of their seeds if the learner needs one."""
    if "model" not in learner.fits():
        return train(learner, data, seeds, plan, watcher=watcher)
    fit = learner.fits()["model"]
    # How a model is read changes nothing in its fit.
    alike = dataclasses.replace(fit.learner, uncertainty="disagreement", termination="learned")
    keys = [(seed, repr(alike)) for seed in seeds]
    missing = tuple(seed for seed, key in zip(seeds, keys, strict=True) if key not in MODELS)
    if missing:
        steps = Plan(fit.updates, plan.chunk, fit.updates)
        fitted = train(fit.learner, data, missing, steps).states()
        MODELS.update(zip(((seed, repr(alike)) for seed in missing), fitted, strict=True))
    made, contexts = for_run(learner, plan.updates), [{"model": MODELS[key]} for key in keys]
    queues = offline_seeds(made, data, seeds, devices_for(seeds), contexts=contexts)
    return run_loop(queues, made, plan, watcher, None, None, lambda: False)


def _add(args: argparse.Namespace, path: Path, result: dict[str, Any], learner: Any) -> None:
    """Adds a cell to the table with what it was made of."""
    own = f"{args.quality}, {args.steps} steps, seed 0"
    made = {
        "updates": args.updates,
        "hyperparameters": flat_settings(learner),
        "data": Path(args.data).name if args.data else own,
        "date": time.strftime("%Y-%m-%d"),
    } | made_on()
    called = {"name": f"{args.other}-{result['seed']}"} if args.other else {}
    order = ("name",) if args.other else ("algorithm", "seed")
    add_cell(path, {**called, **result, **made}, order)


def _learner(args: argparse.Namespace, name: str, env: Any) -> Any:
    defaults = flat_settings(ALGORITHMS[name]())
    given: dict[str, Any] = {}
    if "model" in defaults and env is not None:  # a declaration of the plant, as in a run's log
        model = ALGORITHMS[name]().model
        given["model"] = dataclasses.replace(model, exogenous=env.exogenous)
    if args.hidden:
        given["hidden"] = tuple(args.hidden)
    if args.batch_size:
        given["batch_size"] = args.batch_size
    for pair in args.set:
        field, _, value = pair.partition("=")
        if field in defaults:
            given[field] = value if isinstance(defaults[field], str) else json.loads(value)
    return learner_with(ALGORITHMS[name], **given)


def _beside_the_log(policy: Any, log: Dataset) -> dict[str, float]:
    """Root mean square distance of the actions in half ranges, and how many are at a bound."""
    box = unit_interval(log.spec.action)

    def act(one: Any) -> Any:
        return box.to_scaled(policy(policy.initial_carry(), one, None)[1])

    proposed = np.asarray(jax.jit(jax.vmap(act))(jnp.asarray(log.transitions.obs)))
    logged = np.asarray(box.to_scaled(jnp.asarray(log.transitions.action)))
    return {
        "distance": round(float(np.sqrt(np.mean((proposed - logged) ** 2))), 4),
        "at_bound": round(float(np.mean(np.abs(proposed) > AT_BOUND)), 4),
        "logged_at_bound": round(float(np.mean(np.abs(logged) > AT_BOUND)), 4),
    }


@functools.cache
def _in_test(env: Any) -> Any:
    """The plant with the constants of the mode of test."""
    return shifted(env, test_mode(env.name))


def _controllers(args: argparse.Namespace, env: Any, path: Path) -> None:
    if "controllers" not in read_table(path).also:
        by_name = {name: _scores(args, env, policy) for name, policy in env.tunings().items()}
        add_also(path, "controllers", {name: each for name, (each, _) in by_name.items()})
        add_also(path, "controller_trips", {name: trips for name, (_, trips) in by_name.items()})


def _scores(args: argparse.Namespace, env: Any, policy: Any) -> tuple[list[float], float]:
    """A score of every episode and the share that tripped.

    Scores are normalised where the task has published references.
    """
    keys = jax.random.split(jax.random.key(1), args.episodes)
    episodes = jax.device_get(score_episodes(env, policy, keys))
    scored = scores(env, episodes)
    ends = NEORL2_RETURNS.get(env.name.partition("-")[0])
    if ends is not None:
        scored = np.asarray(normalised_score(jnp.asarray(scored), low=ends[0], high=ends[1]))
    return [float(f"{x:.6g}") for x in scored], float(np.mean(episodes.trip))


if __name__ == "__main__":
    main()
