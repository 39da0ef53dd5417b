"""Batches from a simulated plant: fresh rollouts, a buffer beside a log, a prioritised replay."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_agents import Explorer, LearnerState
from neorl_agents.learning import Metrics, TrainingKeys
from neorl_agents.online import Replay, balanced_batch, replay_begin, replay_push
from neorl_agents.sampling import Batch, RowsWithReturns
from neorl_core import Policy, Spec, Step, Transition
from neorl_core.costs import limit_kind, penalised_reward
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
from neorl_envs.closed_loop import Loop, closed_loop_step, transition_of, where_over
from neorl_safety.filters import Flag
from neorl_safety.guards import guard
from neorl_train.judging._rollouts import GUARD_ACTED, is_guarded, report_of


class Collection(eqx.Module):
    """Settings for collecting rows; every leaf is an array.

    Attributes:
        environment: A simulated plant, a PyTree without leaves.
        constraints: Hard limits of the filter between policy and plant; ``None`` for no filter.
        fallback: Policy that takes over inside the filter; ``None`` for no filter.
        penalty_weights: Penalty per unit of each cost, as in the log, shape ``(cost,)``; ``None``
            for a learner that reads costs, which receives the plant's own reward.
        spec: Channels with the cost limits that episodes are checked against; static.
        episodes: Number of parallel episodes; static.
    """

    environment: Any
    constraints: Any
    fallback: Any
    penalty_weights: Float[Array, " cost"] | None
    spec: Spec = eqx.field(static=True)
    episodes: int = eqx.field(static=True)

    def reward(self, step: Step) -> Float[Array, ""]:
        """The reward of a step as the learner receives it."""
        if self.penalty_weights is None:
            return step.reward
        return penalised_reward(step.reward, step.cost, self.penalty_weights)

    def guarded(self, policy: Policy) -> Policy:
        """The policy wrapped in its filter, if one is declared."""
        if self.constraints is None:
            return policy
        return guard(policy, self.constraints, self.fallback, self.spec)

    def recorded(self, policy: Policy) -> Policy:
        """The same, where rows hold the actions that the policy requested."""
        return self.guarded(ProposalRecorder(policy, self.spec.n_action))


class ProposalCarry(NamedTuple):
    """Carry of a :class:`ProposalRecorder` policy.

    Attributes:
        policy: Carry of the policy itself.
        proposed: The action that it requested last, shape ``(act,)``.
    """

    policy: Any
    proposed: Float[Array, " act"]


class ProposalRecorder(eqx.Module):
    """A policy that remembers the action it requested, before a guard or the plant changes it.

    A learner that uses its own rollouts needs the probability of its sampled actions. For such a
    learner, guard and actuators are part of the plant: the action that the plant received may have
    probability zero under the policy.

    Attributes:
        policy: Any policy.
        n_action: Number of action channels; static.
    """

    policy: Policy
    n_action: int = eqx.field(static=True)

    def initial_carry(self) -> ProposalCarry:
        """Nothing has been requested yet."""
        return ProposalCarry(self.policy.initial_carry(), jnp.zeros(self.n_action, jnp.float32))

    def __call__(
        self, carry: ProposalCarry, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[ProposalCarry, Float[Array, " act"]]:
        """The action of the policy, which is remembered."""
        inner, action = self.policy(carry.policy, obs, key)
        return ProposalCarry(inner, action), action

    def sent(self, carry: ProposalCarry, action: Float[Array, " act"]) -> ProposalCarry:
        """Passes the action that the plant received to the policy."""
        return ProposalCarry(self.policy.sent(carry.policy, action), carry.proposed)


class Running(NamedTuple):
    """Episodes in progress; the first axis of every leaf is their number.

    Attributes:
        params: Sampled parameters of the plant.
        state: State of the plant.
        obs: Observation to act on next.
        carry: Carry of the policy, guarded or not.
        total: Return so far, with the plant's own reward.
        cost_sum: Sum of each cost so far.
        cost_worst: Largest cost of a step so far.
    """

    params: Any
    state: Any
    obs: Float[Array, "env obs"]
    carry: Any
    total: Float[Array, " env"]
    cost_sum: Float[Array, "env cost"]
    cost_worst: Float[Array, "env cost"]


class Counts(NamedTuple):
    """Counts of events during collection, since the beginning.

    Attributes:
        steps: Steps of all episodes.
        episodes: Episodes that ended.
        returns: Sum of their returns, with the plant's own reward.
        violated: Number of these episodes that broke the limit of each cost, shape ``(cost,)``.
        trips: Number of these episodes that the plant ended without success.
        filtered: Steps in which the filter changed the action.
        fallback: Steps in which the fallback acted.
    """

    steps: Int[Array, ""]
    episodes: Int[Array, ""]
    returns: Float[Array, ""]
    violated: Int[Array, " cost"]
    trips: Int[Array, ""]
    filtered: Int[Array, ""]
    fallback: Int[Array, ""]


def no_counts(n_cost: int) -> Counts:
    """All counts at zero."""
    zero = jnp.zeros((), jnp.int32)
    violated = jnp.zeros(n_cost, jnp.int32)
    return Counts(zero, zero, jnp.zeros((), jnp.float32), violated, zero, zero, zero)


def begin_episodes(collection: Collection, policy: Policy, key: PRNGKeyArray) -> Running:
    """First episodes, each with its own sample of the plant's parameters."""
    keys = jax.random.split(key, collection.episodes)
    return jax.vmap(lambda episode_key: _new_episode(collection, policy, episode_key))(keys)


def collect_step(
    collection: Collection, policy: Policy, running: Running, key: PRNGKeyArray
) -> tuple[Running, Transition, Counts]:
    """One step of every episode; a finished episode is replaced by a new one.

    Returns:
        The episodes after the step; their rows in physical units with the learner's reward, the
        action that the plant received (for a :class:`ProposalRecorder` policy: the requested one)
        and the next observation; and the counts.
    """
    keys = jax.random.split(key, collection.episodes)
    step_all = jax.vmap(
        lambda running, episode_key: _step(collection, policy, running, episode_key)
    )
    after, rows, counts = step_all(running, keys)
    return after, rows, jax.tree.map(lambda x: jnp.sum(x, axis=0, dtype=x.dtype), counts)


def collect_steps(
    collection: Collection,
    policy: Policy,
    running: Running,
    counts: Counts,
    keys: PRNGKeyArray,
    *,
    costs: bool,
) -> tuple[Running, Counts, Transition]:
    """As :func:`collect_step` for every key; rows have the leading axes ``(step, env)``."""

    def step(
        carry: tuple[Running, Counts], key: PRNGKeyArray
    ) -> tuple[tuple[Running, Counts], Transition]:
        running, counts = carry
        running, rows, new_counts = collect_step(collection, policy, running, key)
        rows = rows if costs else rows._replace(cost=None)
        return (running, jax.tree.map(jnp.add, counts, new_counts)), rows

    (running, counts), rows = jax.lax.scan(step, (running, counts), keys)
    return running, counts, rows


def _step(
    collection: Collection, policy: Policy, running: Running, key: PRNGKeyArray
) -> tuple[Running, Transition, Counts]:
    action_key, noise_key, reset_key = jax.random.split(key, 3)
    # `rollout` does not fit here: a finished episode is replaced by a new one, and training runs
    # between two steps, with another policy after every update.
    loop, result = closed_loop_step(
        collection.environment,
        policy,
        running.params,
        Loop(running.state, running.obs, running.carry),
        policy_key=action_key,
        noise_key=noise_key,
    )
    step, report = result.step, report_of(result.carry, result.action)
    ended = step.terminated | step.truncated
    row = transition_of(result)._replace(reward=collection.reward(step))
    unguarded = result.carry.policy if is_guarded(result.carry) else result.carry
    if isinstance(unguarded, ProposalCarry):
        row = row._replace(action=unguarded.proposed)
    advanced = running._replace(
        state=loop.state,
        obs=loop.obs,
        carry=loop.carry,
        total=running.total + step.reward,
        cost_sum=running.cost_sum + step.cost,
        cost_worst=jnp.maximum(running.cost_worst, step.cost),
    )
    success = jnp.asarray(getattr(step.info, "success", step.truncated), jnp.bool_)
    counts = _counts(collection.spec, advanced, ended, step.terminated & ~success, report.flags)
    return where_over(ended, _new_episode(collection, policy, reset_key), advanced), row, counts


def _counts(
    spec: Spec, running: Running, ended: Bool[Array, ""], trip: Bool[Array, ""], flags: Array
) -> Counts:
    fell_back = (flags & int(Flag.FALLBACK_USED)) != 0
    changed = ((flags & GUARD_ACTED) != 0) & ~fell_back
    exceeded = []
    for j, channel in enumerate(spec.cost):
        kind = limit_kind(channel)
        quantity = kind.of_episode(total=running.cost_sum[j], worst=running.cost_worst[j])
        exceeded.append(jnp.asarray(kind.exceeded(quantity, channel.limit)))
    violated = jnp.stack(exceeded) if exceeded else jnp.zeros(0, jnp.bool_)
    integer = jnp.int32
    return Counts(
        steps=jnp.ones((), integer),
        episodes=ended.astype(integer),
        returns=jnp.where(ended, running.total, 0).astype(jnp.float32),
        violated=(violated & ended).astype(integer),
        trips=trip.astype(integer),
        filtered=changed.astype(integer),
        fallback=fell_back.astype(integer),
    )


def _new_episode(collection: Collection, policy: Policy, key: PRNGKeyArray) -> Running:
    params_key, reset_key = jax.random.split(key)
    params = collection.environment.sample_params(params_key)
    state, obs = collection.environment.reset(params, reset_key)
    costs = jnp.zeros(collection.spec.n_cost, obs.dtype)
    zero = jnp.zeros((), obs.dtype)
    return Running(params, state, obs, policy.initial_carry(), zero, costs, costs)


def example_rows(spec: Spec, running: Running, *, costs: bool) -> Transition:
    """Rows of one step, from which a buffer takes shapes and dtypes."""
    obs, not_ended = running.obs, jnp.zeros(running.total.shape, jnp.bool_)
    action = jnp.zeros((len(not_ended), spec.n_action), obs.dtype)
    rows = Transition(
        obs, action, running.total, next_obs=obs, terminated=not_ended, truncated=not_ended
    )
    return rows._replace(cost=running.cost_sum) if costs else rows


def online_metrics(spec: Spec, counts: Counts) -> dict[str, Float[Array, ""]]:
    """Counts on the plant since the beginning, as metrics."""
    floats = jax.tree.map(lambda x: x.astype(jnp.float32), counts)
    names = [channel.name for channel in spec.cost]
    return {
        "online_steps": floats.steps,
        "online_episodes": floats.episodes,
        "online_return": floats.returns / jnp.maximum(floats.episodes, 1),
        "online_trips": floats.trips,
        "online_filtered": floats.filtered,
        "online_fallback": floats.fallback,
        **{f"online_violated_{name}": floats.violated[j] for j, name in enumerate(names)},
    }


class PlantSource(eqx.Module):
    """What sources of batches from a plant share.

    Attributes:
        collection: How rows are collected.
    """

    collection: Collection

    def metrics(self, memory: Any) -> Metrics:
        """Totals since the beginning; ``online_return`` is the mean over the finished episodes."""
        return online_metrics(self.collection.spec, memory.counts)


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


class PlantReplay(PlantSource):
    """Several steps of every episode, then one prioritised batch from a buffer.

    After each update, the learner's ``priorities(state)`` become the sampling priorities of the
    rows of its last batch, and ``weight_exponent(state)`` determines how far the weights correct
    for them. Rows contain the actions that the policy requested.

    Attributes:
        steps: Steps of every episode before each update; static.
        capacity: Number of rows that the buffer can store; static.
        first_steps: Steps of every episode before the first update; static.
        cycle: Number of updates after each collection; always one; static.
    """

    steps: int = eqx.field(static=True)
    capacity: int = eqx.field(static=True)
    first_steps: int = eqx.field(static=True)
    cycle: int = eqx.field(static=True, default=1)

    def begin(
        self, learner: Any, state: LearnerState, tables: Any, keys: TrainingKeys
    ) -> ReplayMemory:
        """The memory before the first update: the buffer holds as many rows as that needs."""
        policy = self.collection.recorded(learner.explore(state))
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
        policy = self.collection.recorded(learner.explore(state))
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

    def _collect(self, policy: Policy, memory: ReplayMemory, keys: PRNGKeyArray) -> ReplayMemory:
        """One step of every episode for each key; new rows receive the largest priority."""
        costs = memory.ring.rows.cost is not None
        running, counts, rows = collect_steps(
            self.collection, policy, memory.running, memory.counts, keys, costs=costs
        )
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)
        count = rows.reward.shape[0]
        new = jnp.arange(max(count - self.capacity, 0), count, dtype=jnp.int32)
        slots = (memory.ring.next_slot + new) % self.capacity
        tree = set_priorities(memory.tree, slots, jnp.full(slots.shape, memory.largest))
        return memory._replace(
            running=running, ring=ring_push(memory.ring, rows), tree=tree, counts=counts
        )


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


class PlantAndLog(PlantSource):
    """One step of every episode, then updates on the log and on a buffer of collected rows.

    With ``share`` zero no log is needed.

    Attributes:
        beyond: Return that is assumed to follow a truncated episode, in the unit of the reward.
        share: Fraction of the log in every batch; static.
        capacity: Number of rows that the online buffer can store; static.
        first_steps: Steps of every episode before the first update; static.
        cycle: Calls of ``update`` after every step; static.
    """

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


class PlantRollouts(PlantSource):
    """A fresh rollout of every episode for each update, with the present policy.

    A batch is the whole rollout, with leading axes ``(step, env)``; its rows are consecutive, and a
    value is estimated at ``next_obs`` of the last step. Actions are those that the policy
    requested, regardless of changes by guard and plant.

    Attributes:
        steps: Steps of every episode for one update; static.
    """

    steps: int = eqx.field(static=True)
    cycle: int = eqx.field(static=True, default=1)

    def begin(
        self, learner: Explorer, state: LearnerState, tables: Any, keys: TrainingKeys
    ) -> PlantMemory:
        """The first episodes, and space for the rows of a rollout."""
        policy = self.collection.recorded(learner.explore(state))
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
        policy = self.collection.recorded(learner.explore(state))
        keys = jax.random.split(jax.random.fold_in(key, number), self.steps)
        running, counts, rows = collect_steps(
            self.collection,
            policy,
            memory.running,
            memory.counts,
            keys,
            costs="cost" in learner.fields,
        )
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
