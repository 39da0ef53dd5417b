"""The error of a plant model where the log shows the truth."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from neorl_core import Policy


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
