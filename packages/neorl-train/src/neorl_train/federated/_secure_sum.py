"""Sums of which the server sees only the total: pairwise masks that cancel, on whole numbers."""

import functools
import hashlib
import secrets
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, UInt32

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
"""Sums of whole numbers must stay below this many bits."""


class Pairings:
    """The secrets that one site shares with every other, by Diffie and Hellman's exchange.

    Every site publishes ``2^x`` modulo a known prime; of ``2^(xy)``, which only two sites can work
    out, each takes a digest as the secret of the pair. The server sees the public numbers alone.

    Args:
        site: Name of the site.
        private: Its private number; drawn from the operating system by default.
    """

    def __init__(self, site: str, private: int | None = None) -> None:
        self.site = site
        self._private = secrets.randbits(512) if private is None else private
        self._shared: dict[str, bytes] = {}

    @property
    def public(self) -> int:
        """The public number of the site."""
        return pow(GENERATOR, self._private, PRIME)

    def meet(self, published: Mapping[str, int]) -> None:
        """Works out the secret of every pair from what the others published.

        Raises:
            ValueError: If a number is none of the group, which would give the secret away.
        """
        for name, number in published.items():
            if name == self.site:
                continue
            if not 1 < number < PRIME - 1:
                raise ValueError(f"site {name} published a number outside the group")
            shared = pow(number, self._private, PRIME)
            self._shared[name] = hashlib.sha256(shared.to_bytes(256, "big")).digest()

    def mask(
        self, present: Sequence[str], round_: int, attempt: int, size: int
    ) -> UInt32[np.ndarray, " parameter"]:
        """The mask of this site, which cancels in the sum over all sites that are present.

        The site with the earlier name adds the stream of the pair, the other one takes it off,
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
    """Multiples of an update's smallest step in one: so many that no sum overflows.

    Args:
        largest: Largest magnitude of a coordinate of any site's term.
        sites: Number of terms.
    """
    return float(2.0 ** np.floor(np.log2((2**RANGE_BITS - 1) / (largest * sites))))


def as_whole(
    term: Float[np.ndarray, " parameter"], *, largest: float, scale: float
) -> UInt32[np.ndarray, " parameter"]:
    """A term of the sum as whole numbers modulo ``2^32``, cut towards zero.

    Cutting towards zero makes no vector longer, so that a clipped one stays clipped. Coordinates
    beyond ``largest`` are cut to it; a term with a number that is not finite becomes zero.

    Args:
        term: Float array.
        largest: Largest magnitude of a coordinate.
        scale: Result of :func:`scale_of`.
    """
    term = np.asarray(term, np.float64)
    if not np.isfinite(term).all():
        term = np.zeros_like(term)
    whole = np.trunc(np.clip(term, -largest, largest) * scale).astype(np.int64)
    return (whole % 2**32).astype(np.uint32)


def as_floats(
    total: UInt32[np.ndarray, " parameter"], *, scale: float
) -> Float[np.ndarray, " parameter"]:
    """The sum that whole numbers modulo ``2^32`` stand for."""
    return (total.astype(np.int32).astype(np.float64) / scale).astype(np.float32)


def summed(
    terms: Sequence[UInt32[np.ndarray, " parameter"]],
) -> UInt32[np.ndarray, " parameter"]:
    """Their sum modulo ``2^32``."""
    return functools.reduce(np.add, terms)
