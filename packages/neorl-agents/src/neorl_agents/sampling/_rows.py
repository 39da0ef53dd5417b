"""The protocol of a sampler, and samplers of single rows of a log.

A sampler samples a learner's batches from a log. Those of rows are uniform, of members, with n
steps, or of the best episodes.
"""

import dataclasses
import math
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_core import Transition
from neorl_core.replay import batch_indices
from neorl_core.returns import segment_n_step_returns


class ReturnsToGo(NamedTuple):
    """Return and costs that followed steps in their logged episode, the steps themselves included.

    Attributes:
        returns: Sum of the rewards to the end of the episode, in the unit of the reward.
        costs: The same for every cost, with an axis of costs at the end.
        steps_left: Number of steps in those sums.
        step: Index of the step in its episode, from zero.
    """

    returns: Float[Array, "*row"]
    costs: Float[Array, "*row cost"]
    steps_left: Int[Array, "*row"]
    step: Int[Array, "*row"]


class Batch(NamedTuple):
    """Rows, with further data that some samplers provide.

    Attributes:
        rows: Physical units. Over several steps, ``reward`` is their discounted sum, and
            ``next_obs``, ``next_action``, ``terminated`` and ``truncated`` are those of the last.
        discount: Discount of the value that follows, ``discount^m`` over ``m`` steps, shape
            ``(row,)``; ``None`` if it is the learner's own.
        mc_return: Discounted return that followed in the log, in the unit of the reward, shape
            ``(row,)``; ``None`` if it was not requested.
        weight: Weight of each row in the loss, in [0, 1], if rows are not sampled uniformly, shape
            ``(row,)``; for an ensemble, how often the episode of each row was drawn for each
            member, shape ``(row, member)``; else ``None``.
        to_go: What followed every step of a row's window, with an axis of steps after those of the
            rows; ``None`` if it was not requested.
    """

    rows: Transition
    discount: Float[Array, "*row"] | None = None
    mc_return: Float[Array, "*row"] | None = None
    weight: Float[Array, "*row"] | None = None
    to_go: ReturnsToGo | None = None


def as_batch(batch: Transition | Batch) -> Batch:
    """A sampler's result as a :class:`Batch`; bare rows are accepted too."""
    return batch if isinstance(batch, Batch) else Batch(batch)


@runtime_checkable
class Sampler(Protocol):
    """Makes batches from a log: tables once on the host, then samples in the compiled program.

    Every learner has its own. Fields of a sampler are plain numbers of the learner, never arrays.
    """

    def tables(self, rows: Transition) -> Any:
        """Tables to sample from: a PyTree of arrays with a leading axis of rows.

        Args:
            rows: The training split in the order of the log, host arrays in physical units; with
                the fields that the learner lists.
        """
        ...

    def draw(
        self, tables: Any, number: Int[Array, ""], key: PRNGKeyArray, shape: tuple[int, int]
    ) -> Any:
        """Samples the batch of one update; traced.

        Args:
            tables: Result of :meth:`tables`, on the device.
            number: Index of the update.
            key: Key of the run; a sample is a function of only ``(key, number)``.
            shape: ``(batches_per_update, batch_size)``.

        Returns:
            The batch for the learner's ``update``.
        """
        ...


# Starts and ends of episodes in the rows of a log, on the host.


def on_host(rows: Transition) -> Any:
    """The same rows as NumPy arrays."""
    return jax.tree.map(np.asarray, rows)


def episode_starts(rows: Transition) -> np.ndarray:
    """For every row, the index of the first row of its episode, int32.

    Raises a ``ValueError`` if the log does not mark where episodes end.
    """
    ends = episode_ends(rows)
    number = np.arange(len(ends), dtype=np.int32)
    starts = np.concatenate([[True], ends[:-1]])
    return np.maximum.accumulate(np.where(starts, number, 0)).astype(np.int32)


def episode_ends(rows: Transition) -> np.ndarray:
    """Marks the last row of each episode; the last row of the log always counts.

    Raises a ``ValueError`` if the log does not mark where episodes end.
    """
    if rows.terminated is None or rows.truncated is None:
        raise ValueError(
            "the ends of episodes are not known; the learner must list terminated and truncated "
            "in its `reads`"
        )
    ends = np.asarray(rows.terminated) | np.asarray(rows.truncated)
    ends = ends.copy()
    ends[-1:] = True
    return ends


def unmasked_rows(rows: Transition) -> np.ndarray:
    """Whether each row is unmasked; a ``ValueError`` if all are masked, or rewards are missing."""
    if rows.reward is None:
        raise ValueError("rewards are not known; the learner must list reward in its `reads`")
    is_valid = np.ones(len(np.asarray(rows.reward)), bool) if rows.mask is None else rows.mask
    is_valid = np.asarray(is_valid, bool)
    if not is_valid.any():
        raise ValueError("every row is masked, so there is nothing to sample; mask fewer rows")
    return is_valid


def last_rows(ends: np.ndarray) -> np.ndarray:
    """For every row, the index of the first row from it on where ``ends`` is true, int32."""
    number = np.arange(len(ends), dtype=np.int32)
    indices = np.where(ends, number, len(ends) - 1)
    return np.minimum.accumulate(indices[::-1])[::-1].astype(np.int32)


# Uniform sampling of single rows.


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


# Uniform sampling of rows, each with the return that followed it in the log.


@dataclasses.dataclass(frozen=True)
class RowsWithReturns:
    """Samples rows uniformly, as :class:`Batch` with returns.

    Attributes:
        discount: Discount of the reward per step, in [0, 1].
    """

    discount: float

    def tables(self, rows: Transition) -> Batch:
        """All rows with their returns to go."""
        returns: Any = returns_to_go(rows, discount=self.discount)  # Host arrays, like the rows.
        return Batch(rows, mc_return=returns)

    def draw(
        self, tables: Batch, number: Int[Array, ""], key: PRNGKeyArray, shape: tuple[int, int]
    ) -> Batch:
        """Samples one batch with returns."""
        return Rows().draw(tables, number, key, shape)  # pyright: ignore


def returns_to_go(rows: Transition, *, discount: float) -> np.ndarray:
    """The discounted return from every row to the end of its episode and beyond.

    ``G_t = r_t + discount G_{t+1}``. Nothing follows after a termination. A truncated episode went
    on unrecorded, so it is continued with the log's mean reward for ever, ``mean(r) / (1 -
    discount)``. Without this, the last rows of every episode would look better than the first
    wherever rewards are negative. With a discount of 1 nothing is added. A masked row is in no
    return and not in the mean; the episode is cut before it.

    Args:
        rows: A log in order, with ``reward``, ``terminated`` and ``truncated``, and ``mask`` if
            some rows are to be ignored; host arrays.
        discount: Discount factor in [0, 1].

    Returns:
        One return per row, float32; meaningless for masked rows.

    Raises:
        ValueError: If every row is masked, or ``terminated`` or ``truncated`` is missing.

    Example:
        >>> import numpy as np
        >>> from neorl_core import Transition
        >>> ends = np.array([False, True])
        >>> log = Transition(np.zeros((2, 1)), np.zeros((2, 1)), np.array([1.0, 4.0]),
        ...     terminated=ends, truncated=~ends & False)
        >>> returns_to_go(log, discount=0.5).tolist()
        [3.0, 4.0]
    """
    reward, terminated = np.asarray(rows.reward, np.float64), np.asarray(rows.terminated)
    ends, is_valid = episode_ends(rows), unmasked_rows(rows)
    ends = ends | np.append(~is_valid[1:], False)
    value_after_end = reward[is_valid].mean() / (1 - discount) if discount < 1 else 0.0
    reward = np.where(is_valid, reward, 0)
    result, return_after = np.empty(len(reward)), value_after_end
    for t in range(len(reward) - 1, -1, -1):
        if ends[t]:
            return_after = 0.0 if terminated[t] else value_after_end
        return_after = reward[t] + discount * return_after
        result[t] = return_after
    return result.astype(np.float32)


# Uniform sampling of rows with weights that bootstrap the episodes for every network.


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


# Uniform sampling of rows with n-step rewards and successors.


@dataclasses.dataclass(frozen=True)
class NSteps:
    """Samples rows uniformly, as :class:`Batch` with discounts.

    ``R_t = sum_{k<m} discount^k r_{t+k}``, ``m = steps``, or fewer if the episode ends or the next
    row is masked; the value of the last row's next observation follows, or nothing after a
    termination. The actions in between are those of the behaviour, so for another policy the target
    is biased, and more so with more steps.

    Attributes:
        steps: Largest number of steps, at least one.
        discount: Discount of the reward per step, in [0, 1].

    Source: Sutton and Barto, Reinforcement learning, 2nd edition, equation 7.1; without correction
    as in Hessel et al., Rainbow, arXiv 1710.02298.
    """

    steps: int
    discount: float

    def tables(self, rows: Transition) -> Batch:
        """All rows with their n-step rewards and successors.

        Raises:
            ValueError: If the log does not mark where episodes end.
        """
        log = on_host(rows)
        ends, number = episode_ends(log), np.arange(len(log.reward), dtype=np.int32)
        reward = log.reward
        if log.mask is not None:
            # A masked row is in no sum: the sums of earlier rows stop there and bootstrap from a
            # value.
            ends |= np.append(~log.mask[1:], True) | ~log.mask
            reward = np.where(log.mask, reward, 0)
        last = np.minimum(last_rows(ends), number + self.steps - 1)
        total = segment_n_step_returns(
            jnp.asarray(reward),
            jnp.zeros_like(jnp.asarray(reward)),
            jnp.asarray(log.terminated),
            jnp.asarray(ends),
            n=self.steps,
            discount=self.discount,
        )
        factor = np.power(np.float64(self.discount), last - number + 1)
        n_step_rows: Any = rows._replace(
            reward=np.asarray(total),
            next_obs=None if log.next_obs is None else log.next_obs[last],
            next_action=None if log.next_action is None else log.next_action[last],
            terminated=log.terminated[last],
            truncated=log.truncated[last],
        )
        return Batch(n_step_rows, factor.astype(reward.dtype))  # pyright: ignore

    def draw(
        self,
        tables: Batch,
        number: Int[Array, ""],
        key: PRNGKeyArray,
        shape: tuple[int, int],
    ) -> Batch:
        """Samples one batch with its discounts."""
        return Rows().draw(tables, number, key, shape)  # pyright: ignore


# Uniform sampling of rows of the best episodes.


@dataclasses.dataclass(frozen=True)
class BestEpisodes:
    """Rows of the fraction of episodes with the largest undiscounted returns.

    Masked rows are in no return, and episodes of only masked rows are ignored.

    Attributes:
        fraction: Fraction of the episodes to keep, in (0, 1]; at least one episode is kept.

    Source: filtered behaviour cloning ("10 % BC") as in Chen et al., Decision transformer,
    arXiv 2106.01345.
    """

    fraction: float

    def tables(self, rows: Transition) -> Transition:
        """The rows of the kept episodes; among episodes with equal returns the earlier ones.

        Raises:
            ValueError: If the log does not mark where episodes end, or every row is masked.
        """
        unmasked = unmasked_rows(rows)
        episode = np.concatenate([[0], np.cumsum(episode_ends(rows))[:-1]])
        reward = np.where(unmasked, np.asarray(rows.reward, np.float64), 0)
        returns = np.bincount(episode, weights=reward)
        has_rows = np.bincount(episode, weights=unmasked) > 0
        # A tolerance for rounding: 0.1 * 30 is slightly more than 3.
        n_kept = max(math.ceil(self.fraction * has_rows.sum() * (1 - 1e-9)), 1)
        best = np.argsort(np.where(has_rows, -returns, np.inf), kind="stable")[:n_kept]
        is_kept = np.isin(episode, best)
        return jax.tree.map(lambda column: np.asarray(column)[is_kept], rows)

    def draw(
        self, tables: Transition, number: Int[Array, ""], key: PRNGKeyArray, shape: tuple[int, int]
    ) -> Transition:
        """Samples one batch of kept rows."""
        return Rows().draw(tables, number, key, shape)
