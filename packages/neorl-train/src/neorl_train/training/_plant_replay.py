"""Prioritised replay of the latest steps of a learner with discrete actions."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents import LearnerState
from neorl_agents.learning import Metrics, TrainingKeys
from neorl_agents.sampling import Batch
from neorl_core import Policy, Transition
from neorl_core.replay import (
    PriorityTree,
    RingBuffer,
    priority_tree,
    priority_weights,
    ring_buffer,
    ring_push,
    sample_priorities,
    set_priorities,
)
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


class ReplayMemory(NamedTuple):
    """State that is passed from update to update.

    Attributes:
        running: Episodes in progress.
        ring: The newest rows, in physical units.
        tree: Priorities of these rows.
        largest: The largest priority so far, which new rows receive.
        drawn: Buffer slots of the present batch; -1 before the first.
        weights: Importance weights of the present batch.
        counts: Counts of events during collection.
    """

    running: Running
    ring: RingBuffer
    tree: PriorityTree
    largest: Float[Array, ""]
    drawn: Int[Array, " batch"]
    weights: Float[Array, " batch"]
    counts: Counts


class PlantReplay(eqx.Module):
    """Several steps of every episode, then one prioritised batch from a buffer.

    After each update, the learner's ``priorities(state)`` become the sampling priorities of the
    rows of its last batch, and ``weight_exponent(state)`` determines how far the weights correct
    for them. Rows contain the actions that the policy requested.

    Attributes:
        collection: How rows are collected.
        steps: Steps of every episode before each update; static.
        capacity: Number of rows that the buffer can store; static.
        first_steps: Steps of every episode before the first update; static.
        cycle: Number of updates after each collection; always one; static.
    """

    collection: Collection
    steps: int = eqx.field(static=True)
    capacity: int = eqx.field(static=True)
    first_steps: int = eqx.field(static=True)
    cycle: int = eqx.field(static=True, default=1)

    def begin(
        self, learner: Any, state: LearnerState, tables: Any, keys: TrainingKeys
    ) -> ReplayMemory:
        """The memory before the first update: the buffer holds as many rows as that needs."""
        policy = self._policy(learner, state)
        episode_key, steps_key = jax.random.split(keys.begin)
        running = begin_episodes(self.collection, policy, episode_key)
        rows = example_rows(self.collection.spec, running, costs="cost" in learner.fields)
        row = jax.tree.map(lambda leaf: leaf[0], rows)
        batch = learner.batch_size
        memory = ReplayMemory(
            running,
            ring_buffer(row, capacity=self.capacity),
            priority_tree(self.capacity),
            jnp.ones((), jnp.float32),
            jnp.full(batch, -1, jnp.int32),
            jnp.zeros(batch, jnp.float32),
            no_counts(self.collection.spec.n_cost),
        )
        return self._collect(policy, memory, jax.random.split(steps_key, self.first_steps))

    def advance(
        self,
        learner: Any,
        state: LearnerState,
        memory: ReplayMemory,
        tables: Any,
        number: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> ReplayMemory:
        """Sets the priorities of the last batch, collects more steps and samples a new batch."""
        steps_key, rows_key = jax.random.split(jax.random.fold_in(key, number))
        priorities = learner.priorities(state)
        tree = set_priorities(memory.tree, memory.drawn, priorities)
        drawable = jnp.where(memory.drawn >= 0, priorities, 0)
        memory = memory._replace(
            tree=tree, largest=jnp.maximum(memory.largest, jnp.max(drawable)).astype(jnp.float32)
        )
        policy = self._policy(learner, state)
        memory = self._collect(policy, memory, jax.random.split(steps_key, self.steps))
        sample = sample_priorities(memory.tree, rows_key, batch=learner.batch_size)
        weights = priority_weights(
            sample.probabilities, size=memory.ring.size, exponent=learner.weight_exponent(state)
        )
        return memory._replace(drawn=sample.items, weights=weights)

    def batches(
        self,
        learner: Any,
        memory: ReplayMemory,
        tables: Any,
        numbers: Int[Array, " update"],
        key: PRNGKeyArray,
    ) -> Any:
        """The sampled batch, for the one update."""
        rows = jax.tree.map(lambda x: x[memory.drawn], memory.ring.rows)
        return jax.tree.map(lambda x: x[None, None], Batch(rows, weight=memory.weights))

    def metrics(self, memory: ReplayMemory) -> Metrics:
        """Totals since the beginning; ``online_return`` is the mean over the finished episodes."""
        return online_metrics(self.collection.spec, memory.counts)

    def _policy(self, learner: Any, state: LearnerState) -> Policy:
        recorder = ProposalRecorder(learner.explore(state), self.collection.spec.n_action)
        return self.collection.guarded(recorder)

    def _collect(self, policy: Policy, memory: ReplayMemory, keys: PRNGKeyArray) -> ReplayMemory:
        """One step of every episode for each key; new rows receive the largest priority."""
        costs = memory.ring.rows.cost is not None

        def step(
            carry: tuple[Running, Counts], key: PRNGKeyArray
        ) -> tuple[tuple[Running, Counts], Transition]:
            running, counts = carry
            running, rows, new_counts = collect_step(self.collection, policy, running, key)
            rows = rows if costs else rows._replace(cost=None)
            return (running, jax.tree.map(jnp.add, counts, new_counts)), rows

        (running, counts), rows = jax.lax.scan(step, (memory.running, memory.counts), keys)
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)
        count = rows.reward.shape[0]
        new = jnp.arange(max(count - self.capacity, 0), count, dtype=jnp.int32)
        slots = (memory.ring.next_slot + new) % self.capacity
        tree = set_priorities(memory.tree, slots, jnp.full(slots.shape, memory.largest))
        return memory._replace(
            running=running, ring=ring_push(memory.ring, rows), tree=tree, counts=counts
        )
