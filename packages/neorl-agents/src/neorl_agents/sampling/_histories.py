"""Rows with the steps before them."""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_agents.networks import Window
from neorl_agents.sampling._log_order import episode_starts, on_host
from neorl_agents.sampling._protocol import Sampler
from neorl_core import Transition
from neorl_core.replay import window_rows


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
