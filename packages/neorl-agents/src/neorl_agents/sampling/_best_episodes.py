"""Uniform sampling of rows of the best episodes."""

import dataclasses
import math

import jax
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from neorl_agents.sampling._log_order import episode_ends, unmasked_rows
from neorl_agents.sampling._rows import Rows
from neorl_core import Transition


@dataclasses.dataclass(frozen=True)
class BestEpisodes:
    """Rows of the fraction of episodes with the largest undiscounted returns.

    Masked rows are in no return, and episodes of only masked rows are ignored.

    Attributes:
        fraction: Fraction of the episodes to keep, in (0, 1]; at least one episode is kept.

    Source: filtered behaviour cloning ("10 % BC") as in Chen et al., Decision transformer,
    arXiv 2106.01345.
    """

    fraction: float

    def tables(self, rows: Transition) -> Transition:
        """The rows of the kept episodes; among episodes with equal returns the earlier ones.

        Raises:
            ValueError: If the log does not mark where episodes end, or every row is masked.
        """
        unmasked = unmasked_rows(rows)
        episode = np.concatenate([[0], np.cumsum(episode_ends(rows))[:-1]])
        reward = np.where(unmasked, np.asarray(rows.reward, np.float64), 0)
        returns = np.bincount(episode, weights=reward)
        has_rows = np.bincount(episode, weights=unmasked) > 0
        # A tolerance for rounding: 0.1 * 30 is slightly more than 3.
        n_kept = max(math.ceil(self.fraction * has_rows.sum() * (1 - 1e-9)), 1)
        best = np.argsort(np.where(has_rows, -returns, np.inf), kind="stable")[:n_kept]
        is_kept = np.isin(episode, best)
        return jax.tree.map(lambda column: np.asarray(column)[is_kept], rows)

    def draw(
        self, tables: Transition, number: Int[Array, ""], key: PRNGKeyArray, shape: tuple[int, int]
    ) -> Transition:
        """Samples one batch of kept rows."""
        return Rows().draw(tables, number, key, shape)
