"""How much gain a tuned loop bears, on a second and freer model of the same log."""

from typing import NamedTuple

import numpy as np

from neorl_agents.classical._first_order import FirstOrderModel
from neorl_agents.classical._log import Log
from neorl_agents.classical._tuning import PIDGains

OUTPUT_LAGS = 3
FURTHER_INPUT_LAGS = 4
ROWS_PER_NUMBER = 10
"""Rows that the model needs for each of its numbers."""
LARGEST = 16.0
HALVINGS = 12


class LagModel(NamedTuple):
    """``y_{t+1} = sum_i a_i y_{t-i} + sum_j b_j u_{t-j} + constant``; the period is ``dt`` s."""

    a: np.ndarray
    b: np.ndarray
    dt: float


def gain_margin(
    log: Log,
    output: int,
    act: int,
    gains: PIDGains,
    *,
    dt: float,
    longest: int,
    predictor: FirstOrderModel | None = None,
) -> float | None:
    """The factor by which the plant's gain may grow before the loop swings.

    A first-order model fitted far ahead takes the answer of a logged controller to a slow load for
    the plant's own, and its dead time comes out too short: the gain is right and the loop tuned
    from it swings all the same. A regression one period ahead with every input of the last
    ``longest`` periods has room for the load in its errors, and tells. It is too rough to tune by.

    Args:
        log: The log that the loop was tuned on.
        output: Index of the controlled observation.
        act: Index of the manipulated action.
        gains: Gains of the loop.
        dt: Period in seconds.
        longest: Longest dead time in periods.
        predictor: Model of the loop's Smith predictor, where it has one.

    Returns:
        From 0 to 16; below 1 the loop swings with the gain that the plant has. ``None`` where the
        log has less than ten rows for each number of the model.

    Source: Ljung, System identification: theory for the user, 1999, section 13.4 (the direct
    method, which needs a model of the noise under feedback).
    """
    model = _lag_model(log, output, act, dt, longest)
    if model is None:
        return None

    def steady(factor: float) -> bool:
        return bool(np.max(np.abs(np.linalg.eigvals(_loop(model, gains, factor, predictor)))) < 1)

    low, high = (1.0, LARGEST) if steady(1.0) else (0.0, 1.0)
    if steady(high):
        return high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if steady(middle) else (low, middle)
    return low


def _lag_model(log: Log, output: int, act: int, dt: float, longest: int) -> LagModel | None:
    inputs = longest + FURTHER_INPUT_LAGS
    rows = np.flatnonzero(log.age >= max(OUTPUT_LAGS, inputs) - 1)
    if len(rows) < ROWS_PER_NUMBER * (OUTPUT_LAGS + inputs):
        return None
    y, u = log.obs[:, output], log.action[:, act]
    columns = [y[rows - i] for i in range(OUTPUT_LAGS)] + [u[rows - j] for j in range(inputs)]
    design, wanted = np.stack(columns, axis=1), log.next_obs[rows, output]
    design, wanted = design - design.mean(axis=0), wanted - wanted.mean()
    size = np.maximum(np.sqrt(np.mean(design**2, axis=0)), np.finfo(float).tiny)
    found = np.linalg.lstsq(design / size, wanted, rcond=1e-9)[0] / size
    return LagModel(found[:OUTPUT_LAGS], found[OUTPUT_LAGS:], dt)


def _loop(
    model: LagModel, gains: PIDGains, factor: float, predictor: FirstOrderModel | None
) -> np.ndarray:
    """Matrix of one period of the closed loop about its rest, without limits."""
    n, m = len(model.a), len(model.b)
    past = 0 if predictor is None else predictor.delay + 1
    state = np.eye(n + m + 3 + past)
    y, u, moved = state[:n], state[n : n + m], state[n + m + 3 :]
    integral, slope, before = state[n + m : n + m + 3]
    seen = y[0]
    if predictor is not None:
        newest = predictor.pole * moved[0] + predictor.gain * u[0]
        moved = np.concatenate([newest[None], moved[:-1]])
        seen = seen + moved[0] - moved[-1]
    slope = slope + model.dt / (gains.tau + model.dt) * ((seen - before) / model.dt - slope)
    integral = integral - gains.ki * model.dt * seen
    sent = np.concatenate([(integral - gains.kp * seen - gains.kd * slope)[None], u[:-1]])
    following = model.a @ y + factor * (model.b @ sent)
    rows = (following[None], y[:-1], sent, integral[None], slope[None], seen[None], moved)
    return np.concatenate(rows)
