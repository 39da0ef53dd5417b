"""Batches from a simulated plant: a buffer of collected rows and a log, or fresh rollouts."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents import Explorer, LearnerState
from neorl_agents.learning import Metrics, TrainingKeys
from neorl_agents.online import Replay, balanced_batch, replay_begin, replay_push
from neorl_agents.sampling import RowsWithReturns
from neorl_core import Policy, Transition
from neorl_train.training._collect import (
    Collection,
    Counts,
    ProposalRecorder,
    Running,
    begin_episodes,
    collect_step,
    example_rows,
    no_counts,
    online_metrics,
)
from neorl_train.training._plant_replay import PlantReplay


class PlantMemory(NamedTuple):
    """State that a collecting source carries from chunk to chunk.

    Attributes:
        running: Episodes in progress.
        rows: Source of the batches: a :class:`neorl_agents.online.Replay`, or the rows of the
            last rollouts, shape ``(step, env, ...)``.
        counts: Counts of events during collection.
    """

    running: Running
    rows: Any
    counts: Counts


class PlantAndLog(eqx.Module):
    """One step of every episode, then updates on the log and on a buffer of collected rows.

    With ``share`` zero no log is needed.

    Attributes:
        collection: How rows are collected.
        beyond: Return that is assumed to follow a truncated episode, in the unit of the reward.
        share: Fraction of the log in every batch; static.
        capacity: Number of rows that the online buffer can store; static.
        first_steps: Steps of every episode before the first update; static.
        cycle: Calls of ``update`` after every step; static.
    """

    collection: Collection
    beyond: Float[Array, ""]
    share: float = eqx.field(static=True)
    capacity: int = eqx.field(static=True)
    first_steps: int = eqx.field(static=True)
    cycle: int = eqx.field(static=True)

    def begin(
        self, learner: Explorer, state: LearnerState, tables: Any, keys: TrainingKeys
    ) -> PlantMemory:
        """The memory before the first update: the buffer holds as many rows as that needs.

        The rows are collected by the initial policy with exploration.
        """
        policy = self.collection.guarded(learner.explore(state))
        running = begin_episodes(self.collection, policy, keys.begin)
        replay = replay_begin(
            example_rows(self.collection.spec, running, costs="cost" in learner.fields),
            capacity=self.capacity,
            discount=learner.discount,
            bootstrap_value=self.beyond,
            returns=isinstance(learner.sampler, RowsWithReturns),
        )
        memory = PlantMemory(running, replay, no_counts(self.collection.spec.n_cost))

        def step(memory: PlantMemory, number: Int[Array, ""]) -> tuple[PlantMemory, None]:
            return self._collect(policy, memory, number, keys.source), None

        # One step more than the rows needed, because the rows of the last step are not yet stored.
        numbers = jnp.arange(self.first_steps + 1, dtype=jnp.int32)
        return jax.lax.scan(step, memory, numbers)[0]

    def advance(
        self,
        learner: Explorer,
        state: LearnerState,
        memory: PlantMemory,
        tables: Any,
        number: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> PlantMemory:
        """One more step of every episode."""
        policy = self.collection.guarded(learner.explore(state))
        return self._collect(policy, memory, self.first_steps + 1 + number, key)

    def batches(
        self,
        learner: Explorer,
        memory: PlantMemory,
        tables: Any,
        numbers: Int[Array, " update"],
        key: PRNGKeyArray,
    ) -> Any:
        """Batches with fixed numbers of rows from log and buffer."""

        def draw(number: Int[Array, ""]) -> Any:
            return balanced_batch(learner, tables, memory.rows.ring, number, key, share=self.share)

        return jax.vmap(draw)(numbers)

    def metrics(self, memory: PlantMemory) -> Metrics:
        """Totals since the beginning; ``online_return`` is the mean over the finished episodes."""
        return online_metrics(self.collection.spec, memory.counts)

    def rollouts(self, steps: int) -> "PlantRollouts":
        """Rollouts on the same plant, for a learner that is trained only on its own policy.

        Args:
            steps: Steps of every episode for one update.
        """
        return PlantRollouts(self.collection, steps)

    def replayed(self, steps: int) -> PlantReplay:
        """A buffer of rows collected on the same plant, sampled by priority.

        Args:
            steps: Steps of every episode before each update.
        """
        return PlantReplay(self.collection, steps, self.capacity, self.first_steps)

    def _collect(
        self, policy: Policy, memory: PlantMemory, number: Int[Array, ""], key: PRNGKeyArray
    ) -> PlantMemory:
        """One more step of every episode; the rows of the previous step are stored."""
        replay: Replay = memory.rows
        step_key = jax.random.fold_in(key, number)
        running, rows, new_counts = collect_step(self.collection, policy, memory.running, step_key)
        rows = rows if replay.pending.cost is not None else rows._replace(cost=None)
        replay = replay_push(replay, rows, horizon=self.collection.spec.horizon)
        return PlantMemory(running, replay, jax.tree.map(jnp.add, memory.counts, new_counts))


class PlantRollouts(eqx.Module):
    """A fresh rollout of every episode for each update, with the present policy.

    A batch is the whole rollout, with leading axes ``(step, env)``; its rows are consecutive, and a
    value is estimated at ``next_obs`` of the last step. Actions are those that the policy
    requested, regardless of changes by guard and plant.

    Attributes:
        collection: How rows are collected.
        steps: Steps of every episode for one update; static.
    """

    collection: Collection
    steps: int = eqx.field(static=True)
    cycle: int = eqx.field(static=True, default=1)

    def begin(
        self, learner: Explorer, state: LearnerState, tables: Any, keys: TrainingKeys
    ) -> PlantMemory:
        """The first episodes, and space for the rows of a rollout."""
        policy = self._policy(learner, state)
        running = begin_episodes(self.collection, policy, keys.begin)
        row = example_rows(self.collection.spec, running, costs="cost" in learner.fields)
        rows = jax.tree.map(lambda x: jnp.zeros((self.steps, *x.shape), x.dtype), row)
        return PlantMemory(running, rows, no_counts(self.collection.spec.n_cost))

    def advance(
        self,
        learner: Explorer,
        state: LearnerState,
        memory: PlantMemory,
        tables: Any,
        number: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> PlantMemory:
        """A rollout with the present policy; episodes continue from one update to the next."""
        policy = self._policy(learner, state)
        costs = "cost" in learner.fields

        def step(
            carry: tuple[Running, Counts], step_key: PRNGKeyArray
        ) -> tuple[tuple[Running, Counts], Transition]:
            running, counts = carry
            running, rows, new_counts = collect_step(self.collection, policy, running, step_key)
            rows = rows if costs else rows._replace(cost=None)
            return (running, jax.tree.map(jnp.add, counts, new_counts)), rows

        keys = jax.random.split(jax.random.fold_in(key, number), self.steps)
        (running, counts), rows = jax.lax.scan(step, (memory.running, memory.counts), keys)
        return PlantMemory(running, rows, counts)

    def batches(
        self,
        learner: Explorer,
        memory: PlantMemory,
        tables: Any,
        numbers: Int[Array, " update"],
        key: PRNGKeyArray,
    ) -> Any:
        """The whole rollout as the batch of the one update."""
        return jax.tree.map(lambda x: x[None], memory.rows)

    def metrics(self, memory: PlantMemory) -> Metrics:
        """Totals since the beginning; ``online_return`` is the mean over the finished episodes."""
        return online_metrics(self.collection.spec, memory.counts)

    def _policy(self, learner: Explorer, state: LearnerState) -> Policy:
        recorder = ProposalRecorder(learner.explore(state), self.collection.spec.n_action)
        return self.collection.guarded(recorder)
