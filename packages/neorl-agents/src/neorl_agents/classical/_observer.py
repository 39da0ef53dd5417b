"""Observers of a plant with integrating disturbances, and Riccati's equation; in float64."""

import numpy as np

from neorl_agents.classical._plant_model import PlantModel
from neorl_core import InputError

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
