"""Count the false alarms of a drift monitor on long healthy operation of every plant.

Each plant runs under its reference controller. 199 episodes set the threshold, for false alarms in
5 % of the stretches of an episode's length: once with a monitor that begins anew in every episode,
once with one that runs on. Then 64 other plants of the same kind run on for twenty times as long,
from their start, with one monitor each, and the stretches with an alarm are counted. A third
threshold is that of the stretches of half of these long records, tried on the other half. Stored in
``tools/studies/benchmarks/results/drift_alarms.json``:

    python tools/studies/tables/drift_alarms.py [NAME ...]
"""

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_core.statistics import conformal_quantile
from neorl_envs.plants import PLANTS
from neorl_safety.monitoring import (
    MonitorInput,
    alarms_per_day,
    drift_monitor,
    episode_scores,
    operation_scores,
)

OUT = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "drift_alarms.json"
SHARE, CALIBRATION, LONG, TIMES = 0.05, 199, 64, 20


def main() -> int:
    """Measures, prints one line a plant, writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    done = json.loads(OUT.read_text()) if OUT.is_file() else {}
    for name in arguments.names or PLANTS:
        done[name] = counted(PLANTS[name])
        print(name, done[name], flush=True)
        OUT.write_text(json.dumps(done, indent=1) + "\n")
    return 0


def counted(make: Any) -> dict[str, Any]:
    """Promise and count of one plant."""
    plant = make()
    spec, horizon = plant.spec, plant.spec.horizon
    policy = plant.tunings()[plant.reference]
    keys = jax.random.split(jax.random.key(0), 3)
    fit = operated(plant, policy, jax.random.split(keys[0], 40), horizon)
    held_out = operated(plant, policy, jax.random.split(keys[1], CALIBRATION), horizon)
    operation = operated(plant, policy, jax.random.split(keys[2], LONG), TIMES * horizon)
    monitor = drift_monitor(np.asarray(fit).reshape(-1, spec.n_obs))
    none = jnp.zeros((*held_out.shape[:2], spec.n_action))
    thresholds = {
        "anew": episode_scores(monitor, held_out, none),
        "running on": operation_scores(monitor, held_out, none),
    }
    scores = along(monitor, operation).reshape(LONG, TIMES, horizon).max(axis=2)
    seconds = horizon * spec.dt
    counts: dict[str, Any] = {"stretch_s": seconds, "promised": SHARE}
    counts["promised_per_day"] = round(alarms_per_day(SHARE, seconds), 4)
    half = LONG // 2
    thresholds["of long records"] = jnp.asarray(scores[:half].ravel())
    for way, values in thresholds.items():
        threshold = float(conformal_quantile(values, miscoverage=SHARE))
        tried = scores[half:] if way == "of long records" else scores
        alarmed = (tried > threshold).mean(axis=1)
        share, error = float(alarmed.mean()), float(alarmed.std(ddof=1) / np.sqrt(len(tried)))
        counts[way] = {
            "stretches with an alarm": round(share, 4),
            "standard error": round(error, 4),
            "per_day": round(alarms_per_day(share, seconds), 4),
            "runs with an alarm": round(float((tried > threshold).any(axis=1).mean()), 3),
        }
    return counts


def along(monitor: Any, obs: Any) -> np.ndarray:
    """Values of a monitor that begins once, shape ``(run, time)``."""

    def run(rows: Any) -> Any:
        def step(carry: Any, now: Any) -> Any:
            carry, score = monitor(carry, MonitorInput(now, jnp.zeros(1), jnp.zeros(1)))
            return carry, score.value

        return jax.lax.scan(step, monitor.initial_carry(), rows)[1]

    return np.asarray(jax.jit(jax.vmap(run))(obs))


def operated(plant: Any, policy: Any, keys: Any, steps: int) -> Any:
    """Observations of so many plants for so many steps; one that ends begins again."""

    def run(key: Any) -> Any:
        first, second, third = jax.random.split(key, 3)
        params = plant.sample_params(first)
        state, obs = plant.reset(params, second)
        start = state, obs, policy.initial_carry()

        def step(now: Any, key: Any) -> Any:
            state, obs, carry = now
            carry, action = policy(carry, obs, None)
            state, out = plant.step(params, state, action, key)
            carry = policy.sent(carry, out.applied)
            after = jax.tree.map(
                lambda new, old: jnp.where(out.terminated, old, new),
                (state, out.obs, carry),
                start,
            )
            return after, obs

        return jax.lax.scan(step, start, jax.random.split(third, steps))[1]

    return jax.jit(jax.vmap(run))(keys)


if __name__ == "__main__":
    raise SystemExit(main())
