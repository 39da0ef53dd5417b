"""Fine-tuning offline learners online: their settings, the rows collected, balanced batches."""

from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_agents.learning import Explorer, Learner
from neorl_agents.sampling import Batch, Rows, RowsWithReturns, as_batch
from neorl_core import InputError, Transition
from neorl_core.infrastructure import unknown_name
from neorl_core.replay import RingBuffer, ring_buffer, ring_push, ring_sample

__all__ = [
    "OFFLINE",
    "Replay",
    "balanced_batch",
    "for_fine_tuning",
    "replay_begin",
    "replay_push",
    "require_fine_tunable",
    "rows_of_the_log",
]

# Settings of a learner that change when its training continues online.


OFFLINE = "offline"
"""The variant that keeps the hyperparameters of the offline training."""

L = TypeVar("L")


def require_fine_tunable(algorithm: Any) -> None:
    """Refuses a learner that cannot be fine-tuned online.

    It needs ``explore(state)``, its exploration policy, ``fine_tuning``, its settings by the name
    of the variant, and batches of single rows.

    Args:
        algorithm: Any learner.

    Raises:
        InputError: If it lacks one of these; the message names the learner and what it lacks.
    """
    name = type(algorithm).__name__
    if not isinstance(algorithm, Explorer) or not algorithm.fine_tuning:
        missing = "explore" if not hasattr(algorithm, "explore") else "fine_tuning"
        raise InputError(
            f"{name} cannot be fine-tuned online, because it has no {missing}; among the learners "
            "of this package IQL, CalQL and ReBRAC can be"
        )
    if not isinstance(algorithm.sampler, Rows | RowsWithReturns):
        raise InputError(
            f"{name} cannot be fine-tuned online, because its sampler needs more than the single "
            "rows of the online buffer; choose settings with single rows, or IQL, CalQL or ReBRAC"
        )


def for_fine_tuning(algorithm: L, variant: str = "original") -> L:
    """The learner with its settings for online training.

    Args:
        algorithm: Learner with plain numbers as fields, as it was trained offline.
        variant: One of the learner's ``fine_tuning``, or ``"offline"`` to change nothing.

    Returns:
        The same learner with those fields replaced; a schedule of length -1 is then set to the
        length of the fine-tuning (:func:`neorl_agents.learning.for_run`).

    Raises:
        InputError: If the learner cannot be fine-tuned, or has no such variant.

    Example:
        >>> from neorl_agents import ReBRAC
        >>> online = for_fine_tuning(ReBRAC(actor_weight=0.1))
        >>> online.actor_weight, online.critic_weight, online.final_weight
        (0.1, 0.0, 0.5)
    """
    require_fine_tunable(algorithm)
    settings: Any = algorithm
    known = {OFFLINE: {}, **settings.fine_tuning}
    if variant not in known:
        raise unknown_name(f"variant of fine-tuning {type(algorithm).__name__}:", variant, known)
    return replace(settings, **known[variant])


# The rows collected online: a ring buffer, with next actions and returns once they are known.


class Replay(NamedTuple):
    """The newest rows of several plants that are stepped in parallel.

    A row is stored one step late, when the action that followed it is known.

    Attributes:
        ring: Buffer of ``Batch`` rows in physical units; the rows of one step are adjacent.
            A return is minus infinity until the episode of its row has ended; ``mc_return`` is
            ``None`` if returns are not kept.
        pending: The rows of the last step, shape ``(env, ...)``.
        discount: Discount of the returns, scalar.
        bootstrap_value: Assumed return after the truncation of an episode, scalar, in the unit of
            the reward.
    """

    ring: RingBuffer
    pending: Transition
    discount: Float[Array, ""]
    bootstrap_value: Float[Array, ""]


def replay_begin(
    example: Transition,
    *,
    capacity: int,
    discount: float | Float[Array, ""],
    bootstrap_value: float | Float[Array, ""] = 0.0,
    returns: bool = False,
) -> Replay:
    """An empty buffer.

    Args:
        example: Rows of one step, one for each plant, which give shapes and dtypes: ``obs``,
            ``action``, ``reward``, ``next_obs``, ``terminated`` and ``truncated``, and ``cost`` if
            the learner reads it.
        capacity: Number of rows that it holds, at least those of one step.
        discount: Discount of the returns, in [0, 1].
        bootstrap_value: Assumed return after the truncation of an episode; for a log
            ``mean(reward) / (1 - discount)``, as in ``neorl_agents.sampling.returns_to_go``.
        returns: Whether to keep the return that followed every row, as Cal-QL requires.

    Returns:
        The buffer; the first rows that are pushed are stored when the second ones arrive.

    Raises:
        ValueError: If ``capacity`` is not a positive integer.
    """
    pending = example._replace(next_action=None, mask=None)
    pending = jax.tree.map(lambda leaf: jnp.zeros(jnp.shape(leaf), leaf.dtype), pending)
    row = jax.tree.map(lambda leaf: leaf[0], pending)
    stored = Batch(row._replace(next_action=row.action), mc_return=row.reward if returns else None)
    ring, count = ring_buffer(stored, capacity=capacity), pending.reward.shape[0]
    dtype = pending.reward.dtype
    # No rows wait yet. The first push stores blank rows at the end of the ring, where they are not
    # counted; real rows have replaced them before any row is sampled from there.
    ring = ring._replace(next_slot=ring.next_slot + (capacity - count), size=ring.size - count)
    return Replay(ring, pending, jnp.asarray(discount, dtype), jnp.asarray(bootstrap_value, dtype))


def replay_push(replay: Replay, rows: Transition, *, horizon: int) -> Replay:
    """Stores the pending rows, now that their next actions are known; the new rows wait.

    If an episode ends with a stored row, the returns of all its rows are written:
    ``G_t = reward_t + discount G_{t+1}``, with nothing after a termination and ``beyond`` after a
    truncation.

    Args:
        replay: Buffer to store in.
        rows: Rows of the next step in physical units, with the fields of :func:`replay_begin`;
            after the end of an episode the first row of the new one.
        horizon: Number of steps of the longest episode; static.

    Returns:
        The new buffer.
    """
    before = replay.pending
    following = jnp.where(_episode_end(before)[:, None], 0, rows.action)
    count = before.reward.shape[0]
    unknown = None
    if replay.ring.rows.mc_return is not None:
        unknown = jnp.full_like(before.reward, -jnp.inf)
    stored = Batch(before._replace(next_action=following), mc_return=unknown)
    ring = ring_push(replay.ring, stored)
    if unknown is not None:
        ring = _with_returns(replay, ring, before, min(horizon, _capacity(ring) // count))
    return replay._replace(ring=ring, pending=rows._replace(next_action=None, mask=None))


def _with_returns(replay: Replay, ring: RingBuffer, newest: Transition, steps: int) -> RingBuffer:
    """The ring with the returns of the episodes that ended with the newest rows."""
    slots, in_episode = _episode(ring, newest.reward.shape[0], steps)
    rewards = jnp.where(in_episode, ring.rows.rows.reward[slots], 0)
    last_value = jnp.where(jnp.asarray(newest.terminated), 0, replay.bootstrap_value)
    # Newest first: every older return is its reward plus the discounted return that follows it.
    factors = jnp.broadcast_to(replay.discount, rewards.shape)
    power, returns_sum = jax.lax.associative_scan(_compose, (factors, rewards), axis=0)
    returns = returns_sum + power * last_value[None, :]
    known = in_episode & _episode_end(newest)[None, :]
    target = jnp.where(known, slots, _capacity(ring))
    mc_return = ring.rows.mc_return.at[target].set(returns, mode="drop")
    return ring._replace(rows=ring.rows._replace(mc_return=mc_return))


def _episode(
    ring: RingBuffer, count: int, steps: int
) -> tuple[Int[Array, "step env"], Bool[Array, "step env"]]:
    """Slots of the last steps, newest first, and which of them belong to the newest episode."""
    steps_back = jnp.arange(steps, dtype=jnp.int32)[:, None]
    env = jnp.arange(count, dtype=jnp.int32)[None, :]
    slots = (ring.next_slot - count * (steps_back + 1) + env) % _capacity(ring)
    is_written = count * (steps_back + 1) <= ring.size
    ends = _episode_end(ring.rows.rows)[slots] & (steps_back > 0)
    in_episode = (jnp.cumsum(ends, axis=0) == 0) & is_written
    return slots, in_episode


def _compose(newer: tuple[Array, Array], older: tuple[Array, Array]) -> tuple[Array, Array]:
    return newer[0] * older[0], older[1] + older[0] * newer[1]


def _episode_end(rows: Transition) -> Bool[Array, " env"]:
    return jnp.asarray(rows.terminated) | jnp.asarray(rows.truncated)


def _capacity(ring: RingBuffer) -> int:
    return ring.rows.rows.reward.shape[0]


# Batches with a given fraction from the log and the rest from the online buffer.


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
