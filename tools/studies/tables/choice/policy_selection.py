"""Pick policies of the NeoRL tasks without their plant, and say what the picks are worth.

Usage:
    python tools/studies/tables/choice/policy_selection.py             learn, pick, write result and page
    python tools/studies/tables/choice/policy_selection.py --check FILE   pick in FILE by the stored order

The 27 tasks of neorl1_selection have about 150 policies each (7 learners, up to 16 settings, 3
seeds), of which the return on the plant, three seeds of fitted Q evaluation and three of importance
sampling are known. Every task is picked in by an order that was learned on the others: once without
that task alone, once without all tasks of its plant. Cloned behaviour may not be picked, since the
question is whether a pick is better than it. ``--check`` takes a file of the same format and the
coefficients in the result file, which were learned on all 27.
Result: tools/studies/baselines/choice/policy_selection.json. Data: polixir/NeoRL, CC-BY-4.0.
"""

import argparse
import gzip
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from neorl_core.infrastructure import write_text
from neorl_core.statistics import rank_correlation

ROOT = Path(__file__).resolve().parents[4]
RESULT = ROOT / "tools/studies/baselines/choice/policy_selection.json"
DATA = Path(os.environ.get("NEORL_SHARED_DATA", ROOT.parent / "shared/data"))
FILE = DATA / "neorl1_selection/policies.json.gz"
CLONE = "bc"
FINAL_RIDGE = 30.0
"""Ridge of the stored order, set by hand; the held-out picks choose theirs anew."""
RIDGES = (3.0, 10.0, 30.0, 100.0)
"""Candidate weights of the squared coefficients, in units of one task."""


class Task(NamedTuple):
    """The policies of one task.

    Attributes:
        columns: Features of every policy that are known without the plant, shape ``(policy,
            column)``.
        returns: Their true returns, shape ``(policy,)``.
        allowed: Whether each policy may be picked, shape ``(policy,)``.
    """

    columns: Float[np.ndarray, "policy column"]
    returns: Float[np.ndarray, " policy"]
    allowed: Bool[np.ndarray, " policy"]


def estimate_columns(
    estimates: Sequence[Float[np.ndarray, "policy repetition"]],
    behaviour: Bool[np.ndarray, " policy"],
) -> Float[np.ndarray, "policy column"]:
    """Unit-free features of the policies of one task from several estimators.

    For every estimator there are three ranks within the task, from -0.5 to 0.5: of the mean over
    its repetitions, of their spread, and of the distance from its estimate for cloned behaviour.
    The last one matters most: an estimator that was fitted to a log knows the behaviour, and when
    its estimate for a policy is very different, the estimate is more often wrong than the policy is
    good.

    Args:
        estimates: For every estimator its repetitions, such as seeds of fitted Q evaluation.
        behaviour: Which policies are clones of the logged behaviour; at least one.

    Returns:
        Three columns for each estimator.

    Example:
        >>> import numpy as np
        >>> estimate = np.array([[1.0, 1.0], [2.0, 4.0], [9.0, 9.5]])
        >>> estimate_columns([estimate], np.array([True, False, False])).shape
        (3, 3)
    """
    columns = []
    for estimate in estimates:
        mean = np.mean(estimate, axis=1)
        distance = np.abs(mean - np.median(mean[behaviour]))
        columns += [_rank(mean), _rank(np.std(estimate, axis=1)), _rank(distance)]
    return np.stack(columns, axis=1)


def fit_order(tasks: Sequence[Task], ridge: float) -> Float[np.ndarray, " column"]:
    """Ridge regression of the within-task ranks of true returns on the features.

    Args:
        tasks: Tasks whose returns are known.
        ridge: Weight of the squared coefficients, in units of one task.

    Returns:
        The coefficient of every column; the policy with the largest score is picked first.
    """
    return _solve([_moments(task) for task in tasks], ridge)


def pick(task: Task, coefficients: Float[np.ndarray, " column"]) -> int:
    """Number of the allowed policy with the largest score."""
    return int(np.argmax(np.where(task.allowed, task.columns @ coefficients, -np.inf)))


def regret(task: Task, picked: int) -> float:
    """Difference in return of the best and the picked policy, relative to the task's range."""
    best, worst = float(task.returns.max()), float(task.returns.min())
    return (best - float(task.returns[picked])) / (best - worst or 1.0)


def held_out_picks(tasks: Sequence[Task], groups: Sequence[str]) -> list[int]:
    """The pick of every task by a rule learned without any task of its group.

    The ridge is chosen among :data:`RIDGES` in the same way within the remaining tasks, so that no
    data of a group influence its own picks.

    Args:
        tasks: All tasks.
        groups: Group of each task; distinct names leave one task out at a time.

    Returns:
        The number of the picked policy for each task.
    """
    moments = [_moments(task) for task in tasks]

    def pick_without(index: int, known: Sequence[int], ridge: float) -> int:
        rest = [moments[i] for i in known if groups[i] != groups[index]]
        return pick(tasks[index], _solve(rest, ridge))

    picks = []
    for index in range(len(tasks)):
        known = [i for i in range(len(tasks)) if groups[i] != groups[index]]
        regrets = [
            np.mean([regret(tasks[i], pick_without(i, known, ridge)) for i in known])
            for ridge in RIDGES
        ]
        picks.append(pick_without(index, known, RIDGES[int(np.argmin(regrets))]))
    return picks


def _rank(values: Float[np.ndarray, " policy"]) -> Float[np.ndarray, " policy"]:
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # the mean rank of equal values
    return (ranks[index] - 0.5) / len(values) - 0.5


def _moments(task: Task) -> tuple[np.ndarray, np.ndarray]:
    centred = task.columns - task.columns.mean(axis=0)
    return centred.T @ centred, centred.T @ _rank(task.returns)


def _solve(moments: Sequence[tuple[np.ndarray, np.ndarray]], ridge: float) -> np.ndarray:
    square, product = (np.sum(parts, axis=0) for parts in zip(*moments, strict=True))
    return np.linalg.solve(square + ridge * len(moments) * np.eye(len(product)), product)


def policies_of(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The policies of every task with learner, setting, return and estimates."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        content = json.load(file)
    return {
        task: [
            {
                "learner": learner,
                "setting": f"{learner} {json.dumps(one['parameter'], sort_keys=True)}",
                "return": result["online"],
                "fqe": list(result["fqe"].values()),
                "is": list(result["is"].values()),
            }
            for learner, settings in learners.items()
            for one in settings
            for result in one["result"].values()
        ]
        for task, learners in content.items()
    }


def task_of(policies: list[dict[str, Any]], names: list[str]) -> Task:
    """Columns of estimates, and of which learner and setting a policy is."""
    clone = np.array([one["learner"] == CLONE for one in policies])
    estimates = [np.array([one[kind] for one in policies], float) for kind in ("fqe", "is")]
    who = [[name in (one["learner"], one["setting"]) for name in names] for one in policies]
    columns = np.concatenate([estimate_columns(estimates, clone), np.array(who, float)], axis=1)
    return Task(columns, np.array([one["return"] for one in policies], float), ~clone)


def summary(
    tasks: list[Task], policies: list[list[dict[str, Any]]], picks: list[int]
) -> dict[str, Any]:
    """Regrets of picks, and how many are better than cloned behaviour."""
    lost = [regret(task, one) for task, one in zip(tasks, picks, strict=True)]
    better = [
        bool(task.returns[one] > task.returns[~task.allowed].mean())
        for task, one in zip(tasks, picks, strict=True)
    ]
    return {
        "regret": float(np.mean(lost)),
        "better": int(np.sum(better)),
        "tasks": len(tasks),
        "each": [
            {"learner": some[one]["setting"], "regret": round(r, 4), "better": b}
            for some, one, r, b in zip(policies, picks, lost, better, strict=True)
        ],
    }


def compared(tasks: list[Task], policies: list[list[dict[str, Any]]]) -> dict[str, float]:
    """Mean regrets of simple ways to pick among the same policies."""

    def largest(kind: str) -> float:
        best = [int(np.argmax([np.mean(one[kind]) for one in some])) for some in policies]
        return float(np.mean([regret(t, one) for t, one in zip(tasks, best, strict=True)]))

    def mean(of: Any) -> float:
        return float(
            np.mean([np.mean([regret(t, int(i)) for i in np.flatnonzero(of(t))]) for t in tasks])
        )

    return {
        "any policy": mean(lambda t: np.ones(len(t.returns), bool)),
        "cloned behaviour": mean(lambda t: ~t.allowed),
        "largest fitted Q evaluation": largest("fqe"),
        "largest importance sampling": largest("is"),
    }


def correlations(policies: list[list[dict[str, Any]]]) -> dict[str, float]:
    """Mean over tasks of the rank correlation of an estimate with the return on the plant."""

    def mean(kind: str) -> float:
        each = []
        for some in policies:
            estimated = np.array([np.mean(one[kind]) for one in some])
            returns = np.array([one["return"] for one in some], float)
            each.append(float(rank_correlation(estimated, returns)))
        return float(np.mean(each))

    return {"fitted Q evaluation": mean("fqe"), "importance sampling": mean("is")}


def page(result: dict[str, Any]) -> str:
    """The table of the page."""
    lines = ["| Way to pick | Mean regret@1 | Better than cloned behaviour |", "|---|---|---|"]
    for key, words in (
        ("task", "learned order, without the task"),
        ("plant", "learned order, without all tasks of the plant"),
    ):
        one = result[key]
        lines.append(f"| {words} | {one['regret']:.3f} | {one['better']} of {one['tasks']} tasks |")
    for words, value in result["compared"].items():
        lines.append(f"| {words} | {value:.3f} | - |")
    said = [
        f"{round(value, 2) + 0.0:.2f} for {name}" for name, value in result["correlation"].items()
    ]
    words = "Mean rank correlation of an estimate with the return on the plant, over the tasks: "
    return "\n".join([*lines, "", f"{words}{' and '.join(said)}."])


def main() -> int:
    """Learns, picks and writes; or picks in another file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", type=Path, default=None)
    arguments = parser.parse_args()
    path = arguments.check or FILE
    by_plant = policies_of(path)
    if arguments.check:
        stored = json.loads(RESULT.read_text(encoding="utf-8"))["order"]
        policies = list(by_plant.values())
        tasks = [task_of(some, list(stored["who"])) for some in policies]
        order = np.array([*stored["estimates"].values(), *stored["who"].values()])
        checked = summary(tasks, policies, [pick(task, order) for task in tasks])
        print(f"mean regret@1 {checked['regret']:.3f}; {checked['better']} of {checked['tasks']}")
        return 0
    names = sorted(
        {one[key] for some in by_plant.values() for one in some for key in ("learner", "setting")}
    )
    policies = list(by_plant.values())
    tasks = [task_of(some, names) for some in policies]
    result: dict[str, Any] = {
        "task": summary(tasks, policies, held_out_picks(tasks, list(by_plant))),
        "plant": summary(
            tasks, policies, held_out_picks(tasks, [n.split("-")[0] for n in by_plant])
        ),
        "compared": compared(tasks, policies),
        "correlation": correlations(policies),
    }
    order = fit_order(tasks, FINAL_RIDGE)
    kinds = [
        f"{kind} {statistic}"
        for kind in ("fqe", "is")
        for statistic in ("mean", "spread", "distance")
    ]
    result["order"] = {
        "estimates": dict(zip(kinds, order.tolist(), strict=False)),
        "who": dict(zip(names, order[len(kinds) :].tolist(), strict=True)),
    }
    write_text(RESULT, json.dumps(result, indent=1) + "\n")
    print(page(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
