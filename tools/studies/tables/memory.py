r"""What memory is worth where one observation is not the state: DMSD without its velocities.

Usage:
    python tools/studies/tables/memory.py                        all cells that have no result yet
    python tools/studies/tables/memory.py --algorithms td3_bc --updates 8000 30000 100000
    python tools/studies/tables/memory.py --algorithms td3_bc --encoders history --set alpha=0
    python tools/studies/tables/memory.py --table                only the table so far

The velocities v1 and v2 are taken out of the log, and policies never see them. Beside each encoder
stands the same learner with all observations. Scores are normalised as in NeoRL-2, over the same
episodes for all. One result file holds the scores of all cells; a cell that is there is left out.
"""

import argparse
import dataclasses
import itertools
import json
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from learner_settings import learner_with
from neorl_agents import ALGORITHMS
from neorl_core.statistics import normalised_score
from neorl_envs import Dataset, collect_log, make
from neorl_envs.scoring import score_episodes, scores
from neorl_train import train
from neorl_train.data import training_data
from neorl_train.judging import NEORL2_RETURNS
from neorl_train.training import Plan, Watcher

OUT = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "memory.json"
OBSERVED = (0, 1, 4, 5)
"""Indices of the observations that remain: positions and targets."""

EPISODES = 200


class SilentWatcher(Watcher):
    """A watcher that reports nothing."""


class PartialObservation(eqx.Module):
    """A policy that is given only some of the observations."""

    policy: Any
    indices: tuple[int, ...] = eqx.field(static=True)

    def initial_carry(self) -> Any:  # noqa: D102
        return self.policy.initial_carry()

    def __call__(self, carry: Any, obs: Any, key: Any = None) -> tuple[Any, Any]:  # noqa: D102
        return self.policy(carry, obs[jnp.asarray(self.indices)], key)

    def sent(self, carry: Any, action: Any) -> Any:  # noqa: D102
        return self.policy.sent(carry, action)


def with_observations(dataset: Dataset, indices: tuple[int, ...]) -> Dataset:
    """The log with the observations of these indices only."""
    rows, columns = dataset.transitions, list(indices)
    spec = dataclasses.replace(dataset.spec, obs=tuple(dataset.spec.obs[i] for i in indices))
    assert rows.next_obs is not None  # as in every log
    rows = rows._replace(obs=rows.obs[:, columns], next_obs=rows.next_obs[:, columns])
    return dataclasses.replace(dataset, transitions=rows, spec=spec)


def cell(
    env: Any, dataset: Dataset, learner: Any, indices: tuple[int, ...], *, updates: int, seed: int
) -> dict[str, float]:
    """Trains one learner, and scores it on the plant."""
    started_at = time.process_time()
    plan = Plan(updates, 500, updates)
    data = training_data(with_observations(dataset, indices))
    trained = train(learner, data, (seed,), plan, watcher=SilentWatcher())
    seconds = time.process_time() - started_at
    keys = jax.random.split(jax.random.key(1), EPISODES)
    raw = scores(env, score_episodes(env, PartialObservation(trained.policies[0], indices), keys))
    low, high = NEORL2_RETURNS["DMSD"]
    normal = np.asarray(normalised_score(jnp.asarray(raw), low=low, high=high))
    return {
        "mean": round(float(normal.mean()), 2),
        "standard_error": round(float(normal.std(ddof=1) / np.sqrt(len(normal))), 2),
        "processor_seconds": round(seconds, 1),
    }


def main() -> None:
    args = _arguments()
    results = json.loads(args.out.read_text()) if args.out.is_file() else {}
    if not args.table:
        env = make("DMSD-v0")
        dataset = collect_log(env, n_steps=args.steps, key=jax.random.key(0))
        all_indices = tuple(range(env.spec.n_obs))
        changed = f"[{','.join(args.set)}]" if args.set else ""
        cells = itertools.product(args.algorithms, args.updates, args.encoders, args.seeds)
        for name, updates, encoder, seed in cells:
            label = f"{name}{changed} {updates} {encoder} {seed}"
            if label in results:
                continue
            learner = learner_with(
                ALGORITHMS[name],
                hidden=(64, 64),
                batch_size=128,
                encoder="none" if encoder == "all" else encoder,
                history_steps=args.history_steps,
                **{key: float(value) for key, value in (one.split("=") for one in args.set)},
            )
            indices = all_indices if encoder == "all" else OBSERVED
            results[label] = cell(env, dataset, learner, indices, updates=updates, seed=seed)
            print(label, results[label], flush=True)
            results["settings"] = {"steps": args.steps, "history_steps": args.history_steps}
            args.out.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))


def _arguments() -> Any:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--algorithms", nargs="+", default=["bc"])
    parser.add_argument("--encoders", nargs="+", default=["none", "history", "gru", "all"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--updates", nargs="+", type=int, default=[8_000])
    parser.add_argument("--set", nargs="+", default=[], help="hyperparameters, such as tau=0.02")
    parser.add_argument("--steps", type=int, default=20_000, help="rows of the log")
    parser.add_argument("--history-steps", type=int, default=4)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--table", action="store_true", help="print the table and train nothing")
    return parser.parse_args()


def table(results: dict[str, Any]) -> str:
    """Mean over seeds and, behind it, the deviation between seeds."""
    cells: dict[tuple[str, int, str], list[float]] = {}
    for label, result in results.items():
        if label != "settings":
            name, updates, encoder, _ = label.split()
            cells.setdefault((name, int(updates), encoder), []).append(result["mean"])
    encoders = ("none", "history", "gru", "all")
    lines = [
        "| Learner | updates | present alone | `history` | `gru` | with velocities |",
        "|---|---|---|---|---|---|",
    ]
    for name, updates in sorted({(name, updates) for name, updates, _ in cells}):
        row = []
        for encoder in encoders:
            means = cells.get((name, updates, encoder), [])
            spread = f" ± {np.std(means, ddof=1):.1f}" if len(means) > 1 else ""
            row.append(f"{np.mean(means):.1f}{spread}" if means else "")
        lines.append(f"| `{name}` | {updates:,} | {' | '.join(row)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
