"""Choice of a plant's order and dead times by cross-validation, and its model."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from neorl_agents.classical._first_order import filter_order, identify_first_order
from neorl_agents.classical._log import Log
from neorl_agents.classical._observer import observer_gain, start_maps
from neorl_agents.classical._plant_model import (
    PlantModel,
    Rows,
    Units,
    arx_errors,
    arx_states,
    fit_arx,
    fit_subspace,
    split,
)
from neorl_agents.classical.lags import lag_search, whitening_filter
from neorl_core import InputError

Method = Literal["arx", "subspace"]
LEAST_ROWS = 8
LEAST_RANK = 1e-4
"""Smallest singular value at which disturbances of the states are distinguishable."""
FLOOR = 1e-6
"""Error that is small enough for any model, as a fraction of a channel's range."""


def identify_plant(
    rows: Rows,
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
    plant: PlantModel, rows: Rows, train: Rows, held_out: Rows, longest: int
) -> PlantModel:
    """The first-order model of a single loop, if its one-step predictions are as good.

    It includes a model of the noise. An ARX model does not: if a log is noisy, or recorded under
    feedback with drifting loads, it fits the loads instead, which biases the dead time low.
    """
    exact = float(plant.residual[0]) <= FLOOR
    if rows.y.shape[1] != 1 or rows.u.shape[1] != 1 or exact:
        return plant
    early, delayed_input = _as_log(train), _as_log(held_out)
    order = filter_order(early, longest)
    if np.sum(delayed_input.age >= order + longest) < LEAST_ROWS:
        return plant
    try:
        first_order = identify_first_order(early, 0, 0, dt=1.0, longest=longest)
        full_model = identify_first_order(_as_log(rows), 0, 0, dt=1.0, longest=longest)
    except InputError:  # The pieces are too short for it, although not for an ARX model.
        return plant
    whitening = whitening_filter(early, 0, 0, order=order, longest=longest)
    error = lag_search(delayed_input, 0, 0, whitening, longest=longest).error(
        first_order.pole, first_order.delay, first_order.gain
    )
    if error > (1 + 1 / np.sqrt(len(held_out.y))) * float(plant.residual[0]):
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


def _as_log(rows: Rows) -> Log:
    return Log(rows.y, rows.u, rows.next_y, rows.start, rows.last)


def _orders(orders: int) -> range:
    return range(1, orders + 1)


def _delays(train: Rows, held_out: Rows, order: int, longest: int) -> tuple[int, ...]:
    inputs, lags = train.u.shape[1], order - 1 + longest

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
    rows: Rows,
    train: Rows,
    held_out: Rows,
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
    rows: Rows, order: int, delay: tuple[int, ...], outputs: Units, inputs: Units
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


def _filtered_errors(rows: Rows, model: PlantModel, settle: int) -> np.ndarray:
    """One-step errors of an observer that runs through every piece."""
    gain = observer_gain(model, disturbance=0.0, noise=1.0)
    from_y, from_u, constant = start_maps(model)
    delayed_input = np.stack([np.roll(rows.u[:, i], d) for i, d in enumerate(model.delay)], axis=1)
    first = rows.start + max(model.delay)
    state, errors = constant, []
    for t, (y, u) in enumerate(zip(rows.y, delayed_input, strict=True)):
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
