"""Count the false alarms of conformal thresholds over many splits of the same held-out episodes.

Usage:
    python tools/studies/tables/alarm_rates.py [NAME ...]  plants without a result yet; all four by default
    python tools/studies/tables/alarm_rates.py --again NAME

The logs, the split and the ensemble are those of ``critic_table.py``; nothing is fitted but the
ensemble, once a plant. Every held-out episode that keeps its limits has one score: the largest
disagreement of its steps. Then, ``--splits`` times, half of them at random set the threshold and
the other half are counted. Stored in ``tools/studies/benchmarks/results/alarm_rates.json`` with the
scores, so that the counts can be made again without a fit.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from critic_table import (
    DMSD,
    PLANTS,
    RESULTS,
    CriticOptions,
    official_log,
    padded_episodes,
    plant_log,
    violates_limits,
)
from neorl_agents.critics import disagreement, fit_ensemble
from neorl_core.statistics import conformal_quantile
from neorl_envs.datasets import split_episodes
from neorl_safety.monitoring import CriticMonitor, episode_scores

OUT = RESULTS.parent / "alarm_rates.json"


def main() -> int:
    """Measures what is missing and prints one line a plant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--false-alarms", type=float, default=0.1)
    parser.add_argument("--data", type=Path, default=RESULTS.parents[4].parent / "shared/data")
    arguments = parser.parse_args()
    done = json.loads(OUT.read_text()) if OUT.is_file() else {}
    for name in arguments.names or PLANTS:
        if arguments.again or name not in done:
            score = quiet_scores(name, arguments)
            counts = counted(score, arguments.splits, arguments.false_alarms)
            done[name] = {"steps": arguments.steps, "scores": score.round(4).tolist()} | counts
            OUT.parent.mkdir(parents=True, exist_ok=True)
            OUT.write_text(json.dumps(done, indent=1) + "\n")
        shown = {key: value for key, value in done[name].items() if key != "scores"}
        print(name, shown, flush=True)
    return 0


def quiet_scores(name: str, arguments: argparse.Namespace) -> np.ndarray:
    """The largest disagreement of every held-out episode that keeps its limits."""
    log = official_log(arguments) if name == DMSD else plant_log(name, "mixed", arguments.steps)
    training, held_out = split_episodes(log, 0.7, jax.random.key(1))
    options = CriticOptions()
    key = jax.random.split(jax.random.key(options.seed), 3)[0]
    fitted = fit_ensemble(
        training.transitions,
        training.spec,
        key,
        learner=options.ensemble_learner(),
        updates=options.ensemble_updates,
        coverage=options.coverage,
    )
    endless = CriticMonitor(fitted.ensemble, jnp.asarray(jnp.inf, jnp.float32), disagreement)
    quiet = held_out.select_episodes(~violates_limits(held_out))
    return np.asarray(episode_scores(endless, *padded_episodes(quiet)), np.float64)


def counted(score: np.ndarray, splits: int, false_alarms: float) -> dict[str, Any]:
    """False alarms of so many random splits into halves."""
    half = len(score) // 2
    rate = np.zeros(splits)
    for i in range(splits):
        order = np.random.default_rng(i).permutation(len(score))
        threshold = conformal_quantile(score[order[:half]], miscoverage=false_alarms)
        rate[i] = (score[order[half:]] > float(threshold)).mean()
    return {
        "promised": false_alarms,
        "threshold_episodes": half,
        "counted_episodes": len(score) - half,
        "splits": splits,
        "mean_rate": round(float(rate.mean()), 4),
        "standard_error": round(float(rate.std(ddof=1) / np.sqrt(splits)), 4),
        "quantiles_5_50_95": np.quantile(rate, [0.05, 0.5, 0.95]).round(3).tolist(),
        "largest_rate": round(float(rate.max()), 4),
    }


if __name__ == "__main__":
    raise SystemExit(main())
