"""Rows with a goal that the log reached later: hindsight relabelling."""

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.sampling._log_order import episode_ends, last_rows
from neorl_core import Transition
from neorl_core.replay import batch_indices


class GoalTables(NamedTuple):
    """A log, and where each of its episodes ends.

    Attributes:
        rows: The log.
        last: Last row of the episode of every row.
    """

    rows: Transition
    last: Int[Array, " row"]


class GoalRows(NamedTuple):
    """Rows relabelled with a goal.

    Attributes:
        rows: ``reward`` is 0 if the row reaches its goal and -1 otherwise; ``terminated`` is true
            if it does, and false otherwise. Physical units.
        goal: The observation to reach, shape ``(row, obs)``.
        steps: Steps from the row's observation to the goal, at least one, shape ``(row,)``.
    """

    rows: Transition
    goal: Float[Array, "*row obs"]
    steps: Int[Array, "*row"]


@dataclasses.dataclass(frozen=True)
class Goals:
    """Samples rows uniformly, each with a goal from the rest of its own episode.

    A goal is the **next** observation of row ``t + j``, ``0 <= j <= T - t``, with ``T`` the last
    row of the episode: for ``"final"`` ``j = T - t``; for ``"future"`` ``P(j)`` is proportional to
    ``discount^j``, uniform for a discount of 1. A row with ``j = 0`` reaches its goal.

    Attributes:
        strategy: ``"future"`` or ``"final"``.
        discount: Factor of the distances' geometric distribution, in (0, 1].

    Source: Andrychowicz et al., Hindsight experience replay, arXiv 1707.01495, section 4.5;
    geometric distances as in Eysenbach et al., Contrastive learning as goal-conditioned
    reinforcement learning, arXiv 2206.07568.
    """

    strategy: Literal["future", "final"] = "future"
    discount: float = 1.0

    def __post_init__(self) -> None:
        """Refuses an unknown strategy, or a discount outside (0, 1]."""
        if self.strategy not in ("future", "final"):
            raise ValueError(f"Goals.strategy must be 'future' or 'final', got {self.strategy!r}")
        if isinstance(self.discount, int | float) and not 0 < self.discount <= 1:
            raise ValueError(f"Goals.discount must be in (0, 1], got {self.discount}")

    def tables(self, rows: Transition) -> GoalTables:
        """The log, and where its episodes end.

        Raises:
            ValueError: If the log does not mark where episodes end, or has no next observations.
        """
        if rows.next_obs is None:
            raise ValueError(
                "goals are next observations, so the learner must list next_obs among its fields"
            )
        ends = episode_ends(rows)
        if rows.mask is not None:
            # A goal is never the observation of a masked row, nor beyond one.
            mask = np.asarray(rows.mask)
            ends |= np.append(~mask[1:], True) | ~mask
        return GoalTables(rows, last_rows(ends))  # pyright: ignore

    def draw(
        self,
        tables: GoalTables,
        number: Int[Array, ""],
        key: PRNGKeyArray,
        shape: tuple[int, int],
    ) -> GoalRows:
        """Samples one batch with goals."""
        row_key, goal_key = jax.random.split(key)
        n = tables.last.shape[0]
        chosen = batch_indices(row_key, number, n=n, batch=shape[0] * shape[1]).reshape(shape)
        remaining = tables.last[chosen] - chosen
        offset = remaining
        if self.strategy == "future":
            u = jax.random.uniform(jax.random.fold_in(goal_key, number), shape)
            offset = truncated_geometric(u, remaining, jnp.asarray(self.discount, u.dtype))
        rows = jax.tree.map(lambda column: column[chosen], tables.rows)
        reached = offset == 0
        dtype = tables.rows.obs.dtype
        reward = jnp.where(reached, jnp.zeros((), dtype), -jnp.ones((), dtype))
        goal = tables.rows.next_obs[chosen + offset]  # pyright: ignore
        rows = rows._replace(reward=reward, terminated=reached)
        return GoalRows(rows, goal, offset + 1)


def truncated_geometric(
    u: Float[Array, "*batch"], largest: Int[Array, "*batch"], discount: Float[Array, ""]
) -> Int[Array, "*batch"]:
    """Integers ``0 <= j <= largest`` with ``P(j)`` proportional to ``discount^j``.

    ``j = floor(log(1 - u (1 - discount^(largest + 1))) / log(discount))``; at a discount of 1 it is
    ``floor(u (largest + 1))``.

    Args:
        u: Uniform in [0, 1).
        largest: Largest number, not negative.
        discount: Discount in (0, 1].

    Returns:
        One number for each ``u``.
    """
    count = (largest + 1).astype(u.dtype)
    flat = discount >= 1
    safe = jnp.where(flat, jnp.asarray(0.5, u.dtype), discount)
    quantile = jnp.log1p(u * jnp.expm1(count * jnp.log(safe))) / jnp.log(safe)
    position = jnp.where(flat, u * count, quantile)
    return jnp.clip(jnp.floor(position).astype(largest.dtype), 0, largest)
