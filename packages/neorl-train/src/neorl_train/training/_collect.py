"""Collects on a simulated plant during training: parallel episodes, and counts of events."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_core import Policy, Spec, Step, Transition
from neorl_core.costs import limit_kind, penalised_reward
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
