"""Uniform sampling of single rows."""

import dataclasses

import jax
from jaxtyping import Array, Int, PRNGKeyArray

from neorl_core import Transition
from neorl_core.replay import batch_indices


@dataclasses.dataclass(frozen=True)
class Rows:
    """Samples rows of the log uniformly, with replacement."""

    def tables(self, rows: Transition) -> Transition:
        """The rows themselves."""
        return rows

    def draw(
        self, tables: Transition, number: Int[Array, ""], key: PRNGKeyArray, shape: tuple[int, int]
    ) -> Transition:
        """Samples one batch, leading axes ``shape``."""
        n = jax.tree.leaves(tables)[0].shape[0]
        indices = batch_indices(key, number, n=n, batch=shape[0] * shape[1]).reshape(shape)
        return jax.tree.map(lambda column: column[indices], tables)
