"""Fitting a safety critic on the logged costs, and calibrating its risks on held-out episodes."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from neorl_agents.calibration import episode_interval, isotonic_map
from neorl_agents.critics._log_rows import (
    Columns,
    LimitFacts,
    checked_columns,
    column_statistics,
    counted_steps,
    fully_observed,
    limit_facts,
    only_episodes,
    require_fit,
    split_columns,
    trained_in_memory,
    window_sums,
)
from neorl_agents.critics._safety_critic import SafetyCritic, SafetyCriticLearner, horizon_curve
from neorl_agents.models import actions_along
from neorl_core import InputError, Policy, Spec, Transition
from neorl_core.statistics import area_under_roc, brier_skill, calibration_error


class FittedSafetyCritic(NamedTuple):
    """A safety critic, and the facts of the log.

    Attributes:
        critic: The critic, in physical units.
        report: Rows, episodes and facts of every limit, ready for JSON.
    """

    critic: SafetyCritic
    report: dict[str, Any]


def fit_safety_critic(
    log: Transition,
    spec: Spec,
    key: PRNGKeyArray,
    *,
    learner: SafetyCriticLearner | None = None,
    updates: int = 10_000,
    calibration_share: float = 0.25,
    policy: Policy | None = None,
) -> FittedSafetyCritic:
    """Fits the risk for every limit within the next steps, on the logged costs.

    A :class:`SafetyCriticLearner` is trained by the common loop on the rows of the log. Then the
    last head of each limit is mapped by isotonic regression to the outcomes of held-out episodes.

    Args:
        log: Flat columns in physical units, episodes one after the other; with ``cost``,
            ``next_obs``, ``terminated`` and ``truncated``, and ``mask`` if some rows are to be
            ignored.
        spec: Channels and limits of the log.
        key: Random key of the held-out episodes, the initial weights and the batches.
        learner: Hyperparameters; the default ones by default. Its ``first_values`` are taken from
            the log, and ``evaluates`` follows from ``policy``.
        updates: Number of gradient steps.
        calibration_share: Fraction of the episodes to hold out for calibration, in [0, 1); 0 does
            not calibrate.
        policy: Policy that acts after the first action: a deterministic one, or by default the
            log's own behaviour. Outcomes under another policy were not logged, so then nothing is
            held out and the risks are not calibrated.

    Returns:
        The critic, and the facts of the log.

    Raises:
        NothingToLearnError: If the log has no cost, or none of its costs varies.
        InputError: If a column is missing or malformed, there is only one episode although some are
            to be held out, or the horizon is longer than every episode.
        ValueError: If a hyperparameter is out of range.

    Example:
        >>> import jax, numpy as np
        >>> from neorl_core import Channel, CostChannel, Spec, Transition
        >>> spec = Spec((Channel("level", "m", 0.0, 2.0),), (Channel("valve", "%", 0.0, 100.0),),
        ...     (CostChannel("overflow", "1", 0.0, "step"),), dt=60.0, horizon=50)
        >>> rng = np.random.default_rng(0)
        >>> level, valve = rng.uniform(0, 2, (2000, 1)), rng.uniform(0, 100, (2000, 1))
        >>> ends = np.arange(2000) % 50 == 49
        >>> log = Transition(level, valve, np.zeros(2000), cost=(level > 1.5).astype(float),
        ...     next_obs=np.roll(level, -1, axis=0), terminated=ends & False, truncated=ends)
        >>> small = SafetyCriticLearner(horizon=3, members=2)
        >>> fitted = fit_safety_critic(log, spec, jax.random.key(0), learner=small, updates=200)
        >>> fitted.report["limits"][0]["name"], fitted.critic.horizon
        ('overflow', 3)

    Source: Le, Voloshin and Yue, Batch policy learning under constraints, arXiv 1903.08738; De
    Asis et al., arXiv 1909.03906.
    """
    learner = SafetyCriticLearner() if learner is None else learner
    learner.validate()
    require_fit("fit_safety_critic", updates, calibration_share)
    columns = checked_columns(log, spec, cost=True)
    limit_facts(columns, spec, learner.quantity)
    split_key, fit_key = jax.random.split(key)
    training, held_out = columns, None
    if calibration_share and policy is None:
        training, held_out = split_columns(
            columns, calibration_share, split_key, what="calibration"
        )
        observed_windows(held_out, learner.horizon, spec)
    facts = limit_facts(training, spec, learner.quantity)
    rows = only_episodes(log, columns, training.episodes)
    if policy is not None:
        rows = rows._replace(next_action=_next_actions(policy, rows, training))
    learner = replace(
        learner,
        evaluates="behaviour" if policy is None else "policy",
        first_values=_first_values(learner, training, spec),
    )
    statistics = column_statistics(training)
    state, metrics = trained_in_memory(learner, spec, rows, statistics, updates, fit_key)
    critic = learner.critic(state)
    if held_out is not None:
        critic = _calibrate(critic, held_out, spec, discount=learner.discount)
    return FittedSafetyCritic(critic, _report(critic, training, held_out, facts, metrics["loss"]))


def _next_actions(policy: Policy, rows: Transition, columns: Columns) -> np.ndarray:
    """The policy's next action in every unmasked row, and zero in the others."""
    columns_along = (columns.obs, columns.action, columns.next_obs, columns.last)
    next_actions = np.zeros(np.shape(rows.action))
    next_actions[np.asarray(rows.mask)] = actions_along(policy, *columns_along)
    return next_actions


def _first_values(learner: SafetyCriticLearner, columns: Columns, spec: Spec) -> tuple[float, ...]:
    """The mean over steps of the quantity, for every limit."""
    violation = learner.quantity == "violation"
    counted = counted_steps(columns, spec) if violation else columns.cost
    return tuple(counted.mean(0).tolist())


def _calibrate(
    critic: SafetyCritic, held_out: Columns, spec: Spec, *, discount: float
) -> SafetyCritic:
    predicted, observed, _ = outcomes(critic, held_out, spec, discount=discount)
    return replace(critic, calibration=isotonic_map(predicted, observed))


def outcomes(
    critic: SafetyCritic, columns: Columns, spec: Spec, *, discount: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs of the last heads before calibration, and the outcomes in the log.

    Predictions and outcomes have the shape ``(row, cost)`` and come with the episode's index, for
    rows whose window the log contains. Raises an ``InputError`` if it contains none.
    """
    observed = observed_windows(columns, critic.horizon, spec)
    if critic.quantity == "violation":
        counted = counted_steps(columns, spec).astype(np.float64)
        outcomes = (window_sums(columns, counted, critic.horizon, 1.0) > 0).astype(np.float64)
    else:
        outcomes = window_sums(columns, columns.cost, critic.horizon, discount)
    obs, action = (jnp.asarray(x[observed], jnp.float32) for x in (columns.obs, columns.action))
    predicted = np.asarray(_last_heads(critic, obs, action), np.float64)
    return predicted, outcomes[observed], columns.episode[observed]


def observed_windows(columns: Columns, horizon: int, spec: Spec) -> np.ndarray:
    """The rows whose window the log contains; an ``InputError`` if there is none."""
    observed = fully_observed(columns, horizon, spec.horizon)
    if not observed.any():
        raise InputError(
            f"no episode of this log contains a complete window of {horizon} steps (episodes have "
            f"at most {spec.horizon}); choose a shorter horizon, or record longer episodes"
        )
    return observed


@jax.jit
def _last_heads(critic: SafetyCritic, obs: jax.Array, action: jax.Array) -> jax.Array:
    return jax.vmap(lambda o, a: horizon_curve(critic, o, a)[:, -1])(obs, action)


def _report(
    critic: SafetyCritic,
    training: Columns,
    held_out: Columns | None,
    facts: tuple[LimitFacts, ...],
    loss: float,
) -> dict[str, Any]:
    return {
        "quantity": critic.quantity,
        "horizon": critic.horizon,
        "calibrated": held_out is not None,
        "rows": len(training.last),
        "episodes": len(training.episodes),
        "calibration_episodes": 0 if held_out is None else len(held_out.episodes),
        "loss": loss,
        "limits": [fact._asdict() for fact in facts],
    }


# Calibration of a safety critic's risks, measured on episodes that it never saw.


MEASURES = {
    "calibration_error": jax.jit(calibration_error),
    "area_under_roc": jax.jit(area_under_roc),
    "brier_skill": jax.jit(brier_skill),
}


def assess_safety_critic(
    critic: SafetyCritic, log: Transition, spec: Spec, *, replicates: int = 500
) -> dict[str, dict[str, Any]]:
    """Compares the predicted risks with the log's outcomes, limit by limit.

    Args:
        critic: A critic of violations.
        log: Episodes that it was neither trained nor calibrated on, recorded under the behaviour
            that its risks refer to.
        spec: Channels and limits of the log.
        replicates: Number of bootstrap samples for the intervals.

    Returns:
        For every limit: ``rows``, ``episodes``, the ``rate`` of windows with a violation, and
        ``calibration_error``, ``area_under_roc`` and ``brier_skill``, each as ``[value, low,
        high]`` with 95 % intervals by a bootstrap of episodes; NaN if all outcomes are equal.

    Raises:
        InputError: If the log has no cost, too few episodes, or no window of that length; or if
            the critic predicts costs, which are not probabilities.
    """
    columns = checked_columns(log, spec, cost=True)
    predicted, observed, episode = outcomes(critic, columns, spec, discount=1.0)
    risks = _calibrated_risks(critic, predicted)
    assessment = {}
    for k, channel in enumerate(spec.cost):
        risk, occurred = np.clip(risks[:, k], 0, 1), observed[:, k] > 0
        assessment[channel.name] = {
            "rows": len(occurred),
            "episodes": len(np.unique(episode)),
            "rate": float(occurred.mean()),
        } | {
            name: [
                float(measure(risk, occurred)),
                *episode_interval(measure, episode, risk, occurred, replicates=replicates),
            ]
            for name, measure in MEASURES.items()
        }
    return assessment


def _calibrated_risks(critic: SafetyCritic, predicted: np.ndarray) -> np.ndarray:
    mapped = jax.jit(jax.vmap(critic.calibration))(jnp.asarray(predicted, jnp.float32))
    return np.asarray(mapped, np.float64)
