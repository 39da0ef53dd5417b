"""Where the batches of a training come from: a log, batches that are given, or what a source makes."""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from neorl_agents.learning._protocol import Learner, Metrics
from neorl_agents.learning._state import LearnerState
from neorl_core import Transition


@runtime_checkable
class Source(Protocol):
    """A frozen PyTree that makes the batches of one training, inside the compiled program.

    A source without memory (``cycle`` 0) draws the batches of a whole chunk at once. Any other one
    has a memory that the program carries: before every ``cycle`` updates it is moved on by
    :meth:`advance`, which may act with the policy of that moment, and then gives their batches.

    Whatever is drawn is a function of the key, the number of the update and the memory alone, so
    that the length of a chunk is not part of the result.

    Attributes:
        cycle: Calls of ``update`` between two calls of :meth:`advance`; 0 for a source without
            memory; static.
    """

    @property
    def cycle(self) -> int:
        """Calls of ``update`` between two calls of :meth:`advance`."""
        ...

    def begin(self, learner: Learner, state: LearnerState, tables: Any, key: PRNGKeyArray) -> Any:
        """The memory before the first update; ``()`` without one.

        Args:
            learner: Learner with array leaves.
            state: Its initial state.
            tables: What batches are drawn from besides the memory, on the device.
            key: Key of the run's source.
        """
        ...

    def advance(
        self,
        learner: Learner,
        state: LearnerState,
        memory: Any,
        tables: Any,
        number: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> Any:
        """The memory of the next cycle.

        Args:
            learner: Learner with array leaves.
            state: Its present state, whose policy may act.
            memory: The memory so far.
            tables: As in :meth:`begin`.
            number: Number of the cycle.
            key: Key of the run's source.
        """
        ...

    def batches(
        self,
        learner: Learner,
        memory: Any,
        tables: Any,
        numbers: Int[Array, " update"],
        key: PRNGKeyArray,
    ) -> Any:
        """The batches of some updates along a leading axis.

        Args:
            learner: Learner with array leaves.
            memory: The memory of their cycle.
            tables: As in :meth:`begin`.
            numbers: Numbers of the updates.
            key: Key of the run's batches.
        """
        ...

    def metrics(self, memory: Any) -> Metrics:
        """What the memory tells besides the learner's own metrics, at the end of a chunk."""
        ...


class _WithoutMemory(eqx.Module):
    """What every source without memory answers."""

    @property
    def cycle(self) -> int:
        """Never advanced."""
        return 0

    def begin(self, learner: Any, state: Any, tables: Any, key: PRNGKeyArray) -> tuple[()]:
        """Nothing is remembered."""
        return ()

    def advance(
        self, learner: Any, state: Any, memory: Any, tables: Any, number: Any, key: Any
    ) -> tuple[()]:
        """Nothing is remembered."""
        return ()

    def metrics(self, memory: Any) -> Metrics:
        """None."""
        return {}


class Log(_WithoutMemory):
    """Batches that the learner's own sampler draws from the rows of a log on the device."""

    def batches(
        self, learner: Learner, memory: Any, tables: Any, numbers: Array, key: PRNGKeyArray
    ) -> Any:
        """The draws of all updates at once."""
        shape = (learner.batches_per_update, learner.batch_size)
        return jax.vmap(lambda number: learner.sampler.draw(tables, number, key, shape))(numbers)


class GivenBatches(_WithoutMemory):
    """The batches of a chunk as tables: read from a file, along a leading axis of updates."""

    def batches(
        self, learner: Learner, memory: Any, tables: Any, numbers: Array, key: PRNGKeyArray
    ) -> Any:
        """The tables themselves."""
        return tables


def rows_for(learner: Learner, rows: Transition, prices: Any) -> Transition:
    """The rows of a log as a learner is given them, on the host.

    A learner whose fields include ``cost`` sees reward and cost as they were logged. Any other one
    sees the reward less ``prices`` times the costs, and no cost. Fields that it does not list are
    ``None``.

    Args:
        learner: Any learner.
        rows: Physical units, with reward and, where a price is not zero, cost.
        prices: Reward that one unit of each cost takes off, shape ``(cost,)``.

    Returns:
        Rows for the learner's sampler.
    """
    given = rows
    if "cost" not in learner.fields and "reward" in learner.fields:
        given = rows._replace(reward=priced_reward(rows.reward, rows.cost, prices))
    listed = {name: getattr(given, name) for name in learner.fields}
    return Transition(*(listed.get(name) for name in Transition._fields))  # pyright: ignore[reportArgumentType]


def priced_reward(reward: Any, cost: Any, prices: Any) -> Any:
    """``reward - sum_i prices[i] cost[i]``, term by term, so that blocks of any size agree.

    Args:
        reward: Rewards, NumPy or JAX, shape ``(*rows,)``.
        cost: Costs, shape ``(*rows, cost)``; not read where every price is zero.
        prices: Reward that one unit of each cost takes off, host numbers, shape ``(cost,)``.

    Returns:
        The priced reward, of the kind and dtype of ``reward``.
    """
    for i, price in enumerate(prices):
        if price:
            reward = reward - np.float32(price) * cost[..., i]
    return reward
