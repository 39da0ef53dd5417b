"""Gain margin of a tuned loop, on a second and more flexible model of the same log."""

import numpy as np

from neorl_agents.classical._first_order import FirstOrderModel
from neorl_agents.classical._log import Log
from neorl_agents.classical._tuning import PIDGains
from neorl_agents.classical.lags import LagModel, regress_on_lags

OUTPUT_LAGS = 20
EXTRA_INPUT_LAGS = 4
ROUGHNESS = 0.1
"""Expected second difference of the impulse response per period, relative to the plant's gain."""
ROWS_PER_NUMBER = 10
"""Number of rows that the model needs per coefficient."""
LARGEST = 16.0
HALVINGS = 12


def gain_margin(
    log: Log,
    output: int,
    act: int,
    gains: PIDGains,
    model: FirstOrderModel,
    *,
    longest: int,
    compensated: bool = False,
) -> float | None:
    """The factor by which the plant's gain may grow before the loop becomes unstable.

    If the plant is not of first order, or its dead time was identified too short, a loop that is
    stable on the first-order model may be unstable on the plant. A one-step regression on many
    lags, with every input of the last ``longest`` periods, does not have these structural errors.
    It is too rough for tuning; if the log is noisy, a smoothness prior keeps its impulse response
    from becoming rough.

    ``longest`` is in periods; with ``compensated`` the loop has a Smith predictor with ``model``.
    The result is from 0 to 16, below 1 if the loop is already unstable, and ``None`` if the log has
    fewer than ten rows per coefficient or the model has no gain.

    Source: Ljung, System identification: theory for the user, 1999, section 13.4 (the direct
    method, which needs a model of the noise under feedback).
    """
    inputs = longest + EXTRA_INPUT_LAGS
    rows = np.sum(log.age >= max(inputs, OUTPUT_LAGS) - 1)
    if rows < ROWS_PER_NUMBER * (OUTPUT_LAGS + inputs) or model.gain == 0:
        return None
    roughness = ROUGHNESS * abs(model.gain)
    plant = regress_on_lags(
        log, output, act, outputs=OUTPUT_LAGS, inputs=inputs, roughness=roughness
    )
    predictor = model if compensated else None

    def is_stable(factor: float) -> bool:
        matrix = _loop_matrix(plant, gains, model.dt, factor, predictor)
        return bool(np.max(np.abs(np.linalg.eigvals(matrix))) < 1)

    low, high = (1.0, LARGEST) if is_stable(1.0) else (0.0, 1.0)
    if is_stable(high):
        return high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_stable(middle) else (low, middle)
    return low


def _loop_matrix(
    plant: LagModel,
    gains: PIDGains,
    dt: float,
    factor: float,
    predictor: FirstOrderModel | None,
) -> np.ndarray:
    """Matrix of one period of the closed loop about its rest, without limits."""
    n, m = len(plant.a), len(plant.b)
    n_model_outputs = 0 if predictor is None else predictor.delay + 1
    state = np.eye(n + m + 3 + n_model_outputs)
    y, u, model_output = state[:n], state[n : n + m], state[n + m + 3 :]
    integral, slope, last_measurement = state[n + m : n + m + 3]
    measurement = y[0]
    if predictor is not None:
        newest = predictor.pole * model_output[0] + predictor.gain * u[0]
        model_output = np.concatenate([newest[None], model_output[:-1]])
        measurement = measurement + model_output[0] - model_output[-1]
    slope = slope + dt / (gains.tau + dt) * ((measurement - last_measurement) / dt - slope)
    integral = integral - gains.ki * dt * measurement
    action = np.concatenate([(integral - gains.kp * measurement - gains.kd * slope)[None], u[:-1]])
    next_output = plant.a @ y + factor * (plant.b @ action)
    rows = (
        next_output[None],
        y[:-1],
        action,
        integral[None],
        slope[None],
        measurement[None],
        model_output,
    )
    return np.concatenate(rows)
