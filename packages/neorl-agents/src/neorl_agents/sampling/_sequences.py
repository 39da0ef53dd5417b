"""Uniform sampling of consecutive steps."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from neorl_agents.sampling._log_order import episode_ends, last_rows, on_host
from neorl_core import Transition
from neorl_core.replay import batch_indices


class SequenceTables(NamedTuple):
    """A log, and where sequences may begin.

    Attributes:
        rows: The log, always with a mask.
        starts: Indices of the rows at which a sequence may begin.
        last: Last row of the episode of every row.
    """

    rows: Transition
    starts: Int[Array, " start"]
    last: Int[Array, " row"]


@dataclasses.dataclass(frozen=True)
class Sequences:
    """``steps`` consecutive rows of one episode, with all valid starts equally likely.

    A batch has a time axis after ``shape``. If ``padded``, any unmasked row is a start, and rows
    after the end of its episode are copies of the last one with a mask of false; otherwise a start
    has all of its steps in its episode. Masked rows keep their place and their mask.

    Attributes:
        steps: Length of a sequence, at least one.
        padded: Whether sequences may extend past the end of an episode.
    """

    steps: int
    padded: bool = True

    def tables(self, rows: Transition) -> SequenceTables:
        """The log, and its starts.

        Raises:
            ValueError: If the log does not mark where episodes end, or no episode has ``steps``
                rows.
        """
        log = on_host(rows)
        last, number = last_rows(episode_ends(log)), np.arange(len(log.terminated), dtype=np.int32)
        mask = np.ones(len(number), bool) if log.mask is None else log.mask
        is_start = mask if self.padded else mask & (last - number + 1 >= self.steps)
        if not is_start.any():
            raise ValueError(
                f"the log has no sequence of {self.steps} steps: its longest episode has "
                f"{int((last - number).max(initial=-1)) + 1} rows; take fewer steps, or set "
                "padded=True"
            )
        complete: Any = rows._replace(mask=mask)
        return SequenceTables(complete, number[is_start], last)  # pyright: ignore

    def draw(
        self,
        tables: SequenceTables,
        number: Int[Array, ""],
        key: PRNGKeyArray,
        shape: tuple[int, int],
    ) -> Transition:
        """Samples one batch, leading axes ``(*shape, steps)``."""
        chosen = batch_indices(key, number, n=tables.starts.shape[0], batch=shape[0] * shape[1])
        first = tables.starts[chosen].reshape(*shape, 1)
        indices = first + jnp.arange(self.steps, dtype=first.dtype).reshape(1, 1, -1)
        end = tables.last[first]
        rows = jax.tree.map(lambda column: column[jnp.minimum(indices, end)], tables.rows)
        return rows._replace(mask=rows.mask & (indices <= end))
