"""Memory of an agent: whole episodes, or the ring of the source."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray


class Shape(NamedTuple):
    """The lengths of a memory, all static.

    Attributes:
        frames: Number of observations in one input.
        turns: Turns of one episode.
        capacity: Largest number of turns in memory.
        n_step: Steps of one target.
        ring: ``None`` for whole episodes; otherwise the source's ring, and by how much its ``size``
            grows at the start of an episode: 0 at 2a24efc, 1 in release 1.4.0.
    """

    frames: int
    turns: int
    capacity: int
    n_step: int
    ring: int | None

    @property
    def slots(self) -> int:
        """Number of whole episodes in memory."""
        return self.capacity // self.turns

    @property
    def turns_held(self) -> int:
        """Number of turns of whole episodes in memory."""
        return self.slots * self.turns

    @property
    def slot(self) -> int:
        """Rows of one episode: blank frames, its turns, its last observation."""
        return self.frames - 1 + self.turns + 1

    @property
    def rows(self) -> int:
        """Total number of rows."""
        return self.capacity if self.ring is not None else self.slots * self.slot


class Memory(NamedTuple):
    """The past of one agent.

    Attributes:
        obs: One observation per row.
        action: The action taken; 0 in rows without an action.
        reward: The reward received.
        terminated: Whether the world ended the episode with this row.
        truncated: Whether the episode stopped with this row, its last turn.
        length: Turns in each slot; 0 while it is empty. Unused by the ring.
        next_row: Row at which the next episode begins.
        size: Number of rows in use, as the ring of the source counts them; for whole episodes
            their number.
    """

    obs: Float[Array, "row obs"]
    action: Int[Array, " row"]
    reward: Float[Array, " row"]
    terminated: Bool[Array, " row"]
    truncated: Bool[Array, " row"]
    length: Int[Array, " slot"]
    next_row: Int[Array, ""]
    size: Int[Array, ""]


class Episode(NamedTuple):
    """One episode of one agent, ``turns`` rows long.

    Attributes:
        obs: The observation before each action.
        action: The action taken.
        reward: The reward received.
        last_obs: The observation after the last turn.
        length: Number of turns before the world ended the episode; otherwise all of them.
        terminated: Whether the world ended it.
    """

    obs: Float[Array, "turn obs"]
    action: Int[Array, " turn"]
    reward: Float[Array, " turn"]
    last_obs: Float[Array, " obs"]
    length: Int[Array, ""]
    terminated: Bool[Array, ""]


class Windows(NamedTuple):
    """A batch for one gradient step.

    Attributes:
        inputs: Frames up to a turn, oldest first, flattened.
        action: The action taken in that turn.
        reward: Discounted rewards of the steps that the target spans.
        next_inputs: Frames up to the turn after those steps.
        discount: Factor of the value there; 0 if the world ended the episode before.
        valid: 1 for a row to use and 0 for others, or the weight of the row.
    """

    inputs: Float[Array, "batch in"]
    action: Int[Array, " batch"]
    reward: Float[Array, " batch"]
    next_inputs: Float[Array, "batch in"]
    discount: Float[Array, " batch"]
    valid: Float[Array, " batch"]


def empty_memory(shape: Shape, n_obs: int) -> Memory:
    """An empty memory."""
    rows = shape.rows
    zero, no = jnp.zeros((), jnp.int32), jnp.zeros(rows, jnp.bool_)
    return Memory(
        jnp.zeros((rows, n_obs), jnp.float32),
        jnp.zeros(rows, jnp.int32),
        jnp.zeros(rows, jnp.float32),
        no,
        no,
        jnp.zeros(max(shape.slots, 1), jnp.int32),
        zero,
        zero,
    )


def first_frames(shape: Shape, memory: Memory) -> Float[Array, "frame obs"]:
    """The frames before the first turn of the next episode: blank, or rows left in the ring."""
    before = shape.frames - 1
    if shape.ring is None:
        return jnp.zeros((before, memory.obs.shape[1]), memory.obs.dtype)
    return memory.obs[(memory.next_row + jnp.arange(before)) % shape.rows]


def remember(shape: Shape, memory: Memory, episode: Episode) -> Memory:
    """The memory with one more episode, which replaces the oldest.

    Whole episodes are stored as blank frames, the turns and the last observation; the last turn is
    marked. The ring of the source skips ``frames - 1`` rows without clearing them, and never marks
    an end.
    """
    before, turn = shape.frames - 1, jnp.arange(shape.turns, dtype=jnp.int32)
    if shape.ring is not None:
        rows = (memory.next_row + before + turn) % shape.rows
        return memory._replace(
            obs=memory.obs.at[rows].set(episode.obs),
            action=memory.action.at[rows].set(episode.action),
            reward=memory.reward.at[rows].set(episode.reward),
            next_row=(memory.next_row + before + shape.turns) % shape.rows,
            size=jnp.minimum(
                jnp.minimum(memory.size + shape.ring, shape.rows) + shape.turns, shape.rows
            ),
        )
    last = turn == episode.length - 1
    start = memory.next_row
    row_values = {
        "obs": jnp.concatenate([jnp.zeros_like(episode.obs[:1]), episode.obs])[
            jnp.where(turn < episode.length, turn + 1, 0)
        ],
        "action": jnp.where(turn < episode.length, episode.action, 0),
        "reward": jnp.where(turn < episode.length, episode.reward, 0),
        "terminated": last & episode.terminated,
        "truncated": last & ~episode.terminated,
    }
    columns = {}
    for name, rows in row_values.items():
        blank = jnp.zeros((shape.slot, *rows.shape[1:]), rows.dtype)
        block = jax.lax.dynamic_update_slice_in_dim(blank, rows, before, 0)
        if name == "obs":
            block = block.at[before + episode.length].set(episode.last_obs)
        column = getattr(memory, name)
        columns[name] = jax.lax.dynamic_update_slice_in_dim(column, block, start, 0)
    slot = start // shape.slot
    return memory._replace(
        **columns,
        length=memory.length.at[slot].set(episode.length),
        next_row=(start + shape.slot) % shape.rows,
        size=jnp.minimum(memory.size + 1, shape.slots),
    )


def windows_known(shape: Shape, memory: Memory) -> Int[Array, ""]:
    """Number of turns from which a batch can be sampled."""
    if shape.ring is not None:
        return jnp.maximum(memory.size - shape.frames - 1, 0)
    return jnp.sum(memory.length)


def draw_windows(
    shape: Shape, memory: Memory, key: PRNGKeyArray, *, batch: int, discount: Float[Array, ""]
) -> Windows:
    """A batch of distinct turns, all equally likely.

    Args:
        shape: Lengths.
        memory: Must hold at least ``batch`` turns (:func:`windows_known`); with fewer, some rows
            are meaningless.
        key: Random key.
        batch: Number of turns.
        discount: Discount of the reward per step.
    """
    if shape.ring is not None:
        known = jnp.arange(shape.rows) < jnp.maximum(memory.size - shape.frames - 1, 1)
        return ring_windows(shape, memory, _distinct(known, key, batch), discount)
    known = jnp.arange(shape.turns)[None, :] < memory.length[:, None]
    return episode_windows(shape, memory, _distinct(known.reshape(-1), key, batch), discount)


def episode_windows(
    shape: Shape, memory: Memory, turns: Int[Array, " batch"], discount: Float[Array, ""]
) -> Windows:
    """The windows of turns ``slot * turns + turn``, none of which leaves its episode.

    ``reward`` is the sum of ``n_step`` discounted rewards, or of fewer at the end of the episode,
    and ``discount`` is that of the value after them, which continues past a limit on the turns.
    """
    slot, turn = turns // shape.turns, turns % shape.turns
    row = slot * shape.slot + shape.frames - 1 + turn
    steps = jnp.minimum(shape.n_step, memory.length[slot] - turn)
    ahead = jnp.arange(shape.n_step)[None, :]
    factor = jnp.where(ahead < steps[:, None], discount**ahead, 0)
    rewards = memory.reward[jnp.minimum(row[:, None] + ahead, shape.rows - 1)]
    follows = ~memory.terminated[row + steps - 1]
    return Windows(
        _frames(shape, memory, row),
        memory.action[row],
        jnp.sum(factor * rewards, axis=1),
        _frames(shape, memory, row + steps),
        jnp.where(follows, discount**steps, 0),
        jnp.ones(turns.shape, jnp.float32),
    )


def ring_windows(
    shape: Shape, memory: Memory, starts: Int[Array, " batch"], discount: Float[Array, ""]
) -> Windows:
    """The windows of the source: one reward and ``discount ** n_step``, across any boundary."""
    row = starts + shape.frames - 1
    ended = memory.terminated
    ended_before = ended[starts[:, None] + jnp.arange(shape.frames - 1)[None, :]]
    return Windows(
        _frames(shape, memory, row),
        memory.action[row],
        memory.reward[row],
        _frames(shape, memory, row + 1),
        jnp.where(ended[row], 0, discount**shape.n_step),
        1.0 - jnp.any(ended_before, axis=1),
    )


def _frames(shape: Shape, memory: Memory, row: Int[Array, " batch"]) -> Float[Array, "batch in"]:
    rows = row[:, None] + jnp.arange(1 - shape.frames, 1)[None, :]
    return memory.obs[rows].reshape(row.shape[0], -1)


def _distinct(known: Bool[Array, " row"], key: PRNGKeyArray, batch: int) -> Int[Array, " batch"]:
    order = jnp.where(known, jax.random.uniform(key, known.shape), -1)
    return jax.lax.top_k(order, batch)[1].astype(jnp.int32)
