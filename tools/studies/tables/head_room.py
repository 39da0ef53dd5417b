"""Search every plant for what pays without control, and for control better than the reference.

Usage:
    python tools/studies/tables/head_room.py [NAME ...]     search plants without a result (all)
    python tools/studies/tables/head_room.py --again NAME   search anew
    python tools/studies/tables/head_room.py --page         print the tables alone
    python tools/studies/tables/head_room.py --size GENERATIONS POPULATION EPISODES   (10 32 16)

Kinds of policies, each searched by the cross-entropy method for the score (return less declared
penalties): constants that drift (start and slope of every channel), bang-bang in 24 pieces, open
loop in 24 pieces, a linear law of all standardised readings and time (begun by imitating the
reference), and the reference plus such a law (begun at nothing). What a search ends with is judged
on 100 other episodes, beside the ordinary controller, the reference and the best constant, whose
rows are those of ``tools/studies/baselines/NAME.json``. The searches are small, so head-room is a lower
bound.

A kind without readings that comes near the reference is a plant that does not pay for control; one
that trips and ranks high, a plant that pays for ending early; a law far above the reference, a
reference that does not deserve its name. Results: tools/studies/baselines/head_room/NAME.json.
"""

import argparse
import functools
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from baseline_table import RESULTS, SEARCH_SEED, SEED, row_of
from neorl_core import highs, lows
from neorl_core.control import ConstantPolicy
from neorl_envs import environment_names, make
from neorl_envs.scoring import EpisodeScores, run_episode, score_episodes, scores

SEARCHED = RESULTS / "head_room"
PIECES, JUDGING_EPISODES, ELITE = 24, 100, 0.2
Build = Callable[[jax.Array], Any]


class OpenLoop(eqx.Module):
    """Actions of a table of shape (piece, act), one piece after the other, whatever is read."""

    table: jax.Array
    steps: int = eqx.field(static=True)

    def initial_carry(self) -> jax.Array:
        """The first step."""
        return jnp.zeros((), jnp.int32)

    def __call__(self, carry: jax.Array, obs: jax.Array, key: Any = None) -> tuple[Any, Any]:
        """The row of this step."""
        return carry, self.table[jnp.minimum(carry // self.steps, len(self.table) - 1)]

    def sent(self, carry: jax.Array, action: jax.Array) -> jax.Array:
        """One step on."""
        return carry + 1


class Law(eqx.Module):
    """``u = inner + span W (z, time, 1)`` inside the ranges; ``z`` are standardised readings."""

    inner: Any
    weights: jax.Array
    mean: jax.Array
    sd: jax.Array
    low: jax.Array
    high: jax.Array
    horizon: int = eqx.field(static=True)

    def initial_carry(self) -> Any:
        """The inner policy's, and the first step."""
        return self.inner.initial_carry(), jnp.zeros((), jnp.int32)

    def __call__(self, carry: Any, obs: jax.Array, key: Any = None) -> tuple[Any, Any]:
        """What the inner policy does, and the law on top of it."""
        inner, step = carry
        inner, action = self.inner(inner, obs, key)
        fraction = 2 * step.astype(obs.dtype) / self.horizon - 1
        z = jnp.concatenate(
            [(obs - self.mean) / self.sd, jnp.stack([fraction, jnp.ones_like(fraction)])]
        )
        more = (self.high - self.low) * (self.weights @ z)
        return (inner, step), jnp.clip(action + more, self.low, self.high)

    def sent(self, carry: Any, action: jax.Array) -> Any:
        """One step on, the inner policy told what the plant received."""
        return self.inner.sent(carry[0], action), carry[1] + 1


def kinds(env: Any) -> dict[str, tuple[Build, np.ndarray, float]]:
    """How a policy of each kind is made from numbers, where its search begins, and how wide."""
    low, high = (jnp.asarray(ends(env.spec.action)) for ends in (lows, highs))
    span, n = high - low, env.spec.n_action
    steps = -(-env.spec.horizon // PIECES)
    reference = env.tunings()[env.reference]
    rows = [run_episode(env, reference, jax.random.key(SEARCH_SEED + i)) for i in range(4)]
    obs, action = (
        np.concatenate([np.asarray(getattr(r, x)) for r in rows]) for x in ("obs", "action")
    )
    mean, sd = obs.mean(axis=0), obs.std(axis=0) + 1e-3 * np.ptp(obs, axis=0) + 1e-6
    centre, spread = jnp.asarray(mean), jnp.asarray(sd)
    start = _start(obs, action, rows, mean, sd, (np.asarray(low), np.asarray(span)))
    at_low = ConstantPolicy(low)

    def table(pieces: jax.Array) -> OpenLoop:
        return OpenLoop(low + span * jnp.clip(pieces, 0, 1), steps)

    def drift(x: jax.Array) -> OpenLoop:
        begin, end = x.reshape(2, n)
        fraction = jnp.linspace(0, 1, PIECES)[:, None]
        return table(begin[None] + fraction * (end - begin)[None])

    def law(x: jax.Array, inner: Any) -> Law:
        return Law(inner, x.reshape(n, -1), centre, spread, low, high, env.spec.horizon)

    half = np.full((PIECES, n), 0.5)
    return {
        "drift": (drift, np.full(2 * n, 0.5), 0.3),
        "bang-bang": (lambda x: table((x.reshape(PIECES, n) > 0.5) * 1.0), half.ravel(), 0.5),
        "open loop": (lambda x: table(x.reshape(PIECES, n)), half.ravel(), 0.3),
        "linear law": (functools.partial(law, inner=at_low), start.ravel(), 0.02),
        "reference and law": (functools.partial(law, inner=reference), 0 * start.ravel(), 0.02),
    }


def _start(obs: Any, action: Any, rows: Any, mean: Any, sd: Any, ends: Any) -> np.ndarray:
    """Weights of the law that imitates the reference, by least squares."""
    low, span = ends
    fraction = np.concatenate([2 * np.arange(len(r.reward)) / len(r.reward) - 1 for r in rows])
    z = np.column_stack([(obs - mean) / sd, fraction, np.ones(len(fraction))])
    ridge = 1e-3 * len(z) * np.eye(z.shape[1])
    return np.linalg.solve(z.T @ z + ridge, z.T @ ((action - low) / span)).T


def searched(env: Any, build: Build, start: np.ndarray, width: float, size: Any) -> np.ndarray:
    """The best numbers of a search; noise is common to all candidates of a generation."""
    generations, population, episodes = size
    rng = np.random.default_rng(SEARCH_SEED)
    mean, sd, best = start, np.full(start.size, width), start
    for generation in range(generations):
        keys = jax.random.split(jax.random.key(SEARCH_SEED + generation), episodes)
        x = rng.normal(mean, sd, (population, start.size))
        x[0], x[1] = mean, best
        sums = _all_scored(env, jax.vmap(build)(jnp.asarray(x, jnp.float32)), keys)
        each = (jax.tree.map(lambda leaf, i=i: leaf[i], sums) for i in range(population))
        mean_scores = np.nan_to_num([scores(env, one).mean() for one in each], nan=-np.inf)
        elite = x[np.argsort(-mean_scores)[: max(int(ELITE * population), 3)]]
        best = x[int(np.argmax(mean_scores))]
        mean = 0.8 * elite.mean(axis=0) + 0.2 * mean
        sd = 0.8 * elite.std(axis=0) + 0.2 * sd
    return mean


@functools.partial(jax.jit, static_argnums=0)
def _all_scored(env: Any, policies: Any, keys: Any) -> EpisodeScores:
    """The episodes of every candidate; one program for all kinds of one form."""
    return jax.vmap(lambda policy: score_episodes(env, policy, keys))(policies)


def measured(name: str, size: tuple[int, int, int]) -> dict[str, Any]:
    """All kinds of one plant, judged on the same other episodes."""
    env: Any = make(name)
    keys = jax.random.split(jax.random.key(SEED), JUDGING_EPISODES)
    baselines = json.loads((RESULTS / f"{name}.json").read_text())
    known = {row["policy"]: row for row in baselines["rows"]}
    compared = dict.fromkeys((next(iter(env.tunings())), env.reference, "best constant"))
    rows = [known[policy] for policy in compared]
    for kind, (build, start, width) in kinds(env).items():
        started_at = time.process_time()
        best = build(jnp.asarray(searched(env, build, start, width, size), jnp.float32))
        rows.append(row_of(kind, env, score_episodes(env, best, keys)))
        print(f"{name}, {kind}: {time.process_time() - started_at:.0f} processor s", flush=True)
    return {
        "plant": name,
        "unit": env.reward_unit,
        "reference": env.reference,
        "size": list(size),
        "rows": rows,
    }


def table(results: list[dict[str, Any]]) -> str:
    """One row a plant: scores, and how often the limit that is broken most often was not kept.

    The size of a search is its generations, the candidates of one and the episodes of each.
    """
    kinds = ("best constant", "drift", "bang-bang", "open loop", "linear law", "reference and law")
    head = ["Plant (unit)", "ordinary", "reference", *kinds, "size"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for result in results:
        rows = {row["policy"]: row for row in result["rows"]}
        ordinary = result["rows"][0]
        chosen = [ordinary, rows[result["reference"]], *(rows.get(kind) for kind in kinds)]
        cells = [_cell(row) if row else "" for row in chosen]
        name = f"{result['plant']} ({result['unit']})"
        lines.append(f"| {' | '.join([name, *cells, ' x '.join(map(str, result['size']))])} |")
    return "\n".join(lines)


def _cell(row: dict[str, Any]) -> str:
    over = 100 * (1 - min(row["kept"].values(), default=1.0))
    beyond = f" ({over:.3g} %)" if row["kept"] else ""
    return f"{row['score']:.4g} ± {row['score_error']:.2g}{beyond}"


def page() -> str:
    """The table as the results have it."""
    results = [json.loads(path.read_text()) for path in sorted(SEARCHED.glob("*.json"))]
    left = [
        name for name in sorted(environment_names()) if not (SEARCHED / f"{name}.json").exists()
    ]
    note = f"\n\nNot searched on the plant as it is: {', '.join(left)}." if left else ""
    return f"{table(results)}{note}"


def main() -> int:
    """Searches what is asked for and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="plants (all)")
    parser.add_argument("--again", action="store_true", help="also plants that have a result")
    parser.add_argument("--page", action="store_true", help="search nothing")
    parser.add_argument(
        "--size", type=int, nargs=3, default=(10, 32, 16),
        metavar=("GENERATIONS", "POPULATION", "EPISODES"),
    )  # fmt: skip
    arguments = parser.parse_args()
    SEARCHED.mkdir(exist_ok=True)
    for name in [] if arguments.page else arguments.names or environment_names():
        path = SEARCHED / f"{name}.json"
        if arguments.again or not path.exists():
            path.write_text(json.dumps(measured(name, tuple(arguments.size)), indent=1) + "\n")
    print(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
