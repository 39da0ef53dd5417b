"""Batches with a given fraction from the log and the rest from the online buffer."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from neorl_agents.learning import Learner
from neorl_agents.sampling import Batch, as_batch
from neorl_core import Transition
from neorl_core.replay import RingBuffer, ring_sample


def rows_of_the_log(batch_size: int, share: float) -> int:
    """Number of rows of every batch that come from the log: ``share batch_size``, rounded.

    Args:
        batch_size: Rows of one gradient step.
        share: Fraction of every batch that comes from the log, in [0, 1].

    Returns:
        An exact count; the other rows come from the online buffer. For half of an odd batch, the
        log gives the smaller part.

    Example:
        >>> rows_of_the_log(256, 0.5), rows_of_the_log(5, 0.5)
        (128, 2)
    """
    exact = share * batch_size
    floor = int(exact)
    return floor if exact - floor <= 0.5 else floor + 1


def balanced_batch(
    learner: Learner,
    tables: Any,
    ring: RingBuffer,
    number: Int[Array, ""],
    key: PRNGKeyArray,
    *,
    share: float = 0.5,
) -> Any:
    """The batches of one update, each with fixed numbers of rows from log and online buffer.

    Rows of the log come first. Both are sampled uniformly with replacement, those of the log by the
    learner's own sampler. ``share=0.5`` with an even batch is the symmetric sampling of RLPD.

    Args:
        learner: A learner that samples single rows.
        tables: Tables of its sampler; not read if no row comes from the log.
        ring: ``Batch`` rows collected online or predicted; not empty.
        number: Index of the update; a sample is a function of ``(key, number)`` and the buffer.
        key: Random key of the run.
        share: Fraction of every batch that comes from the log, in [0, 1]; static.

    Returns:
        The batch for ``learner.update``, leading axes ``(batches_per_update, batch_size)``.

    Source: Ball et al., Efficient online reinforcement learning with offline data (RLPD), arXiv
    2302.02948, section 4.1, for half and half; Nakamoto et al., Cal-QL, arXiv 2303.05479, for a
    mixing ratio.
    """
    log_key, online_key = jax.random.split(key)
    updates, size = learner.batches_per_update, learner.batch_size
    from_log = rows_of_the_log(size, share)
    draws = updates * (size - from_log)
    samples, _ = ring_sample(ring, jax.random.fold_in(online_key, number), batch=draws)
    online = jax.tree.map(lambda x: x.reshape(updates, size - from_log, *x.shape[1:]), samples)
    if not from_log:
        return online._replace(rows=_columns_read(learner, online.rows))
    log_batch = as_batch(learner.sampler.draw(tables, number, log_key, (updates, from_log)))
    rows = _concatenate(log_batch.rows, online.rows)
    if log_batch.mc_return is None:
        return Batch(rows)
    return Batch(rows, mc_return=jnp.concatenate([log_batch.mc_return, online.mc_return], axis=1))


def _columns_read(learner: Learner, rows: Transition) -> Transition:
    """The rows with only the fields that the learner reads."""
    columns = {name: getattr(rows, name) for name in learner.fields}
    return Transition(*(columns.get(name) for name in Transition._fields))  # pyright: ignore


def _concatenate(log: Transition, online: Transition) -> Transition:
    """Both sets of rows as one, with the fields that the log's rows have."""

    def concatenated(log_column: Any, online_column: Any) -> Any:
        if log_column is None:
            return None
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), log_column, online_column)

    return Transition(*map(concatenated, log, online))
