"""The rows of a log with the rows that precede them, on the host."""

from typing import Any, NamedTuple

import numpy as np

from neorl_agents.sampling._histories import unmasked_pieces
from neorl_core import InputError, Spec, Transition


class LogRows(NamedTuple):
    """The rows of a log, with the data to find the rows that precede them.

    Attributes:
        obs: Shape ``(row, obs)``, physical units.
        action: Shape ``(row, act)``.
        next_obs: Shape ``(row, obs)``.
        outcome: Reward and costs, shape ``(row, 1 + cost)``.
        terminated: Shape ``(row,)``.
        start: First row of the episode of every row.
        ends: Whether an episode ends with the row.
    """

    obs: Any
    action: Any
    next_obs: Any
    outcome: Any
    terminated: Any
    start: Any
    ends: Any


def log_rows(log: Transition, spec: Spec) -> LogRows:
    """The columns of a log that a model reads, checked, float32, without masked rows.

    Args:
        log: Flat columns; rows of one episode follow one another.
        spec: Channels of the log.

    Raises:
        InputError: If a column is missing, not finite or of another shape, or there is only one
            episode.
    """
    needed = ("next_obs", "reward", "terminated", "truncated")
    pieces = unmasked_pieces(log, spec, needed, "a plant model needs it")
    reward = np.asarray(log.reward, np.float64)[:, None]
    cost = np.zeros((len(reward), 0)) if log.cost is None else np.asarray(log.cost, np.float64)
    outcome = np.concatenate([reward, cost], axis=1)[pieces.keep]
    if not np.isfinite(outcome).all():
        raise InputError(
            "rewards and costs of the log must be finite, but one is not; repair it or mask its row"
        )
    if pieces.last.sum() < 2:
        raise InputError(
            "a plant model is checked on episodes that it was not fitted to, but the log has one "
            "episode; record more, or cut a long record into episodes when it is converted"
        )
    float32_columns = {name: column.astype(np.float32) for name, column in pieces.columns.items()}
    return LogRows(
        **float32_columns, outcome=outcome.astype(np.float32), terminated=pieces.terminated,
        start=pieces.start.astype(np.int32), ends=pieces.last,
    )  # fmt: skip


def histories(rows: LogRows, indices: Any, history: int) -> tuple[Any, Any]:
    """The history of some rows: past observations, then the actions before each of them.

    At the start of an episode its first row is repeated.
    """
    lags = np.arange(history - 1, -1, -1)
    start = rows.start[indices][..., None]
    rows_back = indices[..., None] - lags
    return np.maximum(rows_back, start), np.maximum(rows_back - 1, start)
