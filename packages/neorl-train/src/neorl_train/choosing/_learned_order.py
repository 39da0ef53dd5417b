"""Ranks policies by estimates of their returns, with a rule learned where returns are known."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

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
    return _solved([_moments(task) for task in tasks], ridge)


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
        return pick(tasks[index], _solved(rest, ridge))

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


def _solved(moments: Sequence[tuple[np.ndarray, np.ndarray]], ridge: float) -> np.ndarray:
    square, product = (np.sum(parts, axis=0) for parts in zip(*moments, strict=True))
    return np.linalg.solve(square + ridge * len(moments) * np.eye(len(product)), product)
