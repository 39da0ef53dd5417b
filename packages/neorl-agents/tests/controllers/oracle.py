"""Quadratic programs by the non-negative least squares of SciPy, float64: an oracle not ours."""

import numpy as np
from scipy.optimize import nnls


def solved(h, g, rows, limits, yielding) -> np.ndarray:
    """``min 1/2 x'Hx + g'x + sum v^2 / (2 c)`` with ``rows x <= limits + v``.

    Lawson and Hanson, Solving least squares problems, 1974, chapter 23: a least distance programme
    is a non-negative least squares of its dual.
    """
    n, soft = len(g), np.flatnonzero(yielding > 0)
    wide = np.zeros((n + len(soft),) * 2)
    wide[:n, :n], wide[n:, n:] = h, np.diag(1 / yielding[soft])
    slope = np.concatenate([g, np.zeros(len(soft))])
    matrix = np.concatenate([rows, np.zeros((len(rows), len(soft)))], axis=1)
    matrix[soft, n + np.arange(len(soft))] = -1
    inverse = np.linalg.inv(np.linalg.cholesky(wide))
    centre = -inverse.T @ (inverse @ slope)
    distance = -matrix @ inverse.T
    far = -(limits - matrix @ centre)
    system = np.concatenate([distance.T, far[None]])
    wanted = np.zeros(n + len(soft) + 1)
    wanted[-1] = 1
    dual, _ = nnls(system, wanted, maxiter=5000)
    rest = system @ dual - wanted
    return (centre + inverse.T @ (-rest[:-1] / rest[-1]))[:n]
