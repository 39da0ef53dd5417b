"""A linear plant with dead times identified from a log: its observers, the choice of its order."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.classical._first_order import (
    filter_order,
    identify_first_order,
    lag_search,
    states_of_lags,
    whitening_filter,
)
from neorl_agents.classical._task import Log, ResolvedTask, leading, spans
from neorl_core import InputError, Spec
from neorl_core.linear_systems import identify_arx, identify_subspace

# A linear plant with dead times, identified from a log.


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


def scaled_rows(log: Log, spec: Spec, resolved: ResolvedTask) -> tuple[Log, Units, Units]:
    """Rows for identification: measured outputs and all inputs, scaled, as a log of their own."""
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
    rows = Log(
        (y - outputs.offset) / outputs.scale,
        (log.action - inputs.offset) / inputs.scale,
        (next_y - outputs.offset) / outputs.scale,
        log.start,
        log.last,
    )
    return rows, outputs, inputs


def split(rows: Log) -> tuple[Log, Log]:
    """The first two thirds of the pieces, or of the rows of a single piece, and the rest."""
    starts = np.unique(rows.start)
    if len(starts) >= FOLD:
        cut = int(starts[len(starts) - len(starts) // FOLD])
    else:
        cut = len(rows.obs) - len(rows.obs) // FOLD
    later = Log(*(column[cut:] for column in rows))
    return leading(rows, cut), later._replace(start=np.maximum(later.start - cut, 0))


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


def fit_arx(rows: Log, order: int, delay: tuple[int, ...]) -> ArxParts:
    """``A_i``, ``B_j`` and offset of :func:`neorl_core.linear_systems.identify_arx`, float64."""
    with jax.enable_x64(True):
        ends = jnp.asarray(rows.last)
        model = identify_arx(
            jnp.asarray(rows.obs),
            jnp.asarray(rows.action),
            jnp.asarray(rows.next_obs),
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


def arx_errors(rows: Log, model: ArxParts, delay: tuple[int, ...], before: int) -> np.ndarray:
    """One-step errors, on the rows that have ``before`` rows of their piece before them."""
    a, b, offset = model
    indices = np.flatnonzero(rows.age >= before)
    predicted = np.tile(offset, (len(indices), 1))
    for lag in range(len(a)):
        predicted += rows.obs[indices - lag] @ a[lag].T
        delayed_input = np.stack(
            [rows.action[indices - d - lag, i] for i, d in enumerate(delay)], axis=1
        )
        predicted += delayed_input @ b[lag].T
    return rows.next_obs[indices] - predicted


def arx_states(model: ArxParts) -> StateParts:
    """The model as states of past outputs and past (delayed) inputs, newest first."""
    a, b = states_of_lags(model.a, model.b)
    outputs = len(model.offset)
    drift = np.append(model.offset, np.zeros(len(a) - outputs))
    return StateParts(a, b, np.eye(outputs, len(a)), drift, np.zeros(outputs))


def fit_subspace(rows: Log, order: int, delay: tuple[int, ...]) -> StateParts:
    """``A, B, C, drift, bias`` of :func:`neorl_core.linear_systems.identify_subspace`."""
    longest = max(delay)
    # Inputs are shifted to when they act; the first rows of a piece, which lack them, are dropped.
    delayed_input = np.stack([np.roll(rows.action[:, i], d) for i, d in enumerate(delay)], axis=1)
    keep = rows.age >= longest
    with jax.enable_x64(True):
        ends = jnp.asarray(rows.last[keep])
        model = identify_subspace(
            jnp.asarray(rows.obs[keep]),
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


# Observers of a plant with integrating disturbances, and Riccati's equation; in float64.


LEAST_ERROR = 1e-6
START_WEIGHT = 1e3
RESIDUAL = 1e-6


def observer_gain(model: PlantModel, *, disturbance: float, noise: float) -> np.ndarray:
    """The stationary Kalman gain of states and disturbances.

    ``x_{t+1} = A x_t + D d_t + pinv(C) w_t``, ``d_{t+1} = d_t + disturbance w'_t``, ``y_t = C x_t
    + S d_t + noise v_t``, where ``w``, ``w'`` and ``v`` have the standard deviations of the model's
    residual. Only ratios matter. If ``disturbance`` is zero, there are no disturbances, and their
    rows are missing.

    Args:
        model: The plant; its dead times have no effect, because the inputs sent are known.
        disturbance: Drift of the disturbances per period, relative to the residual of one period.
        noise: Standard deviation of the measurements, relative to the residual of one period.

    Returns:
        Shape ``(state + output, output)``, or ``(state, output)`` without disturbances.

    Raises:
        InputError: If the disturbances cannot be distinguished from the outputs.
    """
    states, outputs = len(model.a), len(model.c)
    variance = np.diag(np.maximum(model.residual, LEAST_ERROR) ** 2)
    output_inverse = np.linalg.pinv(model.c)
    process_noise = output_inverse @ variance @ output_inverse.T
    a, c = model.a, model.c
    if disturbance > 0:
        zeros = np.zeros((outputs, states))
        a = np.block([[model.a, model.disturbance], [zeros, np.eye(outputs)]])
        c = np.concatenate([model.c, model.shift], axis=1)
        process_noise = np.block([[process_noise, zeros.T], [zeros, disturbance**2 * variance]])
    scale = 1 / np.mean(np.diag(variance))
    process_noise, measurement_noise = scale * process_noise, scale * noise**2 * variance
    solution = stabilising_solution(a.T, c.T, process_noise, measurement_noise, np.zeros_like(c.T))
    if solution is None:
        raise InputError(
            "no observer of the identified plant is stable, because its measurements do not show "
            "all of its states; lower the order, or measure more channels"
        )
    covariance, _ = solution
    return np.linalg.solve(c @ covariance @ c.T + measurement_noise, c @ covariance).T


def start_maps(model: PlantModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The initial state, as a linear map of the first measurement and the last input.

    Of all states that agree with the measurement, it is the one that moves least under that input.

    Returns:
        ``(from_output, from_input, constant)``.
    """
    states = len(model.a)
    system = np.concatenate([model.a - np.eye(states), START_WEIGHT * model.c])
    inverse = np.linalg.pinv(system, rcond=1e-12)
    from_drift, from_output = inverse[:, :states], START_WEIGHT * inverse[:, states:]
    return from_output, -from_drift @ model.b, -from_drift @ model.drift - from_output @ model.bias


def stabilising_solution(
    a: np.ndarray, b: np.ndarray, q: np.ndarray, r: np.ndarray, cross: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """``X`` and the gain ``(R + B^T X B)^{-1} (B^T X A + N^T)`` of the regulator ``u = -gain x``.

    ``X = A^T X A - (A^T X B + N) gain + Q`` is the cost to go. For a Kalman filter, give ``A^T``,
    ``C^T`` and the covariances of process and measurements: ``X`` is that of the error before a
    measurement.

    Returns:
        Both, or ``None`` if no gain stabilises the plant or rounding spoils ``X``.
    """
    from scipy.linalg import solve_discrete_are  # Imported here: slow, and only needed for fits.

    if not all(np.all(np.isfinite(matrix)) for matrix in (a, b, q, r, cross)):
        return None
    # SciPy refuses what rounding has left unsymmetric.
    q, r = (q + q.T) / 2, (r + r.T) / 2
    try:
        x = solve_discrete_are(a, b, q, r, s=cross)
        gain = np.linalg.solve(r + b.T @ x @ b, b.T @ x @ a + cross.T)
    except np.linalg.LinAlgError:
        return None
    # An eigenvalue that rounding has moved across the unit circle gives an X that solves the
    # equation and belongs to a loop that does not decay.
    decays = np.max(np.abs(np.linalg.eigvals(a - b @ gain))) < 1
    error = a.T @ x @ a - (a.T @ x @ b + cross) @ gain + q - x
    return (x, gain) if decays and np.linalg.norm(error) <= RESIDUAL * np.linalg.norm(x) else None


# Choice of a plant's order and dead times by cross-validation, and its model.


Method = Literal["arx", "subspace"]
LEAST_ROWS = 8
LEAST_RANK = 1e-4
"""Smallest singular value at which disturbances of the states are distinguishable."""
FLOOR = 1e-6
"""Error that is small enough for any model, as a fraction of a channel's range."""


def identify_plant(
    rows: Log,
    outputs: Units,
    inputs: Units,
    *,
    method: Method,
    orders: int,
    longest_delay: int,
) -> PlantModel:
    """The linear model of a plant with the order and the dead times that predict best.

    Two thirds of the log are used for fitting; the rest is used to choose by the one-step error.
    For every order, first a dead time common to all inputs is chosen, then each input's own. The
    chosen order is the smallest whose error is within one standard error of the smallest. The final
    model is fitted to all rows. For a single loop a first-order model with a noise model is also
    tried (``"arx"``).

    ``orders`` is the largest number of past outputs and inputs, or of states; ``longest_delay`` is
    in periods. Raises an ``InputError`` if pieces of the log are too short.

    Source: Ljung, System identification: theory for the user, 1999, sections 10.2 and 16.4;
    Breiman et al., Classification and regression trees, 1984, for the rule of one standard error.
    """
    train, held_out = split(rows)
    lags = orders - 1 + longest_delay
    delays = {order: _delays(train, held_out, order, longest_delay) for order in _orders(orders)}

    def errors(order: int) -> np.ndarray:
        delay = delays[order]
        return arx_errors(held_out, fit_arx(train, order, delay), delay, lags)

    order, residual = _smallest_order(_orders(orders), errors)
    delay = delays[order]
    if method == "subspace":
        return _subspace_plant(rows, train, held_out, outputs, inputs, orders, delay)
    model = fit_arx(rows, order, delay)
    states = arx_states(model)
    state_disturbance, no_shift = states.c.T, np.zeros((len(states.c), len(states.c)))
    plant = PlantModel(
        *states, state_disturbance, no_shift, delay, residual, order, outputs, inputs
    )
    return _first_order_if_as_good(plant, rows, train, held_out, longest_delay)


def _first_order_if_as_good(
    plant: PlantModel, rows: Log, train: Log, held_out: Log, longest: int
) -> PlantModel:
    """The first-order model of a single loop, if its one-step predictions are as good.

    It includes a model of the noise. An ARX model does not: if a log is noisy, or recorded under
    feedback with drifting loads, it fits the loads instead, which biases the dead time low.
    """
    exact = float(plant.residual[0]) <= FLOOR
    if rows.obs.shape[1] != 1 or rows.action.shape[1] != 1 or exact:
        return plant
    order = filter_order(train, longest)
    if np.sum(held_out.age >= order + longest) < LEAST_ROWS:
        return plant
    try:
        first_order = identify_first_order(train, 0, 0, dt=1.0, longest=longest)
        full_model = identify_first_order(rows, 0, 0, dt=1.0, longest=longest)
    except InputError:  # The pieces are too short for it, although not for an ARX model.
        return plant
    whitening = whitening_filter(train, 0, 0, order=order, longest=longest)
    error = lag_search(held_out, 0, 0, whitening, longest=longest).error(
        first_order.pole, first_order.delay, first_order.gain
    )
    if error > (1 + 1 / np.sqrt(len(held_out.obs))) * float(plant.residual[0]):
        return plant
    one = np.ones((1, 1))
    return plant._replace(
        a=full_model.pole * one,
        b=full_model.gain * one,
        c=one,
        drift=np.array([full_model.offset]),
        bias=np.zeros(1),
        disturbance=one,
        shift=0 * one,
        delay=(full_model.delay,),
        residual=np.array([error]),
        order=1,
    )


def _orders(orders: int) -> range:
    return range(1, orders + 1)


def _delays(train: Log, held_out: Log, order: int, longest: int) -> tuple[int, ...]:
    inputs, lags = train.action.shape[1], order - 1 + longest

    def held_out_error(delay: tuple[int, ...]) -> float:
        errors = arx_errors(held_out, fit_arx(train, order, delay), delay, lags)
        _require_rows(errors, lags + 1)
        return float(np.mean(errors**2))

    best = min(range(longest + 1), key=lambda d: held_out_error((d,) * inputs))
    delay = [best] * inputs
    if inputs > 1:
        for i in range(inputs):
            delay[i] = min(
                range(longest + 1),
                key=lambda d, i=i: held_out_error((*delay[:i], d, *delay[i + 1 :])),
            )
    return tuple(delay)


def _require_rows(errors: np.ndarray, length: int) -> None:
    if len(errors) < LEAST_ROWS:
        raise InputError(
            f"episodes of the log are too short to choose delays and orders of up to {length} "
            f"periods: {len(errors)} held-out rows can be used, but {LEAST_ROWS} are needed; "
            "reduce longest_delay or orders, or record longer episodes"
        )


def _smallest_order(orders: range, errors: Callable[[int], np.ndarray]) -> tuple[int, np.ndarray]:
    """The smallest order whose squared error is within one standard error of the smallest."""
    squared_errors = {order: errors(order) ** 2 for order in orders}
    _require_rows(squared_errors[orders[0]], len(orders))
    best = min(squared_errors, key=lambda order: float(np.mean(squared_errors[order])))
    for order in orders:
        excess = np.mean(squared_errors[order] - squared_errors[best], axis=1)
        spread = float(np.std(excess)) / np.sqrt(len(excess))
        if float(np.mean(excess)) <= spread + FLOOR**2:
            best = order
            break
    return best, np.sqrt(np.mean(squared_errors[best], axis=0))


def _subspace_plant(
    rows: Log,
    train: Log,
    held_out: Log,
    outputs: Units,
    inputs: Units,
    orders: int,
    delay: tuple[int, ...],
) -> PlantModel:
    def errors(order: int) -> np.ndarray:
        model = _subspace_model(train, order, delay, outputs, inputs)
        return _filtered_errors(held_out, model, settle=orders + 1)

    order, residual = _smallest_order(_orders(orders), errors)
    model = _subspace_model(rows, order, delay, outputs, inputs)
    return model._replace(residual=residual)


def _subspace_model(
    rows: Log, order: int, delay: tuple[int, ...], outputs: Units, inputs: Units
) -> PlantModel:
    a, b, c, drift, bias = fit_subspace(rows, order, delay)
    size = len(c)
    # Loads act on states, and a disturbance of an integrator can only be modelled there. Each
    # output needs its own, for which a model of few states has no room.
    output_inverse = np.linalg.pinv(c)
    observability = np.block([[a - np.eye(order), output_inverse], [c, np.zeros((size, size))]])
    distinguishable = np.linalg.svd(observability, compute_uv=False)[-1] > LEAST_RANK
    disturbance = output_inverse if distinguishable else np.zeros((order, size))
    shift = np.zeros((size, size)) if distinguishable else np.eye(size)
    residual = np.full(size, FLOOR)
    return PlantModel(
        a, b, c, drift, bias, disturbance, shift, delay, residual, order, outputs, inputs
    )


def _filtered_errors(rows: Log, model: PlantModel, settle: int) -> np.ndarray:
    """One-step errors of an observer that runs through every piece."""
    gain = observer_gain(model, disturbance=0.0, noise=1.0)
    from_y, from_u, constant = start_maps(model)
    delayed_input = np.stack(
        [np.roll(rows.action[:, i], d) for i, d in enumerate(model.delay)], axis=1
    )
    first = rows.start + max(model.delay)
    state, errors = constant, []
    for t, (y, u) in enumerate(zip(rows.obs, delayed_input, strict=True)):
        if t < first[t]:
            continue
        if t == first[t]:
            state = from_y @ y + from_u @ u + constant
        predicted = model.c @ state + model.bias
        if t > first[t] + settle:
            errors.append(y - predicted)
        state = state + gain[: len(model.a)] @ (y - predicted)
        state = model.a @ state + model.b @ u + model.drift
    return np.asarray(errors)
