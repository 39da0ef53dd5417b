"""Fine-tune IQL, Cal-QL and ReBRAC on simulated plants and compare before with after.

Usage:
    python tools/tables/fine_tuning.py              cells without a result yet; all by default
    python tools/tables/fine_tuning.py DMSD-v0      one plant
    python tools/tables/fine_tuning.py --table      print the table of the stored results

A cell is a plant, a learner and a seed: offline training on a log of medium quality (one ordinary
tuning with its operators), then fine-tuning on the simulated plant behind its ranges and rates. Its
file in ``tools/benchmarks/results/fine_tuning/PLANT/LEARNER-SEED.json`` holds the returns of the
same fresh episodes before and after, the validations while it learned, and what happened on the
plant. A cell that has its file is left out, so that whoever was interrupted goes on.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents import ALGORITHMS
from neorl_core import Policy
from neorl_core.boundary import keep_compiled_programs
from neorl_core.costs import penalised_reward
from neorl_envs import collect_log, make
from neorl_envs.command_line import cache_directory
from neorl_envs.recording import quality
from neorl_envs.scoring import EpisodeScores, score_episodes
from neorl_safety.guards import guard
from neorl_train import fine_tune, train
from neorl_train.configuration import FineTuningConfig
from neorl_train.evaluation import crossed_estimate, mean_estimates
from neorl_train.evaluation._simulated import plant_constraints
from neorl_train.experience import TrainingData, training_data
from neorl_train.training import Plan, Watcher, online_counts

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tools/benchmarks/results/fine_tuning"
PLANTS, LEARNERS, SEEDS = ("DMSD-v0", "CSTR-v0"), ("iql", "rebrac", "cal_ql"), (0, 1, 2)
SIZES: dict[str, Any] = {"hidden": (64, 64), "batch_size": 128}
OFFLINE, ONLINE, INTERVAL, CHUNK = 10_000, 8_000, 2_000, 400
STEPS, EPISODES, CURVE_EPISODES, LEVEL = 20_000, 200, 32, 0.95
SETTINGS = FineTuningConfig(environments=8, warm_up=1_000, capacity=20_000)


def main() -> None:
    """Measures what is missing, then prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plants", nargs="*", default=PLANTS)
    parser.add_argument("--learners", nargs="+", default=LEARNERS)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    keep_compiled_programs(cache_directory())
    if not arguments.table:
        for seed in arguments.seeds:
            for plant in arguments.plants:
                for name in arguments.learners:
                    path = RESULTS / plant / f"{name}-{seed}.json"
                    if not path.exists():
                        measure(plant, name, seed, path)
    print(table())


def measure(plant: str, name: str, seed: int, path: Path) -> None:
    """One cell; the file is written last."""
    env, learner = make(plant), ALGORITHMS[name](**SIZES)
    data = medium_log(env)
    offline = train(learner, data, (seed,), Plan(OFFLINE, CHUNK, OFFLINE))
    curve: list[float] = []

    def judged(policy: Policy) -> dict[str, jax.Array]:
        score = scored(env, policy, CURVE_EPISODES, seed=7).mean()
        return {"score": jnp.asarray(score)}

    class Curve(Watcher):
        def validated(self, step: int, metrics: list[dict[str, float]]) -> None:
            curve.append(metrics[0]["score"])

    curve.append(float(judged(offline.policies[0])["score"]))
    online = fine_tune(
        learner,
        offline.states(),
        data,
        env,
        (seed,),
        Plan(ONLINE, CHUNK, INTERVAL),
        settings=SETTINGS,
        constraints=plant_constraints(env),
        watcher=Curve(),
        validate=judged,
    )
    counts = online_counts(online)[0]
    algorithm: Any = online.algorithm  # a dataclass, as all of ours
    reference = env.tunings()[env.reference]
    result = {
        "plant": plant,
        "learner": name,
        "seed": seed,
        "hyperparameters": dataclasses.asdict(algorithm),
        "settings": dataclasses.asdict(SETTINGS),
        "updates": {"offline": OFFLINE, "online": ONLINE},
        "log_rows": len(data.rows.obs),
        "before": scored(env, offline.policies[0], EPISODES, seed=1).tolist(),
        "after": scored(env, online.policies[0], EPISODES, seed=1).tolist(),
        "reference": scored(env, reference, EPISODES, seed=1).tolist(),
        "curve": curve,
        "curve_reference": float(scored(env, reference, CURVE_EPISODES, seed=7).mean()),
        "online": {field: np.asarray(value).tolist() for field, value in counts._asdict().items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result) + "\n")
    gain = np.mean(result["after"]) - np.mean(result["before"])
    print(f"{plant} {name} seed {seed}: gain {gain:+.2f}", flush=True)


def medium_log(env: Any) -> TrainingData:
    """A log of medium quality, with the plant's declared penalties taken off the reward."""
    who = quality(env, "medium")
    log = collect_log(env, who.controllers, plan=who.plan, n_steps=STEPS, key=jax.random.key(0))
    rows = log.transitions
    weights = env.penalty_weights()
    price = jnp.asarray([weights.get(c.name, 0.0) for c in env.spec.cost], jnp.float32)
    reward = penalised_reward(jnp.asarray(rows.reward), jnp.asarray(rows.cost), price)
    return training_data(
        dataclasses.replace(log, transitions=rows._replace(reward=np.asarray(reward)))
    )


def scored(env: Any, policy: Policy, episodes: int, *, seed: int) -> np.ndarray:
    """Return less the declared penalties of every episode, behind the plant's ranges and rates."""
    reference = env.tunings()[env.reference]
    behind = guard(policy, plant_constraints(env), reference, env.spec)
    keys = jax.random.split(jax.random.key(seed), episodes)
    found: EpisodeScores = jax.device_get(score_episodes(env, behind, keys))
    weights = env.penalty_weights()
    price = np.array([weights.get(c.name, 0.0) for c in env.spec.cost])
    return np.asarray(found.total, np.float64) - np.asarray(found.cost, np.float64) @ price


def table() -> str:
    """Before, after, gain with intervals, regret, and what happened on the plant."""
    lines = [
        "| Plant | Learner | Seeds | Reference | Before | After | Gain | Regret "
        "| Over a limit, trips, of episodes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for plant in PLANTS:
        for name in LEARNERS:
            paths = sorted((RESULTS / plant).glob(f"{name}-*.json"))
            cells = [json.loads(path.read_text()) for path in paths]
            if cells:
                lines.append(_line(plant, name, cells))
    return "\n".join(lines)


def _line(plant: str, name: str, cells: list[dict[str, Any]]) -> str:
    before, after = (np.array([cell[key] for cell in cells]) for key in ("before", "after"))
    reference = np.array([cell["reference"] for cell in cells])
    gain = _estimate(after - before)
    regret = np.mean([cell["curve_reference"] - np.mean(cell["curve"]) for cell in cells])
    episodes = sum(cell["online"]["episodes"] for cell in cells)
    broken = sum(sum(cell["online"]["violated"]) for cell in cells)
    trips = sum(cell["online"]["trips"] for cell in cells)
    entries = [
        plant,
        f"`{name}`",
        str(len(cells)),
        f"{reference.mean():.1f}",
        _words(_estimate(before)),
        _words(_estimate(after)),
        f"{gain.value:+.1f} [{gain.low:.1f}, {gain.high:.1f}]",
        f"{regret:.1f}",
        f"{broken}, {trips}, of {episodes}",
    ]
    return f"| {' | '.join(entries)} |"


def _words(estimate: Any) -> str:
    return f"{estimate.value:.1f} [{estimate.low:.1f}, {estimate.high:.1f}]"


def _estimate(samples: np.ndarray) -> Any:
    if len(samples) > 1:
        return crossed_estimate(samples, level=LEVEL)
    return mean_estimates(samples.T, level=LEVEL)[0]


if __name__ == "__main__":
    main()
