"""Observers of a plant with integrating disturbances, in scaled units and float64."""

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.classical._plant_model import PlantModel
from neorl_core import InputError
from neorl_core.linear_systems import kalman_filter

LEAST_ERROR = 1e-6
START_WEIGHT = 1e3


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
    with jax.enable_x64(True):
        problem = (a, c, scale * process_noise, scale * noise**2 * variance)
        solution = kalman_filter(*map(jnp.asarray, problem))
        gain = np.asarray(solution.gain, np.float64)
    if not np.all(np.isfinite(gain)):
        raise InputError(
            "no observer of the identified plant is stable, because its measurements do not show "
            "all of its states; lower the order, or measure more channels"
        )
    return gain


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
