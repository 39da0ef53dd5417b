"""The columns of a log that critics are fitted on, and which of its rows are consecutive."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from neorl_agents.sampling._host_columns import finite_column, row_flags
from neorl_core import DataStatistics, FieldStatistics, InputError, Spec, Transition


class Columns(NamedTuple):
    """Unmasked rows, in order of time, float64 in physical units.

    A piece is a stretch of rows without a gap: it ends with its episode and before a masked row.

    Attributes:
        obs: Shape ``(row, obs)``.
        action: Shape ``(row, act)``.
        next_obs: Shape ``(row, obs)``.
        cost: Shape ``(row, cost)``; without a column if the log has no cost.
        terminated: Whether the plant ended the episode after a row, shape ``(row,)``.
        last: Whether a row is the last of its piece, shape ``(row,)``.
        episode: Index of the episode of every row, shape ``(row,)``.
        age: Steps of its episode before a row, masked ones included, shape ``(row,)``.
    """

    obs: np.ndarray
    action: np.ndarray
    next_obs: np.ndarray
    cost: np.ndarray
    terminated: np.ndarray
    last: np.ndarray
    episode: np.ndarray
    age: np.ndarray

    @property
    def episodes(self) -> np.ndarray:
        """Indices of the episodes that have a row, ascending."""
        return np.unique(self.episode)

    def take(self, rows: np.ndarray) -> "Columns":
        """The rows where the flag is true."""
        return Columns(*(column[rows] for column in self))


def checked_columns(log: Transition, spec: Spec, *, cost: bool) -> Columns:
    """The columns of a flat log, checked.

    Raises an ``InputError`` if a column is missing, has another shape than ``spec`` requires, holds
    a number that is not finite in an unmasked row, or no row is left.
    """
    needed = ("next_obs", "terminated", "truncated", *["cost"] * cost)
    terminated, ends, keep = row_flags(log, needed, "a critic needs it")
    total = len(ends)
    first = np.append(True, ends[:-1])
    start = np.maximum.accumulate(np.where(first, np.arange(total), 0))
    widths = {"obs": spec.n_obs, "action": spec.n_action, "next_obs": spec.n_obs}
    widths |= {"cost": spec.n_cost} if cost else {}
    columns = {name: finite_column(log, name, (total, n), keep) for name, n in widths.items()}
    return Columns(
        obs=columns["obs"],
        action=columns["action"],
        next_obs=columns["next_obs"],
        cost=columns.get("cost", np.zeros((int(keep.sum()), 0))),
        terminated=terminated[keep],
        last=(ends | ~np.append(keep[1:], False))[keep],
        episode=(np.cumsum(first) - 1)[keep],
        age=(np.arange(total) - start)[keep],
    )


def split_columns(
    columns: Columns, share: float, key: PRNGKeyArray, *, what: str
) -> tuple[Columns, Columns]:
    """Splits whole episodes into a training part and a held-out part.

    Each part gets at least one episode. Raises an ``InputError`` if there are fewer than two
    episodes.
    """
    episodes = columns.episodes
    if len(episodes) < 2:
        raise InputError(
            f"{what} holds out whole episodes, because the steps of one are not independent, but "
            f"the log has {len(episodes)}; record more episodes, or fit without {what}, which "
            "gives no guarantee"
        )
    count = min(max(round(share * len(episodes)), 1), len(episodes) - 1)
    order = np.asarray(jax.random.permutation(key, len(episodes)))
    is_held_out = np.isin(columns.episode, episodes[order[:count]])
    return columns.take(~is_held_out), columns.take(is_held_out)


def only_episodes(log: Transition, columns: Columns, episodes: np.ndarray) -> Transition:
    """The log with every row masked that does not belong to the given episodes."""
    mask = np.ones(len(np.asarray(log.obs)), bool) if log.mask is None else np.array(log.mask, bool)
    mask[mask] = np.isin(columns.episode, episodes)
    return log._replace(mask=mask)  # pyright: ignore[reportArgumentType]


def column_statistics(columns: Columns) -> DataStatistics:
    """Statistics of the rows, from which learners are prepared; the rewards are taken as zero."""

    def statistics_of(values: np.ndarray) -> FieldStatistics:
        x = values.astype(np.float64)
        moments = (len(x), x.mean(0), x.std(0), x.min(0), x.max(0))
        return FieldStatistics(*(jnp.asarray(number, jnp.float32) for number in moments))

    lengths = np.unique(columns.episode, return_counts=True)[1]
    none = np.zeros(len(columns.last))
    other_columns = (none, columns.cost, np.zeros(len(lengths)), lengths, columns.terminated)
    return DataStatistics(*map(statistics_of, (columns.obs, columns.action, *other_columns)))
