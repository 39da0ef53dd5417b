"""Whether a plant model learned from a log reproduces the controller that runs today."""

import math
from typing import NamedTuple

from neorl_train.judging._wording import quantity

MAX_REPLAY_ERROR = 0.25
"""Largest error of the incumbent's predicted return, in spreads of returns in the log."""


class ReplayCheck(NamedTuple):
    """Whether a plant model reproduces the incumbent: a clause of a run, a check of a model.

    Attributes:
        incumbent: Name of the controller that runs today.
        replayed: Mean return that the model predicts for it.
        logged: Mean logged return in the same episodes.
        scale: Spread of returns in the log.
        unit: Unit of the return.
    """

    incumbent: str
    replayed: float
    logged: float
    scale: float
    unit: str

    @property
    def error(self) -> float:
        """Distance between the two returns."""
        return abs(self.replayed - self.logged)

    @property
    def allowed(self) -> float:
        """Largest error of a model that may be used."""
        return MAX_REPLAY_ERROR * self.scale

    @property
    def holds(self) -> bool:
        """Whether the model may be used; false if it diverged."""
        return bool(self.error <= self.allowed)

    @property
    def sentence(self) -> str:
        """The result, with units."""
        if not math.isfinite(self.replayed):
            return (
                f"the model diverges when {self.incumbent} acts in it, so it does not reproduce "
                "the log"
            )
        return (
            f"the model predicts a return of {quantity(self.replayed, self.unit)} for "
            f"{self.incumbent} and the log shows {quantity(self.logged, self.unit)}; the "
            f"difference {'is within' if self.holds else 'exceeds'} the allowed "
            f"{quantity(self.allowed, self.unit)}"
        )
