"""The risk that a limit is soon broken, by a safety critic of the log, for every candidate."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from neorl_agents.critics import (
    SafetyCritic,
    SafetyCriticLearner,
    assess_safety_critic,
    fit_safety_critic,
    limit_risks,
)
from neorl_agents.learning import Networks
from neorl_core import InputError, Policy, as_arrays
from neorl_core.statistics import DEFAULT_LEVEL
from neorl_envs import Dataset
from neorl_envs.datasets import split_episodes
from neorl_train.choosing._options import ChooseOptions
from neorl_train.choosing._value_estimates import logged_episodes, mean_estimate
from neorl_train.judging._shadow import shadow
from neorl_train.judging._tables import Estimate

HIDDEN = (64, 64)
"""Widths of the networks of the critic."""


class LimitRisk(NamedTuple):
    """The risk of one limit.

    Attributes:
        name: Name of the cost channel.
        claim: What the log shows of the limit, in words.
        rate: Fraction of the logged windows with a violation, in episodes that the critic was not
            fitted to.
        area_under_roc: How well the critic tells those windows from the others: value, and the
            ends of its interval; NaN if all outcomes are equal.
        calibration_error: The same of the difference between predicted and observed rates.
        candidates: Mean predicted risk of every candidate, in the same episodes.
    """

    name: str
    claim: str
    rate: float
    area_under_roc: tuple[float, float, float]
    calibration_error: tuple[float, float, float]
    candidates: tuple[Estimate, ...]


class Risk(NamedTuple):
    """The risks of all limits.

    Attributes:
        horizon: Number of steps that they look ahead.
        limits: One entry per limit; empty if there is no estimate.
        none: Why there is no estimate, in a sentence; otherwise empty.
    """

    horizon: int
    limits: tuple[LimitRisk, ...] = ()
    none: str = ""


def risk_estimates(
    dataset: Dataset, candidates: Mapping[str, Policy], options: ChooseOptions
) -> Risk:
    """Fits a safety critic to three quarters of a log, and evaluates candidates in the others.

    The risk of a candidate in a logged observation is the probability that a step of the next
    ``options.horizon`` counts against a limit if the candidate acts once and then whoever recorded
    the log. It is therefore the risk of deviating for one step, not that of the candidate in
    charge, and it shows nothing about observations that the candidate alone would lead to.

    Args:
        dataset: Log with costs.
        candidates: Deterministic policies in physical units by name.
        options: The horizon, the updates and the seed.

    Returns:
        Estimates in the order of the candidates, or the reason why there are none.
    """
    spec, key = dataset.spec, jax.random.key(options.seed)
    split_key, fit_key = jax.random.split(key)
    training, held_out = split_episodes(dataset, 0.75, split_key)
    learner = SafetyCriticLearner(horizon=options.horizon, networks=Networks(hidden=HIDDEN))
    try:
        fitted = fit_safety_critic(
            training.transitions, spec, fit_key, learner=learner, updates=options.risk_updates
        )
        measured = assess_safety_critic(fitted.critic, held_out.transitions, spec)
    except InputError as error:
        return Risk(options.horizon, none=str(error))
    episodes = logged_episodes(held_out)
    risks = []
    for policy in candidates.values():
        proposed, _ = shadow(as_arrays(policy), episodes.obs, episodes.action)
        by_row = np.asarray(_risks(fitted.critic, jnp.asarray(episodes.obs, jnp.float32), proposed))
        counted = episodes.mask[..., None]
        risks.append(np.sum(by_row, axis=1, where=counted) / np.sum(counted, axis=1))
    return Risk(
        options.horizon,
        tuple(
            LimitRisk(
                facts["name"],
                facts["claim"],
                measured[facts["name"]]["rate"],
                tuple(measured[facts["name"]]["area_under_roc"]),
                tuple(measured[facts["name"]]["calibration_error"]),
                tuple(mean_estimate(one[:, k], DEFAULT_LEVEL) for one in risks),
            )
            for k, facts in enumerate(fitted.report["limits"])
        ),
    )


@jax.jit
def _risks(critic: SafetyCritic, obs: Array, action: Array) -> Array:
    of_row = jax.vmap(limit_risks, in_axes=(None, 0, 0))
    return jax.vmap(of_row, in_axes=(None, 0, 0))(critic, obs, action)
