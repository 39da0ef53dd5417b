"""Weighted sampling of rows: of better episodes, or of more recent ones."""

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.sampling._log_order import episode_ends, on_host, unmasked_rows
from neorl_core import Transition


class WeightedTables(NamedTuple):
    """A log, its unmasked rows episode by episode, and the running sum of the episodes' weights.

    Attributes:
        rows: The log.
        unmasked_rows: Indices of the unmasked rows, in order.
        first: Position in ``unmasked_rows`` at which each episode begins.
        count: Number of unmasked rows of each episode.
        share: Cumulative fraction of the weight, up to and including each episode; the last is 1.
    """

    rows: Transition
    unmasked_rows: Int[Array, " unmasked"]
    first: Int[Array, " episode"]
    count: Int[Array, " episode"]
    share: Float[Array, " episode"]


@dataclasses.dataclass(frozen=True)
class WeightedRows:
    """Samples rows with replacement, in proportion to the weight of their episode.

    The weight is ``exp(x / temperature)`` with ``x`` in [0, 1]. For ``"return"`` it is the
    undiscounted return of the row's episode, scaled between the smallest and the largest of the
    log; for ``"recency"`` the position of the episode in the log, 1 for the last. An infinite
    temperature samples uniformly. Masked rows have no weight, and their rewards are in no return.

    Attributes:
        by: ``"return"`` or ``"recency"``.
        temperature: Positive; smaller values weight more sharply.

    Source: Hong et al., Harnessing mixed offline reinforcement learning datasets via trajectory
    weighting, arXiv 2306.13085, equation 6, for the returns.
    """

    by: Literal["return", "recency"]
    temperature: float = 0.1

    def __post_init__(self) -> None:
        """Refuses an unknown weight, or a temperature that is not positive."""
        if self.by not in ("return", "recency"):
            raise ValueError(f"WeightedRows.by must be 'return' or 'recency', got {self.by!r}")
        if isinstance(self.temperature, int | float) and not self.temperature > 0:
            raise ValueError(f"WeightedRows.temperature must be above 0, got {self.temperature}")

    def tables(self, rows: Transition) -> WeightedTables:
        """The log, and its weights.

        Raises:
            ValueError: If the log does not mark where episodes end, or every row is masked.
        """
        log = on_host(rows)
        ends = episode_ends(log)
        episode = np.cumsum(np.append(False, ends[:-1]))
        is_valid = unmasked_rows(log)
        count = np.bincount(episode, weights=is_valid).astype(np.int32)
        x = np.arange(len(count), dtype=np.float64)
        if self.by == "return":
            x = np.bincount(episode, weights=np.where(is_valid, log.reward, 0))
        x = np.where(count > 0, x, x[count > 0].min())
        width = x.max() - x.min()
        rank = (x - x.min()) / width if width > 0 else np.zeros_like(x)
        # The largest is subtracted, so that some weight is left at a low temperature.
        weight = count * np.exp((rank - rank.max()) / self.temperature)
        share = np.cumsum(weight) / weight.sum()
        # Despite rounding, an episode without weight after the last one must not be sampled.
        share[np.flatnonzero(weight)[-1] :] = 1.0
        return WeightedTables(
            rows,
            np.flatnonzero(is_valid).astype(np.int32),  # pyright: ignore[reportArgumentType]
            (np.cumsum(count) - count).astype(np.int32),  # pyright: ignore[reportArgumentType]
            count,  # pyright: ignore[reportArgumentType]
            share.astype(np.float32),  # pyright: ignore[reportArgumentType]
        )

    def draw(
        self,
        tables: WeightedTables,
        number: Int[Array, ""],
        key: PRNGKeyArray,
        shape: tuple[int, int],
    ) -> Transition:
        """Samples one batch of rows."""
        episode_key, row_key = jax.random.split(jax.random.fold_in(key, number))
        u = jax.random.uniform(episode_key, shape, tables.share.dtype)
        # Strictly above u, because an episode without weight has the same sum as the one before it.
        episode = jnp.searchsorted(tables.share, u, side="right")
        offset = jax.random.randint(row_key, shape, 0, tables.count[episode], jnp.int32)
        chosen = tables.unmasked_rows[tables.first[episode] + offset]
        return jax.tree.map(lambda column: column[chosen], tables.rows)
