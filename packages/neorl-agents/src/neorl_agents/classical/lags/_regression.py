"""One-step prediction by least squares on lags: rough, but robust to feedback and loads."""

from typing import NamedTuple

import numpy as np

from neorl_agents.classical._log import Log


class LagModel(NamedTuple):
    """``y_{t+1} = sum_i a_i y_{t-i} + sum_j b_j u_{t-j} + constant``.

    Attributes:
        a: Coefficients of the output, the latest first.
        b: Coefficients of the input, the latest first.
    """

    a: np.ndarray
    b: np.ndarray


def regress_on_lags(
    log: Log, output: int, act: int, *, outputs: int, inputs: int, roughness: float = np.inf
) -> LagModel:
    """Fits a :class:`LagModel`; if the solution is not unique, the scaled one of least norm.

    :func:`neorl_core.linear_systems.identify_arx` fits many outputs but lacks the prior, and the
    least norm that a log without noise needs with this many lags.

    Args:
        log: The log.
        output: Index of the observation.
        act: Index of the action.
        outputs: Number of lags of the output.
        inputs: Number of lags of the input.
        roughness: Expected standard deviation of the second differences of ``b``, in units of
            output per unit of input; infinite for no prior.

    Source: Kitagawa and Gersch, A smoothness priors-state space modeling of time series with trend
    and seasonality, JASA 79, 1984, for the prior.
    """
    rows = np.flatnonzero(log.age >= max(outputs, inputs) - 1)
    y, u = log.obs[:, output], log.action[:, act]
    columns = [y[rows - i] for i in range(outputs)] + [u[rows - j] for j in range(inputs)]
    design, target = np.stack(columns, axis=1), log.next_obs[rows, output]
    design, target = design - design.mean(axis=0), target - target.mean()
    size = np.maximum(np.sqrt(np.mean(design**2, axis=0)), np.finfo(float).tiny)
    coefficients = np.linalg.lstsq(design / size, target, rcond=1e-9)[0] / size
    if np.isfinite(roughness) and inputs > 2:
        noise = float(np.std(target - design @ coefficients))
        curvature = np.diff(np.eye(outputs + inputs)[outputs:], n=2, axis=0) * noise / roughness
        regularised = (
            np.concatenate([design, curvature]) / size,
            np.append(target, np.zeros(len(curvature))),
        )
        coefficients = np.linalg.lstsq(*regularised, rcond=1e-9)[0] / size
    return LagModel(coefficients[:outputs], coefficients[outputs:])
