"""Fitting an ensemble on a log, and making its intervals cover what they state."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.critics._columns import Columns, checked_columns, split_columns
from neorl_agents.critics._ensemble import (
    Ensemble,
    Target,
    member_outputs,
    scaled_outputs,
)
from neorl_agents.learning import (
    as_widths,
    cosine,
    require_choice,
    require_count,
    require_flag,
    require_number,
    require_widths,
)
from neorl_agents.networks import MLP, ensemble, init_mlp
from neorl_agents.optimisers import OPTIMISERS, init_optimiser, minimise
from neorl_core import (
    InputError,
    Spec,
    Transition,
    as_arrays,
    highs,
    lows,
    standardiser,
    unit_interval,
)
from neorl_core.replay import batch_indices
from neorl_core.statistics import conformal_sample_size, weighted_conformal_quantile

FINEST = 1e-6
"""Least scale of a predicted channel, as a part of its range: changes per step are small."""


class EnsembleSettings(eqx.Module):
    """How an ensemble is fitted.

    Attributes:
        coverage: Stated chance that an interval holds one step of a new episode, in (0, 1).
        prior_scale: Factor of the fixed prior functions, not negative; 0 is a plain ensemble.
        learning_rate: Learning rate at the start; it falls to zero along half a cosine.
        updates: Gradient steps.
        calibration_share: Part of the episodes that is held out for calibration, in (0, 1).
        target: ``"dynamics"`` or ``"behaviour"``; static.
        calibrated: Whether episodes are held out and intervals calibrated on them; static.
        members: Number of members, two or more; static.
        hidden: Widths of the hidden layers; static.
        batch_size: Rows of one gradient step; static.
        optimiser: Name of the optimiser in ``neorl_agents.optimisers.OPTIMISERS``; static.
    """

    coverage: float = 0.9
    prior_scale: float = 1.0
    learning_rate: float = 1e-3
    updates: int = 3_000
    calibration_share: float = 0.25
    target: Target = eqx.field(static=True, default="dynamics")
    calibrated: bool = eqx.field(static=True, default=True)
    members: int = eqx.field(static=True, default=10)
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64), converter=as_widths)
    batch_size: int = eqx.field(static=True, default=256)
    optimiser: str = eqx.field(static=True, default="adam")

    def validate(self) -> None:
        """Raises a ``ValueError`` that names the first field with a bad value."""
        inside = {"low": 0, "high": 1, "open_low": True, "open_high": True}
        require_number(self, "coverage", "calibration_share", **inside)
        require_number(self, "prior_scale", low=0)
        require_number(self, "learning_rate", low=0, open_low=True)
        require_count(self, "updates", "batch_size")
        require_count(self, "members", least=2)
        require_choice(self, "target", ("dynamics", "behaviour"))
        require_choice(self, "optimiser", OPTIMISERS)
        require_flag(self, "calibrated")
        require_widths(self, "hidden")


class FittedEnsemble(NamedTuple):
    """An ensemble, and how it was fitted.

    Attributes:
        ensemble: Ready to be asked, in physical units.
        report: Rows, episodes and deviations of every output, ready for JSON.
    """

    ensemble: Ensemble
    report: dict[str, Any]


def fit_ensemble(
    log: Transition,
    spec: Spec,
    key: PRNGKeyArray,
    *,
    settings: EnsembleSettings | None = None,
) -> FittedEnsemble:
    """Fits an ensemble on a log, and calibrates its intervals on episodes that it did not see.

    Every member is regressed on the log with weights of its own, a Poisson draw an episode (the
    bootstrap), beside a fixed prior function. The variance is scaled so that it is the mean
    squared residual of the held-out rows; then the width of the interval is the conformal quantile
    of ``|residual| / deviation`` over held-out episodes, every step of an episode weighing one over
    its length, and one unseen episode at infinity.

    Args:
        log: Flat columns in physical units, episodes one after the other; with ``next_obs``,
            ``terminated`` and ``truncated``, and ``mask`` where some rows do not count.
        spec: Channels of the log.
        key: Decides the held-out episodes, the weights and the draws.
        settings: Hyperparameters; the default ones by default.

    Returns:
        The ensemble, and what was found.

    Raises:
        InputError: If a column is missing or malformed, there is one episode to calibrate with, or
            too few for the coverage: ``1 / (1 - coverage) - 1`` must be held out.
        ValueError: If a setting is out of range.

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
        >>> few = EnsembleSettings(members=3, hidden=(16,), updates=300)
        >>> ensemble = fit_ensemble(log, spec, jax.random.key(0), settings=few).ensemble
        >>> from neorl_agents.critics import disagreement
        >>> valve = np.array([50.0], np.float32)
        >>> known, unknown = (disagreement(ensemble, np.array([x], np.float32), valve)
        ...     for x in (0.5, 2.0))
        >>> bool(unknown > 2 * known)
        True

    Source: Osband, Aslanides and Cassirer, Randomized prior functions for deep reinforcement
    learning, arXiv 1806.03335; Lee, Barber and Willett, Distribution-free inference with
    hierarchical data, arXiv 2306.06342, for the quantile.
    """
    settings = EnsembleSettings() if settings is None else settings
    settings.validate()
    columns = checked_columns(log, spec, cost=False)
    split_key, init_key, weight_key, draw_key = jax.random.split(key, 4)
    training, held = columns, None
    if settings.calibrated:
        share = settings.calibration_share
        training, held = split_columns(columns, share, split_key, what="calibration")
        _require_enough(len(held.episodes), settings.coverage)
    fresh = _fresh(settings, spec, training, init_key)
    members, loss = _trained(
        as_arrays(settings), fresh.members, fresh.priors,
        *_tables(fresh, training), *_weights(settings, training, weight_key), draw_key,
    )  # fmt: skip
    if not bool(jnp.isfinite(loss)):
        raise InputError(
            f"training ended with a loss of {float(loss)}; lower learning_rate, now "
            f"{settings.learning_rate:g}"
        )
    fitted = eqx.tree_at(lambda e: e.members, fresh, members)
    fitted = _with_typical(fitted, training if held is None else held)
    if held is not None:
        fitted = _calibrated(fitted, held, settings.coverage)
    return FittedEnsemble(fitted, _report(settings, fitted, training, held, float(loss)))


def outcome(columns: Columns, target: Target) -> np.ndarray:
    """What an ensemble of this target predicts, as the log has it, shape ``(row, out)``."""
    return columns.action if target == "behaviour" else columns.next_obs - columns.obs


def _fresh(settings: EnsembleSettings, spec: Spec, columns: Columns, key: PRNGKeyArray) -> Ensemble:
    f32 = partial(jnp.asarray, dtype=jnp.float32)
    behaviour = settings.target == "behaviour"
    span = f32(np.subtract(highs(spec.obs), lows(spec.obs)))
    of = outcome(columns, settings.target)
    channels = spec.action if behaviour else spec.obs
    width = f32(np.subtract(highs(channels), lows(channels)))
    outputs = standardiser(f32(of.mean(0)), f32(of.std(0)), span=width, epsilon=FINEST)
    inputs = spec.n_obs + (0 if behaviour else spec.n_action)
    network = partial(init_mlp, (inputs, *settings.hidden, of.shape[1]))
    member_key, prior_key = jax.random.split(key)
    return Ensemble(
        obs=standardiser(f32(columns.obs.mean(0)), f32(columns.obs.std(0)), span=span),
        action=unit_interval(spec.action),
        members=ensemble(settings.members, network, member_key),
        priors=ensemble(settings.members, network, prior_key),
        prior_scale=f32(settings.prior_scale),
        outputs=outputs,
        typical=jnp.ones(of.shape[1], jnp.float32),
        noise=jnp.zeros(of.shape[1], jnp.float32),
        spread=jnp.ones(of.shape[1], jnp.float32),
        width=jnp.full(of.shape[1], jnp.nan, jnp.float32),
        target=settings.target,
    )


def _tables(fitted: Ensemble, columns: Columns) -> tuple[Array, Array]:
    """Inputs and targets, scaled on the host in float64."""
    inputs = [_scaled(fitted.obs, columns.obs)]
    if fitted.target != "behaviour":
        inputs.append(_scaled(fitted.action, columns.action))
    targets = _scaled(fitted.outputs, outcome(columns, fitted.target))
    return jnp.asarray(np.concatenate(inputs, axis=1), jnp.float32), jnp.asarray(
        targets, jnp.float32
    )


def _scaled(by: Any, x: np.ndarray) -> np.ndarray:
    return (x - np.asarray(by.offset, np.float64)) / np.asarray(by.scale, np.float64)


def _weights(
    settings: EnsembleSettings, columns: Columns, key: PRNGKeyArray
) -> tuple[Array, Array]:
    """How often every member sees every episode, and the episode of every row."""
    episodes, place = np.unique(columns.episode, return_inverse=True)
    weights = jax.random.poisson(key, 1.0, (len(episodes), settings.members))
    # Few episodes: a member that sees none would learn nothing.
    weights = jnp.where(jnp.sum(weights, axis=0, keepdims=True) > 0, weights, 1)
    return weights.astype(jnp.float32), jnp.asarray(place, jnp.int32)


@jax.jit
def _trained(
    settings: EnsembleSettings,
    members: MLP,
    priors: MLP,
    inputs: Float[Array, "row in"],
    targets: Float[Array, "row out"],
    weights: Float[Array, "episode ens"],
    episode: Int[Array, " row"],
    key: PRNGKeyArray,
) -> tuple[MLP, Float[Array, ""]]:
    state = init_optimiser(settings.optimiser, members, settings.learning_rate)

    def update(number: Int[Array, ""], carry: tuple) -> tuple:
        members, state, _ = carry
        rows = batch_indices(key, number, n=inputs.shape[0], batch=settings.batch_size)
        members, state, loss, _ = minimise(
            settings.optimiser,
            _loss,
            members,
            state,
            settings.learning_rate * cosine(number, settings.updates),
            priors,
            settings.prior_scale,
            inputs[rows],
            targets[rows],
            weights[episode[rows]].T,
        )
        return members, state, loss

    members, _, loss = jax.lax.fori_loop(
        0, settings.updates, update, (members, state, jnp.zeros(()))
    )
    return members, loss


def _loss(
    members: MLP, priors: MLP, prior_scale: Array, inputs: Array, targets: Array, weights: Array
) -> tuple[Float[Array, ""], None]:
    said = scaled_outputs(members, priors, prior_scale, inputs)
    errors = jnp.mean(jnp.square(said - targets[None]), axis=2)
    return jnp.sum(jnp.mean(weights * errors, axis=1)), None


def _require_enough(episodes: int, coverage: float) -> None:
    needed = conformal_sample_size(1 - coverage)
    if episodes < needed:
        raise InputError(
            f"{episodes} held-out episodes cannot promise a coverage of {coverage:g}: {needed} are "
            "needed; record more, hold out a larger share, or state a lower coverage"
        )


def _with_typical(fitted: Ensemble, columns: Columns) -> Ensemble:
    _, std = members_say(fitted, columns)
    scale = np.asarray(fitted.outputs.scale, np.float64)
    typical = np.maximum(np.sqrt(((std / scale) ** 2).mean(0)), FINEST)
    return eqx.tree_at(lambda e: e.typical, fitted, jnp.asarray(typical, jnp.float32))


def _calibrated(fitted: Ensemble, held: Columns, coverage: float) -> Ensemble:
    mean, std = members_say(fitted, held)
    residual = np.abs(outcome(held, fitted.target) - mean)
    error, agreed = (residual**2).mean(0), (std**2).mean(0)
    # Variance scaling: the mean variance is the mean squared residual.
    least = (FINEST * np.asarray(fitted.outputs.scale, np.float64)) ** 2
    noise = np.sqrt(np.maximum(error - agreed, least))
    spread = np.minimum(1.0, np.sqrt(error / np.maximum(agreed, least)))
    deviation = np.sqrt(noise**2 + (spread * std) ** 2)
    width = _width(residual / deviation, held.episode, coverage)
    f32 = partial(jnp.asarray, dtype=jnp.float32)
    fields = (f32(noise), f32(spread), f32(width))
    return eqx.tree_at(lambda e: (e.noise, e.spread, e.width), fitted, fields)


def _width(score: np.ndarray, episode: np.ndarray, coverage: float) -> np.ndarray:
    """The hierarchical conformal quantile of the scores of every output."""
    _, place, length = np.unique(episode, return_inverse=True, return_counts=True)
    f32 = partial(jnp.asarray, dtype=jnp.float32)
    weight, missed = f32(1 / length[place]), 1 - coverage
    width = np.array(
        [weighted_conformal_quantile(f32(s), weight, 1.0, miscoverage=missed) for s in score.T]
    )
    return width


def members_say(fitted: Ensemble, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation over the members, physical units, for every row."""
    obs, action = (jnp.asarray(x, jnp.float32) for x in (columns.obs, columns.action))
    mean, std = _said(fitted, obs, action)
    scale = np.asarray(fitted.outputs.scale, np.float64)
    offset = np.asarray(fitted.outputs.offset, np.float64)
    return np.asarray(mean, np.float64) * scale + offset, np.asarray(std, np.float64) * scale


@jax.jit
def _said(fitted: Ensemble, obs: Array, action: Array) -> tuple[Array, Array]:
    said = jax.vmap(member_outputs, in_axes=(None, 0, 0))(fitted, obs, action)
    return jnp.mean(said, axis=1), jnp.std(said, axis=1)


def _report(
    settings: EnsembleSettings,
    fitted: Ensemble,
    training: Columns,
    held: Columns | None,
    loss: float,
) -> dict[str, Any]:
    return {
        "target": settings.target,
        "members": settings.members,
        "coverage": settings.coverage if held is not None else None,
        "rows": len(training.last),
        "episodes": len(training.episodes),
        "calibration_episodes": 0 if held is None else len(held.episodes),
        "loss": loss,
        "noise": np.asarray(fitted.noise, np.float64).tolist(),
        "width": np.asarray(fitted.width, np.float64).tolist() if held is not None else None,
    }
