"""Stretches of a log, row by row, with what a policy proposed beside what was done."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int

BEST, MEDIAN, WORST = "best", "median", "worst"


@dataclasses.dataclass(frozen=True)
class Stretch:
    """At most a day of a log: what was done, what a policy proposed, and what the log covers.

    Attributes:
        label: ``"best"``, ``"median"`` or ``"worst"``, by the mean logged reward of a step.
        policy: Name of the policy that proposed.
        episode: Number of the episode in the log.
        first: Number of its first row within the episode.
        stamp: Time of its first row in seconds since 1970 UTC; NaN where the log has no stamps.
        held_out: Whether the policy was not trained on the episode.
        reward: Mean logged reward of a step.
        channels: Names of the observations that are shown.
        obs: Their logged values, shape ``(time, channel)``.
        logged: Actions that the plant received, shape ``(time, act)``.
        proposed: Actions that the policy behind its guard proposed in the logged situations, shape
            ``(time, act)``.
        low: Least action of the log in similar situations, shape ``(time, act)``.
        high: Largest action of the log in similar situations, shape ``(time, act)``.
        cost: Logged costs, shape ``(time, cost)``.
        flags: Decisions of the guard, bits of ``neorl_safety.filters.Flag``, shape ``(time,)``.
        known: Rows without an unknown value, shape ``(time,)``.
    """

    label: str
    policy: str
    episode: int
    first: int
    stamp: float
    held_out: bool
    reward: float
    channels: tuple[str, ...]
    obs: Float[np.ndarray, "time channel"]
    logged: Float[np.ndarray, "time act"]
    proposed: Float[np.ndarray, "time act"]
    low: Float[np.ndarray, "time act"]
    high: Float[np.ndarray, "time act"]
    cost: Float[np.ndarray, "time cost"]
    flags: Int[np.ndarray, " time"]
    known: Bool[np.ndarray, " time"]

    def outside(self, action: Float[np.ndarray, "time act"]) -> Bool[np.ndarray, "time act"]:
        """Where actions lie outside what the log did in similar situations.

        Args:
            action: :attr:`proposed` or :attr:`logged`.
        """
        slack = 1e-6 * (1 + np.abs(self.high) + np.abs(self.low))  # of single precision
        beyond = (action < self.low - slack) | (action > self.high + slack)
        return beyond & self.known[:, None]
