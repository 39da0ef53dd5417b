"""Estimates a policy's discounted returns by fitted Q evaluation and importance sampling."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.special import stdtrit

from neorl_agents.learning import Networks, Steps
from neorl_agents.models import FittedQEvaluation, PolicyValue, with_next_actions
from neorl_core import Policy, as_arrays
from neorl_core.off_policy_evaluation import (
    LoggedTrajectories,
    effective_sample_size,
    weighted_doubly_robust,
    wpdis,
)
from neorl_envs import Dataset
from neorl_train.data._training_data import TrainingData, training_data
from neorl_train.judging._shadow import shadow
from neorl_train.judging._tables import Estimate
from neorl_train.training._loop import train
from neorl_train.training._plan import Plan

MEMBERS = 4
"""Number of networks of a fitted Q evaluation, for ``choose`` and for runs on a log alone."""
DRAWS = 200
"""Number of bootstrap resamples of episodes for an interval of importance sampling."""
MEMBER_WIDTHS = (128, 128)
"""Widths of each network of an ensemble: four have as many weights as one of the default width."""
MIN_SIZE = 10.0
"""Effective number of episodes below which importance sampling is uninformative."""


class ValueEstimates(NamedTuple):
    """Estimates from a log of the discounted return of one policy.

    Attributes:
        fitted_q: Estimate by fitted Q evaluation, as the mean over the first observations of the
            episodes; the interval is that between episodes and, for an ensemble, between its
            members. It does not include an error that all members share.
        fitted_q_costs: The same estimate for every cost.
        spread: Standard deviation of ``fitted_q`` between the members; ``None`` for a single
            network.
        spread_costs: The same of every cost; empty for a single network.
        importance: Estimate by per-decision weighted importance sampling.
        doubly_robust: Weighted doubly robust estimate with the fitted values.
        effective: Effective number of episodes behind the last two estimates; below
            :data:`MIN_SIZE` they are uninformative.
        gap: Difference between the fitted values and the logged returns, averaged over the
            episodes; for the controller that generated the log it is the error of the fit.
        first: Fitted value of the first observation of every episode, by each member.
    """

    fitted_q: Estimate
    fitted_q_costs: tuple[Estimate, ...]
    spread: float | None
    spread_costs: tuple[float, ...]
    importance: Estimate
    doubly_robust: Estimate
    effective: float
    gap: float
    first: Float[np.ndarray, "member episode"]


class LoggedEpisodes(NamedTuple):
    """Episodes as padded columns, and a model of how their actions were chosen.

    Attributes:
        obs: Shape ``(episode, time, obs)``.
        action: Shape ``(episode, time, act)``.
        last: Observation after the last row of every episode, shape ``(episode, obs)``.
        terminated: Whether the plant ended the episode, shape ``(episode,)``.
        reward: Shape ``(episode, time)``.
        mask: False after the end of an episode, shape ``(episode, time)``.
        expected: Actions that a linear behaviour model predicts, in the shape of ``action``.
        spread: Standard deviation of the model's residual, shape ``(act,)``.
    """

    obs: Float[np.ndarray, "episode time obs"]
    action: Float[np.ndarray, "episode time act"]
    last: Float[np.ndarray, "episode obs"]
    terminated: Bool[np.ndarray, " episode"]
    reward: Float[np.ndarray, "episode time"]
    mask: Bool[np.ndarray, "episode time"]
    expected: Float[np.ndarray, "episode time act"]
    spread: Float[np.ndarray, " act"]


def logged_episodes(dataset: Dataset, max_episodes: int = 256) -> LoggedEpisodes:
    """The first episodes of a log with a behaviour model.

    The model is linear in the observation and the previous action, with a normal residual: roughly
    a controller with integral action and a test signal. In a masked row, a value that is not known
    is the one before it, as a controller would hold it; no estimate counts such a row.

    Args:
        dataset: The log.
        max_episodes: Largest number of episodes.
    """
    rows, mask = dataset.padded_rows(slice(max_episodes))
    known_episodes = mask.any(axis=1)
    rows, mask = rows[known_episodes], mask[known_episodes]
    columns: Any = dataset.transitions
    obs, action = (_forward_fill(np.asarray(x)[rows]) for x in (columns.obs, columns.action))
    reward = np.where(mask, np.asarray(columns.reward)[rows], 0)
    before = np.concatenate([action[:, :1], action[:, :-1]], axis=1)
    ends = rows[np.arange(len(rows)), mask.shape[1] - 1 - np.argmax(mask[:, ::-1], axis=1)]
    inputs = np.concatenate([obs, before, np.ones((*mask.shape, 1))], axis=-1).astype(np.float64)
    scale = inputs[mask].std(axis=0)
    inputs = inputs / np.where(scale > 0, scale, 1)
    gain = np.linalg.lstsq(inputs[mask], action[mask].astype(np.float64), rcond=1e-8)[0]
    expected = inputs @ gain
    spread = (action[mask] - expected[mask]).std(axis=0)
    used = np.ptp(action[mask], axis=0)
    # A controller without a test signal leaves no residual, and every ratio would be zero.
    spread = np.maximum(spread, 1e-3 * used)
    last, terminated = np.asarray(columns.next_obs)[ends], np.asarray(columns.terminated)[ends]
    return LoggedEpisodes(obs, action, last, terminated, reward, mask, expected, spread)


def _forward_fill(values: np.ndarray) -> np.ndarray:
    """Replaces what is not finite by the last finite value of its episode, or by the first one.

    Args:
        values: Shape ``(episode, time, channel)``; every channel of an episode has a finite value.
    """
    finite, steps = np.isfinite(values), np.arange(values.shape[1])[:, None]
    latest = np.maximum.accumulate(np.where(finite, steps, -1), axis=1)
    first = np.argmax(finite, axis=1)[:, None]
    return np.take_along_axis(values, np.where(latest < 0, first, latest), axis=1)


def value_estimates(
    dataset: Dataset,
    episodes: LoggedEpisodes,
    policy: Policy,
    *,
    discount: float = 0.99,
    updates: int = 6_000,
    members: int = MEMBERS,
    seed: int = 0,
    level: float = 0.95,
) -> ValueEstimates:
    """Estimates the returns of one policy.

    The policy is treated as normally distributed around its action, with the spread of the
    behaviour model, because a deterministic one has no density ratio to the logged actions.

    Args:
        dataset: The log.
        episodes: Result of :func:`logged_episodes`.
        policy: Deterministic policy in physical units.
        discount: Discount per step, in [0, 1).
        updates: Gradient steps of the fitted Q evaluation, a multiple of 100.
        members: Number of networks of the fitted Q evaluation.
        seed: Seed of the fit and of the bootstrap.
        level: Confidence level of the intervals.
    """
    plain = training_data(dataset)
    rows = with_next_actions(plain.rows._replace(mask=None), policy)
    data = TrainingData(rows._replace(mask=None), plain.statistics, dataset.spec)
    learner, state = trained_evaluation(data, discount, updates, seed, members=members)
    proposed, _ = shadow(as_arrays(policy), episodes.obs, episodes.action)
    proposed = np.asarray(proposed)
    first = _member_values(learner, state, episodes.obs[:, 0], proposed[:, 0])
    shape = episodes.mask.shape
    flat = [x.reshape(-1, x.shape[-1]) for x in (episodes.obs, episodes.action, proposed)]
    logged_values = _values(learner, state, flat[0], flat[1]).reward.reshape(shape)
    policy_values = _values(learner, state, flat[0], flat[2]).reward.reshape(shape)
    trajectories = LoggedTrajectories(
        log_ratio=_log_ratio(episodes, proposed),
        reward=jnp.asarray(episodes.reward, jnp.float32),
        mask=jnp.asarray(episodes.mask),
        q_value=logged_values,
        value=policy_values,
    )
    # Signals first, then members, then episodes.
    costs = np.moveaxis(np.asarray(first.cost), (0, 1, 2), (2, 1, 0))
    weighted = bootstrap(wpdis, trajectories, discount, seed, level)
    robust = bootstrap(weighted_doubly_robust, trajectories, discount, seed, level)
    masked = jnp.where(jnp.asarray(episodes.mask), trajectories.log_ratio, 0)
    values = np.asarray(first.reward).T
    logged = _logged_returns(learner, state, episodes, proposed)
    means = [np.asarray(one, np.float64).mean(axis=1) for one in (values, *costs)]
    spreads = [float(one.std(ddof=1)) for one in means if members > 1]
    return ValueEstimates(
        fitted_q=ensemble_estimate(values, level),
        fitted_q_costs=tuple(ensemble_estimate(one, level) for one in costs),
        spread=spreads[0] if spreads else None,
        spread_costs=tuple(spreads[1:]),
        importance=weighted,
        doubly_robust=robust,
        effective=float(effective_sample_size(jnp.sum(masked, axis=1))),
        gap=abs(float(np.mean(values.mean(axis=0) - logged))),
        first=np.asarray(values, np.float64),
    )


def trained_evaluation(
    data: TrainingData,
    discount: float,
    updates: int,
    seed: int,
    quantiles: int = 0,
    members: int = 1,
) -> tuple[FittedQEvaluation, Any]:
    """Fitted Q evaluation as it is set for a choice, and its state after the training.

    Args:
        data: Rows with the next actions of the policy.
        discount: Discount per step.
        updates: Gradient steps, a multiple of 100.
        seed: Seed of the weights and the batches.
        quantiles: Number of quantiles of every discounted sum; 0 for their means.
        members: Number of networks; more than one are narrower.
    """
    # The targets follow within some 50 steps, so that the values cover the horizon of the discount
    # in thousands of steps.
    learner = FittedQEvaluation(
        discount=discount,
        tau=0.02,
        learning_rate=1e-3,
        evaluates_costs=data.spec.n_cost > 0,
        quantiles=quantiles,
        members=members,
        networks=Networks(hidden=MEMBER_WIDTHS) if members > 1 else Networks(),
        steps=Steps(batch_size=min(Steps().batch_size, data.n_rows)),
    )
    trained = train(learner, data, (seed,), Plan(updates, 100, updates))
    return learner, trained.trainings()[0].learner


def _logged_returns(
    learner: FittedQEvaluation, state: Any, episodes: LoggedEpisodes, proposed: np.ndarray
) -> Float[np.ndarray, " episode"]:
    """Discounted logged returns, including the fitted value at the end of a truncated episode."""
    lengths = episodes.mask.sum(axis=1)
    weights = learner.discount ** np.arange(episodes.mask.shape[1])
    earned = np.sum(np.where(episodes.mask, episodes.reward, 0) * weights, axis=1)
    # The action of the last row stands in for the next one, which a policy with memory may refine.
    last_action = proposed[np.arange(len(lengths)), lengths - 1]
    ahead = np.asarray(_values(learner, state, episodes.last, last_action).reward, np.float64)
    return earned + learner.discount**lengths * np.where(episodes.terminated, 0, ahead)


def bootstrap(
    estimator: Any, trajectories: LoggedTrajectories, discount: float, seed: int, level: float
) -> Estimate:
    """A weighted estimate with the percentile interval of a bootstrap of whole trajectories.

    Args:
        estimator: ``estimator(trajectories, discount=...)``, such as ``wpdis``.
        trajectories: All trajectories, shape ``(trajectory, time)``.
        discount: Discount per step.
        seed: Seed of the resampling.
        level: Coverage of the interval, in (0, 1).
    """
    count = np.shape(trajectories.reward)[0]
    resampled = jax.random.randint(jax.random.key(seed), (DRAWS, count), 0, count)
    value, values = _resampler(estimator)(trajectories, resampled, discount)
    finite = np.asarray(values)[np.isfinite(np.asarray(values))]
    if not len(finite):
        return Estimate(float(value), float("-inf"), float("inf"))
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(value), float(low), float(high))


@cache
def _resampler(estimator: Any) -> Any:
    """Resamples with one compiled program for each estimator."""

    def of(
        trajectories: LoggedTrajectories, resampled: Array, discount: Array
    ) -> tuple[Array, Array]:
        def estimate_of(episodes: Array) -> Array:
            return estimator(jax.tree.map(lambda x: x[episodes], trajectories), discount=discount)

        return estimator(trajectories, discount=discount), jax.lax.map(estimate_of, resampled)

    return jax.jit(of)


def _log_ratio(episodes: LoggedEpisodes, proposed: np.ndarray) -> Float[Array, "episode time"]:
    logged_distance = ((episodes.action - episodes.expected) / episodes.spread) ** 2
    policy_distance = ((episodes.action - proposed) / episodes.spread) ** 2
    return jnp.asarray(0.5 * np.sum(logged_distance - policy_distance, axis=-1), jnp.float32)


@jax.jit
def _values(learner: FittedQEvaluation, state: Any, obs: Array, action: Array) -> PolicyValue:
    """Values of rows by the mean of the members."""
    inputs = jnp.asarray(obs, jnp.float32), jnp.asarray(action, jnp.float32)
    return jax.vmap(learner.value, in_axes=(None, 0, 0))(state, *inputs)


@jax.jit
def _member_values(
    learner: FittedQEvaluation, state: Any, obs: Array, action: Array
) -> PolicyValue:
    """Values of rows by each member, shapes ``(row, member)`` and ``(row, member, cost)``."""
    inputs = jnp.asarray(obs, jnp.float32), jnp.asarray(action, jnp.float32)
    return jax.vmap(learner.member_values, in_axes=(None, 0, 0))(state, *inputs)


def ensemble_estimate(values: Float[np.ndarray, "member episode"], level: float) -> Estimate:
    """Mean over members and episodes, with an interval that combines both variations.

    The variation between episodes is that of the members' mean. That between members is added by
    squares; see :func:`reach_of_members`.
    """
    plain = mean_estimate(values.mean(axis=0), level)
    reach = reach_of_members(values.mean(axis=1), level)
    if not reach:
        return plain
    half_width = float(np.hypot(plain.high - plain.value, reach))
    return Estimate(plain.value, plain.value - half_width, plain.value + half_width)


def reach_of_members(means: Float[np.ndarray, " member"], level: float) -> float:
    """Half width of the interval, around the mean of the members, of one further member.

    ``t sqrt(1 + 1 / m) s``, with ``s`` the standard deviation between the ``m`` members and ``t``
    of Student's distribution with ``m - 1`` degrees of freedom. The true value takes the place of
    the further member: ``s`` is the error of one fit, which a mean of fits to resamples of the same
    log does not reduce. Zero for a single member, whose error is not known.
    """
    count = len(means)
    if count == 1:
        return 0.0
    quantile = float(stdtrit(count - 1, (1 + level) / 2))
    spread = float(np.std(np.asarray(means, np.float64), ddof=1))
    return float(quantile * np.sqrt(1 + 1 / count) * spread)


def mean_estimate(values: np.ndarray, level: float) -> Estimate:
    """Mean with a normal interval between the values."""
    mean = float(np.mean(values))
    half_width = float(np.std(values, ddof=1) / np.sqrt(len(values))) * _normal(level)
    return Estimate(mean, mean - half_width, mean + half_width)


def _normal(level: float) -> float:
    return float(jax.scipy.special.ndtri((1 + level) / 2))
