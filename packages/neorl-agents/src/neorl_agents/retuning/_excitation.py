"""Whether a log contains evidence of the effect of other actions."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_agents.models import HistoryModel, LogRows
from neorl_agents.models._log_rows import histories
from neorl_core import Spec, highs, lows

LEAST = 1e-4
"""Smallest free fraction of an action's variance: a hundredth of its standard deviation."""
LEAST_BY_SETPOINTS = 1e-3
"""The same for an action that moved freely only because a setpoint did. On the simulated loops of
``test_set_point_moves.py``, whose setpoints moved less, no model was right (fractions of 3e-4 and
9e-4); from 2e-3 some were."""
SATURATED = 0.99
"""Fraction of the rows at one end of its range above which an action counts as saturated."""
ROWS = 50_000
"""Largest number of rows that are used."""
LAGS = 20
"""Steps after a move of a setpoint over which the errors of the model are examined."""
CONTRADICTED = 1e-3
"""Probability of larger correlations by chance below which the moves contradict the model."""


class Excitation(NamedTuple):
    """How freely every action moved in a log.

    Attributes:
        free: Fraction of its variance that does not follow linearly from the measurements, the
            earlier actions and the other actions, which a model also reads; 0 if it never moves.
        at_end: Largest fraction of the rows that it spent at the same end of its range.
        names: Names of the actions.
        by_setpoints: Actions that moved freely only because a setpoint did.
        contradicted: Actions that moved because a setpoint did, but with a model whose errors
            follow these moves.
    """

    free: Float[np.ndarray, " act"]
    at_end: Float[np.ndarray, " act"]
    names: tuple[str, ...]
    by_setpoints: tuple[str, ...] = ()
    contradicted: tuple[str, ...] = ()

    @property
    def least(self) -> float:
        """The smallest free fraction; zero if an action is saturated."""
        return float(np.where(self.at_end > SATURATED, 0.0, self.free).min())

    @property
    def required(self) -> float:
        """The free fraction that every action must exceed."""
        return LEAST

    @property
    def suffices(self) -> bool:
        """Whether every action moved independently."""
        return self.least > self.required

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence for every action whose effect the log does not show."""
        warnings = []
        for name, free, share in zip(self.names, self.free, self.at_end, strict=True):
            if share > SATURATED:
                warnings.append(
                    f"{name} is at the same end of its range in {share:.1%} of the rows"
                )
            elif free == 0:
                warnings.append(f"{name} is constant")
            elif free <= LEAST:
                sentence = (
                    f"{name} is almost determined by the measurements and the other actions: only "
                    f"a fraction {free:.1g} of its variance is independent of them"
                )
                if name in self.contradicted:
                    sentence += (
                        ", apart from moves of setpoints, and after these moves the plant did not "
                        "do what the model predicts"
                    )
                warnings.append(sentence)
        return tuple(warnings)


def excitation(
    rows: LogRows,
    spec: Spec,
    history: int,
    *,
    model: HistoryModel | None = None,
    setpoints: Sequence[str] = (),
) -> Excitation:
    """How freely every action of a log moved.

    If a controller computes actions exactly from measurements, their effect cannot be distinguished
    from that of the measurements. Moves of a setpoint make them different, because they are no
    measurements of the plant: a model that does not read the earlier values of the setpoint sees
    the action move by itself. They count if the model passes a test of it: after a move, its errors
    are not correlated with the move.

    Args:
        rows: The log.
        spec: Its channels.
        history: Number of past steps that the plant model reads.
        model: The model; ``None`` if moves of setpoints are not to count.
        setpoints: Observations that are setpoints of the controllers that compute the actions. The
            model must not predict them.

    Returns:
        One number per action.

    Source: Ljung, System identification (1999), section 13.4 on data from closed loops and section
    16.6 on correlations of the errors with past inputs.
    """
    indices = np.arange(len(rows.start))[:: max(1, len(rows.start) // ROWS)]
    low, high = (np.asarray(ends(spec.action)) for ends in (lows, highs))
    near = 1e-6 * (high - low)
    action = rows.action[indices]
    at_end = np.maximum((action <= low + near).mean(axis=0), (action >= high - near).mean(axis=0))
    every_channel = np.arange(spec.n_obs)
    free = _free_fractions(rows, indices, history, every_channel)
    result = Excitation(free, at_end, tuple(channel.name for channel in spec.action))
    columns = [i for i, channel in enumerate(spec.obs) if channel.name in setpoints]
    if model is None or not columns or (free > LEAST).all():
        return result
    freer = _free_fractions(rows, indices, history, np.setdiff1d(every_channel, columns))
    moved = [
        name
        for name, before, after in zip(result.names, free, freer, strict=True)
        if 0 < before <= LEAST and after > LEAST_BY_SETPOINTS
    ]
    if not moved:
        return result
    if correlation_probability(rows, model, columns) < CONTRADICTED:
        return result._replace(contradicted=tuple(moved))
    return result._replace(
        free=np.where([name in moved for name in result.names], freer, free),
        by_setpoints=tuple(moved),
    )


def correlation_probability(rows: LogRows, model: HistoryModel, setpoints: Sequence[int]) -> float:
    """Probability that chance correlates the model's errors as much with moves of setpoints.

    For a setpoint that moves by ``d_t``, and errors ``e_t`` of the next observation of a channel
    with the standard deviation ``s``, the numbers ``sum_t d_t e_(t+k) / (s (sum_t d_t^2)^(1/2))``
    for ``k = 0, ..., 19`` are standard normal if the errors do not depend on the moves, and the sum
    of their squares is chi-squared.

    The result is the smallest over setpoints and predicted channels, times their number; zero if
    the model is not finite.

    Source: Ljung, System identification (1999), section 16.6.
    """
    from scipy.special import chdtrc  # Imported here: slow, and only needed for this.

    starts = np.unique(rows.start)
    used = np.isin(rows.start, starts[:: max(1, len(rows.start) // ROWS)])
    indices = np.flatnonzero(used)
    errors = np.asarray(_errors(model, *_columns(rows, indices, model.history)), np.float64)
    errors = (errors - errors.mean(axis=0)) / np.maximum(errors.std(axis=0), 1e-300)
    before = np.maximum(indices - 1, rows.start[indices])
    moves = (rows.obs[indices] - rows.obs[before])[:, list(setpoints)].astype(np.float64)
    squares = np.zeros((moves.shape[1], errors.shape[1]))
    lags = min(LAGS, len(indices))
    for lag in range(lags):
        earlier = np.arange(len(indices) - lag)
        same = rows.start[indices[earlier]] == rows.start[indices[earlier + lag]]
        size = np.sqrt((moves[earlier[same]] ** 2).sum(axis=0))
        products = moves[earlier[same]].T @ errors[earlier[same] + lag]
        squares += (products / np.where(size > 0, size, np.inf)[:, None]) ** 2
    probability = float(chdtrc(lags, squares).min()) * squares.size
    return min(1.0, probability) if np.isfinite(probability) else 0.0


@jax.jit
def _errors(
    model: HistoryModel, obs: Array, actions: Array, action: Array, following: Array
) -> Float[Array, "row predicted"]:
    """Errors of the mean of the networks on logged rows, in standard deviations of the change."""

    def of_row(obs: Array, actions: Array, action: Array, following: Array) -> Array:
        members = jnp.arange(model.members)
        predicted = jax.vmap(lambda member: model.next_obs(obs, actions, action, member))(members)
        error = following[jnp.asarray(model.predicted)] - predicted.mean(axis=0)
        return error / model.scales.change[1]

    return jax.vmap(of_row)(obs, actions, action, following)


def _columns(rows: LogRows, indices: np.ndarray, history: int) -> tuple[Any, ...]:
    obs_rows, action_rows = histories(rows, indices, history)
    return (
        rows.obs[obs_rows],
        rows.action[action_rows],
        rows.action[indices],
        rows.next_obs[indices],
    )


def _free_fractions(
    rows: LogRows, indices: np.ndarray, history: int, past: np.ndarray
) -> Float[np.ndarray, " act"]:
    """The free fraction of every action, if earlier values of only some channels are read."""
    # The action before the first row of an episode is not known; its place holds the first action.
    inside = indices > rows.start[indices]
    if inside.sum() > rows.action.shape[1] * history + 2:
        indices = indices[inside]
    obs, actions, action, _ = _columns(rows, indices, history)
    parts = (obs[:, -1], obs[:, :-1, past], actions, action)
    columns = np.concatenate([x.reshape(len(action), -1) for x in parts], axis=1, dtype=np.float64)
    scale = columns.std(axis=0)
    columns = (columns - columns.mean(axis=0)) / np.where(scale > 0, scale, 1)
    # Every fit is one of a column on others, so the triangular factor of all of them suffices:
    # it has a row for each column instead of one for each row of the log.
    factor: Any = np.linalg.qr(columns, mode="r")
    constant = np.ptp(action, axis=0) == 0
    first = columns.shape[1] - action.shape[1]
    return np.asarray(
        [0.0 if constant[i] else _free_fraction(factor, first + i) for i in range(len(constant))]
    )


def _free_fraction(factor: Float[np.ndarray, "row column"], column: int) -> float:
    """Fraction of a column's variance that the other columns leave in a least-squares fit."""
    others, target = np.delete(factor, column, axis=1), factor[:, column]
    residual = target - others @ np.linalg.lstsq(others, target, rcond=1e-8)[0]
    return float(residual @ residual / (target @ target))
