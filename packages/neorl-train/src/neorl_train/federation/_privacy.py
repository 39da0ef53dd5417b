"""Privacy of a federation: the epsilon of rounds with noise, and sums that hide their terms."""

import functools
import hashlib
import math
import secrets
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, UInt32
from scipy.optimize import brentq
from scipy.special import gammaln, log_ndtr, logsumexp, ndtri

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
    return _sampled_epsilon(rounds, noise_multiplier, participation, delta)


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


def _sampled_epsilon(
    rounds: int, noise_multiplier: float, participation: float, delta: float
) -> float:
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


PRIME = int(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD"
    "EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED"
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F"
    "83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B"
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510"
    "15728E5A8AACAA68FFFFFFFFFFFFFFFF",
    16,
)  # fmt: skip
"""The prime of the 2048-bit group of RFC 3526, section 3; its generator is 2."""
GENERATOR = 2
RANGE_BITS = 31
"""Sums of integers must stay below this many bits."""


class Pairings:
    """The secrets that one site shares with every other, by the Diffie-Hellman exchange.

    Every site publishes ``2^x`` modulo a known prime; each pair takes a digest of ``2^(xy)``, which
    only these two sites can compute, as its secret. The server sees only the public numbers.

    Args:
        site: Name of the site.
        private: Its private number; generated by the operating system by default.
    """

    def __init__(self, site: str, private: int | None = None) -> None:
        self.site = site
        self._private = secrets.randbits(512) if private is None else private
        self._shared: dict[str, bytes] = {}

    @property
    def public(self) -> int:
        """The public number of the site."""
        return pow(GENERATOR, self._private, PRIME)

    def exchange_keys(self, published: Mapping[str, int]) -> None:
        """Computes the secret of every pair from the numbers that the others published.

        Raises:
            ValueError: If a number is not in the group, which would reveal the secret.
        """
        for name, number in published.items():
            if name == self.site:
                continue
            if not 1 < number < PRIME - 1:
                raise ValueError(f"site {name} published a public key outside the group")
            shared = pow(number, self._private, PRIME)
            self._shared[name] = hashlib.sha256(shared.to_bytes(256, "big")).digest()

    def mask(
        self, present: Sequence[str], round_: int, attempt: int, size: int
    ) -> UInt32[np.ndarray, " parameter"]:
        """The mask of this site, which cancels in the sum over all present sites.

        The site with the earlier name adds the pair's stream, and the other one subtracts it,
        modulo ``2^32``. The stream is SHAKE-256 of the secret, the round and the attempt.
        """
        mask = np.zeros(size, np.uint32)
        for name in present:
            if name == self.site:
                continue
            text = f"{round_}/{attempt}".encode()
            stream = hashlib.shake_256(self._shared[name] + text).digest(4 * size)
            numbers = np.frombuffer(stream, "<u4").astype(np.uint32)
            mask = mask + numbers if self.site < name else mask - numbers
        return mask


def scale_of(largest: float, sites: int) -> float:
    """Integer steps per unit: as many as possible without any sum overflowing.

    Args:
        largest: Largest magnitude of a coordinate of any site's term.
        sites: Number of terms.
    """
    return float(2.0 ** np.floor(np.log2((2**RANGE_BITS - 1) / (largest * sites))))


def as_whole(
    term: Float[np.ndarray, " parameter"], *, largest: float, scale: float
) -> UInt32[np.ndarray, " parameter"]:
    """A term of the sum as integers modulo ``2^32``, rounded towards zero.

    Rounding towards zero makes no vector longer, so a clipped one stays clipped. Coordinates beyond
    ``largest`` are cut to it; a term with a non-finite number becomes zero.

    ``scale`` is the result of :func:`scale_of`.
    """
    term = np.asarray(term, np.float64)
    if not np.isfinite(term).all():
        term = np.zeros_like(term)
    whole = np.trunc(np.clip(term, -largest, largest) * scale).astype(np.int64)
    return (whole % 2**32).astype(np.uint32)


NOISE_TAIL = 8.0
"""Standard deviations of noise for which a sum has room."""


def noise_share(
    secret: bytes, round_: int, size: int, *, deviation: float
) -> UInt32[np.ndarray, " parameter"]:
    """One site's share of the noise of a round, as integers modulo ``2^32``.

    The shares of ``h`` sites are independent, so with a deviation of ``s C / sqrt(h)`` each, their
    sum has that of the Gaussian mechanism, ``s C``. Rounding a share to an integer changes its
    distribution by a relative ``1 / (24 deviation^2)`` at most near its centre.

    Args:
        secret: Random bytes that only this site knows; anyone who has them can remove the share.
        round_: Number of the round.
        size: Number of coordinates.
        deviation: Standard deviation in integer steps.

    Source: Dwork et al., Our data, ourselves: privacy via distributed noise generation, EUROCRYPT
    2006; Kairouz, Liu and Steinke, The distributed discrete Gaussian mechanism for federated
    learning with secure aggregation, arXiv 2102.06387.
    """
    stream = hashlib.shake_256(secret + f"/noise/{round_}".encode()).digest(8 * size)
    uniform = ((np.frombuffer(stream, "<u8") >> np.uint64(11)) + 0.5) / 2.0**53
    whole = np.rint(deviation * ndtri(uniform)).astype(np.int64)
    return (whole % 2**32).astype(np.uint32)


def as_floats(
    total: UInt32[np.ndarray, " parameter"], *, scale: float
) -> Float[np.ndarray, " parameter"]:
    """The sum that integers modulo ``2^32`` represent."""
    return (total.astype(np.int32).astype(np.float64) / scale).astype(np.float32)


def sum_of_terms(
    terms: Sequence[UInt32[np.ndarray, " parameter"]],
) -> UInt32[np.ndarray, " parameter"]:
    """The sum of the terms modulo ``2^32``."""
    return functools.reduce(np.add, terms)
