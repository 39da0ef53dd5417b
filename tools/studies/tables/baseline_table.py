"""Measure the baselines of plants: returns, costs, scores and how often the limits were kept.

Usage:
    python tools/studies/tables/baseline_table.py [NAME ...]  all plants; into tools/studies/baselines/NAME.json
    python tools/studies/tables/baseline_table.py --episodes 1000  share of episodes that kept their limits
    python tools/studies/tables/baseline_table.py --check NAME  exit 1 where a stored mean is not met again
    python tools/studies/tables/baseline_table.py --missing         only plants that have no result yet
    python tools/studies/tables/baseline_table.py --constants NAME  search the best constant of a plant anew

Rows: uniform random actions, the best constant action (random draws, then the cross-entropy
method, then one channel at a time, on episodes common to all; the best five are compared on
others, and the row is measured on fresh ones; searched once and kept with the result), the
documented bad policy, every tuning, the reference on plants with twice the randomisation
(``shifted``; none where nothing is drawn), and the ordinary controller and the reference in the
mode of test (``neorl_envs.scoring.TEST_MODES``). A score is the return
less the declared penalties; errors are standard errors over episodes. Random and reference become
the anchors of the normalised score.
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

from cross_entropy import SearchResult, search
from neorl_core import highs, lows
from neorl_core.control import ConstantPolicy, UniformPolicy
from neorl_envs import environment_names, make
from neorl_envs.blocks import named_constants
from neorl_envs.scoring import EpisodeScores, score_episodes, scores, test_mode, within_limits
from neorl_envs.wrappers import shifted

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "tools/studies/baselines"
ANCHORS = ROOT / "packages/neorl-envs/src/neorl_envs/scoring/anchors.json"
COMPARED = 128  # episodes on which the finalists of the search for a constant are compared
SPREAD, SHIFTED = 0.15, 0.3
SEED, SEARCH_SEED, COMPARED_SEED = 20_000, 20_001, 20_002


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
            if _differs(path, measured(name, 30, stored_constant(path))):
                return 1
            continue
        if arguments.modes:
            result = with_modes(json.loads(path.read_text()))
        else:
            constant = None if arguments.constants else stored_constant(path)
            result = measured(name, arguments.episodes, constant, tuple(arguments.search))
        RESULTS.mkdir(exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")
        print("\n".join(table(result)), flush=True)
        write_anchors()
    return 0


def measured(
    name: str,
    episodes: int,
    constant: dict[str, Any] | None,
    search_size: tuple[int, int, int] = (20, 24, 64),
) -> dict[str, Any]:
    """All rows of one plant; the best constant is searched where none is given."""
    env: Any = make(name)
    keys = jax.random.split(jax.random.key(SEED), episodes)
    low, high = (jnp.asarray(ends(env.spec.action)) for ends in (lows, highs))
    rows = [row_of("random", env, score_episodes(env, UniformPolicy(low, high), keys))]
    constant = constant or best_constant(env, *search_size)
    best = ConstantPolicy(jnp.asarray(constant["action"], jnp.float32))
    rows.append(row_of("best constant", env, score_episodes(env, best, keys)) | constant)
    bad = bad_policy(env)
    if bad is not None:
        rows.append(row_of("bad policy", env, score_episodes(env, bad, keys)))
    for tuning, policy in env.tunings().items():
        rows.append(row_of(tuning, env, score_episodes(env, policy, keys, spread=SPREAD)))
    reference = env.tunings()[env.reference]
    if any(leaf.spread for _, leaf, _ in named_constants(env.constants)):  # else nothing is drawn
        wide = score_episodes(env, reference, keys, spread=SHIFTED)
        rows.append(row_of(f"{env.reference}, shifted", env, wide))
    rows += mode_rows(env, keys)
    return {
        "plant": name,
        "unit": env.reward_unit,
        "reference": env.reference,
        "episodes": episodes,
        "spread": SPREAD,
        "shifted": SHIFTED,
        "test_mode": test_mode(name),
        "costs": [channel.name for channel in env.spec.cost],
        "rows": rows,
    }


def mode_rows(env: Any, keys: Any) -> list[dict[str, Any]]:
    """The ordinary controller and the reference in the mode of test, and what they lose there.

    Episodes are paired: the same keys in both modes.
    """
    test = shifted(env, test_mode(env.name))
    tunings, rows = env.tunings(), []
    for tuning in dict.fromkeys((next(iter(tunings)), env.reference)):
        train, changed = (score_episodes(e, tunings[tuning], keys) for e in (env, test))
        lost = scores(env, jax.device_get(train)) - scores(env, jax.device_get(changed))
        error = float(lost.std(ddof=1) / np.sqrt(lost.size))
        row = row_of(f"{tuning}, test mode", env, changed)
        rows.append(row | {"lost": float(lost.mean()), "lost_error": error})
    return rows


def with_modes(result: dict[str, Any]) -> dict[str, Any]:
    """A stored result with its rows of the mode of test measured anew."""
    env: Any = make(result["plant"])
    keys = jax.random.split(jax.random.key(SEED), result["episodes"])
    drawn = any(leaf.spread for _, leaf, _ in named_constants(env.constants))
    old = (", test mode",) if drawn else (", test mode", ", shifted")
    rows = [row for row in result["rows"] if not row["policy"].endswith(old)]
    changed = {"test_mode": test_mode(env.name), "rows": [*rows, *mode_rows(env, keys)]}
    return result | changed


def bad_policy(env: Any) -> Any:
    """The documented bad policy of a plant of this package, or nothing."""
    module = type(env).__module__
    package = module.rpartition("._")[0] or module  # the folder of the plant, or its file
    try:
        return importlib.import_module(package).bad_policy()
    except AttributeError:
        return None


def table(result: dict[str, Any]) -> list[str]:
    """The rows as Markdown."""
    costs = result["costs"]
    shares = [f"{cost} within limit" for cost in costs]
    head = ["", f"return [{result['unit']}]", "score", *costs, *shares]
    lines = [f"| {' | '.join([*head, 'trips', 'steps'])} |", "|---" * (len(head) + 2) + "|"]
    for row in result["rows"]:
        shares = [f"{100 * row['kept'][cost]:.4g} %" for cost in costs]
        sums = [f"{row['cost'][cost]:.3g}" for cost in costs]
        name = f"**{row['policy']}**" if row["policy"] == result["reference"] else row["policy"]
        pairs = [f"{_short(row[x])} ± {row[x + '_error']:.2g}" for x in ("return", "score")]
        cells = [name, *pairs, *sums, *shares, f"{100 * row['trips']:.3g} %", f"{row['steps']:.0f}"]
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


def best_constant(
    env: Any, generations: int, episodes: int, population: int, start: Any = None
) -> dict[str, Any]:
    """The best constant action of a search, and how many were tried.

    ``start``: actions that take part in the search and among the finalists.
    """
    low, high = (np.asarray(ends(env.spec.action), np.float64) for ends in (lows, highs))
    keys = jax.random.split(jax.random.key(SEARCH_SEED), episodes)
    result: SearchResult = search(
        _scorer(env, keys),
        low,
        high,
        seed=SEARCH_SEED,
        population=population,
        first=3 * population,
        generations=generations,
        start=start,
        n_best=5,
    )
    others = jax.random.split(jax.random.key(COMPARED_SEED), COMPARED)
    finalists = result.best if start is None else np.concatenate([result.best, start])
    best = finalists[int(np.argmax(_scorer(env, others)(finalists)))]
    return {
        "action": np.asarray(best, np.float32).tolist(),
        "candidates": result.candidates,
        "search_episodes": episodes,
    }


def stored_constant(path: Path) -> dict[str, Any] | None:
    """The constant of a stored result and its search, if it was searched as today."""
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    row = next((row for row in rows if row["policy"] == "best constant"), {})
    names = ("action", "candidates", "search_episodes")
    return {name: row[name] for name in names} if "candidates" in row else None


def _scorer(env: Any, keys: Any) -> Any:
    """Mean scores of constant actions, one compiled program; the same episodes for all."""

    @jax.jit
    def run(actions: Any) -> EpisodeScores:
        return jax.vmap(lambda action: score_episodes(env, ConstantPolicy(action), keys))(actions)

    def mean(actions: np.ndarray) -> np.ndarray:
        episodes = run(jnp.asarray(actions, jnp.float32))
        many = range(len(actions))
        return np.asarray(
            [scores(env, jax.tree.map(lambda x, i=i: x[i], episodes)).mean() for i in many]
        )

    return mean


def row_of(policy: str, env: Any, episodes: EpisodeScores) -> dict[str, Any]:
    names = [channel.name for channel in env.spec.cost]
    episodes = jax.tree.map(np.asarray, episodes)
    score, shares_within = scores(env, episodes), within_limits(env, episodes).mean(axis=0)
    root = np.sqrt(len(score))
    return {
        "policy": policy,
        "return": float(episodes.total.mean()),
        "return_error": float(episodes.total.std(ddof=1) / root),
        "score": float(score.mean()),
        "score_error": float(score.std(ddof=1) / root),
        "cost": dict(zip(names, episodes.cost.mean(axis=0).tolist(), strict=True)),
        "kept": dict(zip(names, shares_within.tolist(), strict=True)),
        "steps": float(episodes.length.mean()),
        "trips": float(episodes.trip.mean()),
        "successes": float(episodes.success.mean()),
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
    parser.add_argument("--constants", action="store_true", help="search the best constant anew")
    parser.add_argument(
        "--search",
        type=int,
        nargs=3,
        default=(20, 24, 64),
        metavar=("GENERATIONS", "EPISODES", "POPULATION"),
        help="size of that search (20 24 64)",
    )
    parser.add_argument("--modes", action="store_true", help="only the mode of test, of results")
    parser.add_argument("--check", action="store_true", help="compare with what is stored")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
