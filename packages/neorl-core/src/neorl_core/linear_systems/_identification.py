"""Linear models of a plant from its log, by least squares, with dead times."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from neorl_core._internal.checks import (
    floats,
    is_concrete,
    require_positive,
    require_rank,
    require_whole,
)
from neorl_core._internal.float_widths import require_wide
from neorl_core._internal.matrix_products import product
from neorl_core.replay._episode_rows import episode_first_rows


class LinearModel(NamedTuple):
    """``x_{t+1} = A x_t + B u_{t - delay} + offset + residual``.

    Attributes:
        a: Shape ``(state, state)``.
        b: Shape ``(state, act)``; every input is taken its own delay ago.
        offset: Shape ``(state,)``.
        residual: Root mean square of what the model leaves, per state, shape ``(state,)``.
        rank: Rank of the regression, scalar int32; below ``state + act + 1`` the log does not
            tell the parameters apart, and they are those of least norm. Zero where the rows hold
            a NaN or an infinity.
        rows: Number of rows that entered, scalar int32.
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

    A row enters if its delayed inputs lie in its own episode. Columns are centred and scaled to
    deviation one before the fit and the parameters scaled back, so units do not matter;
    ``ridge`` adds ``ridge * rows * |parameters|^2`` in scaled units.

    Args:
        obs: State before the action.
        action: What the plant received.
        next_obs: State after it; never that of a reset.
        terminated: Flags of the rows where the plant ended an episode.
        truncated: Flags of the rows where the record ended one.
        delay: Dead time in steps, one for all inputs or one for each.
        ridge: Relative strength of the penalty, not negative; NaN results under ``jit`` where it is
            negative.

    Returns:
        The model. Not differentiable. NaN where no row enters; NaN and rank 0 under ``jit`` where a
        row that enters holds a NaN or an infinity.

    Raises:
        ValueError: If shapes disagree, a delay is no whole number from zero on, there are not as
            many delays as inputs, ``ridge`` is negative, or a known row that enters holds a NaN or
            an infinity.

    Example:
        >>> import jax.numpy as jnp
        >>> obs = jnp.array([[1.0], [0.0], [2.0], [1.0]])
        >>> action, ends = jnp.array([[0.0], [1.0], [1.0], [3.0]]), jnp.zeros(4, bool)
        >>> model = identify_linear(obs, action, 0.5 * obs + 2.0 * action, ends, ends)
        >>> round(float(model.a[0, 0]), 3), round(float(model.b[0, 0]), 3)
        (0.5, 2.0)

    Source: Ljung, System identification: theory for the user, 1999, chapter 7.
    """
    columns = _columns(obs, action, next_obs)
    delays = _delays(delay, columns[1].shape[1])
    ridge = require_positive("ridge", ridge, or_zero=True)
    first = episode_first_rows(terminated, truncated)
    _require_rows(first, columns[0])
    return _fit(*columns, first, delays, max(delays, default=0), ridge)


def delay_residuals(
    obs: Float[Array, "time state"],
    action: Float[Array, "time act"],
    next_obs: Float[Array, "time state"],
    terminated: Bool[Array, " time"],
    truncated: Bool[Array, " time"],
    *,
    longest: int,
    ridge: float | Float[Array, ""] = 0.0,
) -> Float[Array, "delay state"]:
    """What :func:`identify_linear` leaves for every common delay from 0 to ``longest``.

    All delays are judged on the same rows, those with ``longest`` steps of their episode before
    them; the smallest residual points to the dead time.

    Args:
        obs: State before the action.
        action: What the plant received.
        next_obs: State after it.
        terminated: Flags of the rows where the plant ended an episode.
        truncated: Flags of the rows where the record ended one.
        longest: Longest delay to try, in steps.
        ridge: Ridge penalty, as in :func:`identify_linear`.

    Returns:
        Root mean square residuals, shape ``(longest + 1, state)``; NaN where no row enters, and
        under ``jit`` for a delay whose rows hold a NaN or an infinity.

    Raises:
        ValueError: If shapes disagree, ``longest`` is no whole number from zero on, ``ridge`` is
            negative, or a known row that enters holds a NaN or an infinity.

    Example:
        >>> import jax.numpy as jnp
        >>> action, ends = jnp.array([[0.0], [1.0], [0.0], [3.0], [1.0]]), jnp.zeros(5, bool)
        >>> obs = jnp.zeros((5, 1))
        >>> left = delay_residuals(obs, action, jnp.roll(action, 1, axis=0), ends, ends, longest=1)
        >>> int(jnp.argmin(left[:, 0]))
        1
    """
    columns = _columns(obs, action, next_obs)
    ridge = require_positive("ridge", ridge, or_zero=True)
    longest = require_whole("longest", longest, 0, "give 0 to try no delay")
    first = episode_first_rows(terminated, truncated)
    _require_rows(first, columns[0])
    inputs = columns[1].shape[1]
    fits = [_fit(*columns, first, (d,) * inputs, longest, ridge) for d in range(longest + 1)]
    return jnp.stack([fit.residual for fit in fits])


def _fit(
    obs: Array,
    action: Array,
    next_obs: Array,
    first: Array,
    delays: tuple[int, ...],
    before: int,
    ridge: float | Array,
) -> LinearModel:
    time, states = obs.shape
    number = jnp.arange(time, dtype=first.dtype)
    keep = number - before >= first
    late = [jnp.roll(action[:, i], delay) for i, delay in enumerate(delays)]
    design = jnp.concatenate([obs, *[column[:, None] for column in late]], axis=1)
    broken = keep & ~jnp.all(jnp.isfinite(jnp.concatenate([design, next_obs], axis=1)), axis=1)
    _require_finite(broken)
    complete = ~jnp.any(broken)
    rows = jnp.sum(keep).astype(obs.dtype)
    x, x_mean, x_scale = _standardised(design, keep, rows)
    y, y_mean, y_scale = _standardised(next_obs, keep, rows)
    strength = jnp.sqrt(jnp.asarray(ridge).astype(obs.dtype) * rows)
    penalty = strength * jnp.eye(x.shape[1], dtype=x.dtype)
    system = jnp.concatenate([x, penalty])
    target = jnp.concatenate([y, jnp.zeros((x.shape[1], states), y.dtype)])
    scaled, _, rank, _ = jnp.linalg.lstsq(system, target)
    left = jnp.sqrt(jnp.sum((y - product(x, scaled)) ** 2, axis=0) / rows) * y_scale
    slopes = scaled.T * y_scale[:, None] / x_scale[None, :]
    slopes = jnp.where((rows > 0) & complete, slopes, jnp.nan)
    return LinearModel(
        slopes[:, :states],
        slopes[:, states:],
        jnp.where(complete, y_mean - product(slopes, x_mean), jnp.nan),
        jnp.where(complete, left, jnp.nan),
        jnp.where(complete, rank.astype(jnp.int32) + 1, 0),
        jnp.sum(keep).astype(jnp.int32),
    )


def _standardised(columns: Array, keep: Array, rows: Array) -> tuple[Array, Array, Array]:
    kept = jnp.where(keep[:, None], columns, 0)
    mean = jnp.sum(kept, axis=0) / rows
    centred = jnp.where(keep[:, None], columns - mean[None, :], 0)
    scale = jnp.sqrt(jnp.sum(centred**2, axis=0) / rows)
    # What never moves but by rounding tells nothing.
    moves = scale > 8 * jnp.finfo(columns.dtype).eps * jnp.abs(mean)
    scale = jnp.where(moves, scale, 1)
    return jnp.where(moves[None, :], centred / scale[None, :], 0), mean, scale


def _columns(obs: Array, action: Array, next_obs: Array) -> tuple[Array, Array, Array]:
    obs, action, next_obs = floats(obs), floats(action), floats(next_obs)
    for name, column in (("obs", obs), ("action", action), ("next_obs", next_obs)):
        require_wide(name, column)
    require_rank("obs", obs, 2, "time, state")
    require_rank("action", action, 2, "time, act")
    if next_obs.shape != obs.shape or action.shape[0] != obs.shape[0]:
        raise ValueError(
            "obs and next_obs must have one shape and action as many rows, got "
            f"{obs.shape}, {next_obs.shape} and {action.shape}; give one row a step"
        )
    return obs, action, next_obs


def _require_rows(first: Array, obs: Array) -> None:
    if first.shape[0] != obs.shape[0] or obs.shape[0] < 1:
        raise ValueError(
            f"terminated and truncated must have the {obs.shape[0]} rows of obs (one or more), "
            f"got {first.shape[0]}; give one flag a row"
        )


def _require_finite(broken: Array) -> None:
    if not is_concrete(broken) or not np.any(broken):
        return
    rows = np.flatnonzero(broken)
    raise ValueError(
        f"obs, action (so many steps late) and next_obs must be finite, got NaN or infinity in "
        f"{len(rows)} of the rows that enter, the first is row {rows[0]}; drop such rows and mark "
        "the row before each as truncated"
    )


def _delays(delay: Any, inputs: int) -> tuple[int, ...]:
    delays = (delay,) * inputs if np.ndim(delay) == 0 else tuple(delay)
    if len(delays) != inputs:
        raise ValueError(
            f"delay must be one for all or one for each of the {inputs} inputs, got {delay}; "
            "give a tuple of one whole number an input"
        )
    return tuple(
        require_whole("delay", steps, 0, "give the steps of dead time") for steps in delays
    )
