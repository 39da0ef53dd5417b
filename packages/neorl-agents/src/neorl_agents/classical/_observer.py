"""Observers of a plant with disturbances that integrate, in scaled units and float64."""

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
    + S d_t + noise v_t``, where ``w``, ``w'`` and ``v`` have the deviations of the model's
    residual. Only ratios count. With ``disturbance`` zero there are no disturbances, and their
    rows are missing.

    Args:
        model: The plant; its dead times play no part, for what was sent is known.
        disturbance: How fast disturbances move, over the residual of one period.
        noise: Deviation of the measurements, over the residual of one period.

    Returns:
        Shape ``(state + output, output)``, or ``(state, output)`` without disturbances.

    Raises:
        InputError: If the disturbances cannot be told from the outputs.
    """
    states, outputs = len(model.a), len(model.c)
    variance = np.diag(np.maximum(model.residual, LEAST_ERROR) ** 2)
    ways = np.linalg.pinv(model.c)
    spread = ways @ variance @ ways.T
    a, c = model.a, model.c
    if disturbance > 0:
        none = np.zeros((outputs, states))
        a = np.block([[model.a, model.disturbance], [none, np.eye(outputs)]])
        c = np.concatenate([model.c, model.shift], axis=1)
        spread = np.block([[spread, none.T], [none, disturbance**2 * variance]])
    scale = 1 / np.mean(np.diag(variance))
    with jax.enable_x64(True):
        problem = (a, c, scale * spread, scale * noise**2 * variance)
        solution = kalman_filter(*map(jnp.asarray, problem))
        gain = np.asarray(solution.gain, np.float64)
    if not np.all(np.isfinite(gain)):
        raise InputError(
            "no observer of the identified plant settles: its measurements do not show all of its "
            "states; lower the order, or measure more channels"
        )
    return gain


def start_maps(model: PlantModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The state with which to begin, as a linear map of first measurement and last input.

    Of all states that show the measurement, the one that moves least under that input.

    Returns:
        ``(from_output, from_input, constant)``.
    """
    states = len(model.a)
    system = np.concatenate([model.a - np.eye(states), START_WEIGHT * model.c])
    inverse = np.linalg.pinv(system, rcond=1e-12)
    moves, shows = inverse[:, :states], START_WEIGHT * inverse[:, states:]
    return shows, -moves @ model.b, -moves @ model.drift - shows @ model.bias
