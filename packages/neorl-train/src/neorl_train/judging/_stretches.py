"""Sections of a log, row by row, with a policy's proposals and the actual actions."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int

BEST, MEDIAN, WORST = "best", "median", "worst"


@dataclasses.dataclass(frozen=True)
class Stretch:
    """At most a day of a log: the actions, a policy's proposals, and the coverage of the log.

    Attributes:
        label: ``"best"``, ``"median"`` or ``"worst"``, by the mean logged reward per step.
        policy: Name of the policy that made the proposals.
        episode: Number of the episode in the log.
        first: Number of its first row within the episode.
        stamp: Time of its first row in seconds since 1970 UTC; NaN if the log has no time stamps.
        held_out: Whether the policy was not trained on the episode.
        reward: Mean logged reward per step.
        channels: Names of the observations to show.
        obs: Their logged values, shape ``(time, channel)``.
        logged: Actions that the plant received, shape ``(time, act)``.
        proposed: Actions that the guarded policy proposed in the logged situations, shape ``(time,
            act)``.
        low: Smallest action of the log in similar situations, shape ``(time, act)``.
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
        """Where actions lie outside the range of the log's actions in similar situations.

        Args:
            action: :attr:`proposed` or :attr:`logged`.
        """
        slack = 1e-6 * (1 + np.abs(self.high) + np.abs(self.low))  # of single precision
        beyond = (action < self.low - slack) | (action > self.high + slack)
        return beyond & self.known[:, None]
