"""The server of a federation: it sees messages alone, and combines what the sites answer."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from neorl_core import DataStatistics, InputError
from neorl_core.federated import private_mean
from neorl_core.statistics import merge_statistics
from neorl_train.federated._compression import decompressed
from neorl_train.federated._messages import Introduction, Update, check_introductions
from neorl_train.federated._parameters import Vector
from neorl_train.federated._rules import combined, limited_shares
from neorl_train.federated._secure_sum import as_floats, scale_of, summed
from neorl_train.federated._settings import ROBUST, Federation, sites_needed

SECRET_WORDS = 4


@jax.jit
def _noisy_mean(changes: Any, words: Any, clip_norm: Any, noise: Any, expected: Any) -> Any:
    """The private mean with a key made of whole numbers."""
    key = jax.random.key(0)
    for i in range(words.shape[0]):
        key = jax.random.fold_in(key, words[i])
    mean = private_mean(
        changes, key, clip_norm=clip_norm, noise_multiplier=noise, expected_clients=expected
    )
    return mean.value


class Coordinator:
    """State of a server: settings, introductions, and in turn the updates of every round.

    Args:
        settings: Settings of the federation, checked.
        introductions: Introductions of all sites.
        seed: Seed of the federation.
        secret: Whole numbers that decide the noise of a federation with privacy and who takes
            part in it; drawn from the operating system by default, for whoever knows them can take
            the noise off. Without privacy the seed decides.

    Raises:
        InputError: If the sites are not of one plant, or a site's numbers cannot be.
    """

    def __init__(
        self,
        settings: Federation,
        introductions: Sequence[Introduction],
        *,
        seed: int,
        secret: np.ndarray | None = None,
    ) -> None:
        check_introductions(list(introductions))
        self.settings, self.seed = settings, seed
        self.names = tuple(one.site for one in introductions)
        self.rows = {one.site: one.rows for one in introductions}
        self._statistics = [one.statistics for one in introductions]
        drawn = [secrets.randbits(32) for _ in range(SECRET_WORDS)]
        self.secret = np.asarray(drawn if secret is None else secret, np.uint32)

    def merged(self) -> DataStatistics | None:
        """Statistics of the rows of all sites together; ``None`` for declared ranges."""
        known = [one for one in self._statistics if one is not None]
        return jax.device_get(merge_statistics(known)) if known else None

    def drawn(self, round_: int) -> list[str]:
        """The sites that take part in a round."""
        chance = self.settings.federation.participation
        if chance >= 1:
            return list(self.names)
        words = self.secret if self.settings.private else [self.seed]
        draws = np.random.default_rng([*map(int, words), round_]).random(len(self.names))
        return [name for name, draw in zip(self.names, draws, strict=True) if draw < chance]

    def reason_to_refuse(self, update: Update, round_: int, size: int) -> str:
        """Why an update cannot enter, in words; empty where it can.

        Args:
            update: Update that a site sent.
            round_: Number of the round.
            size: Number of parameters.
        """
        if update.site not in self.rows:
            return f"no site {update.site} was introduced"
        if update.round != round_:
            return f"it is of round {update.round}"
        if update.rows != self.rows[update.site]:
            return f"it claims {update.rows} rows, and claimed {self.rows[update.site]} before"
        if self.settings.messages.secure_sum:
            return ""
        try:
            self.decoded(update, size)
        except InputError as error:
            return str(error)
        return ""

    def decoded(self, update: Update, size: int) -> Vector:
        """The change that an update holds.

        Raises:
            InputError: If its arrays are of another form.
        """
        messages = self.settings.messages
        return decompressed(
            update.arrays, size=size, bits=messages.bits, fraction=messages.fraction
        )

    def shares(self, names: Sequence[str]) -> tuple[dict[str, float], list[str]]:
        """Weight of every site in a mean, and which claimed more than it may have."""
        federation = self.settings.federation
        by_rows = federation.weights == "rows" and not self.settings.private
        rows = np.asarray([self.rows[name] if by_rows else 1 for name in names], np.float64)
        if not len(rows):
            return {}, []
        shares, cut = limited_shares(rows, federation.largest_share)
        words = [name for name, one in zip(names, cut, strict=True) if one]
        return dict(zip(names, map(float, shares), strict=True)), words

    def enough(self, names: Sequence[str]) -> bool:
        """Whether so many answers are enough for the rule."""
        federation = self.settings.federation
        if self.settings.private:
            return True  # a sum of nobody is noise, and must look like any other
        needed = federation.least_sites
        if federation.rule in ROBUST:
            needed = max(needed, sites_needed(federation.rule, federation.byzantine))
        return len(names) >= needed

    def combine(
        self, round_: int, changes: Mapping[str, Vector], size: int
    ) -> tuple[Vector, list[str]]:
        """The change of the common parameters, and the sites whose numbers were not finite.

        Args:
            round_: Number of the round.
            changes: Change that every site answered with.
            size: Number of parameters.
        """
        names = list(changes)
        if self.settings.private:
            rows = [changes[name] for name in names] or [np.zeros(size, np.float32)]
            return self._private(round_, np.stack(rows)), []
        stacked = np.stack([changes[name] for name in names])
        shares, _ = self.shares(names)
        weights = np.asarray([shares[name] for name in names])
        value, kept = combined(self.settings.federation, stacked, weights)
        lost = [name for name, usable in zip(names, kept, strict=True) if not usable]
        return value, lost

    def _private(self, round_: int, changes: np.ndarray) -> Vector:
        privacy = self.settings.privacy
        expected = self.settings.federation.participation * len(self.names)
        words = np.asarray([*self.secret, round_], np.uint32)
        numbers = (privacy.clip_norm, privacy.noise_multiplier, expected)
        return np.asarray(_noisy_mean(changes, words, *map(np.float32, numbers)))

    def masking(self, names: Sequence[str]) -> tuple[dict[str, float], float, float]:
        """Parameters of a masked sum for the sites: their weights, the largest term, the scale."""
        largest = self.settings.messages.largest
        if self.settings.private:
            clip = self.settings.privacy.clip_norm
            return dict.fromkeys(names, 1.0), clip, scale_of(clip, len(self.names))
        return self.shares(names)[0], largest, scale_of(largest, len(self.names))

    def unmasked(self, round_: int, terms: Sequence[np.ndarray], scale: float) -> Vector:
        """The change of the common parameters from masked terms that sum to it."""
        total = as_floats(summed(list(terms)), scale=scale)
        if not self.settings.private:
            return total
        expected = self.settings.federation.participation * len(self.names)
        return total / np.float32(expected) + self._private(
            round_, np.zeros((1, len(total)), np.float32)
        )
