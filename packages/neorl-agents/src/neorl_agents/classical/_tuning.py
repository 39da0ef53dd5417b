"""PI and PID gains from a first-order model, and their gain margin on a second, flexible one."""

from typing import Any

import numpy as np
from jaxtyping import Float

from neorl_agents.classical._first_order import (
    FirstOrderModel,
    LagModel,
    regress_on_lags,
    states_of_lags,
)
from neorl_agents.classical._task import Log
from neorl_core import InputError
from neorl_core.loops import PIDGains

# PI and PID gains from a first-order-plus-dead-time model.


FILTER_SHARE = 0.1
"""Time constant of the derivative filter over the derivative time (N = 10)."""


def simc_rule(
    slope: float, lag: float, dead_time: float, closed_loop_time: float
) -> tuple[float, float]:
    """Gain and integral time by Skogestad's rule, from which :func:`simc` makes a controller.

    Args:
        slope: Initial slope of the step response, measured units per output unit and second.
        lag: Seconds; infinite for an integrating loop.
        dead_time: Seconds, with half a period for the hold.
        closed_loop_time: Wanted time constant of the closed loop in seconds.

    Returns:
        Gain in output units per measured unit, and integral time in seconds.

    Source: that of :func:`simc`.
    """
    response_time = closed_loop_time + dead_time
    return 1 / (slope * response_time), min(lag, 4 * response_time)


def simc(model: FirstOrderModel, *, closed_loop: float = 1.0, derivative: bool = False) -> PIDGains:
    """Gains by Skogestad's rule, for lags and integrating loops.

    ``kp = 1 / (k' (tc + theta))``, ``ti = min(T, 4 (tc + theta))``, with the initial slope ``k'``
    of a step response, the dead time ``theta`` (including half a period for the hold) and the
    desired closed-loop time ``tc = closed_loop * theta``. With ``derivative`` the series form has
    ``td = theta / 3``.

    Args:
        model: The identified loop.
        closed_loop: Closed-loop time over the dead time: 1 for tight control, more for smooth.
        derivative: Whether the loop gets a derivative part.

    Raises:
        InputError: If the model has no gain.

    Example:
        >>> model = FirstOrderModel(pole=1.0, gain=0.5, offset=0.0, delay=3, share=1.0, steps=9,
        ...                         dt=1.0)
        >>> gains = simc(model)
        >>> round(gains.kp, 4), round(gains.kp / gains.ki, 2)
        (0.2857, 28.0)

    Source: Skogestad, Simple analytic rules for model reduction and PID controller tuning, 2003;
    Grimholt and Skogestad, Optimal PID control on first-order plus time delay systems, 2018, for
    the derivative.
    """
    _require_gain(model)
    theta = model.dead_time
    kp, ti = simc_rule(model.slope, model.time_constant, theta, closed_loop * theta)
    td = theta / 3 if derivative else 0.0
    return parallel_gains(kp, ti, td, FILTER_SHARE * td)


def lambda_tuning(model: FirstOrderModel, *, closed_loop: float = 1.0) -> PIDGains:
    """PI gains by lambda tuning: the loop follows a setpoint like a lag of ``lam`` seconds.

    For a lag: ``kp = T / (k (lam + theta))``, ``ti = T``, ``lam = closed_loop * max(T, theta)``.
    For an integrating loop: ``kp = (2 lam + theta) / (k' (lam + theta)^2)``, ``ti = 2 lam +
    theta``, ``lam = 3 closed_loop theta``.

    Args:
        model: The identified loop.
        closed_loop: Factor of the closed-loop time.

    Raises:
        InputError: If the model has no gain.

    Example:
        >>> model = FirstOrderModel(pole=0.9, gain=0.2, offset=0.0, delay=1, share=1.0, steps=9,
        ...                         dt=1.0)
        >>> gains = lambda_tuning(model)
        >>> round(gains.kp, 3), round(gains.kp / gains.ki, 3)
        (0.432, 9.491)

    Source: Dahlin, Designing and tuning digital controllers, 1968; Olsen and Bialkowski, Lambda
    tuning as a promising controller tuning method for the refinery, 2002.
    """
    _require_gain(model)
    theta, time_constant = model.dead_time, model.time_constant
    if np.isinf(time_constant):
        lam = 3 * closed_loop * theta
        kp = (2 * lam + theta) / (model.slope * (lam + theta) ** 2)
        return parallel_gains(kp, 2 * lam + theta)
    lam = closed_loop * max(time_constant, theta)
    kp = time_constant / (model.static_gain * (lam + theta))
    return parallel_gains(kp, time_constant)


def parallel_gains(kp: float, ti: float, td: float = 0.0, tau: float = 0.0) -> PIDGains:
    """Converts the series form ``kp (1 + 1 / (ti s)) (1 + td s)`` to the parallel form."""
    return PIDGains(*map(float, (kp * (1 + td / ti), kp / ti, kp * td, tau)))


def _require_gain(model: FirstOrderModel) -> None:
    if not (np.isfinite(model.gain) and model.gain != 0 and model.time_constant > 0):
        raise InputError(
            f"the gain of the identified loop is {model.gain:g}, so the input does not move the "
            "output in this log; check the pairing of the loop"
        )


# Gain margin of a tuned loop, on a second and more flexible model of the same log.


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
    a, b = _with_predictor(plant, model if compensated else model._replace(gain=0.0))

    def is_stable(factor: float) -> bool:
        heavier = b * np.array([[factor], [1.0]])
        return closed_loop_radius(a, heavier, np.ones((1, 2)), gains, model.dt) < 1

    low, high = (1.0, LARGEST) if is_stable(1.0) else (0.0, 1.0)
    if is_stable(high):
        return high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_stable(middle) else (low, middle)
    return low


def _with_predictor(plant: LagModel, model: FirstOrderModel) -> tuple[np.ndarray, np.ndarray]:
    """Weights of past rows for the measurement, and for what a Smith predictor adds to it.

    That is ``w_t = m_t - m_{t-delay}`` with ``m_{t+1} = pole m_t + gain u_t``. If the model
    integrates, only the inputs of the dead time remain.
    """
    a, b = np.zeros((len(plant.a), 2, 2)), np.zeros((len(plant.b), 2, 1))
    a[:, 0, 0], b[:, 0, 0] = plant
    if model.pole < 1:
        a[0, 1, 1], b[0, 1] = model.pole, model.gain
        b[model.delay, 1] -= model.gain
    else:
        b[: model.delay, 1] = model.gain
    return a, b


def closed_loop_radius(
    a: Float[np.ndarray, "lag obs obs"],
    b: Float[np.ndarray, "held obs loop"],
    measured: Float[np.ndarray, "loop obs"],
    gains: tuple[Any, ...],
    dt: float,
) -> float:
    """Largest absolute value of the poles of PID loops around a plant, without limits.

    Args:
        a: Weights of past outputs of the plant as in :func:`states_of_lags`.
        b: Weights of the outputs of the loops.
        measured: What each loop measures, as a linear map of the plant's newest outputs.
        gains: ``kp, ki, kd, tau`` of :class:`neorl_core.control.PID`, one of each for every loop.
        dt: Control period in seconds.
    """
    A, B = states_of_lags(a, b)
    (states, loops), outputs = B.shape, a.shape[1]
    kp, ki, kd, tau = (np.reshape(gain, (loops, 1)) for gain in gains)
    x, integral, slope, last = np.split(
        np.eye(states + 3 * loops), np.cumsum([states, loops, loops])
    )
    measurement = measured @ x[:outputs]
    # A loop without an integral has no such state, whose pole would be one.
    integral = (ki != 0) * integral - ki * dt * measurement
    slope = slope + dt / (tau + dt) * ((measurement - last) / dt - slope)
    action = integral - kp * measurement - kd * slope
    matrix = np.concatenate([A @ x + B @ action, integral, slope, measurement])
    return float(np.max(np.abs(np.linalg.eigvals(matrix))))
