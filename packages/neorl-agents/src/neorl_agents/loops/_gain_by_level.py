"""Whether the gain of a process depends on its operating point, as of a pH or a curved valve."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import f as variance_ratio
from scipy.stats import t as student

from neorl_agents.loops._identification import (
    MEMORY,
    Lags,
    Moments,
    delayed,
    responses,
    scaled_rows,
)
from neorl_agents.loops._record import LoopRecord

QUANTILES = (0.1, 0.5, 0.9)
"""Shares of the rows below the levels at which gains are told apart."""
BLOCKS = 32
"""Blocks of rows from which the errors of the gains are taken."""
CHANCE = 1e-4
"""Probability of a dependence in a linear process above which none is said."""
WORTH = 1.2
"""Ratio of the gains below which a proposal's own reserve suffices."""
MOST = 8.0
"""Largest ratio that one set of gains is asked to cover."""
UNMOVED = 1e-3
"""Size of what the output moves at a level, as a share of that at another, that says nothing."""
COVERAGE = 0.95
"""Probability below the upper end of each gain."""


class GainByLevel(NamedTuple):
    """Gains of a process at three levels of its measurement or of its output.

    Between two levels the gain changes linearly, beyond them it does not change.

    Attributes:
        of: ``"measurement"`` or ``"output"``.
        levels: The 10 %, 50 % and 90 % quantiles of its rows, in its unit.
        gains: The gains there, as shares of the gain of the linear model.
        low: Lower ends of these, each with 5 % below it.
        high: Upper ends.
        chance: Probability of gains that differ as much if the process is linear.
    """

    of: str
    levels: tuple[float, ...]
    gains: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    chance: float

    @property
    def ratio(self) -> float:
        """Upper end of the largest gain over the lower end of the smallest; infinite beyond 0."""
        low = min(self.low)
        return max(self.high) / low if low > 0 else np.inf


def gain_by_level(record: LoopRecord, data: Moments, model: Lags) -> GainByLevel | None:
    """Tells apart the gains at low, middle and high levels; none if one gain does for all.

    With ``x`` the answer of the model to the output at unit gain and ``A`` the filter that whitens
    what the model does not explain, the rows are fitted by ``A y = sum_j k_j phi_j(level) A x + e``
    with hat functions ``phi_j`` of the measurement one row before. For the output, which may pass a
    valve of curved characteristic, ``phi_j`` acts on its moves before the process answers. Lags,
    dead time and ``A`` may change along, to first order. The errors of ``k`` come from sums of the
    scores over blocks, so that neither noise that grows with the level nor what is left of
    autocorrelation counts as a dependence; of both levels the less probable one is said.

    Args:
        record: The rows of the fit.
        data: Their moments.
        model: The linear model of least error, scaled as the moments are.

    Source: Chen and Tsay, Functional-coefficient autoregressive models, J. Am. Stat. Assoc. 88
    (1993) 298; errors from blocks: Bester, Conley and Hansen, Inference with dependent data using
    cluster covariance estimators, J. Econometrics 165 (2011) 137.
    """
    y, u, now = scaled_rows(record.measurement, record.output, record.segment, data.scale)
    whitening = np.append(1.0, -model.noise)

    def whitened(series: np.ndarray) -> np.ndarray:
        return np.convolve(series, whitening)[now + 1]

    def answer(series: np.ndarray, response: np.ndarray) -> np.ndarray:
        return np.append(0.0, np.convolve(series, response)[: len(series) - 1])

    unit = delayed(model)
    x = answer(u, unit)
    rest = y - model.gain * x
    near = [(model.lag * 1.001, model.second, model.delay),
            (model.lag, model.second, model.delay + 0.05)]  # fmt: skip
    if model.second > 0:
        near.append((model.lag, model.second * 1.001, model.delay))
    beside = [rest[now - row] for row in range(MEMORY)] + [np.ones(len(now))]
    beside += [whitened(answer(u, responses(*one)[0] - unit)) for one in near]
    found = []
    for of, series in (("measurement", y), ("output", u)):
        at = np.quantile(series[now], QUANTILES)
        if np.diff(at).min() < 1e-3:
            continue  # It rests at one level, such as a limit.
        if of == "measurement":
            columns = list(_hats(series[now], at) * whitened(x))
        else:
            columns = [whitened(answer(moves, unit)) for moves in _ramps(series, at)]
        sizes = np.linalg.norm(columns, axis=1)
        if sizes.min() <= UNMOVED * sizes.max():
            continue
        gains, covariance = _regression(columns, beside, whitened(y))
        scale = data.scale[0 if of == "measurement" else 1]
        mean = float(np.nanmean(record.measurement if of == "measurement" else record.output))
        found.append(_judged(of, at * scale + mean, gains, covariance, model.gain))
    found = [one for one in found if one.chance < CHANCE]
    if not found:
        return None
    best = min(found, key=lambda one: one.chance)
    gains = np.asarray(best.gains)
    return best if gains.min() <= 0 or gains.max() / gains.min() >= WORTH else None


def _hats(level: np.ndarray, at: np.ndarray) -> Float[np.ndarray, "level time"]:
    """Functions that are one at their own level, zero at the others, and flat beyond the ends."""
    return np.stack([np.interp(level, at, own) for own in np.eye(len(at))])


def _ramps(level: np.ndarray, at: np.ndarray) -> Float[np.ndarray, "level time"]:
    """Integrals of the hat functions over the level, from the lowest one."""
    steps = np.diff(at)
    inside = np.clip(level[None] - at[:-1, None], 0.0, steps[:, None])
    falling = inside - inside**2 / (2 * steps[:, None])
    rising = inside**2 / (2 * steps[:, None])
    ramps = np.zeros((len(at), len(level)))
    ramps[:-1] += falling
    ramps[1:] += rising
    ramps[0] += np.minimum(level - at[0], 0.0)
    ramps[-1] += np.maximum(level - at[-1], 0.0)
    return ramps


def _regression(
    columns: list[np.ndarray], beside: list[np.ndarray], target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients of the first columns, and their covariance from sums over blocks."""
    regressors = np.stack([*columns, *beside], axis=1)
    sizes = np.linalg.norm(regressors, axis=0) + 1e-12
    regressors /= sizes
    inverse = np.linalg.inv(regressors.T @ regressors + 1e-9 * np.eye(len(sizes)))
    weights = inverse @ (regressors.T @ target)
    scores = regressors * (target - regressors @ weights)[:, None]
    sums = np.stack([block.sum(axis=0) for block in np.array_split(scores, BLOCKS)])
    inverse = (inverse / sizes[:, None])[: len(columns)]
    covariance = BLOCKS / (BLOCKS - 1) * inverse @ (sums.T @ sums) @ inverse.T
    return (weights / sizes)[: len(columns)], covariance


def _judged(
    of: str, levels: np.ndarray, gains: np.ndarray, covariance: np.ndarray, gain: float
) -> GainByLevel:
    """The gains as shares, with their ends, and how probable they are in a linear process."""
    apart = np.diff(np.eye(len(gains)), axis=0)
    between = apart @ gains
    distance = float(between @ np.linalg.solve(apart @ covariance @ apart.T, between))
    # Hotelling: a squared distance by a covariance from few blocks.
    free, size = BLOCKS - 1, len(between)
    chance = float(
        variance_ratio.sf(distance * (free - size + 1) / (free * size), size, free - size + 1)
    )
    width = student.ppf(COVERAGE, free) * np.sqrt(np.diag(covariance)) / abs(gain)
    shares = gains / gain
    numbers = (levels, shares, shares - width, shares + width)
    at, gains_there, low, high = (tuple(map(float, one)) for one in numbers)
    return GainByLevel(of, at, gains_there, low, high, chance)
