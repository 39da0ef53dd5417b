"""Processes that the rows of a loop leave plausible, by how well they predict them."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln

from neorl_agents.loops._identification import (
    INTEGRATES,
    MOST_DELAY,
    REACH,
    SHORTEST,
    Lags,
    Moments,
    centred,
    error_of,
    error_weights,
    profiled_errors,
    refined,
)

SEED = 0
DRAWS = 150
"""Processes of each order in each generation."""
GENERATIONS = 4
TAIL = 4.0
"""Degrees of freedom of the distribution that they are drawn from."""
WIDE = 2.0
"""Its first covariance, as a multiple of that by the curvature of the error."""
WIDEST = np.array([np.inf, 1.0, 10.0])
"""Largest standard deviations of it in gain, logarithm of the lag and delay."""
FEW = 25.0
"""Effectively independent draws below which the spread of a generation is not believed."""


class Plausible(NamedTuple):
    """Weighted processes.

    Attributes:
        first: The process with the least error, of the order that is more probable.
        numbers: Gain, lag, second lag and delay of each process, scaled as the rows are, shape
            ``(process, 4)``.
        weights: Their probabilities.
        second: Probability that there is a second lag.
    """

    first: Lags
    numbers: Float[np.ndarray, "process 4"]
    weights: Float[np.ndarray, " process"]
    second: float

    def members(self, count: int) -> Float[np.ndarray, "member 4"]:
        """Some processes, drawn evenly by their probabilities."""
        places = (np.arange(count) + 0.5) / count
        order = np.lexsort((self.numbers[:, 0], self.numbers[:, 2] > 0))
        found = np.searchsorted(np.cumsum(self.weights[order]), places)
        return self.numbers[order[np.minimum(found, len(order) - 1)]]


def plausible(data: Moments, start: Lags) -> Plausible:
    """Draws processes with one lag and with two by the likelihood of the rows.

    For every process the noise is the best one, so that what the feedback makes of noise is not
    held against it. The orders are equally probable before the rows are seen; what decides between
    them is how well each predicts rows one by one that it has not seen yet, on average over its
    processes. Gains, logarithms of lags, ratios of the lags and delays are equally probable before;
    of a slow process slopes are, in place of gains. Draws come from a Student distribution that is
    fitted to the weighted draws of the generations before.

    Args:
        data: Moments of the rows.
        start: A guess of the process with one lag.

    Source: Cappe, Guillin, Marin and Robert, Population Monte Carlo, J. Comput. Graph. Stat. 13
    (2004) 907; the power of the likelihood: Pauli, Racugno and Ventura, Bayesian composite marginal
    likelihoods, Statistica Sinica 21 (2011) 149; orders: Dawid, Present position and potential
    developments, J. R. Stat. Soc. A 147 (1984) 278.
    """
    covariance, rows = centred(data, np.ones(len(data.rows)))
    one, slope = refined(covariance, start._replace(second=0.0))
    two, _ = refined(covariance, one._replace(second=0.3 * one.lag))
    spread, sharpness = _spread(data, covariance, rows, one, slope)
    rng = np.random.default_rng(SEED)
    # In place of lag and delay their sums with the second lag, which it changes least.
    middle = np.array([one.gain, np.log(one.lag), one.delay])
    middles = [middle, np.append(middle, 0.5)]
    wide = np.zeros((4, 4))
    wide[:3, :3], wide[3, 3] = 2 * spread, 0.3**2
    spreads = [spread, wide]
    best = max(min(one.error, two.error), 1e-12)
    drawn: list[list[np.ndarray]] = [[], []]
    logs: list[list[np.ndarray]] = [[], []]
    for _ in range(GENERATIONS):
        for order in (0, 1):
            draws, density = _student(rng, middles[order], WIDE * spreads[order], DRAWS)
            numbers = _numbers(draws)
            allowed = _allowed(numbers, draws)
            logs[order].append(np.full(DRAWS, -np.inf))
            drawn[order].append(draws)
            if allowed.any():
                errors = profiled_errors(covariance, numbers[allowed])
                likelihood = -sharpness * rows / 2 * np.log(errors / best)
                prior = -np.log(numbers[allowed, 1] + REACH)
                logs[order][-1][allowed] = likelihood + prior - density[allowed]
            middles[order], spreads[order] = _fitted(
                np.concatenate(drawn[order]), np.concatenate(logs[order]),
                middles[order], spreads[order],
            )  # fmt: skip
    both = [np.concatenate(every) for every in logs]
    top = max(float(every.max()) for every in both)
    if not np.isfinite(top):  # A corner of the range: what fits best is all that there is.
        alone = np.array([[one.gain, one.lag, 0.0, one.delay]])
        return Plausible(one, alone, np.ones(1), 0.0)
    masses = [float(np.mean(np.exp(every - top))) for every in both]
    numbers = np.concatenate([_numbers(np.concatenate(every)) for every in drawn])
    weights = np.exp(np.concatenate(both) - top)
    second = masses[1] / sum(masses)
    first = two if second > 0.5 else one
    return Plausible(first, numbers, weights / weights.sum(), second)


def _spread(
    data: Moments, covariance: np.ndarray, rows: float, model: Lags, slope: np.ndarray
) -> tuple[np.ndarray, float]:
    """Covariance of gain, logarithm of the lag and delay, and the power of the likelihood."""
    information = rows * slope.T @ covariance @ slope
    information += 1e-9 * np.diag(np.diag(information) + 1e-9)
    inverse = np.linalg.inv(information)
    weights = error_weights(model)
    mean = data.products.sum(axis=0)[-1, :-1] / rows
    scores = []
    for products, count in zip(data.products, data.rows, strict=True):
        across = np.outer(products[-1, :-1], mean)
        block = products[:-1, :-1] - across - across.T + count * np.outer(mean, mean)
        scores.append(slope.T @ (block @ weights))
    seen = (inverse @ (np.stack(scores).T @ np.stack(scores)) @ inverse)[:3, :3]
    error = max(error_of(covariance, model), 1e-12)
    spread = error * inverse[:3, :3]
    ratio = float(np.trace(np.linalg.solve(spread, seen))) / 3
    sharpness = 1 / max(ratio, 1.0)
    # A lag that the rows do not show has no curvature, and draws would miss its range.
    shrink = np.minimum(1.0, WIDEST / np.sqrt(np.diag(spread)))
    return spread * np.outer(shrink, shrink) / sharpness, sharpness


def _numbers(draws: np.ndarray) -> Float[np.ndarray, "process 4"]:
    """Gain, lag, second lag and delay of draws of gain, sum of the lags, and late delay."""
    ratio = draws[:, 3] if draws.shape[1] == 4 else np.zeros(len(draws))
    with np.errstate(all="ignore"):
        lag = np.exp(np.clip(draws[:, 1], -50, 50)) / np.maximum(1 + ratio, 1e-3)
    return np.stack([draws[:, 0], lag, ratio * lag, draws[:, 2] - ratio * lag], axis=1)


def _allowed(numbers: np.ndarray, draws: np.ndarray) -> np.ndarray:
    inside = (numbers[:, 1] >= SHORTEST) & (numbers[:, 1] <= INTEGRATES)
    inside &= (numbers[:, 3] >= 0) & (numbers[:, 3] <= MOST_DELAY)
    return inside & (draws[:, 3] >= 0.0) & (draws[:, 3] <= 1) if draws.shape[1] == 4 else inside


def _student(
    rng: np.random.Generator, middle: np.ndarray, spread: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws and the logarithms of their densities, up to what two orders have in common."""
    size = len(middle)
    root = np.linalg.cholesky(spread + 1e-12 * np.diag(np.diag(spread) + 1e-12))
    normal = rng.standard_normal((count, size))
    scale = rng.chisquare(TAIL, count) / TAIL
    draws = middle + normal @ root.T / np.sqrt(scale)[:, None]
    distance = np.sum(normal**2, axis=1) / scale
    constant = (
        gammaln((TAIL + size) / 2) - gammaln(TAIL / 2)
        - size / 2 * np.log(TAIL * np.pi) - np.sum(np.log(np.diag(root)))
    )  # fmt: skip
    return draws, constant - (TAIL + size) / 2 * np.log1p(distance / TAIL)


def _fitted(
    draws: np.ndarray, logs: np.ndarray, middle: np.ndarray, spread: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of weighted draws; with few that count, between these and the old."""
    if not np.isfinite(logs).any():
        return middle, spread / 2
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    effective = 1 / float(np.sum(weights**2))
    new = weights @ draws
    apart = draws - new
    seen = (weights[:, None] * apart).T @ apart
    trust = min(effective / FEW, 1.0)
    return new, trust * seen + (1 - trust) * spread
