"""How often the rule of the verdict deploys what it should not: 324 pairs of made episodes.

Usage:
    python tools/studies/tables/choice/verdict_errors.py                  measure and write the page
    python tools/studies/tables/choice/verdict_errors.py --repetitions 100    with less chance
    python tools/studies/tables/choice/verdict_errors.py --page           print the tables alone

A pair is a candidate and an incumbent: six kinds of paired differences of returns (normal, skewed,
heavy-tailed, rare disasters), six true gains in standard deviations of the difference, three true
costs, three numbers of episodes. What is true is known by formula. Every repetition draws new
episodes, makes the tables as an evaluation does, and asks the rule. No plant is simulated.
Result: tools/studies/baselines/choice/verdict_errors.json.
"""

import argparse
import dataclasses
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from neorl_core import Channel, CostChannel, Spec
from neorl_core.infrastructure import write_text
from neorl_train import verdict
from neorl_train.judging import (
    CostCell,
    Estimate,
    PolicyRow,
    ResultTables,
    fraction_estimates,
    mean_estimates,
)

ROOT = Path(__file__).resolve().parents[4]
RESULT = ROOT / "tools/studies/baselines/choice/verdict_errors.json"
LEVEL, MARGIN, AT_ONCE = 0.95, 0.05, 8
SPEC = Spec(
    (Channel("x", "m", -1.0, 1.0),),
    (Channel("u", "%", 0.0, 1.0),),
    (CostChannel("load", "kg", 1.0, "episode"),),
    1.0,
    10,
)
GAINS = (-0.3, -0.1, 0.0, 0.1, 0.3, 1.0)
COSTS = (0.3, 0.55, 0.9)
INCUMBENT_COST, SPREAD = 0.5, 0.5
EPISODES = (64, 128, 256)


def _disasters(share: float, depth: float, rng: np.random.Generator, n: int) -> np.ndarray:
    struck = rng.uniform(size=n) < share
    return share * depth + 0.3 * rng.normal(size=n) - depth * struck


KINDS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "heavy tails (t, 3)": lambda rng, n: rng.standard_t(3, n) / np.sqrt(3),
    "skewed to losses": lambda rng, n: (
        (np.exp(0.5) - rng.lognormal(size=n)) / np.sqrt((np.e - 1) * np.e)
    ),
    "losses of 4 in 5 % of episodes": lambda rng, n: _disasters(0.05, 4.0, rng, n),
    "losses of 10 in 1 % of episodes": lambda rng, n: _disasters(0.01, 10.0, rng, n),
    "losses of 20 in 0.5 % of episodes": lambda rng, n: _disasters(0.005, 20.0, rng, n),
}
"""Differences with mean zero; the standard deviation is about one."""


def over_limit(cost: float) -> float:
    """Share of log-normal costs of a mean that are above the limit of one."""
    return float(norm.sf((0 - (np.log(cost) - SPREAD**2 / 2)) / SPREAD))


def deployable(gain: float, cost: float) -> bool:
    """Whether a candidate should be deployed, by what is true of it."""
    return gain > 0 and cost <= 1 and over_limit(cost) <= over_limit(INCUMBENT_COST) + MARGIN


def answers(kind: str, gain: float, cost: float, n: int, rng: np.random.Generator) -> list[str]:
    """The answers of several repetitions, whose columns share their bootstrap draws."""
    gains = np.stack([KINDS[kind](rng, n) + gain for _ in range(AT_ONCE)], axis=1)
    drawn = [
        mean * np.exp(SPREAD * rng.normal(size=(n, AT_ONCE)) - SPREAD**2 / 2)
        for mean in (cost, INCUMBENT_COST)
    ]
    means = mean_estimates(np.concatenate([gains, drawn[0]], axis=1), level=LEVEL)
    shares = [fraction_estimates(one > 1, level=LEVEL) for one in drawn]
    verdicts = []
    for i in range(AT_ONCE):
        least = float(gains[:, i].min())
        ours = _row(
            "candidate", n, means[i], least, means[AT_ONCE + i], shares[0][i], drawn[0][:, i]
        )
        theirs = _row("PID", n, None, None, means[AT_ONCE + i], shares[1][i], drawn[1][:, i])
        tables = ResultTables(
            environment="made",
            reason="",
            spec=SPEC,
            reward_unit="1",
            level=LEVEL,
            n_starts=n,
            candidate="candidate",
            reference="PID",
            rows=(ours, dataclasses.replace(theirs, guarded=False, role="classical")),
            pooled=(),
            episode_margin=MARGIN,
        )
        verdicts.append(verdict(tables).answer)
    return verdicts


def _row(
    name: str,
    n: int,
    gain: Estimate | None,
    least: float | None,
    cost: Estimate,
    share: Estimate,
    drawn: np.ndarray,
) -> PolicyRow:
    nothing = Estimate(0.0, 0.0, 0.0)
    cell = CostCell(
        name="load",
        unit="kg",
        limit=1.0,
        per="episode",
        total=cost,
        worst=cost,
        largest=float(drawn.max()),
        violations=int((drawn > 1).sum()),
        violating=share,
        steps_over=0,
        difference=None,
    )
    return PolicyRow(
        name=name,
        group=name,
        role="learner",
        guarded=True,
        n_episodes=n,
        returns=nothing,
        return_std=0.0,
        return_min=0.0,
        return_max=0.0,
        length=nothing,
        length_std=0.0,
        costs=(cell,),
        satisfied=nothing,
        success=None,
        trips=None,
        n_trips=0,
        filtered=0.0,
        fallback=0.0,
        difference=gain,
        least_difference=least,
    )


def measured(repetitions: int) -> list[dict[str, Any]]:
    """The share of deploy for every pair."""
    rows = []
    pairs = list(itertools.product(EPISODES, KINDS, GAINS, COSTS))
    for number, (n, kind, gain, cost) in enumerate(pairs):
        rng = np.random.default_rng(number)
        verdicts: list[str] = []
        while len(verdicts) < repetitions:
            verdicts += answers(kind, gain, cost, n, rng)
        row: dict[str, Any] = {"kind": kind, "gain": gain, "cost": cost, "episodes": n}
        row |= {"deployable": deployable(gain, cost), "repetitions": len(verdicts)}
        rows.append(row | {"deployed": verdicts.count("deploy")})
    return rows


def _share(rows: list[dict[str, Any]]) -> str:
    count, total = sum(r["deployed"] for r in rows), sum(r["repetitions"] for r in rows)
    return f"{100 * count / total:.1f} %" if total else "-"


def page(rows: list[dict[str, Any]]) -> str:
    """The tables of the page."""
    wrong = [r for r in rows if not r["deployable"]]
    right = [r for r in rows if r["deployable"]]
    total = sum(r["repetitions"] for r in rows)
    lines = [
        f"{len(rows)} pairs, {total} verdicts. Of {sum(r['repetitions'] for r in wrong)} on "
        f"candidates that should not be deployed, {sum(r['deployed'] for r in wrong)} were deploy "
        f"({_share(wrong)}); of {sum(r['repetitions'] for r in right)} on candidates that should, "
        f"{_share(right)}.",
        "",
        "| Paired differences | Episodes | No gain, costs kept: deploy | Worse by 0.1: deploy | "
        "Worse by 0.3: deploy | Over a limit: deploy | Better by 0.3: deploy | "
        "Better by 1: deploy |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind, n in itertools.product(KINDS, EPISODES):
        here = [r for r in rows if (r["kind"], r["episodes"]) == (kind, n)]
        safe = [r for r in here if r["cost"] == COSTS[0]]
        cells = [
            _share([r for r in safe if r["gain"] == 0.0]),
            _share([r for r in safe if r["gain"] == -0.1]),
            _share([r for r in safe if r["gain"] == -0.3]),
            _share([r for r in here if r["cost"] == COSTS[2]]),
            _share([r for r in safe if r["gain"] == 0.3]),
            _share([r for r in safe if r["gain"] == 1.0]),
        ]
        lines.append(f"| {kind} | {n} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Measures and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    if not arguments.page:
        rows = measured(arguments.repetitions)
        write_text(RESULT, json.dumps(rows, indent=0) + "\n")
    rows = json.loads(RESULT.read_text(encoding="utf-8"))
    print(page(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
