"""The leading axis of the batches of one update."""

from typing import Literal, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from neorl_agents.sampling import NStepRows
from neorl_core import InputError, Transition

Tree = TypeVar("Tree")
Optional = Literal["cost", "next_obs", "next_action", "terminated", "truncated"]


def only(batches: Tree) -> Tree:
    """The batch of an update that takes one."""
    return taken(batches, 0)


def taken(batches: Tree, number: int) -> Tree:
    """One of the batches of an update."""
    return jax.tree.map(lambda x: x[number], batches)


def merged(batches: Tree) -> Tree:
    """All rows of an update as one batch."""
    return jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), batches)


def rows_ahead(batch: Transition | NStepRows) -> tuple[Transition, Array | None]:
    """The rows of a batch, and the discounts of their next values, if not one step ahead."""
    return (batch.rows, batch.discount) if isinstance(batch, NStepRows) else (batch, None)


def required(rows: Transition, field: Optional) -> Array:
    """A field of the rows that other learners may go without.

    Raises:
        InputError: If the rows have none.
    """
    value = getattr(rows, field)
    if value is None:
        raise InputError(
            f"the batch has no {field}, which this learner needs; give every row its {field}"
        )
    return value


def mean_of(*values: Array) -> Array:
    """The mean of one metric over the batches of an update; to be mapped over trees of them."""
    return jnp.mean(jnp.stack(values), axis=0)
