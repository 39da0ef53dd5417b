"""Linear models of a plant with dead times, identified from its log by least squares."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from neorl_core._internal.checks import checked_positive
from neorl_core.linear_systems._regression import (
    columns_of_log,
    delays_of,
    fit,
    late_inputs,
    require_rows,
)
from neorl_core.replay._episode_rows import episode_first_rows


class LinearModel(NamedTuple):
    """``x_{t+1} = A x_t + B u_{t - delay} + offset + residual``.

    Attributes:
        a: Shape ``(state, state)``.
        b: Shape ``(state, act)``; every input is delayed by its own dead time.
        offset: Shape ``(state,)``.
        residual: Root mean square of the residuals of each state, shape ``(state,)``.
        rank: Rank of the regression, scalar int32. If it is below ``state + act + 1``, the log does
            not determine the parameters, and those of least norm are returned. Zero if the rows
            hold a NaN or an infinity.
        rows: Number of rows used, scalar int32.
    """

    a: Float[Array, "state state"]
    b: Float[Array, "state act"]
    offset: Float[Array, " state"]
    residual: Float[Array, " state"]
    rank: Int[Array, ""]
    rows: Int[Array, ""]


def identify_linear(
    obs: Float[Array, "time state"],
    action: Float[Array, "time act"],
    next_obs: Float[Array, "time state"],
    terminated: Bool[Array, " time"],
    truncated: Bool[Array, " time"],
    *,
    delay: int | tuple[int, ...] = 0,
    ridge: float | Float[Array, ""] = 0.0,
) -> LinearModel:
    """Fits a linear model to a flat log of many episodes.

    A row is used if its delayed inputs lie in its own episode. Columns are centred and scaled to
    unit standard deviation before the fit and the parameters scaled back, so units do not matter;
    ``ridge`` adds ``ridge * rows * |parameters|^2`` in scaled units.

    Args:
        obs: State before the action.
        action: Action that the plant received.
        next_obs: State after the action; never that of a reset.
        terminated: Flags of the rows where the plant ended an episode.
        truncated: Flags of the rows where the record ended one.
        delay: Dead time in steps, one for all inputs or one for each.
        ridge: Relative strength of the penalty, not negative; NaN results under ``jit`` if it is
            negative.

    Returns:
        The model. Not differentiable. NaN if no row is used; NaN and rank 0 if a row in use holds a
        NaN or an infinity: drop such rows and mark the row before each as truncated.

    Raises:
        ValueError: If shapes disagree, a delay is not an integer >= 0, the number of delays differs
            from that of the inputs, or ``ridge`` is negative.

    Example:
        >>> import jax.numpy as jnp
        >>> obs = jnp.array([[1.0], [0.0], [2.0], [1.0]])
        >>> action, ends = jnp.array([[0.0], [1.0], [1.0], [3.0]]), jnp.zeros(4, bool)
        >>> model = identify_linear(obs, action, 0.5 * obs + 2.0 * action, ends, ends)
        >>> round(float(model.a[0, 0]), 3), round(float(model.b[0, 0]), 3)
        (0.5, 2.0)

    Source: Ljung, System identification: theory for the user, 1999, chapter 7.
    """
    columns = columns_of_log(obs, action, next_obs)
    delays = delays_of(delay, columns[1].shape[1])
    ridge = checked_positive("ridge", ridge, or_zero=True)
    first = episode_first_rows(terminated, truncated)
    require_rows(first, columns[0])
    return _model(columns, first, delays, max(delays, default=0), ridge)


def _model(
    columns: tuple[Array, Array, Array],
    first: Array,
    delays: tuple[int, ...],
    before: int,
    ridge: float | Array,
) -> LinearModel:
    obs, action, next_obs = columns
    states = obs.shape[1]
    keep = jnp.arange(obs.shape[0], dtype=first.dtype) - before >= first
    design = jnp.concatenate([obs, late_inputs(action, delays)], axis=1)
    regression = fit(design, next_obs, keep, ridge)
    slopes = regression.slopes
    return LinearModel(slopes[:, :states], slopes[:, states:], *regression[1:])
