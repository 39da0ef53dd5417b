"""A model of the plant from a log: linear by least squares with a learned residual, and its fit."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.models._log_rows import LogRows, histories
from neorl_core import InputError, Spec, highs, lows
from neorl_core.infrastructure import unknown_name
from neorl_core.losses import huber_loss

CLIP = 8.0
"""Bound on inputs in standard deviations, so that a rollout does not diverge."""
PAST = 0.3
"""Weight of a typical change in the inputs, relative to the observations themselves."""


class Remainder(eqx.Module):
    """A network of two hidden layers with SiLU, whose output is small at first."""

    layers: tuple[tuple[Array, Array], ...]

    def __call__(self, inputs: Float[Array, " in"]) -> Float[Array, " out"]:
        """The addition to the linear part, in standard deviations of that part's residual."""
        *hidden, (last, bias) = self.layers
        for weight, offset in hidden:
            inputs = jax.nn.silu(inputs @ weight + offset)
        return inputs @ last + bias


class Scales(NamedTuple):
    """Means and standard deviations of the log, physical units.

    Attributes:
        obs: Scales of the observations, shape ``(2, obs)``.
        action: Scales of the actions, shape ``(2, act)``.
        change: Scales of the changes of the predicted channels, shape ``(2, predicted)``.
        outcome: Scales of the reward and the costs, shape ``(2, 1 + cost)``.
        low: Smallest observation that a rollout may reach, shape ``(obs,)``.
        high: Largest.
        seen_low: The 0.1 % quantile of every observation of the log, shape ``(obs,)``.
        seen_high: The 99.9 % quantile.
    """

    obs: Float[Array, "2 obs"]
    action: Float[Array, "2 act"]
    change: Float[Array, "2 predicted"]
    outcome: Float[Array, "2 outcome"]
    low: Float[Array, " obs"]
    high: Float[Array, " obs"]
    seen_low: Float[Array, " obs"]
    seen_high: Float[Array, " obs"]


class Part(eqx.Module):
    """A linear map and the remainder of every member.

    Attributes:
        linear: Coefficients with the intercept as last row, shape ``(in + 1, out)``.
        spread: Standard deviation of the linear map's residual, shape ``(out,)``.
        remainder: Networks with the member as first axis of every array.
    """

    linear: Float[Array, "rows out"]
    spread: Float[Array, " out"]
    remainder: Remainder

    def __call__(self, inputs: Float[Array, " in"], member: Int[Array, ""]) -> Array:
        """The output of one member; only that of the linear map if ``member`` is negative."""
        member_network = jax.tree.map(lambda x: x[jnp.maximum(member, 0)], self.remainder)
        learned = jnp.where(member < 0, 0.0, 1.0) * member_network(inputs) * self.spread
        return inputs @ self.linear[:-1] + self.linear[-1] + learned


class HistoryModel(eqx.Module):
    """Predicts a step of the plant from the last observations and actions.

    With ``h`` the last ``history`` observations and actions, ``u`` the action, ``u-`` the one
    before and ``x'`` the next observation, a member ``m`` predicts

    ``x' = x + A h + s f_m(h, u)``, ``(r, c) = B (x, x', u, u-) + s' g_m(x, x', u, u-)``,

    in standardised units. ``A`` and ``B`` are fitted by ridge regression and the networks ``f``,
    ``g`` to its residuals, whose standard deviations are ``s`` and ``s'``. A last output of ``g``
    is the log-odds that the plant ends the episode. Channels that the controller does not influence
    (weather, demand, setpoints) are not predicted: a rollout takes them from the log.

    Attributes:
        dynamics: Changes of the predicted channels.
        outcome: Reward, costs and the log-odds of an end.
        scales: Scales of the log that the model was fitted to.
        spec: Channels; static.
        predicted: Indices of the predicted observations; static.
        history: Number of past steps; static.
        ends: Whether an episode of the log was ended by the plant; static.

    Source: Ljung, System identification: theory for the user, 1999, section 4.2, for the linear
    part; Chua et al., arXiv 1805.12114, for the ensemble.
    """

    dynamics: Part
    outcome: Part
    scales: Scales
    spec: Spec = eqx.field(static=True)
    predicted: tuple[int, ...] = eqx.field(static=True)
    history: int = eqx.field(static=True)
    ends: bool = eqx.field(static=True)

    @property
    def members(self) -> int:
        """Number of networks."""
        return len(self.dynamics.remainder.layers[0][0])

    def next_obs(
        self,
        obs: Float[Array, "step obs"],
        actions: Float[Array, "step act"],
        action: Float[Array, " act"],
        member: Int[Array, ""],
    ) -> Float[Array, " predicted"]:
        """The predicted channels one step on, physical units.

        Args:
            obs: The last ``history`` observations, the current one last.
            actions: The actions that led to each of them.
            action: The current action.
            member: Index of a network; -1 for only the linear part.
        """
        inputs = history_inputs(self.scales, self.predicted, obs, actions, action)
        change = self.dynamics(inputs, member) * self.scales.change[1] + self.scales.change[0]
        return obs[-1][jnp.asarray(self.predicted)] + change

    def outcomes(
        self,
        obs: Float[Array, " obs"],
        last_action: Float[Array, " act"],
        action: Float[Array, " act"],
        next_obs: Float[Array, " obs"],
        member: Int[Array, ""],
    ) -> tuple[Float[Array, " outcome"], Float[Array, ""]]:
        """Reward and costs of a step in physical units, and the log-odds that it is the last.

        Args:
            obs: Observation before the step.
            last_action: The action of the step before.
            action: The action.
            next_obs: Observation after the step.
            member: Index of a network; -1 for only the linear part.
        """
        inputs = outcome_inputs(self.scales, self.predicted, obs, last_action, action, next_obs)
        scale = self.scales.outcome
        # A linear map cannot predict the end of an episode, so a network does it for the linear
        # part.
        end = self.outcome(inputs, jnp.maximum(member, 0))[-1]
        return self.outcome(inputs, member)[:-1] * scale[1] + scale[0], end


def _standardise(values: Array, scale: Array) -> Array:
    return jnp.clip((values - scale[0]) / scale[1], -CLIP, CLIP)


def history_inputs(
    scales: Scales, predicted: tuple[int, ...], obs: Array, actions: Array, action: Array
) -> Float[Array, " in"]:
    """The current observation, its differences from the past ones, and all actions."""
    differences = (obs[:-1] - obs[-1:])[:, jnp.asarray(predicted)] / scales.change[1][None]
    both = jnp.concatenate([actions, action[None]])
    scaled_actions = jax.vmap(_standardise, in_axes=(0, None))(both, scales.action)
    scaled_obs = _standardise(obs[-1], scales.obs)
    return jnp.concatenate(
        [scaled_obs, jnp.clip(PAST * differences, -CLIP, CLIP).ravel(), scaled_actions.ravel()]
    )


def outcome_inputs(
    scales: Scales,
    predicted: tuple[int, ...],
    obs: Array,
    last_action: Array,
    action: Array,
    next_obs: Array,
) -> Float[Array, " in"]:
    change = (next_obs - obs)[jnp.asarray(predicted)] / scales.change[1]
    parts = (
        _standardise(obs, scales.obs),
        _standardise(next_obs, scales.obs),
        jnp.clip(PAST * change, -CLIP, CLIP),
        _standardise(action, scales.action),
        _standardise(last_action, scales.action),
    )
    return jnp.concatenate(parts)


# The fit of a plant model to a log.


NEVER = -60.0
"""Log-odds of an end if no episode of the log was ended by the plant."""
RARE = 50
"""If more rows than this have a cost or an end, they make up a quarter of every batch."""


@dataclasses.dataclass(frozen=True)
class HistoryModelSettings:
    """Settings for fitting a model.

    Attributes:
        history: Numbers of past steps to choose from, by what their linear part leaves of held-out
            episodes one step ahead.
        longest: Whether the longest history within 2 % of the best is taken; else the shortest.
            Measurements are inputs too, so their noise biases a short history, and feedback ties
            that bias to the actions. A long one tends to the true response, with more variance.
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
    longest: bool = False
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
    dynamics, change_left, change_spread = _linear_part(*inputs[0], settings.ridge)
    outcome, outcome_left, outcome_spread = _linear_part(*inputs[1], settings.ridge)
    is_rare = (rows.outcome[:, 1:] > 0).any(axis=1) | rows.terminated
    rare = np.flatnonzero(is_rare)
    both = inputs[0][0], change_left, inputs[1][0], outcome_left
    tables = jax.tree.map(jnp.asarray, (*both, rows.terminated, is_rare))
    keys = jax.random.split(key, settings.members)
    share = len(rare) / len(every_row)
    with_rare = len(rare) > RARE and share < 0.25
    chosen = jnp.asarray(rare if with_rare else every_row[:1])
    ends = bool(np.any(rows.terminated))
    networks = _fit_remainders(keys, tables, chosen, settings, with_rare, share, ends)
    return HistoryModel(
        Part(jnp.asarray(dynamics, jnp.float32), jnp.asarray(change_spread), networks[0]),
        Part(_with_end(outcome, ends), jnp.append(outcome_spread, 1.0), networks[1]),
        scales, spec, predicted, history, ends,
    )  # fmt: skip


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
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients, and what they leave of the target in its own standard deviations."""
    coefficients = _ridge(inputs, target, ridge)
    residual = target - (inputs @ coefficients[:-1] + coefficients[-1])
    spread = np.maximum(residual.std(axis=0), 1e-7)
    return coefficients, (residual / spread).astype(np.float32), spread.astype(np.float32)


def _chosen_history(
    rows: LogRows, scales: Scales, predicted: tuple[int, ...], settings: HistoryModelSettings
) -> int:
    if len(settings.history) == 1:
        return settings.history[0]
    errors = _errors_one_ahead(rows, scales, predicted, settings)
    acceptable = 1.02 * min(errors)
    within = [h for h, e in zip(settings.history, errors, strict=True) if e <= acceptable]
    return max(within) if settings.longest else within[0]


def _columns_of(history: int, longest: int, n_obs: int, n_predicted: int, n_action: int) -> Any:
    """Which inputs of the longest history are those of another one; the oldest steps are first."""
    ago = np.concatenate(
        [
            np.zeros(n_obs, int),
            np.repeat(np.arange(longest - 1, 0, -1), n_predicted),
            np.repeat(np.arange(longest - 1, -2, -1), n_action),
        ]
    )
    return np.flatnonzero(ago < history)


def _errors_one_ahead(
    rows: LogRows, scales: Scales, predicted: tuple[int, ...], settings: HistoryModelSettings
) -> list[float]:
    """Error of every history's linear part in the last tenth of the episodes, mean of channels."""
    longest = max(settings.history)
    first = np.unique(rows.start)
    held_out = rows.start >= first[-max(1, len(first) // 10)]
    parts = []
    for part in (~held_out, held_out):
        indices = np.flatnonzero(part)
        indices = indices[:: max(1, len(indices) // (settings.rows // 4))]
        parts.append(_inputs_of_rows(rows, scales, predicted, longest, indices)[0])
    (inputs, target), (test_inputs, test_target) = parts
    total_spread = np.maximum(test_target.std(axis=0), 1e-9)
    sizes = rows.obs.shape[1], len(predicted), rows.action.shape[1]
    errors = []
    for history in settings.history:
        columns = _columns_of(history, longest, *sizes)
        coefficients = _ridge(inputs[:, columns], target, settings.ridge)
        predictions = test_inputs[:, columns] @ coefficients[:-1] + coefficients[-1]
        squares = np.mean((test_target - predictions) ** 2, axis=0)
        errors.append(float(np.mean(np.sqrt(squares) / total_spread)))
    return errors


def _with_end(outcome: np.ndarray, ends: bool) -> Float[Array, "rows out"]:
    """The linear map with a column for the log-odds of an end, which the networks predict."""
    odds = np.zeros((len(outcome), 1))
    odds[-1] = 0.0 if ends else NEVER
    return jnp.asarray(np.concatenate([outcome, odds], axis=1), jnp.float32)


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
