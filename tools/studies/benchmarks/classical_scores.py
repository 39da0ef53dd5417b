"""Classical controllers on DMSD and Pipeline of NeoRL-2, each fitted on a log alone.

DMSD: identified from the official train file (its actions are parts of 30 N). Pipeline: from 20
episodes of the plant under its proportional controller ``P 0.02`` and the operators of
``collect_log``, since the published file is of another version; and from 20 episodes of random
actions, so that it is known what a bad log gives. Scores are normalised as published, on fresh
episodes of the restated plants, the same for every controller; the mean score of each log stands
beside them. Writes the score of every episode and prints means with their standard errors:

    python tools/studies/benchmarks/classical_scores.py
    python tools/studies/benchmarks/classical_scores.py --episodes 100 --only dmsd
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from _rounds import RESULTS, machine, write

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("NEORL_SHARED_DATA", ROOT.parent / "shared/data"))
PUBLISHED = {"DMSD-v0": ("EDAC", 78.7), "Pipeline-v0": ("TD3+BC", 82.0)}


def main() -> int:
    """Fits and scores all controllers of both plants."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=300, help="episodes of each (300)")
    parser.add_argument("--only", choices=("dmsd", "pipeline", "random"), help="one log alone")
    parser.add_argument("--out", type=Path, default=RESULTS / "classical_scores.json")
    arguments = parser.parse_args()
    cases = {"dmsd": _dmsd, "pipeline": _pipeline, "random": _random}
    chosen = [arguments.only] if arguments.only else list(cases)
    tables, logs = {}, {}
    for name in chosen:
        plant, log, task, controllers = cases[name]()
        title = plant.name if name != "random" else f"{plant.name}, random log"
        logs[title] = _log_score(plant.name, log)
        print(f"{title}: the log scores {logs[title]:.1f}")
        tables[title] = _scored(plant, log, task, controllers, arguments.episodes)
    result = {
        "benchmark": "classical_scores",
        "unit": "normalised score",
        "published": PUBLISHED,
        "logs": logs,
        "tables": tables,
        **machine(),
    }
    write(arguments.out, result)
    return 0


def _dmsd() -> tuple[Any, Any, Any, dict[str, Any]]:
    import neorl_envs
    from neorl_agents.classical import LQG, MPC, ImitatedPID, Loop, Task
    from neorl_core import Transition

    columns = np.load(DATA / "neorl2/DMSD-high-100000-train.npz")
    rows = len(columns["reward"])
    ends: Any = (np.zeros(rows, bool), np.arange(rows) % 100 == 99)
    log = Transition(
        columns["obs"],
        30 * columns["action"],
        columns["reward"],
        next_obs=columns["next_obs"],
        terminated=ends[0],
        truncated=ends[1],
    )
    task = Task((Loop("x1", "force1", "target1"), Loop("x2", "force2", "target2")), ("v1", "v2"))
    options: dict[str, Any] = {"effort": 1e-5, "longest_delay": 3, "orders": 2}
    return (
        neorl_envs.make("DMSD-v0"),
        log,
        task,
        {
            "pid_imitation": ImitatedPID(derivative=True),
            "lqg": LQG(**options),
            "lqg subspace": LQG(**{**options, "orders": 4}, method="subspace"),
            "mpc": MPC(**options),
        },
    )


def _pipeline() -> tuple[Any, Any, Any, dict[str, Any]]:
    import jax

    import neorl_envs
    from neorl_agents.classical import LQG, MPC, ImitatedPID, Loop, SmithPID, Task, TunedPID

    plant = neorl_envs.make("Pipeline-v0")
    behaviour = {"P 0.02": plant.tunings()["P 0.02"]}
    log = neorl_envs.collect_log(plant, behaviour, n_steps=20_000, key=jax.random.key(7))
    task = Task((Loop("outflow", "gate", "target"),))
    modelled = {"smith": SmithPID(), "lqg": LQG(), "mpc": MPC()}
    return (
        plant,
        log.transitions,
        task,
        {"pid": TunedPID(), "pid_imitation": ImitatedPID(), **modelled},
    )


def _random() -> tuple[Any, Any, Any, dict[str, Any]]:
    """Pipeline from a log of random actions, for the controllers that identify a model."""
    import jax

    import neorl_envs
    from neorl_envs.recording import quality

    plant, _, task, controllers = _pipeline()
    policies, plan = quality(plant, "random")
    log = neorl_envs.collect_log(plant, policies, n_steps=20_000, key=jax.random.key(7), plan=plan)
    modelled = {name: controllers[name] for name in ("smith", "lqg", "mpc")}
    return plant, log.transitions, task, modelled


def _log_score(name: str, log: Any) -> float:
    """Mean normalised return of the log's episodes."""
    reward = np.asarray(log.reward, np.float64)
    counts = np.ones(len(reward), bool) if log.mask is None else np.asarray(log.mask)
    ends = np.asarray(log.terminated) | np.asarray(log.truncated)
    return float(_normalised(name, reward[counts].sum() / ends[counts].sum()))


def _normalised(name: str, returns: Any) -> Any:
    from neorl_train.judging import NEORL2_RETURNS

    low, high = NEORL2_RETURNS[name.partition("-")[0]]
    return 100 * (returns - low) / (high - low)


def _scored(
    plant: Any, log: Any, task: Any, controllers: dict[str, Any], episodes: int
) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    from neorl_train.judging import rollouts

    policies = dict.fromkeys(controllers) | {plant.reference: plant.tunings()[plant.reference]}
    table: dict[str, Any] = {}
    for name in policies:
        begin, report = time.perf_counter(), {}
        policy = policies[name]
        if policy is None:
            policy, report = controllers[name].fit(log, plant.spec, task)
        fitted = time.perf_counter() - begin
        starts = jnp.arange(episodes)
        rows = rollouts(plant, policy, jax.random.key(11), starts)
        returns = np.asarray(jnp.sum(jnp.where(rows.mask, rows.reward, 0), axis=1), np.float64)
        scores = _normalised(plant.name, returns)
        mean, error = float(scores.mean()), float(scores.std(ddof=1) / np.sqrt(episodes))
        kind = "fitted" if report else "plant's own"
        print(f"{plant.name} {name:<16} {mean:6.1f} +- {error:.1f} ({kind}, {fitted:.1f} s)")
        table[name] = {
            "settings": repr(controllers.get(name, "")),
            "mean": mean,
            "standard_error": error,
            "episodes": episodes,
            "report": report,
            "scores": [round(float(score), 3) for score in scores],
        }
    return table


if __name__ == "__main__":
    raise SystemExit(main())
