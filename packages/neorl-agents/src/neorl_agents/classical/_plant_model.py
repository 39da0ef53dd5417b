"""A linear plant with dead times, identified from a log."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.classical._log import Log
from neorl_agents.classical._task import ResolvedTask, spans
from neorl_core import InputError, Spec
from neorl_core.linear_systems import identify_arx, identify_subspace

FOLD = 3
"""One piece of the log in this many is held out for the choice of orders and delays."""


class Units(NamedTuple):
    """``scaled = (physical - offset) / scale``: means of the log and lengths of ranges."""

    offset: np.ndarray
    scale: np.ndarray


class PlantModel(NamedTuple):
    """``x_{t+1} = A x_t + sum_i b_i u_{i, t - delay_i} + drift``, ``y_t = C x_t + bias``.

    In scaled units, the mean of every channel in the log is zero and its range has length one.

    Attributes:
        a: Shape ``(state, state)``.
        b: Shape ``(state, act)``.
        c: Shape ``(output, state)``.
        drift: Shape ``(state,)``.
        bias: Shape ``(output,)``.
        disturbance: Effect of the disturbances on the states of the next period, shape
            ``(state, output)``.
        shift: Effect of the disturbances on the outputs, shape ``(output, output)``.
        delay: Dead time of every input in periods.
        residual: Root mean square error of the outputs one period ahead on held-out rows.
        order: Number of past outputs (``arx``) or of states (``subspace``).
        outputs: Units of the outputs.
        inputs: Units of the inputs.
    """

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    drift: np.ndarray
    bias: np.ndarray
    disturbance: np.ndarray
    shift: np.ndarray
    delay: tuple[int, ...]
    residual: np.ndarray
    order: int
    outputs: Units
    inputs: Units


class Rows(NamedTuple):
    """Scaled columns of a log, and the first row of the piece that each row belongs to."""

    y: np.ndarray
    u: np.ndarray
    next_y: np.ndarray
    start: np.ndarray
    last: np.ndarray


def scaled_rows(log: Log, spec: Spec, resolved: ResolvedTask) -> tuple[Rows, Units, Units]:
    """Rows for identification: measured outputs and all inputs, scaled."""
    measured = list(resolved.measured)
    y, next_y = log.obs[:, measured], log.next_obs[:, measured]
    outputs = Units(y.mean(axis=0), spans(spec.obs, measured))
    inputs = Units(log.action.mean(axis=0), spans(spec.action, range(spec.n_action)))
    for channels, column, units in (
        ([spec.obs[i] for i in measured], y, outputs),
        (spec.action, log.action, inputs),
    ):
        constant = np.flatnonzero(np.std(column, axis=0) <= 1e-9 * units.scale)
        if len(constant):
            names = ", ".join(channels[i].name for i in constant)
            raise InputError(
                f"the log has no movement in {names}, so no model can be fitted; record a log in "
                "which it moves, or leave it out"
            )
    rows = Rows(
        (y - outputs.offset) / outputs.scale,
        (log.action - inputs.offset) / inputs.scale,
        (next_y - outputs.offset) / outputs.scale,
        log.start,
        log.last,
    )
    return rows, outputs, inputs


def split(rows: Rows) -> tuple[Rows, Rows]:
    """The first two thirds of the pieces, or of the rows of a single piece, and the rest."""
    starts = np.unique(rows.start)
    if len(starts) >= FOLD:
        cut = int(starts[len(starts) - len(starts) // FOLD])
    else:
        cut = len(rows.y) - len(rows.y) // FOLD
    earlier = Rows(*(column[:cut].copy() for column in rows))
    earlier.last[-1] = True
    delayed_input = Rows(*(column[cut:].copy() for column in rows))
    return earlier, delayed_input._replace(start=np.maximum(delayed_input.start - cut, 0))


class ArxParts(NamedTuple):
    """``y_{t+1} = sum_i A_i y_{t-i} + sum_j B_j u_{t-delay-j} + offset``."""

    a: np.ndarray
    b: np.ndarray
    offset: np.ndarray


class StateParts(NamedTuple):
    """``x_{t+1} = A x_t + B u_{t-delay} + drift``, ``y_t = C x_t + bias``."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    drift: np.ndarray
    bias: np.ndarray


def fit_arx(rows: Rows, order: int, delay: tuple[int, ...]) -> ArxParts:
    """``A_i``, ``B_j`` and offset of :func:`neorl_core.linear_systems.identify_arx`, float64."""
    with jax.enable_x64(True):
        ends = jnp.asarray(rows.last)
        model = identify_arx(
            jnp.asarray(rows.y),
            jnp.asarray(rows.u),
            jnp.asarray(rows.next_y),
            ends,
            jnp.zeros_like(ends),
            output_lags=order,
            input_lags=order,
            delay=delay,
            ridge=1e-12,
        )
        fitted = ArxParts(*map(_float64, (model.a, model.b, model.offset)))
    if not all(np.all(np.isfinite(part)) for part in fitted):
        raise InputError(
            f"episodes of the log are too short to fit {order} lags with delays of {delay} "
            "periods; reduce the order or longest_delay, or record longer episodes"
        )
    return fitted


def arx_errors(rows: Rows, model: ArxParts, delay: tuple[int, ...], before: int) -> np.ndarray:
    """One-step errors, on the rows that have ``before`` rows of their piece before them."""
    a, b, offset = model
    indices = np.flatnonzero(np.arange(len(rows.y)) - rows.start >= before)
    predicted = np.tile(offset, (len(indices), 1))
    for lag in range(len(a)):
        predicted += rows.y[indices - lag] @ a[lag].T
        delayed_input = np.stack(
            [rows.u[indices - d - lag, i] for i, d in enumerate(delay)], axis=1
        )
        predicted += delayed_input @ b[lag].T
    return rows.next_y[indices] - predicted


def arx_states(model: ArxParts) -> StateParts:
    """The model as states of past outputs and past (delayed) inputs, newest first."""
    a, b, offset = model
    lags, outputs, inputs = len(a), a.shape[1], b.shape[2]
    past, states = lags * outputs, lags * outputs + (lags - 1) * inputs
    A, B = np.zeros((states, states)), np.zeros((states, inputs))
    A[:outputs, :past] = np.concatenate(list(a), axis=1)
    if lags > 1:
        A[:outputs, past:] = np.concatenate(list(b[1:]), axis=1)
        A[outputs:past, : past - outputs] = np.eye(past - outputs)
        A[past + inputs :, past : states - inputs] = np.eye(states - past - inputs)
        B[past : past + inputs] = np.eye(inputs)
    B[:outputs] = b[0]
    C = np.eye(outputs, states)
    drift = np.concatenate([offset, np.zeros(states - outputs)])
    return StateParts(A, B, C, drift, np.zeros(outputs))


def fit_subspace(rows: Rows, order: int, delay: tuple[int, ...]) -> StateParts:
    """``A, B, C, drift, bias`` of :func:`neorl_core.linear_systems.identify_subspace`."""
    longest = max(delay)
    # Inputs are shifted to when they act; the first rows of a piece, which lack them, are dropped.
    delayed_input = np.stack([np.roll(rows.u[:, i], d) for i, d in enumerate(delay)], axis=1)
    keep = np.arange(len(rows.y)) - rows.start >= longest
    with jax.enable_x64(True):
        ends = jnp.asarray(rows.last[keep])
        model = identify_subspace(
            jnp.asarray(rows.y[keep]),
            jnp.asarray(delayed_input[keep]),
            ends,
            jnp.zeros_like(ends),
            order=order,
            horizon=2 * order + 1,
        )
        names = ("a", "b", "c", "state_offset", "output_offset")
        fitted = StateParts(*(_float64(getattr(model, name)) for name in names))
    if not all(np.all(np.isfinite(part)) for part in fitted):
        raise InputError(
            f"the log has too few episodes of at least {4 * order + 2} rows without a gap for a "
            f"model with {order} states; lower the order or record longer episodes"
        )
    return fitted


def _float64(part: jax.Array) -> np.ndarray:
    return np.asarray(part, np.float64)
