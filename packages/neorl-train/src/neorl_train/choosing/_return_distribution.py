"""Distribution of a policy's return, and the error of its mean near what the policy visits."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.special import stdtrit

from neorl_agents.calibration import episode_interval, neighbour_calibration
from neorl_agents.models import FittedQEvaluation, every_start, visited_rows, with_next_actions
from neorl_agents.retuning import LearnedPlants
from neorl_core import Policy, Spec, as_arrays
from neorl_core.costs import step_cost_limit
from neorl_core.statistics import conditional_value_at_risk
from neorl_envs import Dataset
from neorl_train.choosing._value_estimates import (
    DRAWS,
    LoggedEpisodes,
    mean_estimate,
    trained_evaluation,
)
from neorl_train.data._training_data import TrainingData, training_data
from neorl_train.judging._shadow import shadow
from neorl_train.judging._tables import Estimate

QUANTILES = 32
"""Quantiles of every discounted sum."""
TAIL = 0.1
"""Fraction of the episodes in a worst part."""
HELD_OUT = 0.25
"""Fraction of the episodes on which the errors of a fit are measured."""
VISITED_ROWS = 16
"""Rows of every predicted episode whose nearest logged rows are looked up."""
MOST_FAR = 0.25
"""Fraction of what a policy visits that may be far from the log; beyond it a correction by
neighbours is an extrapolation. Chosen on the pools of CSTR and DMSD, with 18 candidates: 13 values
are stated, with errors of at most 9.2, and none changes with half of it; with twice as much, 16 are
stated, with errors up to 35.2 (tools/studies/tables/choice/log_thresholds.py)."""


class ReturnDistribution(NamedTuple):
    """Distribution of the discounted return of a policy from the logged starts, with its error.

    The intervals of the first five are those between first observations and do not include the
    error of the fit; that error is estimated by ``bias``.

    Attributes:
        mean: Mean of the return.
        costs: Mean of every cost.
        worst_tenth: Mean of the lowest tenth of the returns.
        costs_worst_tenth: Mean of the highest tenth of every cost.
        over: Fraction of episodes whose discounted cost is higher than that of a cost spread evenly
            up to the limit; ``None`` for a limit per step, which a sum does not show.
        bias: Error of ``mean`` that the nearest logged rows show, to be added.
        corrected: ``mean`` plus ``bias``; the interval includes both, but no error of the plant
            model in what the policy visits.
        cost_bias: The same error of every cost.
        corrected_costs: ``costs`` plus ``cost_bias``.
        far: Fraction of what the policy visits that is far from the log.
    """

    mean: Estimate
    costs: tuple[Estimate, ...]
    worst_tenth: Estimate
    costs_worst_tenth: tuple[Estimate, ...]
    over: tuple[Estimate | None, ...]
    bias: Estimate
    corrected: Estimate
    cost_bias: tuple[Estimate, ...]
    corrected_costs: tuple[Estimate, ...]
    far: float

    @property
    def near(self) -> bool:
        """Whether the log shows enough of what the policy visits for a correction."""
        return self.far <= MOST_FAR


def return_distribution(
    dataset: Dataset,
    episodes: LoggedEpisodes,
    policy: Policy,
    plants: LearnedPlants,
    *,
    discount: float = 0.99,
    updates: int = 6_000,
    seed: int = 0,
    level: float = 0.95,
) -> ReturnDistribution:
    """Estimates the distribution of a policy's return by distributional fitted Q evaluation.

    It is fitted to three quarters of the episodes. On the others, its temporal-difference errors
    are measured, and those nearest to what the policy visits in the plant model correct its mean.

    Args:
        dataset: The log.
        episodes: Result of :func:`logged_episodes`.
        policy: Deterministic policy in physical units.
        plants: Plant models of the log.
        discount: Discount per step, in [0, 1).
        updates: Gradient steps of the fit, a multiple of 100.
        seed: Seed of the fit and of the bootstrap.
        level: Confidence level of the intervals.
    """
    plain = training_data(dataset)
    rows = with_next_actions(plain.rows._replace(mask=None), policy)._replace(mask=None)
    held_out = _held_out(plants, seed)
    fitted_rows, other_rows = (
        jax.tree.map(lambda x, part=part: np.asarray(x)[part], rows)
        for part in (~held_out, held_out)
    )
    data = TrainingData(fitted_rows, plain.statistics, dataset.spec)
    learner, state = trained_evaluation(data, discount, updates, seed, QUANTILES)
    starts = episodes.obs[:, :1], episodes.action[:, :1]
    first_actions = np.asarray(shadow(as_arrays(policy), *starts)[0])[:, 0]
    samples = np.asarray(_samples(learner, state, starts[0][:, 0], first_actions), np.float64)
    means = [mean_estimate(one, level) for one in samples.mean(axis=-1).T]
    tail = partial(_tail_estimate, level=level, seed=seed)
    errors = _errors(learner, state, other_rows)
    episode = plants.rows.start[held_out]
    bias, far = _bias_near(plants, policy, other_rows, episode, errors, discount, level)
    corrected = [_sum(mean, one) for mean, one in zip(means, bias, strict=True)]
    return ReturnDistribution(
        mean=means[0],
        costs=tuple(means[1:]),
        worst_tenth=tail(samples[:, 0]),
        costs_worst_tenth=tuple(_negative(tail(-samples[:, i])) for i in range(1, len(means))),
        over=_over(dataset.spec, samples[:, 1:], discount, rows, level),
        bias=bias[0],
        corrected=corrected[0],
        cost_bias=tuple(bias[1:]),
        corrected_costs=tuple(corrected[1:]),
        far=far,
    )


def _held_out(plants: LearnedPlants, seed: int) -> Bool[np.ndarray, " row"]:
    """The rows of the episodes that the distribution is not fitted to.

    They include those that the plant model replays: where a policy repeats the log, its own rows
    are then the nearest ones.
    """
    starts = np.unique(plants.rows.start)
    others = np.setdiff1d(starts, plants.evaluation_starts)
    shuffled = np.random.default_rng(seed).permutation(others)
    count = max(2, round(HELD_OUT * len(starts)))
    chosen = np.concatenate([plants.evaluation_starts, shuffled])[:count]
    return np.isin(plants.rows.start, chosen)


@jax.jit
def _samples(
    learner: FittedQEvaluation, state: Any, obs: Array, action: Array
) -> Float[Array, "episode signal quantile"]:
    """Equally likely values of the return and of every cost."""
    one = jnp.asarray(obs, jnp.float32), jnp.asarray(action, jnp.float32)
    of_each = jax.vmap(learner.return_quantiles, in_axes=(None, 0, 0))(state, *one)
    return jnp.concatenate([of_each.reward[:, None], of_each.cost], axis=1)


def _errors(learner: FittedQEvaluation, state: Any, rows: Any) -> Float[np.ndarray, "row signal"]:
    """Temporal-difference errors of the means, true minus predicted, in physical units."""
    values, following = (
        np.asarray(_samples(learner, state, obs, action), np.float64).mean(axis=-1)
        for obs, action in ((rows.obs, rows.action), (rows.next_obs, rows.next_action))
    )
    outcomes = np.asarray(rows.reward, np.float64)[:, None]
    if values.shape[1] > 1:
        outcomes = np.concatenate([outcomes, np.asarray(rows.cost, np.float64)], axis=1)
    continues = ~np.asarray(rows.terminated, bool)[:, None]
    return outcomes + learner.discount * continues * following - values


def _bias_near(
    plants: LearnedPlants,
    policy: Policy,
    rows: Any,
    episode: Int[np.ndarray, " row"],
    errors: Float[np.ndarray, "row signal"],
    discount: float,
    level: float,
) -> tuple[list[Estimate], float]:
    """The errors transferred to what the policy visits, and how much of that is far."""
    if not np.isfinite(errors).all():
        return [Estimate(float("nan"), float("-inf"), float("inf"))] * errors.shape[1], 1.0
    plant = plants.evaluation_plant
    starts = every_start(plant, range(plant.model.members), range(plant.n_episodes))
    visited = jax.device_get(visited_rows(plant, as_arrays(policy), starts))
    weights = visit_weights(np.nan_to_num(np.asarray(visited.alive, np.float64)), discount)
    picked, weight = _pick(weights)
    points = np.concatenate([visited.obs, visited.action], axis=-1)
    logged = np.concatenate([np.asarray(rows.obs), np.asarray(rows.action)], axis=1)
    one = neighbour_calibration(
        np.take_along_axis(points, picked[..., None], axis=1).reshape(-1, points.shape[-1]),
        np.repeat(weight, picked.shape[1]),
        logged,
        errors,
        episode,
    )
    reach = stdtrit(max(one.episodes - 1, 1), (1 + level) / 2) * one.standard_error
    values = zip(one.bias, reach, strict=True)
    return [Estimate(float(b), float(b - r), float(b + r)) for b, r in values], one.far


def visit_weights(
    alive: Float[np.ndarray, "start time"], discount: float
) -> Float[np.ndarray, "start time"]:
    """Weights of the rows of predicted episodes in the error of a value.

    ``discount^t`` times the probability that the episode continues. What is left beyond the last
    step of an episode that has not ended is spread over its second half, as if the policy went on
    as it did there.

    Args:
        alive: Probability that the episode has not ended before each step.
        discount: Discount per step, in [0, 1).
    """
    steps = alive.shape[1]
    weights = alive * discount ** np.arange(steps)
    second_half = np.where(np.arange(steps) >= steps // 2, alive, 0)
    total = second_half.sum(axis=1, keepdims=True)
    beyond = alive[:, -1:] * discount**steps / (1 - discount)
    return weights + beyond * second_half / np.where(total > 0, total, 1)


def _pick(
    weights: Float[np.ndarray, "start time"],
) -> tuple[Int[np.ndarray, "start picked"], Float[np.ndarray, " start"]]:
    """Rows of every episode at equal steps of the cumulative weight, and the weight of each."""
    cumulative = np.cumsum(weights, axis=1)
    targets = (np.arange(VISITED_ROWS) + 0.5) / VISITED_ROWS * cumulative[:, -1:]
    picked = np.sum(cumulative[:, None] <= targets[..., None], axis=-1)
    return np.minimum(picked, weights.shape[1] - 1), cumulative[:, -1] / VISITED_ROWS / len(weights)


def _over(
    spec: Spec,
    samples: Float[np.ndarray, "episode cost quantile"],
    discount: float,
    rows: Any,
    level: float,
) -> tuple[Estimate | None, ...]:
    """Fraction of the episodes above each limit per episode."""
    # An evenly spread cost goes on beyond the horizon, unless the plant ends its episodes.
    steps = 1 - discount**spec.horizon if np.asarray(rows.terminated).any() else 1
    shares: list[Estimate | None] = []
    for i, channel in enumerate(spec.cost):
        if channel.per == "step":
            shares.append(None)
            continue
        limit = float(step_cost_limit(channel.limit, horizon=spec.horizon)) * steps / (1 - discount)
        one = mean_estimate(np.mean(samples[:, i] > limit, axis=-1), level)
        shares.append(Estimate(one.value, max(one.low, 0.0), min(one.high, 1.0)))
    return tuple(shares)


_lowest = jax.jit(partial(conditional_value_at_risk, tail=TAIL))


def _tail_estimate(
    samples: Float[np.ndarray, "episode quantile"], *, level: float, seed: int
) -> Estimate:
    """Mean of the lowest tenth of all samples, with an interval between episodes."""

    def lowest(values: np.ndarray, weight: np.ndarray) -> float:
        return float(_lowest(jnp.asarray(values, jnp.float32), jnp.asarray(weight, jnp.float32)))

    values = samples.ravel()
    episode = np.repeat(np.arange(len(samples)), samples.shape[1])
    value = lowest(values, np.ones(len(values)))
    low, high = episode_interval(lowest, episode, values, replicates=DRAWS, level=level, seed=seed)
    return Estimate(value, low, high)


def _negative(one: Estimate) -> Estimate:
    return Estimate(-one.value, -one.high, -one.low)


def _sum(first: Estimate, second: Estimate) -> Estimate:
    """The sum of two independent estimates."""
    value = first.value + second.value
    below = np.hypot(first.value - first.low, second.value - second.low)
    above = np.hypot(first.high - first.value, second.high - second.value)
    return Estimate(value, float(value - below), float(value + above))
