"""A learned plant that replays the disturbances of logged episodes; what a policy does in it."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.models._history_model import HistoryModel
from neorl_agents.models._log_rows import LogRows, histories
from neorl_core import Policy, Spec, Step, highs, lows
from neorl_core.control import follow

# A learned plant that replays the disturbances of logged episodes.


LEAST_COST = 0.1
"""Fraction of a cost's standard deviation in the log below which a prediction counts as zero."""
ULPS = 4
"""Largest rounding of the readings of a declared cost, in units in the last place of each."""
Interlock = Callable[[Array, Array], Array]
"""Function from observation and action to the action after the plant's own interlocks."""
Objective = Callable[[Array, Array, Array, Array], Array]
"""Function from observation, action, next observation and the action before to reward and costs;
NaN for numbers that are not declared."""


class ReplayedEpisodes(NamedTuple):
    """Data of logged episodes that a rollout replays.

    Attributes:
        obs: First observations, shape ``(episode, obs)``.
        action: First actions, shape ``(episode, act)``.
        exogenous: Logged next values of the channels that are not predicted, shape
            ``(episode, time, exogenous)``.
        residual: Residual of every member on the logged changes, the linear part as last, shape
            ``(member, episode, time, predicted)``.
        outcome_residual: Residual on reward and costs, ``(member, episode, time, 1 + cost)``; for
            declared ones that of the declaration.
        length: Steps that a rollout counts, shape ``(episode,)``: those of the log if the episode
            was cut, and the horizon if the plant ended it, because under another policy it may not.
        lead: Logged actions of the first steps, which a rollout repeats while the policy only
            follows, shape ``(episode, lead, act)``; ``lead`` is zero if episodes begin with a start
            of the plant.
    """

    obs: Float[Array, "episode obs"]
    action: Float[Array, "episode act"]
    exogenous: Float[Array, "episode time exogenous"]
    residual: Float[Array, "member episode time predicted"]
    outcome_residual: Float[Array, "member episode time outcome"]
    length: Int[Array, " episode"]
    lead: Float[Array, "episode lead act"]


class ReplayedStart(NamedTuple):
    """The episode to replay and the member that predicts: the parameters of a learned plant.

    Attributes:
        episode: Index of the episode.
        member: Index of the member; the number of networks stands for the linear part.
    """

    episode: Int[Array, "..."]
    member: Int[Array, "..."]


class ReplayedState(NamedTuple):
    """State of a learned plant.

    Attributes:
        obs: The last observations, the current one last, shape ``(step, obs)``.
        actions: The actions that led to them, shape ``(step, act)``.
        time: Steps since the start.
    """

    obs: Float[Array, "step obs"]
    actions: Float[Array, "step act"]
    time: Int[Array, ""]


class ReplayedStep(NamedTuple):
    """``Step.info`` of a learned plant.

    Attributes:
        end: Probability that the plant ends the episode with this step.
        outside: Distance of predicted channels from the range seen in the log, in standard
            deviations, summed over channels.
    """

    end: Float[Array, ""]
    outside: Float[Array, ""]


class ReplayedPlant(eqx.Module):
    """A model in which logged episodes are repeated under other actions.

    Every step adds the model's residual of the logged step at the same time, which contains
    disturbances, noise and other peculiarities of the episode; with the logged actions an episode
    is repeated exactly. Channels that are not predicted take their logged values. A logged episode
    that is shorter than the horizon is truncated where the log was cut, for example by a gap. If
    the plant ended it, it goes on and reuses its residuals from its beginning.

    It is an environment: ``reset(params, key)`` and ``step(params, state, action, key)`` with a
    :class:`ReplayedStart` as parameters; the key is ignored.

    Attributes:
        model: The model.
        episodes: Data of the logged episodes.
        rates: Largest change of every action in a step, infinite for none, shape ``(act,)``.
        interlock: The plant's interlocks, as a function of observation and action; static.
        objective: Declared reward and costs, used instead of learned ones; static.
        horizon: Steps of a rollout; static.
        least_cost: Predicted costs up to this count as zero, for a learned cost is never exactly
            zero, and a declared one is rounded.
    """

    model: HistoryModel
    episodes: ReplayedEpisodes
    rates: Float[Array, " act"]
    interlock: Interlock | None = eqx.field(static=True)
    objective: Objective | None = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    least_cost: Float[Array, " cost"]

    @property
    def spec(self) -> Spec:
        """Channels, period and horizon of the log."""
        return self.model.spec

    @property
    def members(self) -> int:
        """Number of networks and, as the last member, the linear part alone."""
        return self.model.members + 1

    @property
    def n_episodes(self) -> int:
        """Number of logged episodes that can be replayed."""
        return self.episodes.obs.shape[0]

    def sample_params(self, key: PRNGKeyArray) -> ReplayedStart:
        """A random episode in a random member."""
        first, second = jax.random.split(key)
        return ReplayedStart(
            jax.random.randint(first, (), 0, self.n_episodes),
            jax.random.randint(second, (), 0, self.members),
        )

    def reset(
        self, params: ReplayedStart, key: PRNGKeyArray | None = None
    ) -> tuple[ReplayedState, Float[Array, " obs"]]:
        """The first observation of the logged episode."""
        obs, action = self.episodes.obs[params.episode], self.episodes.action[params.episode]
        steps = self.model.history
        state = ReplayedState(
            jnp.broadcast_to(obs, (steps, *obs.shape)),
            jnp.broadcast_to(action, (steps, *action.shape)),
            jnp.zeros((), jnp.int32),
        )
        return state, self._measured(obs)

    def step(
        self,
        params: ReplayedStart,
        state: ReplayedState,
        action: Float[Array, " act"],
        key: PRNGKeyArray | None = None,
    ) -> tuple[ReplayedState, Step]:
        """Simulates one control period.

        An action that is not finite keeps the last one in force.
        """
        model, spec = self.model, self.spec
        episode, time = params.episode, state.time
        member = jnp.where(params.member >= model.members, -1, params.member)
        before, last = state.obs[-1], state.actions[-1]
        applied = self._applied(before, last, action, time)
        predicted = model.next_obs(state.obs, state.actions, applied, member)
        predicted = predicted + self.episodes.residual[params.member, episode, time]
        exogenous_indices = np.setdiff1d(np.arange(spec.n_obs), model.predicted)
        next_obs = before.at[jnp.asarray(model.predicted)].set(predicted)
        next_obs = next_obs.at[jnp.asarray(exogenous_indices, jnp.int32)].set(
            self.episodes.exogenous[episode, time]
        )
        next_obs = jnp.clip(next_obs, model.scales.low, model.scales.high)
        outcome, odds = model.outcomes(before, last, applied, next_obs, member)
        if self.objective is not None:
            measured = self._measured(before), self._measured(next_obs)
            objective_value = self.objective(measured[0], applied, measured[1], last)
            outcome = jnp.where(jnp.isnan(objective_value), outcome, objective_value)
        outcome = outcome + self.episodes.outcome_residual[params.member, episode, time]
        state = ReplayedState(
            jnp.concatenate([state.obs[1:], next_obs[None]]),
            jnp.concatenate([state.actions[1:], applied[None]]),
            time + 1,
        )
        next_reading = self._measured(next_obs)
        return state, Step(
            obs=next_reading,
            final_obs=next_reading,
            reward=outcome[0],
            cost=jnp.where(outcome[1:] > self.least_cost, outcome[1:], 0),
            applied=applied,
            terminated=odds > 0,
            truncated=time + 1 >= self.episodes.length[episode],
            info=ReplayedStep(jax.nn.sigmoid(odds), self._outside(next_obs)),
        )

    def _applied(self, obs: Array, last: Array, action: Array, time: Array) -> Array:
        low, high = (jnp.asarray(ends(self.spec.action)) for ends in (lows, highs))
        action = jnp.where(jnp.isfinite(action), action, last)
        max_change = jnp.where(time == 0, jnp.inf, self.rates)
        action = jnp.clip(jnp.clip(action, last - max_change, last + max_change), low, high)
        if self.interlock is None:
            return action
        return jnp.clip(self.interlock(self._measured(obs), action), low, high)

    def _measured(self, obs: Array) -> Array:
        return jnp.clip(obs, jnp.asarray(lows(self.spec.obs)), jnp.asarray(highs(self.spec.obs)))

    def _outside(self, obs: Array) -> Array:
        scales, channels = self.model.scales, jnp.asarray(self.model.predicted)
        excess = jnp.maximum(obs - scales.seen_high, scales.seen_low - obs)
        return jnp.sum(jnp.maximum(excess, 0)[channels] / scales.obs[1][channels])


def replayed_plant(
    model: HistoryModel,
    rows: LogRows,
    episodes: Int[np.ndarray, " episode"],
    *,
    rates: Any = None,
    interlock: Interlock | None = None,
    objective: Objective | None = None,
    horizon: int | None = None,
    lead: int = 0,
) -> ReplayedPlant:
    """A learned plant that replays some episodes of a log.

    Args:
        model: Model of the plant.
        rows: The log, from :func:`log_rows`.
        episodes: First rows of the episodes to replay.
        rates: Largest change of every action in a step; ``None`` for no limit.
        interlock: The plant's interlocks, as a function of observation and action.
        objective: Declared reward and costs; NaN for numbers that are learned.
        horizon: Steps of a rollout; those of the longest episode by default.
        lead: First steps of every episode that are repeated as logged, while the policy follows:
            at least one where the log was cut out of running operation, so that the integrals of a
            controller are those of its actions in force.

    Returns:
        The plant.
    """
    ends = np.flatnonzero(rows.ends)
    lengths = ends[np.searchsorted(ends, episodes)] - episodes + 1
    steps = int(lengths.max()) if horizon is None else horizon
    lasts = np.where(rows.terminated[episodes + lengths - 1], steps, np.minimum(lengths, steps))
    # An episode that the plant ended continues with the residuals of its own beginning.
    indices = episodes[:, None] + np.arange(steps) % lengths[:, None]
    next_reading, action_rows = histories(rows, indices, model.history)
    columns = (
        rows.obs[next_reading], rows.action[action_rows], rows.action[indices],
        rows.next_obs[indices],
    )  # fmt: skip
    outcome = np.asarray(rows.outcome[indices], np.float32)
    # On the host, where these few operations need no programs of their own.
    scale = np.asarray(model.scales.outcome)
    least_cost = np.maximum(np.float32(LEAST_COST) * scale[1, 1:], np.float32(1e-6))
    residual, outcome_residual = jax.device_get(_residuals(model, columns, outcome))
    if objective is not None:
        ends = tuple(np.asarray(e(model.spec.obs), np.float32) for e in (lows, highs))
        readings = (
            rows.obs[indices], rows.action[indices], rows.next_obs[indices],
            rows.action[action_rows[..., -1]],
        )  # fmt: skip
        declared = np.asarray(_declared_outcomes(objective, *readings, *ends))
        difference = outcome - declared
        outcome_residual = np.where(np.isnan(declared), outcome_residual, difference)
        rounding = _rounding(objective, readings, ends, declared, difference)
        least_cost = np.maximum(least_cost, rounding)
    exogenous_indices = np.setdiff1d(np.arange(model.spec.n_obs), model.predicted)
    n_action = model.spec.n_action
    rates = np.full(n_action, np.inf) if rates is None else np.asarray(rates)
    return ReplayedPlant(
        model=model,
        episodes=ReplayedEpisodes(
            jnp.asarray(rows.obs[episodes]),
            jnp.asarray(rows.action[episodes]),
            jnp.asarray(rows.next_obs[indices][..., exogenous_indices]),
            jnp.asarray(residual),
            jnp.asarray(outcome_residual),
            jnp.asarray(lasts, jnp.int32),
            jnp.asarray(rows.action[indices[:, :lead]]),
        ),
        rates=jnp.asarray(rates, jnp.float32), interlock=interlock, objective=objective,
        horizon=steps, least_cost=jnp.asarray(least_cost),
    )  # fmt: skip


def _rounding(
    objective: Objective,
    readings: tuple[np.ndarray, ...],
    ends: tuple[np.ndarray, ...],
    declared: np.ndarray,
    difference: np.ndarray,
) -> Float[np.ndarray, " cost"]:
    """Largest difference of a declared cost from the log; zero if rounding cannot explain all.

    The differences are replayed. Where a policy keeps a limit of zero that the log exceeds, they
    would be a cost of their own. What rounding explains is measured: every reading is moved by a
    few units in its last place, one after the other, and the changes of the cost are added.
    """
    possible = np.asarray(_explained_by_rounding(objective, readings, *ends, declared))
    largest = np.abs(difference[..., 1:])
    explained = np.all(largest <= possible, axis=(0, 1))  # false for NaN, a learned cost
    return np.where(explained, largest.max(axis=(0, 1)), np.float32(0))


@partial(jax.jit, static_argnums=0)
def _explained_by_rounding(
    objective: Objective, readings: tuple[Array, ...], low: Array, high: Array, declared: Array
) -> Float[Array, "episode time cost"]:
    """Largest change of every declared cost if each reading moves in its last places."""
    step = jnp.float32(ULPS * jnp.finfo(jnp.float32).eps)
    ends = np.cumsum([reading.shape[-1] for reading in readings])
    flat = jnp.concatenate(readings, axis=-1)

    def add(possible: Array, move: Array) -> tuple[Array, None]:
        changes = []
        for factor in (1 + move, 1 - move):
            moved = jnp.split(flat * factor, ends[:-1], axis=-1)
            changes.append(jnp.abs(_declared_outcomes(objective, *moved, low, high) - declared))
        return possible + jnp.maximum(*changes)[..., 1:], None

    moves = step * jnp.eye(int(ends[-1]), dtype=flat.dtype)[:, None, None]
    return jax.lax.scan(add, step * jnp.abs(declared[..., 1:]), moves)[0]


@partial(jax.jit, static_argnums=0)
def _declared_outcomes(
    objective: Objective,
    obs: Array,
    action: Array,
    next_obs: Array,
    last: Array,
    low: Array,
    high: Array,
) -> Array:
    """Declared reward and costs of logged rows, shape ``(episode, time, 1 + cost)``."""

    def of_row(before: Array, action: Array, after: Array, last: Array) -> Array:
        return objective(jnp.clip(before, low, high), action, jnp.clip(after, low, high), last)

    return jax.vmap(jax.vmap(of_row))(obs, action, next_obs, last)


@jax.jit
def _residuals(
    model: HistoryModel, columns: tuple[Array, ...], outcome: Array
) -> tuple[Array, Array]:
    """Residuals of every member on the logged changes, rewards and costs, the linear part last."""

    def of_row(member: Array, row: tuple[Array, ...], next_reading: Array) -> tuple[Array, Array]:
        obs, actions, action, following = row
        next_obs = model.next_obs(obs, actions, action, member)
        predicted_outcome, _ = model.outcomes(obs[-1], actions[-1], action, following, member)
        return following[jnp.asarray(model.predicted)] - next_obs, next_reading - predicted_outcome

    def of_member(member: Array) -> tuple[Array, Array]:
        return jax.vmap(jax.vmap(partial(of_row, member)))(columns, outcome)

    return jax.lax.map(of_member, jnp.append(jnp.arange(model.members), -1))


# Returns and costs of a policy in a learned plant.


class PredictedEpisodes(NamedTuple):
    """Results of a policy in a learned plant, with the leading axes of the starts.

    Attributes:
        returns: Sum of the rewards, each times the probability that the episode still continues.
        cost_sum: Sum of every cost, likewise, shape ``(..., cost)``.
        cost_worst: Largest cost of a step, likewise.
        ended: Probability that the plant has ended the episode.
        outside: Mean of :attr:`ReplayedStep.outside` over the steps of the episode.
    """

    returns: Float[Array, "*start"]
    cost_sum: Float[Array, "*start cost"]
    cost_worst: Float[Array, "*start cost"]
    ended: Float[Array, "*start"]
    outside: Float[Array, "*start"]


def predicted_episodes(
    plant: ReplayedPlant, policy: Policy, starts: ReplayedStart
) -> PredictedEpisodes:
    """Simulates episodes of a policy in a learned plant.

    Args:
        plant: The plant.
        policy: Policy in physical units that ignores its key.
        starts: Episodes and members, shape ``(start,)`` each.

    Returns:
        One entry for each start. A rollout that is no longer finite has a return of minus infinity.
    """
    return jax.vmap(partial(_episode, plant, policy))(starts)


def every_start(plant: ReplayedPlant, members: Any, episodes: Any) -> ReplayedStart:
    """All pairs of the given members and episodes, members first, flattened."""
    m, e = jnp.meshgrid(jnp.asarray(members), jnp.asarray(episodes), indexing="ij")
    return ReplayedStart(e.ravel(), m.ravel())


class _Running(NamedTuple):
    state: Any
    carry: Any
    obs: Array
    alive: Array
    inside: Array
    total: PredictedEpisodes


def _episode(plant: ReplayedPlant, policy: Policy, start: ReplayedStart) -> PredictedEpisodes:
    state, obs = plant.reset(start)
    zero, zeros = jnp.zeros(()), jnp.zeros(plant.spec.n_cost)
    total = PredictedEpisodes(zero, zeros, zeros, zero, zero)
    length = plant.episodes.length[start.episode]
    initial = _Running(state, policy.initial_carry(), obs, jnp.ones(()), jnp.ones(()), total)

    def step(running: _Running, _: None) -> tuple[_Running, None]:
        state, carry, next_reading = _acted(
            plant, policy, start, running.state, running.carry, running.obs
        )
        cost = running.alive * next_reading.cost
        total = PredictedEpisodes(
            running.total.returns + running.alive * next_reading.reward,
            running.total.cost_sum + cost,
            jnp.maximum(running.total.cost_worst, cost),
            running.total.ended + running.alive * next_reading.info.end,
            running.total.outside + running.inside * next_reading.info.outside / length,
        )
        alive = running.alive * (1 - next_reading.info.end)
        inside = running.inside * (1 - next_reading.truncated)
        return _Running(state, carry, next_reading.obs, alive * inside, inside, total), None

    total = jax.lax.scan(step, initial, None, length=plant.horizon)[0].total
    finite = jnp.isfinite(total.returns) & jnp.all(jnp.isfinite(total.cost_sum))
    return total._replace(returns=jnp.where(finite, total.returns, -jnp.inf))


def _acted(
    plant: ReplayedPlant,
    policy: Policy,
    start: ReplayedStart,
    state: ReplayedState,
    carry: Any,
    obs: Array,
) -> tuple[ReplayedState, Any, Step]:
    """One step in which the policy acts, or follows the log where the episode still leads it."""
    carry, action = policy(carry, obs, None)
    lead = plant.episodes.lead[start.episode]
    if not len(lead):
        state, step = plant.step(start, state, action)
        return state, policy.sent(carry, step.applied), step
    leads = state.time < len(lead)
    logged = lead[jnp.minimum(state.time, len(lead) - 1)]
    state, step = plant.step(start, state, jnp.where(leads, logged, action))
    acted, followed = policy.sent(carry, step.applied), follow(policy, carry, step.applied)
    carry = jax.tree.map(lambda one, other: jnp.where(leads, one, other), followed, acted)
    return state, carry, step


# The observations and actions that a policy visits in a learned plant.


class VisitedRows(NamedTuple):
    """Observations and actions along predicted episodes, with the leading axes of the starts.

    Attributes:
        obs: Observation before every step, shape ``(..., time, obs)``.
        action: Action in force in it, shape ``(..., time, act)``.
        alive: Probability that the episode has not ended before it, shape ``(..., time)``; zero
            from where it is truncated.
    """

    obs: Float[Array, "*start time obs"]
    action: Float[Array, "*start time act"]
    alive: Float[Array, "*start time"]


@jax.jit
def visited_rows(plant: ReplayedPlant, policy: Policy, starts: ReplayedStart) -> VisitedRows:
    """The rows of predicted episodes, for comparison with those of a log.

    Args:
        plant: Learned plant.
        policy: Policy in physical units that ignores its key.
        starts: Episodes and members, shape ``(start,)`` each.

    Returns:
        One episode of ``plant.horizon`` rows for each start.
    """

    def episode(start: ReplayedStart) -> VisitedRows:
        state, obs = plant.reset(start)

        def step(running: Any, _: None) -> tuple[Any, VisitedRows]:
            state, carry, obs, alive = running
            state, carry, following = _acted(plant, policy, start, state, carry, obs)
            row = VisitedRows(obs, following.applied, alive)
            alive = alive * (1 - following.info.end) * (1 - following.truncated)
            return (state, carry, following.obs, alive), row

        initial = state, policy.initial_carry(), obs, jnp.ones(())
        return jax.lax.scan(step, initial, None, length=plant.horizon)[1]

    return jax.vmap(episode)(starts)
