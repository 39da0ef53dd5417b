"""Autoregressive models with inputs, identified from a log of a plant's outputs."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from neorl_core._internal.checks import checked_integer, checked_positive
from neorl_core.linear_systems._regression import (
    columns_of_log,
    delays_of,
    fit,
    late_inputs,
    require_rows,
)
from neorl_core.replay._episode_rows import episode_first_rows


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
