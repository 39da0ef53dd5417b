"""Fitting an ensemble on a log, and calibrating the coverage of its intervals."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from neorl_agents.calibration import episode_interval
from neorl_agents.critics._ensemble import Ensemble, EnsembleLearner, member_outputs, outcome
from neorl_agents.critics._log_rows import (
    Columns,
    checked_columns,
    column_statistics,
    only_episodes,
    require_fit,
    split_columns,
    trained_in_memory,
)
from neorl_core import InputError, Spec, Transition, highs, lows, standardiser
from neorl_core.statistics import conformal_sample_size, weighted_conformal_quantile

FINEST = 1e-6
"""Smallest scale of a predicted channel relative to its range: changes per step are small."""


class FittedEnsemble(NamedTuple):
    """An ensemble, and how it was fitted.

    Attributes:
        ensemble: The ensemble, in physical units.
        report: Rows, episodes and standard deviations of every output, ready for JSON.
    """

    ensemble: Ensemble
    report: dict[str, Any]


def fit_ensemble(
    log: Transition,
    spec: Spec,
    key: PRNGKeyArray,
    *,
    learner: EnsembleLearner | None = None,
    updates: int = 3_000,
    coverage: float = 0.9,
    calibration_share: float = 0.25,
) -> FittedEnsemble:
    """Fits an ensemble on a log, and calibrates its intervals on episodes that it did not see.

    An :class:`EnsembleLearner` is trained by the common loop on the rows of the log. The variance
    is scaled to the mean squared residual of the held-out rows. Then the half-width of the interval
    is the conformal quantile of ``|residual| / deviation`` over held-out episodes. Every step of an
    episode has a weight of one over its length, and one unseen episode is added at infinity.

    Args:
        log: Flat columns in physical units, episodes one after the other; with ``next_obs``,
            ``terminated`` and ``truncated``, and ``mask`` if some rows are to be ignored.
        spec: Channels of the log.
        key: Random key of the held-out episodes, the weights and the batches.
        learner: Hyperparameters; the default ones by default. Its outputs are standardised on the
            log.
        updates: Number of gradient steps.
        coverage: Stated probability that an interval contains one step of a new episode, in (0, 1).
        calibration_share: Fraction of the episodes to hold out for calibration, in [0, 1); 0
            makes no intervals.

    Returns:
        The ensemble, and the report of the fit.

    Raises:
        InputError: If a column is missing or malformed, or too few episodes are held out for the
            coverage: at least ``1 / (1 - coverage) - 1`` are needed.
        ValueError: If a hyperparameter is out of range.

    Example:
        >>> import jax, numpy as np
        >>> from neorl_core import Channel, Spec, Transition
        >>> spec = Spec((Channel("level", "m", 0.0, 2.0),), (Channel("valve", "%", 0.0, 100.0),),
        ...     (), dt=60.0, horizon=50)
        >>> rng = np.random.default_rng(0)
        >>> level, valve = rng.uniform(0, 1, (4000, 1)), rng.uniform(0, 100, (4000, 1))
        >>> ends = np.arange(4000) % 50 == 49
        >>> log = Transition(level, valve, np.zeros(4000), next_obs=0.9 * level + 1e-3 * valve,
        ...     terminated=ends & False, truncated=ends)
        >>> small = EnsembleLearner(members=3)
        >>> fitted = fit_ensemble(log, spec, jax.random.key(0), learner=small, updates=300)
        >>> from neorl_agents.critics import disagreement
        >>> valve = np.array([50.0], np.float32)
        >>> known, unknown = (disagreement(fitted.ensemble, np.array([x], np.float32), valve)
        ...     for x in (0.5, 2.0))
        >>> bool(unknown > 2 * known)
        True

    Source: Osband, Aslanides and Cassirer, Randomized prior functions for deep reinforcement
    learning, arXiv 1806.03335; Lee, Barber and Willett, Distribution-free inference with
    hierarchical data, arXiv 2306.06342, for the quantile.
    """
    learner = EnsembleLearner() if learner is None else learner
    learner.validate()
    require_fit("fit_ensemble", updates, calibration_share)
    if not 0 < coverage < 1:
        raise ValueError(f"fit_ensemble: coverage must be in (0, 1), got {coverage!r}")
    columns = checked_columns(log, spec, cost=False)
    split_key, fit_key = jax.random.split(key)
    training, held_out = columns, None
    if calibration_share:
        training, held_out = split_columns(
            columns, calibration_share, split_key, what="calibration"
        )
        _require_enough(len(held_out.episodes), coverage)
    learner = _standardise_outputs(learner, spec, training)
    rows = only_episodes(log, columns, training.episodes)
    state, metrics = trained_in_memory(
        learner, spec, rows, column_statistics(training), updates, fit_key
    )
    fitted = _with_typical(learner.ensemble(state), training if held_out is None else held_out)
    if held_out is not None:
        fitted = _calibrate(fitted, held_out, coverage)
    guaranteed = None if held_out is None else coverage
    report = _report(learner, fitted, training, held_out, guaranteed, metrics["loss"])
    return FittedEnsemble(fitted, report)


def _standardise_outputs(learner: EnsembleLearner, spec: Spec, columns: Columns) -> EnsembleLearner:
    """The learner with outputs that are standardised on the log."""
    f32 = partial(jnp.asarray, dtype=jnp.float32)
    channels = spec.action if learner.target == "behaviour" else spec.obs
    width = f32(np.subtract(highs(channels), lows(channels)))
    outcomes = outcome(columns, learner.target)
    maps = standardiser(f32(outcomes.mean(0)), f32(outcomes.std(0)), span=width, epsilon=FINEST)
    mean, scale = (tuple(np.asarray(x).tolist()) for x in (maps.offset, maps.scale))
    return replace(learner, outcome_mean=mean, outcome_scale=scale)


def _require_enough(episodes: int, coverage: float) -> None:
    needed = conformal_sample_size(1 - coverage)
    if episodes < needed:
        raise InputError(
            f"a coverage of {coverage:g} needs at least {needed} held-out episodes, but there are "
            f"{episodes}; record more, hold out a larger share, or choose a lower coverage"
        )


def _with_typical(fitted: Ensemble, columns: Columns) -> Ensemble:
    _, std = member_predictions(fitted, columns)
    scale = np.asarray(fitted.outputs.scale, np.float64)
    typical = np.maximum(np.sqrt(((std / scale) ** 2).mean(0)), FINEST)
    return replace(fitted, typical=jnp.asarray(typical, jnp.float32))


def _calibrate(fitted: Ensemble, held_out: Columns, coverage: float) -> Ensemble:
    mean, std = member_predictions(fitted, held_out)
    residual = np.abs(outcome(held_out, fitted.target) - mean)
    error, variance = (residual**2).mean(0), (std**2).mean(0)
    # Variance scaling: the mean variance is the mean squared residual.
    least = (FINEST * np.asarray(fitted.outputs.scale, np.float64)) ** 2
    noise = np.sqrt(np.maximum(error - variance, least))
    spread = np.minimum(1.0, np.sqrt(error / np.maximum(variance, least)))
    deviation = np.sqrt(noise**2 + (spread * std) ** 2)
    width = _width(residual / deviation, held_out.episode, coverage)
    f32 = partial(jnp.asarray, dtype=jnp.float32)
    return replace(fitted, noise=f32(noise), spread=f32(spread), width=f32(width))


def _width(score: np.ndarray, episode: np.ndarray, coverage: float) -> np.ndarray:
    """The hierarchical conformal quantile of the scores of every output."""
    _, index, length = np.unique(episode, return_inverse=True, return_counts=True)
    f32 = partial(jnp.asarray, dtype=jnp.float32)
    weight, miscoverage = f32(1 / length[index]), 1 - coverage
    width = np.array(
        [weighted_conformal_quantile(f32(s), weight, 1.0, miscoverage=miscoverage) for s in score.T]
    )
    return width


def member_predictions(fitted: Ensemble, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over the members, physical units, for every row."""
    obs, action = (jnp.asarray(x, jnp.float32) for x in (columns.obs, columns.action))
    mean, std = _ensemble_outputs(fitted, obs, action)
    scale = np.asarray(fitted.outputs.scale, np.float64)
    offset = np.asarray(fitted.outputs.offset, np.float64)
    return np.asarray(mean, np.float64) * scale + offset, np.asarray(std, np.float64) * scale


@jax.jit
def _ensemble_outputs(fitted: Ensemble, obs: Array, action: Array) -> tuple[Array, Array]:
    outputs = jax.vmap(member_outputs, in_axes=(None, 0, 0))(fitted, obs, action)
    return jnp.mean(outputs, axis=1), jnp.std(outputs, axis=1)


def _report(
    learner: EnsembleLearner,
    fitted: Ensemble,
    training: Columns,
    held_out: Columns | None,
    coverage: float | None,
    loss: float,
) -> dict[str, Any]:
    return {
        "target": learner.target,
        "members": learner.members,
        "coverage": coverage,
        "rows": len(training.last),
        "episodes": len(training.episodes),
        "calibration_episodes": 0 if held_out is None else len(held_out.episodes),
        "loss": loss,
        "noise": np.asarray(fitted.noise, np.float64).tolist(),
        "width": np.asarray(fitted.width, np.float64).tolist() if held_out is not None else None,
    }


# Coverage of an ensemble's intervals, measured on episodes that it never saw.


def assess_ensemble(
    ensemble: Ensemble, log: Transition, spec: Spec, *, replicates: int = 500
) -> dict[str, list[float]]:
    """The measured coverage of the intervals, with equal weight for every episode.

    Args:
        ensemble: A calibrated ensemble of dynamics or behaviour.
        log: Episodes that it was neither trained nor calibrated on.
        spec: Channels of the log.
        replicates: Number of bootstrap samples for the intervals.

    Returns:
        ``[coverage, low, high]`` of every predicted channel by name, with 95 % intervals by a
        bootstrap of episodes.

    Raises:
        InputError: If the ensemble has no intervals, or there are fewer than two episodes.
    """
    width = np.asarray(ensemble.width, np.float64)
    if not np.isfinite(width).all():
        raise InputError(
            "the ensemble has no calibrated intervals; fit it with a calibration_share above 0"
        )
    columns = checked_columns(log, spec, cost=False)
    mean, std = member_predictions(ensemble, columns)
    noise, spread = (np.asarray(x, np.float64) for x in (ensemble.noise, ensemble.spread))
    half = width * np.sqrt(noise**2 + (spread * std) ** 2)
    inside = np.abs(outcome(columns, ensemble.target) - mean) <= half
    _, index, length = np.unique(columns.episode, return_inverse=True, return_counts=True)
    row_weight = 1 / length[index]

    def coverage(covered: np.ndarray, row_weight: np.ndarray, weight: np.ndarray) -> float:
        return float((covered * row_weight) @ weight / (row_weight @ weight))

    channels = spec.action if ensemble.target == "behaviour" else spec.obs
    ones = np.ones(len(row_weight))
    coverages = {}
    for channel, covered in zip(channels, inside.T, strict=True):
        interval = episode_interval(
            coverage, columns.episode, covered, row_weight, replicates=replicates
        )
        coverages[channel.name] = [coverage(covered, row_weight, ones), *interval]
    return coverages
