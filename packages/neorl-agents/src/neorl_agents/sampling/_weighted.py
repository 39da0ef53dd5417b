"""Draws of rows with weights: of better episodes, or of younger ones."""

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.sampling._log_order import episode_ends, on_host
from neorl_core import Transition


class WeightedTables(NamedTuple):
    """A log and the running sum of its weights.

    Attributes:
        rows: The log.
        share: Share of all weight up to and with every row; the last is 1.
    """

    rows: Transition
    share: Float[Array, " row"]


@dataclasses.dataclass(frozen=True)
class WeightedRows:
    """Rows drawn with replacement, each as likely as its episode's weight says.

    ``exp(x / temperature)`` with ``x`` in [0, 1]: for ``"return"`` the undiscounted return of the
    row's episode between the smallest and the largest of the log, for ``"recency"`` the place of
    the episode in it, 1 for the last. An infinite temperature draws uniformly. Masked rows have
    no weight, and their rewards count in no return.

    Attributes:
        by: ``"return"`` or ``"recency"``.
        temperature: Positive; the smaller, the sharper.

    Source: Hong et al., Harnessing mixed offline reinforcement learning datasets via trajectory
    weighting, arXiv 2306.13085, equation 6, for the returns.
    """

    by: Literal["return", "recency"]
    temperature: float = 0.1

    def __post_init__(self) -> None:
        """Refuses an unknown weight, or a temperature that is not positive."""
        if self.by not in ("return", "recency"):
            raise ValueError(f"WeightedRows.by must be return or recency, got {self.by!r}")
        if isinstance(self.temperature, int | float) and not self.temperature > 0:
            raise ValueError(f"WeightedRows.temperature must be above 0, got {self.temperature}")

    def tables(self, rows: Transition) -> WeightedTables:
        """The log and its weights.

        Raises:
            ValueError: If the log does not say where episodes end, or every row is masked.
        """
        log = on_host(rows)
        ends = episode_ends(log)
        episode = np.cumsum(np.append(False, ends[:-1]))
        counts = np.ones(len(ends)) if log.mask is None else log.mask.astype(np.float64)
        if not counts.any():
            raise ValueError("every row is masked, so there is nothing to draw")
        x = np.arange(episode[-1] + 1.0)
        if self.by == "return":
            reward = np.where(counts > 0, log.reward, 0).astype(np.float64)
            x = np.bincount(episode, weights=reward)
        width = x.max() - x.min()
        place = (x - x.min()) / width if width > 0 else np.zeros_like(x)
        # Less the largest, so that a sharp temperature leaves some weight.
        weight = counts * np.exp((place[episode] - 1) / self.temperature)
        share = np.cumsum(weight) / weight.sum()
        return WeightedTables(rows, share.astype(np.float32))  # pyright: ignore

    def draw(
        self,
        tables: WeightedTables,
        number: Int[Array, ""],
        key: PRNGKeyArray,
        shape: tuple[int, int],
    ) -> Transition:
        """One batch of rows."""
        u = jax.random.uniform(jax.random.fold_in(key, number), shape, tables.share.dtype)
        # Above u: a row without weight shares its sum with the one before it.
        chosen = jnp.searchsorted(tables.share, u * tables.share[-1], side="right")
        chosen = jnp.minimum(chosen, tables.share.shape[0] - 1)
        return jax.tree.map(lambda column: column[chosen], tables.rows)
