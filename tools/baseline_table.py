"""Measure the baselines of plants: returns, costs, scores and how often the limits were kept.

Usage:
    python tools/baseline_table.py [NAME ...]        all plants; into tools/baselines/NAME.json
    python tools/baseline_table.py --episodes 1000   the share of episodes that kept their limits
    python tools/baseline_table.py --check NAME      exit 1 where a stored mean is not met again
    python tools/baseline_table.py --missing         only plants that have no result yet

Rows: uniform random actions, the best of 200 constant actions (screened on few episodes, the best
five measured), the documented bad policy, every tuning, and the reference on plants with twice the
randomisation (``shifted``). A score is the return less the declared penalties; errors are standard
errors over episodes. Random and reference become the anchors of the normalised score.
"""

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_core import highs, lows
from neorl_core.control import ConstantPolicy, UniformPolicy
from neorl_envs import environment_names, make
from neorl_envs.scoring import EpisodeScores, kept, score_episodes, scores

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "tools/baselines"
ANCHORS = ROOT / "packages/neorl-envs/src/neorl_envs/scoring/anchors.json"
CONSTANTS, SCREEN, FINALISTS = 200, 8, 5
SPREAD, SHIFTED = 0.15, 0.3
SEED = 20_000


def main() -> int:
    """Measures the plants asked for, writes what was found and prints it."""
    arguments = _arguments()
    known = environment_names()
    names = arguments.names or known
    for name in names:
        path = RESULTS / f"{name}.json"
        if arguments.missing and path.exists():
            continue
        if arguments.check:
            if _differs(path, measured(name, 30)):
                return 1
            continue
        result = measured(name, arguments.episodes)
        RESULTS.mkdir(exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")
        print("\n".join(table(result)), flush=True)
        write_anchors()
    return 0


def measured(name: str, episodes: int) -> dict[str, Any]:
    """All rows of one plant."""
    env: Any = make(name)
    keys = jax.random.split(jax.random.key(SEED), episodes)
    low, high = (jnp.asarray(ends(env.spec.action)) for ends in (lows, highs))
    rows = [_row("random", env, score_episodes(env, UniformPolicy(low, high), keys))]
    best = _best_constant(env, keys)
    rows.append(_row("best constant", env, score_episodes(env, best, keys)))
    rows[-1]["action"] = np.asarray(best.action).tolist()
    bad = bad_policy(env)
    if bad is not None:
        rows.append(_row("bad policy", env, score_episodes(env, bad, keys)))
    for tuning, policy in env.tunings().items():
        rows.append(_row(tuning, env, score_episodes(env, policy, keys, spread=SPREAD)))
    reference = env.tunings()[env.reference]
    shifted = score_episodes(env, reference, keys, spread=SHIFTED)
    rows.append(_row(f"{env.reference}, shifted", env, shifted))
    return {
        "plant": name,
        "unit": env.reward_unit,
        "reference": env.reference,
        "episodes": episodes,
        "spread": SPREAD,
        "shifted": SHIFTED,
        "costs": [channel.name for channel in env.spec.cost],
        "rows": rows,
    }


def bad_policy(env: Any) -> Any:
    """The documented bad policy of a plant of this package, or nothing."""
    package = type(env).__module__.rpartition(".")[0]
    try:
        return importlib.import_module(f"{package}._control").bad_policy()
    except (ImportError, AttributeError):
        return None


def table(result: dict[str, Any]) -> list[str]:
    """The rows as Markdown."""
    costs = result["costs"]
    head = ["", f"return [{result['unit']}]", "score", *costs, *(f"kept {c}" for c in costs)]
    lines = [f"| {' | '.join([*head, 'steps'])} |", "|---" * (len(head) + 1) + "|"]
    for row in result["rows"]:
        shares = [f"{100 * row['kept'][cost]:.4g} %" for cost in costs]
        sums = [f"{row['cost'][cost]:.3g}" for cost in costs]
        name = f"**{row['policy']}**" if row["policy"] == result["reference"] else row["policy"]
        pairs = [f"{_short(row[x])} ± {row[x + '_error']:.2g}" for x in ("return", "score")]
        cells = [name, *pairs, *sums, *shares, f"{row['steps']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def write_anchors() -> None:
    """The anchors of all stored results, in the package."""
    plants = {}
    for path in sorted(RESULTS.glob("*.json")):
        result = json.loads(path.read_text())
        rows = {row["policy"]: row for row in result["rows"]}
        random, reference = rows["random"], rows[result["reference"]]
        plants[result["plant"]] = {
            "random": random["score"],
            "reference": reference["score"],
            "random_error": random["score_error"],
            "reference_error": reference["score_error"],
            "episodes": result["episodes"],
            "unit": result["unit"],
        }
    document = {"format": "neorl-score-anchors", "version": 1, "plants": plants}
    ANCHORS.write_text(json.dumps(document, indent=1) + "\n")


def _best_constant(env: Any, keys: Any) -> ConstantPolicy:
    rng = np.random.default_rng(SEED)
    low, high = (np.asarray(ends(env.spec.action)) for ends in (lows, highs))
    draws = rng.uniform(low, high, (CONSTANTS, low.size))
    draws[:3] = low, high, (low + high) / 2
    few = keys[:SCREEN]

    def each(action: Any) -> EpisodeScores:
        return score_episodes(env, ConstantPolicy(action), few)

    actions = jnp.asarray(draws, jnp.float32)
    found = jax.jit(jax.vmap(each))(actions)
    rough = np.asarray(
        [scores(env, jax.tree.map(lambda x, i=i: x[i], found)).mean() for i in range(CONSTANTS)]
    )
    best = np.argsort(-rough)[:FINALISTS]
    fine = [scores(env, score_episodes(env, ConstantPolicy(actions[i]), keys)).mean() for i in best]
    return ConstantPolicy(actions[best[int(np.argmax(fine))]])


def _row(policy: str, env: Any, found: EpisodeScores) -> dict[str, Any]:
    names = [channel.name for channel in env.spec.cost]
    found = jax.tree.map(np.asarray, found)
    score, kept_share = scores(env, found), kept(env, found).mean(axis=0)
    root = np.sqrt(len(score))
    return {
        "policy": policy,
        "return": float(found.total.mean()),
        "return_error": float(found.total.std(ddof=1) / root),
        "score": float(score.mean()),
        "score_error": float(score.std(ddof=1) / root),
        "cost": dict(zip(names, found.cost.mean(axis=0).tolist(), strict=True)),
        "kept": dict(zip(names, kept_share.tolist(), strict=True)),
        "steps": float(found.length.mean()),
        "trips": float(found.trip.mean()),
        "successes": float(found.success.mean()),
    }


def _differs(path: Path, fresh: dict[str, Any]) -> bool:
    """Whether a stored mean is further from a fresh one than five standard errors."""
    stored = {row["policy"]: row for row in json.loads(path.read_text())["rows"]}
    worst = False
    for row in fresh["rows"]:
        if row["policy"] == "best constant":
            continue
        before = stored.get(row["policy"])
        error = 5 * np.hypot(row["score_error"], before["score_error"]) if before else 0.0
        if before is None or abs(row["score"] - before["score"]) > error + 1e-6:
            print(f"{path.stem}, {row['policy']}: {row['score']:.4g}, stored: {before}")
            worst = True
    return worst


def _short(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="plants (all)")
    parser.add_argument("--episodes", type=int, default=100, help="episodes of every row (100)")
    parser.add_argument("--missing", action="store_true", help="only plants without a result")
    parser.add_argument("--check", action="store_true", help="compare with what is stored")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
