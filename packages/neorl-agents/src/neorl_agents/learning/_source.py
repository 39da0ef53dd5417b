"""Sources of training batches."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from neorl_agents.learning._protocol import Learner, Metrics
from neorl_agents.learning._state import LearnerState
from neorl_core import InputError, Spec, Transition
from neorl_core.costs import penalised_reward


class TrainingKeys(NamedTuple):
    """The keys of one training, each for one purpose.

    Attributes:
        batches: Key that chooses the rows of every batch.
        updates: Key of the randomness inside ``update``.
        source: Key of the source's own randomness.
        begin: Key of the source's memory before the first update.
    """

    batches: PRNGKeyArray
    updates: PRNGKeyArray
    source: PRNGKeyArray
    begin: PRNGKeyArray


def training_keys(key: PRNGKeyArray) -> TrainingKeys:
    """The keys of one training, from the key of its chunks."""
    return TrainingKeys(*jax.random.split(key, 4))


@runtime_checkable
class Source(Protocol):
    """A frozen PyTree that makes the batches of one training, inside the compiled program.

    A source without memory (``cycle`` 0) makes the batches of a whole chunk in one call. Any other
    source has a memory that the program carries: before every ``cycle`` updates, :meth:`advance`
    renews it, possibly by acting with the current policy, and the source then gives the batches of
    those updates.

    All samples are functions of the key, the index of the update and the memory only, so the result
    does not depend on the length of a chunk.

    Attributes:
        cycle: Calls of ``update`` between two calls of :meth:`advance`; 0 for a source without
            memory; static.
    """

    @property
    def cycle(self) -> int:
        """Calls of ``update`` between two calls of :meth:`advance`."""
        ...

    def begin(self, learner: Any, state: LearnerState, tables: Any, keys: TrainingKeys) -> Any:
        """The memory before the first update; ``()`` for a source without memory.

        Args:
            learner: Learner with array leaves.
            state: Its initial state.
            tables: Device tables that batches are sampled from, in addition to the memory.
            keys: Keys of the training.
        """
        ...

    def advance(
        self,
        learner: Any,
        state: LearnerState,
        memory: Any,
        tables: Any,
        number: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> Any:
        """The memory of the next cycle.

        Args:
            learner: Learner with array leaves.
            state: Its current state, whose policy may act.
            memory: The memory so far.
            tables: See :meth:`begin`.
            number: Index of the cycle.
            key: Key of the run's source.
        """
        ...

    def batches(
        self,
        learner: Any,
        memory: Any,
        tables: Any,
        numbers: Int[Array, " update"],
        key: PRNGKeyArray,
    ) -> Any:
        """The batches of several updates, along a leading axis.

        Args:
            learner: Learner with array leaves.
            memory: The memory of their cycle.
            tables: See :meth:`begin`.
            numbers: Indices of the updates.
            key: Key of the run's batches.
        """
        ...

    def metrics(self, memory: Any) -> Metrics:
        """Metrics of the memory at the end of a chunk, in addition to the learner's own."""
        ...


class _WithoutMemory(eqx.Module):
    """The part of the protocol that is the same for every source without memory."""

    @property
    def cycle(self) -> int:
        """Zero: there is no memory to advance."""
        return 0

    def begin(self, learner: Any, state: Any, tables: Any, keys: Any) -> tuple[()]:
        """An empty memory."""
        return ()

    def advance(
        self, learner: Any, state: Any, memory: Any, tables: Any, number: Any, key: Any
    ) -> tuple[()]:
        """An empty memory."""
        return ()

    def metrics(self, memory: Any) -> Metrics:
        """No metrics."""
        return {}

    def rollouts(self, steps: int) -> Any:
        """Raises an ``InputError``: the rows of a log do not come from the learner's own policy."""
        raise InputError(
            "this learner needs rollouts of its own policy, which a log does not contain; train it "
            "on a simulated plant"
        )

    def replayed(self, steps: int) -> Any:
        """Raises an ``InputError``: a log does not grow while a learner explores."""
        raise InputError(
            "this learner needs steps of its own exploration, which a log does not contain; train "
            "it on a simulated plant"
        )


class Log(_WithoutMemory):
    """Batches that the learner's own sampler chooses from the rows of a log on the device."""

    def batches(
        self, learner: Learner, memory: Any, tables: Any, numbers: Array, key: PRNGKeyArray
    ) -> Any:
        """The batches of all updates in one call."""
        shape = (learner.batches_per_update, learner.batch_size)
        return jax.vmap(lambda number: learner.sampler.draw(tables, number, key, shape))(numbers)


class Site(Log):
    """The log of one of several sites that train together: its own rows, sampled with its own key.

    Sites share the key of a training and the index of every update. Each samples with the key
    folded with its own number, so sites with equally many rows do not sample the same ones. Their
    states start equal if every ``init`` is given the same key and the ``preparation`` of merged
    statistics (:meth:`neorl_agents.Learner.prepare`); only then is a mean of their parameters
    meaningful.

    Attributes:
        number: Number of the site, from 0.
    """

    number: Int[Array, ""]

    def batches(
        self, learner: Learner, memory: Any, tables: Any, numbers: Array, key: PRNGKeyArray
    ) -> Any:
        """The batches of all updates in one call, from the rows of this site."""
        own_key = jax.random.fold_in(key, self.number)
        return super().batches(learner, memory, tables, numbers, own_key)


class GivenBatches(_WithoutMemory):
    """The batches of a chunk as given tables, such as from a file, along an axis of updates."""

    def batches(
        self, learner: Learner, memory: Any, tables: Any, numbers: Array, key: PRNGKeyArray
    ) -> Any:
        """The tables themselves."""
        return tables


def log_tables(learner: Learner, spec: Spec, rows: Transition) -> Any:
    """Tables from which a learner's batches are sampled.

    A learner may choose among the rows, or refuse a log, with its own method
    ``log_tables(spec, rows)``; without one, the tables of its sampler are made of all rows.

    Args:
        learner: Any learner.
        spec: Channels with the cost limits of the run.
        rows: The rows of :func:`rows_for`, on the host.
    """
    own_tables = getattr(learner, "log_tables", None)
    return learner.sampler.tables(rows) if own_tables is None else own_tables(spec, rows)


def require_log(learner: Learner, spec: Spec, rows: Transition) -> None:
    """Refuses a log from which a learner can learn nothing; nothing is compiled.

    Only a learner with a method ``require_log(spec, rows)`` refuses any.

    Args:
        learner: Any learner.
        spec: Channels with the cost limits of the run.
        rows: The rows of :func:`rows_for`, on the host.

    Raises:
        InputError: If the learner refuses the log; the message says what to do.
    """
    own_check = getattr(learner, "require_log", None)
    if own_check is not None:
        own_check(spec, rows)


def reads_costs(learner: Learner) -> bool:
    """Whether a learner is given rewards and costs as they were logged.

    Any other learner is given the reward minus the priced costs.
    """
    return "cost" in learner.fields


def rows_for(learner: Learner, rows: Transition, penalties: Sequence[float]) -> Transition:
    """The rows of a log as a learner is given them, on the host.

    A learner whose fields include ``cost`` is given reward and cost as they were logged. Any other
    is given the reward minus ``penalties`` times the costs, and no cost. Fields that it does not
    list are ``None``.

    Args:
        learner: Any learner.
        rows: Physical units, with reward and, if a penalty is not zero, cost.
        penalties: Reward subtracted per unit of each cost; empty for none.

    Returns:
        Rows for the learner's sampler.
    """
    if any(penalties) and "reward" in learner.fields and not reads_costs(learner):
        rows = rows._replace(reward=reward_minus_costs(rows.reward, rows.cost, penalties))
    columns = {name: getattr(rows, name) for name in learner.fields}
    return Transition(*(columns.get(name) for name in Transition._fields))  # pyright: ignore[reportArgumentType]


def reward_minus_costs(reward: Any, cost: Any, penalties: Sequence[float]) -> Any:
    """The reward of logged rows minus the penalised costs, on the host.

    A cost whose penalty is zero is not read, so it may be unknown.

    Args:
        reward: NumPy column, shape ``(row,)``.
        cost: NumPy columns, shape ``(row, cost)``.
        penalties: Reward subtracted per unit of each cost, shape ``(cost,)``.
    """
    indices = [i for i, penalty in enumerate(penalties) if penalty]
    rewards: Any = np.asarray(reward)
    costs: Any = np.asarray(cost)[..., indices]
    penalty: Any = np.asarray(penalties, np.float32)[indices]
    return penalised_reward(rewards, costs, penalty)
