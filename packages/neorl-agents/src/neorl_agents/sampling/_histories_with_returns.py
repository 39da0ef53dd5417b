"""Windows of the last steps, with the return and costs that followed each step."""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from neorl_agents.sampling._histories import Histories, HistoryTables
from neorl_agents.sampling._log_order import episode_ends, last_rows, on_host, unmasked_rows
from neorl_agents.sampling._protocol import Batch, ReturnsToGo
from neorl_agents.sampling._rows import Rows
from neorl_core import Transition
from neorl_core.replay import window_rows


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
