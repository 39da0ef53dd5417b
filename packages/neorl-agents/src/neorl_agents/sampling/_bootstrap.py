"""Uniform sampling of rows with weights that bootstrap the episodes for every network."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.sampling._log_order import episode_ends
from neorl_agents.sampling._protocol import Batch
from neorl_core import Transition
from neorl_core.replay import batch_indices

BOOTSTRAP = 2**32 - 1
"""Folded into the key of the batches for the bootstrap; no update has this index."""


class BootstrapTables(NamedTuple):
    """A log, and the episode of every row.

    Attributes:
        rows: The log, without ``truncated``.
        episode: Index of the episode of every row.
        episodes: Zeros, one per episode.
    """

    rows: Transition
    episode: Int[Array, " row"]
    episodes: Int[Array, " episode"]


@dataclasses.dataclass(frozen=True)
class BootstrappedEpisodes:
    """Samples rows uniformly; every member of an ensemble weights whole episodes.

    A weight is the number of times that an episode was drawn for a member. The weights of a
    training depend only on its key, so they are the same in every update and differ between seeds.
    Whole episodes are drawn because the rows of one are not independent.

    Attributes:
        members: Number of members.
    """

    members: int

    def tables(self, rows: Transition) -> BootstrapTables:
        """All rows with their episodes.

        Raises:
            ValueError: If the log does not mark where episodes end.
        """
        ends = episode_ends(rows)
        episode = np.cumsum(np.append(False, ends[:-1])).astype(np.int32)
        return BootstrapTables(
            rows._replace(truncated=None),
            episode,  # pyright: ignore[reportArgumentType]
            np.zeros(int(episode[-1]) + 1, np.int32),  # pyright: ignore[reportArgumentType]
        )

    def draw(
        self,
        tables: BootstrapTables,
        number: Int[Array, ""],
        key: PRNGKeyArray,
        shape: tuple[int, int],
    ) -> Batch:
        """Samples one batch; its weights have a further axis of members."""
        size = shape[0] * shape[1]
        chosen = batch_indices(key, number, n=len(tables.episode), batch=size).reshape(shape)
        rows = jax.tree.map(lambda column: column[chosen], tables.rows)
        weights = bootstrap_weights(key, len(tables.episodes), self.members)
        return Batch(rows, weight=weights[tables.episode[chosen]])


def bootstrap_weights(
    key: PRNGKeyArray, episodes: int, members: int
) -> Float[Array, "episode member"]:
    """How often each episode is drawn for each member: independent Poisson numbers of mean one.

    Args:
        key: Key of the batches of a training.
        episodes: Number of episodes.
        members: Number of members.
    """
    own_key = jax.random.fold_in(key, BOOTSTRAP)
    weights = jax.random.poisson(own_key, 1.0, (episodes, members))
    # With few episodes, a member might have weight on none and would learn nothing.
    weights = jnp.where(jnp.sum(weights, axis=0, keepdims=True) > 0, weights, 1)
    return weights.astype(jnp.float32)
