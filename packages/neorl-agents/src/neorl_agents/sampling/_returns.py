"""Uniform sampling of rows, each with the return that followed it in the log."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from neorl_agents.sampling._log_order import unmasked_rows
from neorl_agents.sampling._protocol import Batch
from neorl_agents.sampling._rows import Rows
from neorl_core import Transition


@dataclasses.dataclass(frozen=True)
class RowsWithReturns:
    """Samples rows uniformly, as :class:`Batch` with returns.

    Attributes:
        discount: Discount of the reward per step, in [0, 1].
    """

    discount: float

    def tables(self, rows: Transition) -> Batch:
        """All rows with their returns to go."""
        returns: Any = returns_to_go(rows, discount=self.discount)  # Host arrays, like the rows.
        return Batch(rows, mc_return=returns)

    def draw(
        self, tables: Batch, number: Int[Array, ""], key: PRNGKeyArray, shape: tuple[int, int]
    ) -> Batch:
        """Samples one batch with returns."""
        return Rows().draw(tables, number, key, shape)  # pyright: ignore


def returns_to_go(rows: Transition, *, discount: float) -> np.ndarray:
    """The discounted return from every row to the end of its episode and beyond.

    ``G_t = r_t + discount G_{t+1}``. Nothing follows after a termination. A truncated episode went
    on unrecorded, so it is continued with the log's mean reward for ever, ``mean(r) / (1 -
    discount)``. Without this, the last rows of every episode would look better than the first
    wherever rewards are negative. With a discount of 1 nothing is added. A masked row is in no
    return and not in the mean; the episode is cut before it.

    Args:
        rows: A log in order, with ``reward``, ``terminated`` and ``truncated``, and ``mask`` if
            some rows are to be ignored; host arrays.
        discount: Discount factor in [0, 1].

    Returns:
        One return per row, float32; meaningless for masked rows.

    Raises:
        ValueError: If every row is masked.

    Example:
        >>> import numpy as np
        >>> from neorl_core import Transition
        >>> ends = np.array([False, True])
        >>> log = Transition(np.zeros((2, 1)), np.zeros((2, 1)), np.array([1.0, 4.0]),
        ...     terminated=ends, truncated=~ends & False)
        >>> returns_to_go(log, discount=0.5).tolist()
        [3.0, 4.0]
    """
    reward, terminated = np.asarray(rows.reward, np.float64), np.asarray(rows.terminated)
    ends, is_valid = terminated | np.asarray(rows.truncated), unmasked_rows(rows)
    ends = ends | np.append(~is_valid[1:], False)
    value_after_end = reward[is_valid].mean() / (1 - discount) if discount < 1 else 0.0
    reward = np.where(is_valid, reward, 0)
    result, return_after = np.empty(len(reward)), value_after_end
    for t in range(len(reward) - 1, -1, -1):
        if ends[t]:
            return_after = 0.0 if terminated[t] else value_after_end
        return_after = reward[t] + discount * return_after
        result[t] = return_after
    return result.astype(np.float32)
