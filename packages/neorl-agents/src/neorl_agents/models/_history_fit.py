"""The fit of a plant model to a log."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.models._history_model import (
    HistoryModel,
    Part,
    Remainder,
    Scales,
    history_inputs,
    outcome_inputs,
)
from neorl_agents.models._log_rows import LogRows, histories
from neorl_core import InputError, Spec, highs, lows
from neorl_core.infrastructure import unknown_name
from neorl_core.losses import huber_loss

NEVER = -60.0
"""Log-odds of an end if no episode of the log was ended by the plant."""
RARE = 50
"""If more rows than this have a cost or an end, they make up a quarter of every batch."""


@dataclasses.dataclass(frozen=True)
class HistoryModelSettings:
    """Settings for fitting a model.

    Attributes:
        history: Numbers of past steps to choose from: the smallest whose linear part predicts
            held-out episodes within 2 % of the best is taken.
        members: Number of networks that learn the residual of the linear part.
        updates: Number of gradient steps of each.
        batch_size: Rows of a gradient step.
        width: Width of each of two hidden layers.
        learning_rate: Learning rate of Adam, which decays along a cosine.
        ridge: Weight of the squared coefficients of the linear part, in rows of standardised
            inputs.
        rows: Largest number of rows of the log that the linear part is fitted to.
    """

    history: tuple[int, ...] = (1, 2, 4, 8)
    members: int = 3
    updates: int = 3_000
    batch_size: int = 256
    width: int = 64
    learning_rate: float = 1e-3
    ridge: float = 1.0
    rows: int = 200_000


def exogenous_indices(spec: Spec, names: Sequence[str]) -> tuple[int, ...]:
    """Indices of channels that the controller does not influence.

    Raises an ``InputError`` if a name is not an observation, or nothing is left to predict.
    """
    known = [channel.name for channel in spec.obs]
    for name in names:
        if name not in known:
            raise unknown_name("observation channel", name, known)
    if set(names) == set(known):
        raise InputError(
            "every observation is declared exogenous, so none is left to predict; declare fewer"
        )
    return tuple(known.index(name) for name in names)


def fit_history_model(
    rows: LogRows,
    spec: Spec,
    key: PRNGKeyArray,
    *,
    exogenous: Sequence[str] = (),
    settings: HistoryModelSettings = HistoryModelSettings(),
) -> HistoryModel:
    """Fits a model to a log.

    Args:
        rows: Episodes to fit, from :func:`log_rows`.
        spec: Channels.
        key: Random key; consumed.
        exogenous: Names of observations that the controller does not influence.
        settings: Size of the model and of the fit.

    Returns:
        The model, whose history was chosen on the last tenth of the episodes.

    Raises:
        InputError: If a name is not a channel.
    """
    exogenous_columns = set(exogenous_indices(spec, exogenous))
    predicted = tuple(i for i in range(spec.n_obs) if i not in exogenous_columns)
    scales = _scales(rows, spec, predicted)
    history = _chosen_history(rows, scales, predicted, settings)
    every_row = np.arange(len(rows.start))
    inputs = _inputs_of_rows(rows, scales, predicted, history, every_row)
    dynamics, dynamics_residual = _linear_part(*inputs[0], settings.ridge)
    outcome, outcome_residual = _linear_part(*inputs[1], settings.ridge)
    is_rare = (rows.outcome[:, 1:] > 0).any(axis=1) | rows.terminated
    rare = np.flatnonzero(is_rare)
    tables = jax.tree.map(
        jnp.asarray,
        (
            inputs[0][0],
            dynamics_residual.target,
            inputs[1][0],
            outcome_residual.target,
            rows.terminated,
            is_rare,
        ),
    )
    keys = jax.random.split(key, settings.members)
    share = len(rare) / len(every_row)
    with_rare = len(rare) > RARE and share < 0.25
    chosen = jnp.asarray(rare if with_rare else every_row[:1])
    ends = bool(np.any(rows.terminated))
    networks = _fit_remainders(keys, tables, chosen, settings, with_rare, share, ends)
    return HistoryModel(
        Part(jnp.asarray(dynamics, jnp.float32), dynamics_residual.spread, networks[0]),
        Part(_with_end(outcome, ends), _end_unscaled(outcome_residual.spread), networks[1]),
        scales, spec, predicted, history, ends,
    )  # fmt: skip


class _Residual(NamedTuple):
    target: np.ndarray
    spread: Array


def _scales(rows: LogRows, spec: Spec, predicted: tuple[int, ...]) -> Scales:
    span = np.asarray(highs(spec.obs)) - np.asarray(lows(spec.obs))
    action_span = np.asarray(highs(spec.action)) - np.asarray(lows(spec.action))
    columns = list(predicted)
    change = (rows.next_obs - rows.obs)[:, columns].astype(np.float64)

    def moments(values: np.ndarray, floor: Any) -> Array:
        deviation = np.maximum(values.std(axis=0, dtype=np.float64), floor)
        return jnp.asarray([values.mean(axis=0, dtype=np.float64), deviation], jnp.float32)

    least = 1e-6 * np.abs(change).max(axis=0) + 1e-9 * span[columns]
    sample = rows.obs[:: max(1, len(rows.obs) // 50_000)]
    quantiles = np.quantile(sample, (0.001, 0.999), axis=0)
    return Scales(
        obs=moments(rows.obs, 1e-5 * span),
        action=moments(rows.action, 1e-3 * action_span),
        change=moments(change, least),
        outcome=moments(rows.outcome, 1e-8),
        low=jnp.asarray(np.asarray(lows(spec.obs)) - 0.02 * span, jnp.float32),
        high=jnp.asarray(np.asarray(highs(spec.obs)) + 0.02 * span, jnp.float32),
        seen_low=jnp.asarray(quantiles[0], jnp.float32),
        seen_high=jnp.asarray(quantiles[1], jnp.float32),
    )


@partial(jax.jit, static_argnums=1)
def _inputs_at(
    scales: Scales, predicted: tuple[int, ...], obs: Any, actions: Any, action: Any, next_obs: Any
) -> tuple[Array, Array]:
    history_of: Any = jax.vmap(partial(history_inputs, scales, predicted))
    outcome: Any = jax.vmap(partial(outcome_inputs, scales, predicted))
    return history_of(obs, actions, action), outcome(obs[:, -1], actions[:, -1], action, next_obs)


def _inputs_of_rows(
    rows: LogRows, scales: Scales, predicted: tuple[int, ...], history: int, indices: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Inputs and standardised targets of the dynamics and of the outcome."""
    obs_rows, action_rows = histories(rows, indices, history)
    action, next_obs = rows.action[indices], rows.next_obs[indices]
    inputs = _inputs_at(
        scales, predicted, rows.obs[obs_rows], rows.action[action_rows], action, next_obs
    )
    change = (next_obs - rows.obs[indices])[:, list(predicted)]
    targets = [
        (values - np.asarray(scale[0])) / np.asarray(scale[1])
        for values, scale in ((change, scales.change), (rows.outcome[indices], scales.outcome))
    ]
    return (np.asarray(inputs[0]), targets[0]), (np.asarray(inputs[1]), targets[1])


def _ridge(inputs: np.ndarray, target: np.ndarray, ridge: float) -> np.ndarray:
    """Coefficients of least squares with the intercept as last row, float64."""
    design = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1, dtype=np.float64)
    gram = design.T @ design
    gram[np.diag_indices(len(gram) - 1)] += ridge
    gram[-1, -1] += 1e-9
    # Without the ridge, columns that never move would make the matrix singular.
    return np.linalg.solve(gram, design.T @ target.astype(np.float64))


def _linear_part(
    inputs: np.ndarray, target: np.ndarray, ridge: float
) -> tuple[np.ndarray, _Residual]:
    coefficients = _ridge(inputs, target, ridge)
    residual = target - (inputs @ coefficients[:-1] + coefficients[-1])
    spread = np.maximum(residual.std(axis=0), 1e-7)
    return coefficients, _Residual(
        (residual / spread).astype(np.float32), jnp.asarray(spread, jnp.float32)
    )


def _chosen_history(
    rows: LogRows, scales: Scales, predicted: tuple[int, ...], settings: HistoryModelSettings
) -> int:
    if len(settings.history) == 1:
        return settings.history[0]
    first = np.unique(rows.start)
    held_out = rows.start >= first[-max(1, len(first) // 10)]
    errors = []
    for history in settings.history:
        parts = []
        for part in (~held_out, held_out):
            indices = np.flatnonzero(part)
            indices = indices[:: max(1, len(indices) // (settings.rows // 4))]
            parts.append(_inputs_of_rows(rows, scales, predicted, history, indices)[0])
        (inputs, target), (test_inputs, test_target) = parts
        coefficients = _ridge(inputs, target, settings.ridge)
        residual = test_target - (test_inputs @ coefficients[:-1] + coefficients[-1])
        total_spread = np.maximum(test_target.std(axis=0), 1e-9)
        errors.append(float(np.mean(np.sqrt(np.mean(residual**2, axis=0)) / total_spread)))
    acceptable = 1.02 * min(errors)
    return next(h for h, e in zip(settings.history, errors, strict=True) if e <= acceptable)


def _with_end(outcome: np.ndarray, ends: bool) -> Float[Array, "rows out"]:
    """The linear map with a column for the log-odds of an end, which the networks predict."""
    odds = np.zeros((len(outcome), 1))
    odds[-1] = 0.0 if ends else NEVER
    return jnp.asarray(np.concatenate([outcome, odds], axis=1), jnp.float32)


def _end_unscaled(spread: Array) -> Array:
    return jnp.append(spread, 1.0)


def _fresh(key: PRNGKeyArray, sizes: tuple[int, ...]) -> Remainder:
    keys = jax.random.split(key, len(sizes) - 1)
    layers = []
    for k, inward, outward in zip(keys, sizes[:-1], sizes[1:], strict=True):
        weight = jax.random.normal(k, (inward, outward)) / jnp.sqrt(inward)
        layers.append((weight, jnp.zeros(outward)))
    layers[-1] = (0.1 * layers[-1][0], layers[-1][1])
    return Remainder(tuple(layers))


@partial(jax.jit, static_argnums=(3, 4, 6))
def _fit_remainders(
    keys: PRNGKeyArray,
    tables: Any,
    rare: Array,
    settings: HistoryModelSettings,
    with_rare: bool,
    share: float,
    ends: bool,
) -> tuple[Remainder, Remainder]:
    """The networks of all members, each trained on its own batches."""
    inputs, change, obs_rows, outcome, terminated, is_rare = tables
    hidden = (settings.width, settings.width)
    schedule = optax.cosine_decay_schedule(settings.learning_rate, settings.updates, 0.01)
    optimiser = optax.adam(schedule)
    batch, quarter = settings.batch_size, settings.batch_size // 4 * with_rare

    def loss(networks: tuple[Remainder, Remainder], i: Array, j: Array) -> Array:
        f, g = networks
        # Rare rows come only from their own quarter, with weights that make all rows count equally.
        common_weight = jnp.where(is_rare[j] & with_rare, 0.0, 1.0)
        weights = jnp.where(jnp.arange(batch) < quarter, 3 * share, common_weight)[:, None]
        first = huber_loss(jax.vmap(f)(inputs[i]), change[i], delta=5.0).mean()
        answer = jax.vmap(g)(obs_rows[j])
        second = (weights * huber_loss(answer[:, :-1], outcome[j], delta=5.0)).mean()
        flags = terminated[j].astype(answer.dtype)
        third = (weights[:, 0] * optax.sigmoid_binary_cross_entropy(answer[:, -1], flags)).mean()
        return first + second + third * ends

    def step(carry: tuple[Any, Any], key: PRNGKeyArray) -> tuple[Any, None]:
        networks, state = carry
        first, second, third = jax.random.split(key, 3)
        i = jax.random.randint(first, (batch,), 0, len(inputs))
        uniform = jax.random.randint(second, (batch - quarter,), 0, len(inputs))
        rare_rows = rare[jax.random.randint(third, (quarter,), 0, len(rare))]
        gradient: Any = jax.grad(loss)(networks, i, jnp.concatenate([rare_rows, uniform]))
        updates, state = optimiser.update(gradient, state)
        stepped: Any = optax.apply_updates(networks, updates)
        return (stepped, state), None

    def member(key: PRNGKeyArray) -> tuple[Remainder, Remainder]:
        first, second, third = jax.random.split(key, 3)
        networks: Any = (
            _fresh(first, (inputs.shape[1], *hidden, change.shape[1])),
            _fresh(second, (obs_rows.shape[1], *hidden, outcome.shape[1] + 1)),
        )
        steps = jax.random.split(third, settings.updates)
        return jax.lax.scan(step, (networks, optimiser.init(networks)), steps)[0][0]

    return jax.lax.map(member, keys)
