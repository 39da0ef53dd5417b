"""The rows collected online: a ring buffer, with next actions and returns once they are known."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from neorl_agents.sampling import Batch
from neorl_core import Transition
from neorl_core.replay import RingBuffer, ring_buffer, ring_push


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
