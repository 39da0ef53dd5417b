"""Privacy loss of a federation with noise: the epsilon of all its rounds."""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, log_ndtr, logsumexp

from neorl_core import InputError

ORDERS = np.arange(2, 513)
"""Orders of the Renyi divergence that are tried if sites are sampled."""


def epsilon(*, rounds: int, noise_multiplier: float, participation: float, delta: float) -> float:
    """The epsilon of a number of rounds at a given delta.

    Whether one site takes part at all changes the probability of any outcome by at most a factor of
    ``exp(epsilon)``, except with probability ``delta``. Each round is the Gaussian mechanism on a
    sum that one site changes by at most the clipping length ``C``, with noise of standard deviation
    ``noise_multiplier C``.

    If all sites take part in all rounds, these are one Gaussian mechanism with
    ``mu = sqrt(rounds) / noise_multiplier``, whose epsilon solves
    ``Phi(mu / 2 - epsilon / mu) - exp(epsilon) Phi(-mu / 2 - epsilon / mu) = delta`` exactly. If
    each takes part with probability ``q``, the Renyi divergences of integer orders ``a`` add up
    over rounds, each
    ``log(sum_k binom(a, k) (1 - q)^(a - k) q^k exp((k^2 - k) / (2 sigma^2))) / (a - 1)``,
    and the smallest bound over all orders is used.

    Args:
        rounds: Number of completed rounds.
        noise_multiplier: Standard deviation of the noise in multiples of the clipping length,
            positive.
        participation: Probability that a site takes part in a round, in (0, 1].
        delta: Delta in (0, 1).

    Returns:
        The epsilon; zero if there are no rounds.

    Raises:
        InputError: If a number is out of range.

    Example:
        >>> round(epsilon(rounds=1, noise_multiplier=3.730632, participation=1.0, delta=1e-5), 4)
        1.0

    Source: Balle and Wang, Improving the Gaussian mechanism for differential privacy, ICML 2018,
    theorem 8; Mironov, Talwar and Zhang, Renyi differential privacy of the sampled Gaussian
    mechanism, arXiv 1908.10530, equation 3; Canonne, Kamath and Steinke, The discrete Gaussian for
    differential privacy, arXiv 2004.00010, proposition 12.
    """
    for name, value, good in (
        ("rounds", rounds, rounds >= 0),
        ("noise_multiplier", noise_multiplier, 0 < noise_multiplier < math.inf),
        ("participation", participation, 0 < participation <= 1),
        ("delta", delta, 0 < delta < 1),
    ):
        if not good:
            raise InputError(
                f"epsilon cannot be computed for {name} = {value}; choose a value in "
                "its documented range"
            )
    if rounds == 0:
        return 0.0
    if participation == 1:
        return _exact(math.sqrt(rounds) / noise_multiplier, delta)
    return _sampled(rounds, noise_multiplier, participation, delta)


def _exact(mu: float, delta: float) -> float:
    """Epsilon of one Gaussian mechanism whose sensitivity is ``mu`` standard deviations."""

    def excess(value: float) -> float:
        first = float(log_ndtr(mu / 2 - value / mu))
        second = value + float(log_ndtr(-mu / 2 - value / mu))
        # The second term is smaller; if rounding makes them equal, the difference is zero.
        return (
            first + math.log(max(-math.expm1(min(second - first, 0.0)), 1e-300)) - math.log(delta)
        )

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
    return float(brentq(excess, 0.0, high, xtol=1e-10))  # pyright: ignore[reportArgumentType]


def _sampled(rounds: int, noise_multiplier: float, participation: float, delta: float) -> float:
    best = math.inf
    for order in ORDERS:
        k = np.arange(order + 1)
        chosen = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
        terms = chosen + (order - k) * math.log1p(-participation) + k * math.log(participation)
        total: float = logsumexp(terms + (k**2 - k) / (2 * noise_multiplier**2))  # pyright: ignore
        divergence = total / (order - 1)
        bound = rounds * divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
        best = min(best, float(bound))
    return max(best, 0.0)
