"""Linear models of a plant, identified from the rows of an episode log by least squares."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from neorl_core._internal.checks import checked_integer, checked_positive, floats, require_rank
from neorl_core._internal.precision import checked_wide, product
from neorl_core.replay import episode_first_rows

# Least squares over the rows of an episode log, with standardised columns.


class Fit(NamedTuple):
    """``target = slopes column + offset + residual``; the rest are fields of ``LinearModel``."""

    slopes: Array
    offset: Array
    residual: Array
    rank: Array
    rows: Array


@jax.jit
def fit(design: Array, target: Array, keep: Array, ridge: float | Array) -> Fit:
    """Fits the rows where ``keep`` is true; NaN and rank 0 if such a row is not finite."""
    complete = ~jnp.any(keep & ~_finite(jnp.concatenate([design, target], axis=1)))
    rows = jnp.sum(keep).astype(design.dtype)
    x, x_mean, x_scale = standardise(design, keep, rows)
    y, y_mean, y_scale = standardise(target, keep, rows)
    strength = jnp.sqrt(jnp.asarray(ridge).astype(design.dtype) * rows)
    penalty = strength * jnp.eye(x.shape[1], dtype=x.dtype)
    system = jnp.concatenate([x, penalty])
    targets = jnp.concatenate([y, jnp.zeros((x.shape[1], y.shape[1]), y.dtype)])
    scaled, _, rank, _ = jnp.linalg.lstsq(system, targets)
    deviation = jnp.sqrt(jnp.sum((y - product(x, scaled)) ** 2, axis=0) / rows) * y_scale
    slopes = scaled.T * y_scale[:, None] / x_scale[None, :]
    slopes = jnp.where((rows > 0) & complete, slopes, jnp.nan)
    return Fit(
        slopes,
        jnp.where(complete, y_mean - product(slopes, x_mean), jnp.nan),
        jnp.where(complete, deviation, jnp.nan),
        jnp.where(complete, rank.astype(jnp.int32) + 1, 0),
        jnp.sum(keep).astype(jnp.int32),
    )


def standardise(columns: Array, keep: Array, rows: Array) -> tuple[Array, Array, Array]:
    """The kept rows standardised and the others zero; then the means and standard deviations."""
    counted = jnp.where(keep[:, None], columns, 0)
    mean = jnp.sum(counted, axis=0) / rows
    centred = jnp.where(keep[:, None], columns - mean[None, :], 0)
    scale = jnp.sqrt(jnp.sum(centred**2, axis=0) / rows)
    # A column that varies only by rounding carries no information.
    moves = scale > 8 * jnp.finfo(columns.dtype).eps * jnp.abs(mean)
    scale = jnp.where(moves, scale, 1)
    return jnp.where(moves[None, :], centred / scale[None, :], 0), mean, scale


def columns_of_log(obs: Any, action: Any, next_obs: Any) -> tuple[Array, Array, Array]:
    """The columns as floats of one dtype; raises an error if shapes disagree."""
    obs, action, next_obs = floats(obs), floats(action), floats(next_obs)
    for name, column in (("obs", obs), ("action", action), ("next_obs", next_obs)):
        checked_wide(name, column)
    require_rank("obs", obs, 2, "time, state")
    require_rank("action", action, 2, "time, act")
    if next_obs.shape != obs.shape or action.shape[0] != obs.shape[0]:
        raise ValueError(
            "obs and next_obs must have one shape and action as many rows, got "
            f"{obs.shape}, {next_obs.shape} and {action.shape}; give one row per step"
        )
    return obs, action, next_obs


def require_rows(first: Array, obs: Array) -> None:
    """Raises an error for an empty log, or unless there is one flag per row."""
    if first.shape[0] != obs.shape[0] or obs.shape[0] < 1:
        raise ValueError(
            f"terminated and truncated must have the {obs.shape[0]} rows of obs (one or more), "
            f"got {first.shape[0]}; give one flag per row"
        )


def delays_of(delay: Any, inputs: int) -> tuple[int, ...]:
    """One dead time for every input; raises an error if their number differs."""
    delays = (delay,) * inputs if np.ndim(delay) == 0 else tuple(delay)
    if len(delays) != inputs:
        raise ValueError(
            f"delay must be one for all or one for each of the {inputs} inputs, got {delay}; "
            "give a tuple with one integer for each input"
        )
    return tuple(
        checked_integer("delay", steps, 0, "give the steps of dead time") for steps in delays
    )


def late_inputs(action: Array, delays: tuple[int, ...], lag: int = 0) -> Array:
    """Every input, ``lag`` steps before its own delay."""
    columns = [jnp.roll(action[:, i], steps + lag) for i, steps in enumerate(delays)]
    return jnp.stack(columns, axis=1) if columns else action


def _finite(columns: Array) -> Array:
    return jnp.all(jnp.isfinite(columns), axis=1)


# Autoregressive models with inputs, identified from a log of a plant's outputs.


class ArxModel(NamedTuple):
    """``y_{t+1} = sum_i A_i y_{t-i} + sum_j B_j u_{t-delay-j} + offset + residual``.

    Attributes:
        a: ``A_0`` first, shape ``(lag, output, output)``.
        b: ``B_0`` first, shape ``(lag, output, act)``; every input has its own delay.
        offset: Shape ``(output,)``.
        residual: Root mean square of the residuals, shape ``(output,)``.
        rank: Rank of the regression, scalar int32. If it is below the number of parameters per
            output, the log does not determine them. Zero if the rows hold a NaN or an infinity.
        rows: Number of rows used, scalar int32.
    """

    a: Float[Array, "outputs output output"]
    b: Float[Array, "inputs output act"]
    offset: Float[Array, " output"]
    residual: Float[Array, " output"]
    rank: Int[Array, ""]
    rows: Int[Array, ""]


def identify_arx(
    obs: Float[Array, "time output"],
    action: Float[Array, "time act"],
    next_obs: Float[Array, "time output"],
    terminated: Bool[Array, " time"],
    truncated: Bool[Array, " time"],
    *,
    output_lags: int,
    input_lags: int,
    delay: int | tuple[int, ...] = 0,
    ridge: float | Float[Array, ""] = 0.0,
) -> ArxModel:
    """Fits an autoregressive model with inputs to a flat log of many episodes.

    A row is used if all its lagged outputs and inputs lie in its own episode. With one lag of each
    this is :func:`identify_linear`. ``output_lags``, ``input_lags`` and ``delay + 1`` are usually
    called ``na``, ``nb`` and ``nk``.

    Args:
        obs: Outputs before the action.
        action: Action that the plant received.
        next_obs: Outputs after the action; never those of a reset.
        terminated: Flags of the rows where the plant ended an episode.
        truncated: Flags of the rows where the record ended one.
        output_lags: Number of past outputs in the model, one or more.
        input_lags: Number of past inputs in the model, one or more.
        delay: Dead time in steps, one for all inputs or one for each.
        ridge: Relative strength of the penalty, as in :func:`identify_linear`.

    Returns:
        The model. Not differentiable. NaN if no row is used; NaN and rank 0 if a row in use holds a
        NaN or an infinity.

    Raises:
        ValueError: If shapes disagree, a number of lags or a delay is not an integer in its range,
            the number of delays differs from that of the inputs, or ``ridge`` is negative.

    Example:
        >>> import jax.numpy as jnp
        >>> y, ends = jnp.array([1.0, 0.0, 2.0, 1.0, 4.0, 2.0, -1.0]), jnp.zeros(6, bool)
        >>> u = y[1:] - 0.5 * y[:-1] - 0.25 * jnp.roll(y, 1)[:-1]
        >>> columns = y[:-1, None], u[:, None], y[1:, None]
        >>> model = identify_arx(*columns, ends, ends, output_lags=2, input_lags=1)
        >>> [round(float(number), 3) for number in (*model.a.ravel(), *model.b.ravel())]
        [0.5, 0.25, 1.0]

    Source: Ljung, System identification: theory for the user, 1999, section 4.2.
    """
    obs, action, next_obs = columns_of_log(obs, action, next_obs)
    outputs, inputs = obs.shape[1], action.shape[1]
    advice = "give the number of periods that are remembered"
    output_lags = checked_integer("output_lags", output_lags, 1, advice)
    input_lags = checked_integer("input_lags", input_lags, 1, advice)
    delays = delays_of(delay, inputs)
    ridge = checked_positive("ridge", ridge, or_zero=True)
    first = episode_first_rows(terminated, truncated)
    require_rows(first, obs)
    before = max(output_lags - 1, max(delays, default=0) + input_lags - 1)
    keep = jnp.arange(obs.shape[0], dtype=first.dtype) - before >= first
    past = [jnp.roll(obs, lag, axis=0) for lag in range(output_lags)]
    past += [late_inputs(action, delays, lag) for lag in range(input_lags)]
    regression = fit(jnp.concatenate(past, axis=1), next_obs, keep, ridge)
    split = output_lags * outputs
    a = regression.slopes[:, :split].reshape(outputs, output_lags, outputs)
    b = regression.slopes[:, split:].reshape(outputs, input_lags, inputs)
    return ArxModel(a.transpose(1, 0, 2), b.transpose(1, 0, 2), *regression[1:])


# Linear models of a plant with dead times, identified from its log by least squares.


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
