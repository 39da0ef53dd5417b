"""Rows with the steps before them."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_agents.networks import Window
from neorl_agents.sampling._rows import (
    Batch,
    ReturnsToGo,
    Rows,
    Sampler,
    episode_ends,
    episode_starts,
    last_rows,
    on_host,
    unmasked_rows,
)
from neorl_core import InputError, Spec, Transition
from neorl_core.replay import window_rows

# The columns of a log on the host, checked in unmasked rows.


def row_flags(
    log: Transition, needed: Sequence[str], purpose: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which rows of a log are unmasked, and where its episodes end.

    Returns whether the plant ended the episode with a row, whether it ends there for any reason,
    and whether the row is unmasked, each of shape ``(row,)``. ``purpose`` says in the message why
    the columns are needed. Raises an ``InputError`` if a column is missing, flags have other
    shapes, or every row is masked.
    """
    for name in needed:
        if getattr(log, name) is None:
            raise InputError(f"column {name} of the log is missing; {purpose}")
    terminated = np.atleast_1d(np.asarray(log.terminated, bool))
    ends = terminated | np.asarray(log.truncated, bool)
    total = len(ends)
    keep = np.ones(total, bool) if log.mask is None else np.asarray(log.mask, bool)
    if ends.shape != (total,) or keep.shape != (total,):
        raise InputError(
            f"terminated, truncated and mask of the log must have the shape ({total},), got "
            f"{ends.shape} and {keep.shape}"
        )
    if not keep.any():
        raise InputError(f"all {total} rows of the log are masked; record more, or mask fewer")
    return terminated, ends, keep


def finite_column(
    log: Transition, name: str, shape: tuple[int, int], keep: np.ndarray
) -> np.ndarray:
    """The rows of a column that are kept, in float64.

    Raises an ``InputError`` if the shape is another, or a kept number is not finite; the message
    names row and channel.
    """
    column = np.asarray(getattr(log, name), np.float64)
    if column.shape != shape:
        raise InputError(
            f"column {name} of the log must have the shape {shape}, got {column.shape}; "
            "give the specification with which it was recorded"
        )
    not_finite = np.argwhere(~np.isfinite(column) & keep[:, None])
    if len(not_finite):
        row, channel = (int(i) for i in not_finite[0])
        raise InputError(
            f"column {name} of the log must be finite, got {column[row, channel]} in row {row}, "
            f"channel {channel}; repair it, or set the mask of the row to false"
        )
    return column[keep]


class Pieces(NamedTuple):
    """The unmasked rows of a log in pieces, which end with their episode and before a masked row.

    Attributes:
        columns: ``obs``, ``action`` and ``next_obs`` in float64, each of shape ``(row, channel)``.
        terminated: Whether the plant ended the episode with a row, shape ``(row,)``.
        start: First row of the piece of every row, shape ``(row,)``.
        last: Whether a row is the last of its piece, shape ``(row,)``.
        keep: Whether a row of the log is unmasked, shape ``(log row,)``.
    """

    columns: dict[str, np.ndarray]
    terminated: np.ndarray
    start: np.ndarray
    last: np.ndarray
    keep: np.ndarray


def unmasked_pieces(log: Transition, spec: Spec, needed: Sequence[str], purpose: str) -> Pieces:
    """The checked rows of a flat log.

    Raises an ``InputError`` as :func:`row_flags` and :func:`finite_column` do.
    """
    terminated, ends, keep = row_flags(log, needed, purpose)
    widths = {"obs": spec.n_obs, "action": spec.n_action, "next_obs": spec.n_obs}
    columns = {name: finite_column(log, name, (len(ends), n), keep) for name, n in widths.items()}
    last = (ends | np.append(~keep[1:], True))[keep]
    first = np.append(True, last[:-1])
    start = np.maximum.accumulate(np.where(first, np.arange(len(last)), 0))
    return Pieces(columns, terminated[keep], start, last, keep)


class HistoryTables(NamedTuple):
    """A log, stored once, and the tables that choose its rows.

    Attributes:
        choice: Tables of the sampler that chooses rows; row indices stand for observations.
        obs: Observations, zero where unknown, shape ``(row, obs)``.
        action: Applied actions, zero where unknown, shape ``(row, act)``.
        next_obs: Next observations; ``None`` if no learner reads them.
        known: Whether the row is unmasked and its observation finite.
        action_known: Whether its action is known too.
        first: First row of its episode.
    """

    choice: Any
    obs: Float[Array, "row obs"]
    action: Float[Array, "row act"]
    next_obs: Float[Array, "row obs"] | None
    known: Bool[Array, " row"]
    action_known: Bool[Array, " row"]
    first: Int[Array, " row"]


@dataclasses.dataclass(frozen=True)
class Histories:
    """Samples of another sampler, with windows of the last ``steps`` steps as observations.

    ``obs`` becomes a :class:`neorl_agents.networks.Window` that ends with the row's own
    observation, ``next_obs`` one that ends with its next. A window never crosses the start of an
    episode, and steps whose rows are masked or not finite are unknown.

    Attributes:
        rows: Sampler that chooses the rows; any sampler of this package except this one and
            sequences.
        steps: Length of a window, at least one.
    """

    rows: Sampler
    steps: int

    def tables(self, rows: Transition) -> HistoryTables:
        """The log, stored once, and the tables of the other sampler.

        Raises:
            ValueError: If the log does not mark where episodes end.
        """
        number = np.arange(len(np.asarray(rows.obs)), dtype=np.int32)
        log, has_next = on_host(rows), rows.next_obs is not None
        known = np.isfinite(log.obs).all(-1)
        if log.mask is not None:
            known &= log.mask
        action_known = known & np.isfinite(log.action).all(-1)
        # The choosing sampler is given row indices in place of observations.
        numbered: Any = rows._replace(obs=number, next_obs=number if has_next else None)
        return HistoryTables(
            choice=self.rows.tables(numbered),
            obs=np.where(known[:, None], log.obs, 0),  # pyright: ignore[reportArgumentType]
            action=np.where(action_known[:, None], log.action, 0),  # pyright: ignore
            next_obs=rows.next_obs,
            known=known,  # pyright: ignore[reportArgumentType]
            action_known=action_known,  # pyright: ignore[reportArgumentType]
            first=episode_starts(log),  # pyright: ignore[reportArgumentType]
        )

    def draw(
        self,
        tables: HistoryTables,
        number: Int[Array, ""],
        key: PRNGKeyArray,
        shape: tuple[int, int],
    ) -> Any:
        """Samples one batch with windows in place of observations."""
        batch = self.rows.draw(tables.choice, number, key, shape)
        if isinstance(batch, Transition):
            return self.with_windows(tables, batch)
        return batch._replace(rows=self.with_windows(tables, batch.rows))

    def with_windows(self, tables: HistoryTables, batch: Transition) -> Transition:
        """Rows of the other sampler with windows in place of their indices."""
        rows, last = batch.obs, batch.next_obs
        with_windows: Any = batch._replace(obs=windows(tables, rows, steps=self.steps))
        if last is not None:
            with_windows = with_windows._replace(
                next_obs=next_windows(tables, last, steps=self.steps)
            )
        return with_windows


def windows(tables: HistoryTables, rows: Int[Array, "*batch"], *, steps: int) -> Window:
    """The windows that end with the observations of ``rows``, in physical units."""
    rows_of_window = jax.vmap(partial(window_rows, length=steps + 1))
    flat = jnp.ravel(rows)
    indices, inside = rows_of_window(flat, tables.first[flat])
    known = inside & tables.known[indices]
    action_known = inside[:, :-1] & tables.action_known[indices[:, :-1]]
    window = Window(
        obs=jnp.where(known[:, 1:, None], tables.obs[indices[:, 1:]], 0),
        action=jnp.where(action_known[..., None], tables.action[indices[:, :-1]], 0),
        obs_known=known[:, 1:],
        action_known=action_known,
    )
    return jax.tree.map(lambda x: x.reshape(*rows.shape, *x.shape[1:]), window)


def next_windows(tables: HistoryTables, rows: Int[Array, "*batch"], *, steps: int) -> Window:
    """The windows that end with the **next** observations of ``rows``, in physical units."""
    window_before = windows(tables, rows, steps=steps)
    next_obs: Any = tables.next_obs
    newest = next_obs[rows]
    known = jnp.all(jnp.isfinite(newest), axis=-1)
    action_known = tables.action_known[rows]
    last = Window(jnp.where(known[..., None], newest, 0), tables.action[rows], known, action_known)
    # One step later, so the oldest step is dropped.
    return Window(
        *(
            jnp.concatenate([old, jnp.expand_dims(new, rows.ndim)], axis=rows.ndim)[
                (slice(None),) * rows.ndim + (slice(1, None),)
            ]
            for old, new in zip(window_before, last, strict=True)
        )
    )


# Windows of the last steps, with the return and costs that followed each step.


class ToGoTables(NamedTuple):
    """A log, and the return and costs that followed every row.

    Attributes:
        history: Tables of the windows.
        to_go: Return and costs that followed every row.
    """

    history: HistoryTables
    to_go: ReturnsToGo


@dataclasses.dataclass(frozen=True)
class HistoriesWithReturns:
    """Samples rows uniformly, with windows as observations and a :class:`ReturnsToGo` of each step.

    ``G_t = sum_{k >= t} r_k`` up to the end of the episode, undiscounted, and the same for every
    cost. Nothing is added after a truncation, so a truncated episode has only the return up to the
    end of its record; the index of a step in its episode (``step``) distinguishes such ends from
    others. A masked row is in no sum.

    Attributes:
        steps: Length of a window, at least one.

    Source: Chen et al., Decision transformer, arXiv 2106.01345, section 3.
    """

    steps: int

    def tables(self, rows: Transition) -> ToGoTables:
        """The log, stored once, and the return and costs that followed its rows.

        Raises:
            ValueError: If the log does not mark where episodes end, or every row is masked.
        """
        history = Histories(Rows(), self.steps).tables(rows)
        log, is_valid = on_host(rows), unmasked_rows(rows)
        number = np.arange(len(is_valid), dtype=np.int32)
        last = last_rows(episode_ends(log))
        reward = np.where(is_valid, log.reward, 0)
        cost = np.zeros((len(is_valid), 0)) if log.cost is None else log.cost
        cost = np.where(is_valid[:, None], cost, 0)
        columns: Any = dict(  # Host arrays, like the rows.
            returns=_sum_to_end(reward[:, None], last)[:, 0].astype(np.float32),
            costs=_sum_to_end(cost, last).astype(np.float32),
            steps_left=_sum_to_end(is_valid[:, None], last)[:, 0].astype(np.int32),
            step=number - history.first,
        )
        return ToGoTables(history, ReturnsToGo(**columns))

    def draw(
        self,
        tables: ToGoTables,
        number: Int[Array, ""],
        key: PRNGKeyArray,
        shape: tuple[int, int],
    ) -> Batch:
        """Samples one batch; the prospects have a time axis after ``shape``."""
        history = tables.history
        rows = Histories(Rows(), self.steps).draw(history, number, key, shape)
        chosen = Rows().draw(history.choice, number, key, shape).obs
        indices, _ = jax.vmap(lambda row, first: window_rows(row, first, length=self.steps))(
            chosen.reshape(-1), history.first[chosen.reshape(-1)]
        )
        indices = indices.reshape(*shape, self.steps)
        return Batch(rows, to_go=jax.tree.map(lambda column: column[indices], tables.to_go))


def _sum_to_end(column: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Sums from each row up to ``last``; float64."""
    total = np.concatenate([np.zeros((1, column.shape[1])), np.cumsum(column, 0, np.float64)])
    return total[last + 1] - total[:-1]
