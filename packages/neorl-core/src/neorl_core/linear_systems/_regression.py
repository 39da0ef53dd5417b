"""Least squares over the rows of an episode log, with standardised columns."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from neorl_core._internal.checks import checked_integer, floats, require_rank
from neorl_core._internal.float_widths import checked_wide
from neorl_core._internal.matrix_products import product


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
