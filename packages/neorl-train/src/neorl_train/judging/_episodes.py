"""Results of single episodes, and the few episodes that are stored row by row."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from neorl_core import Spec
from neorl_core.costs import limit_kind

SMALLEST = 1e-3
"""Fraction of a channel's range below which a move does not count as a reversal."""
TYPICAL, LOWEST, HARDEST = "typical", "lowest return", "closest to the limits"


@dataclasses.dataclass(frozen=True)
class Episodes:
    """Results of one policy, one entry for each episode.

    Attributes:
        returns: Undiscounted sum of the reward, in the unit of the reward.
        length: Number of steps.
        cost_sum: Sum of every cost over the episode, in the unit of the cost.
        cost_worst: Largest cost of one step.
        steps_over: Steps with a cost above its limit per step, or above zero if the limit is per
            episode.
        violated: Whether the limit was broken, by a step or by the sum over the episode.
        success: Whether the episode ended successfully; ``None`` in a log, which does not record
            it.
        trip: Whether the plant ended the episode without success; ``None`` in a log.
        filtered: Steps in which the guard changed the action while the policy kept acting.
        fallback: Steps in which the fallback acted.
        alarms: Monitors that raised an alarm in any step, one bit each in the order of the guard.
        travel: Total travel of every actuator over the episode, in its unit.
        reversals: Number of times that every actuator reversed.
        terms: Terms of the return, each in its unit; none if none are declared.
    """

    returns: Float[np.ndarray, " episode"]
    length: Int[np.ndarray, " episode"]
    cost_sum: Float[np.ndarray, "episode cost"]
    cost_worst: Float[np.ndarray, "episode cost"]
    steps_over: Int[np.ndarray, "episode cost"]
    violated: Bool[np.ndarray, "episode cost"]
    success: Bool[np.ndarray, " episode"] | None
    trip: Bool[np.ndarray, " episode"] | None
    filtered: Int[np.ndarray, " episode"]
    fallback: Int[np.ndarray, " episode"]
    alarms: Int[np.ndarray, " episode"]
    travel: Float[np.ndarray, "episode act"]
    reversals: Int[np.ndarray, "episode act"]
    terms: Float[np.ndarray, "episode term"]

    @property
    def count(self) -> int:
        """Number of episodes."""
        return len(self.returns)

    def reordered(self, order: Int[np.ndarray, " episode"]) -> "Episodes":
        """The episodes in another order."""
        columns: dict[str, Any] = {
            name: None if column is None else column[order] for name, column in vars(self).items()
        }
        return Episodes(**columns)


def limited(episodes: Episodes, spec: Spec, cost: int) -> np.ndarray:
    """The quantity that the limit of a cost bounds, per episode: largest step, or sum."""
    kind = limit_kind(spec.cost[cost])
    return kind.of_episode(total=episodes.cost_sum, worst=episodes.cost_worst)[:, cost]


@dataclasses.dataclass(frozen=True)
class Trace:
    """One episode, row by row, trimmed to its length; physical units.

    Attributes:
        label: Why it was stored: ``"typical"`` (median return of the candidate), ``"lowest
            return"`` or ``"closest to the limits"``; ``"start 12"`` for one of those between the
            largest loss and the largest gain.
        policy: Name of the policy that acted.
        guarded: Whether it acted through the guard.
        start: Number of the start, which identifies the paired episodes.
        obs: Observations, the first one before the first step, shape ``(time + 1, obs)``.
        action: Requested actions, shape ``(time, act)``.
        applied: Actions that the plant received, shape ``(time, act)``.
        reward: Reward of each step, shape ``(time,)``.
        cost: Costs of each step, shape ``(time, cost)``.
        flags: Decisions of the guard, bits of ``neorl_safety.filters.Flag``, shape ``(time,)``.
    """

    label: str
    policy: str
    guarded: bool
    start: int
    obs: Float[np.ndarray, "time obs"]
    action: Float[np.ndarray, "time act"]
    applied: Float[np.ndarray, "time act"]
    reward: Float[np.ndarray, " time"]
    cost: Float[np.ndarray, "time cost"]
    flags: Int[np.ndarray, " time"]
