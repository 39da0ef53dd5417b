"""The error of a plant model where the log shows the truth."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from neorl_agents.retuning._choice import ChoiceRule
from neorl_core import Policy

SURE = 1.96
"""Standard errors by which an error is reduced before it counts."""
DEFAULT_RULE = ChoiceRule()


class OtherController(NamedTuple):
    """Another controller that recorded a part of the log.

    Attributes:
        policy: The controller.
        recorded: Whether it and its operators recorded each evaluation episode, shape
            ``(episode,)``.
    """

    policy: Policy
    recorded: Bool[np.ndarray, " episode"]


class IncumbentEpisodes(NamedTuple):
    """Logged episodes of the incumbent, and of the other controllers of the log.

    Attributes:
        logged: Logged return of every evaluation episode, shape ``(episode,)``.
        by_incumbent: Whether the incumbent and its operators recorded the episode, shape
            ``(episode,)``.
        others: The other controllers; empty if they are not known.
    """

    logged: Float[np.ndarray, " episode"]
    by_incumbent: Bool[np.ndarray, " episode"]
    others: tuple[OtherController, ...] = ()


class ModeOutcome(NamedTuple):
    """Mean return and costs of a mode, without its operators, as the log shows them.

    Attributes:
        logged: Mean of its logged episodes, shape ``(1 + cost,)``: the return, then of every cost
            the quantity that its limit bounds.
        expected: The same if the controller alone acts: its replay in its own held-out episodes, in
            a model that was fitted to others of its episodes. Where no operator intervenes, this
            replay repeats the log.
        error: One standard error of ``expected``.
        episodes: Number of its logged episodes.
        replayed: Number of its episodes that were replayed.
    """

    logged: Float[np.ndarray, " outcome"]
    expected: Float[np.ndarray, " outcome"]
    error: Float[np.ndarray, " outcome"]
    episodes: int
    replayed: int


class HeldOutMode(NamedTuple):
    """A mode as a model predicts it that was fitted without its episodes.

    Attributes:
        name: Name of the controller.
        outcome: What the log shows of it.
        predicted: Mean return and costs that the model predicts, shape ``(1 + cost,)``.
        chance: One standard error of ``predicted - outcome.expected``: the draw of the episodes.
        spread: Largest minus smallest expected mean of all modes, shape ``(1 + cost,)``.
        episodes: Number of episodes of the other modes in which it was replayed.
        outside: Mean distance from the data of the others, in standard deviations per step.
        outside_incumbent: The same of the controller that runs today; zero if it is not known.
    """

    name: str
    outcome: ModeOutcome
    predicted: Float[np.ndarray, " outcome"]
    chance: Float[np.ndarray, " outcome"]
    spread: Float[np.ndarray, " outcome"]
    episodes: int
    outside: float
    outside_incumbent: float = 0.0

    @property
    def error(self) -> Float[np.ndarray, " outcome"]:
        """Distance of the prediction from what the log shows; infinite if it diverged."""
        distance = np.abs(self.predicted - self.outcome.expected)
        return np.where(np.isfinite(distance), distance, np.inf)

    @property
    def sure_error(self) -> Float[np.ndarray, " outcome"]:
        """The error less 1.96 standard errors, which the draw of the episodes explains."""
        return np.maximum(self.error - SURE * self.chance, 0.0)

    @property
    def share(self) -> float:
        """``sure_error`` of the return, as a fraction of the difference between the modes."""
        return float(self.sure_error[0] / self.spread[0]) if self.spread[0] > 0 else math.inf

    def is_refused(self, rule: ChoiceRule) -> bool:
        """Whether it leaves the data so far that the rule would not choose it, if it were new."""
        return self.outside > rule.farthest(self.outside_incumbent)

    def is_uncertain(self, rule: ChoiceRule) -> bool:
        """Whether a forbidden error would not be noticed, and none is sure."""
        noticed = self.chance[0] <= rule.held_out * self.spread[0]
        return not (noticed or self.share > rule.held_out)


def judging_modes(
    held_out: Sequence[HeldOutMode], rule: ChoiceRule = DEFAULT_RULE
) -> tuple[HeldOutMode, ...]:
    """The modes whose error counts against the model, the largest share first.

    A prediction that the rule refuses anyway, because the mode leaves the data of the others, is
    never used. Where the modes differ little beside chance, only a sure error counts.

    Args:
        held_out: Modes that were left out of the fit.
        rule: Conditions for preferring a candidate.
    """
    telling = [one for one in held_out if not (one.is_refused(rule) or one.is_uncertain(rule))]
    return tuple(sorted(telling, key=lambda one: -one.share))


def model_error(
    returns: Float[np.ndarray, "member episode"],
    others: Sequence[Float[np.ndarray, "member episode"]],
    log: IncumbentEpisodes,
) -> float:
    """Error of the model on logged episodes, in the unit of the return.

    This is the largest of several errors. The first is that of the incumbent's mean return in its
    own logged episodes. The others compare, for every other controller of the log, its predicted
    gain over the incumbent in the incumbent's episodes with that in its own. In its own episodes a
    controller repeats the log; in those of the other, the model must extrapolate between them. With
    a correct model both gains agree up to chance, for which one standard error is subtracted.

    Args:
        returns: Predicted returns of the incumbent; the linear part as last member.
        others: Predicted returns of the other controllers, in the order of ``log.others``.
        log: Logged returns, and which controller recorded each episode.

    Returns:
        The error; zero if the log has no episode of the incumbent.
    """
    if not log.by_incumbent.any():
        return 0.0
    errors = [
        abs(
            float(returns[:-1, log.by_incumbent].mean())
            - float(log.logged[log.by_incumbent].mean())
        )
    ]
    for one, other_returns in zip(log.others, others, strict=True):
        groups = [
            (other_returns - returns)[:-1].mean(axis=0)[recorded]
            for recorded in (log.by_incumbent, one.recorded)
        ]
        if min(len(group) for group in groups) > 1:
            sampling_error = np.sqrt(sum(group.var(ddof=1) / len(group) for group in groups))
            errors.append(abs(float(groups[0].mean() - groups[1].mean())) - float(sampling_error))
    return max(errors)
