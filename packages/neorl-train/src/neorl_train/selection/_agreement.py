"""Whether other estimators contradict the gain that a plant model predicts."""

import dataclasses
import math

import numpy as np

from neorl_agents.retuning import Prediction
from neorl_train.results._wording import number
from neorl_train.selection._value_estimates import LEAST_SIZE, ValueEstimates
from neorl_train.verdicts import OtherEstimate

Z = 1.96
"""Standard errors on top of an estimate for its upper end."""


def other_estimates(
    one: Prediction, mine: ValueEstimates | None, theirs: ValueEstimates | None
) -> tuple[OtherEstimate, ...]:
    """What estimators other than the networks of a plant model say of a candidate's gain.

    Fitted Q evaluation is allowed the error that it makes where the log shows the truth: the
    difference of the fitted values of what runs today to the logged returns. Importance sampling
    says nothing below ten effective episodes, and is then left out.

    Args:
        one: Prediction of the plant model for the candidate.
        mine: Estimates from the log's rows; ``None`` where none was asked for.
        theirs: The same of what runs today.

    Returns:
        One estimate each, with the largest gain that it leaves possible.
    """
    linear = one.by_member[-1]
    others = [
        OtherEstimate("the linear part of the plant model", linear, linear + one.gain - one.low)
    ]
    if mine is None or theirs is None:
        return tuple(others)
    difference = mine.first - theirs.first
    gain = float(difference.mean())
    error = float(difference.std(ddof=1)) / np.sqrt(len(difference))
    others.append(OtherEstimate("fitted Q evaluation", gain, gain + Z * error + theirs.gap))
    if min(mine.effective, theirs.effective) >= LEAST_SIZE:
        for name in ("importance", "doubly_robust"):
            ours, today = getattr(mine, name), getattr(theirs, name)
            words = "importance sampling" if name == "importance" else "the doubly robust estimate"
            others.append(OtherEstimate(words, ours.value - today.value, ours.high - today.low))
    return tuple(others)


def contradicted(one: Prediction, others: tuple[OtherEstimate, ...]) -> Prediction:
    """The prediction, refused where an estimator contradicts its gain.

    That is where it predicts a loss beyond all of its own error, and where it diverged.
    """
    refusals = []
    for other in others if one.gain > 0 else ():
        if math.isnan(other.high):
            refusals.append(f"{other.name} diverged and gives no number of its gain")
        elif other.high < 0:
            refusals.append(
                f"{other.name} predicts a loss of {number(-other.gain)}, at least "
                f"{number(-other.high)}, where the plant model predicts a gain of "
                f"{number(one.gain)}"
            )
    return dataclasses.replace(one, refusals=(*one.refusals, *refusals)) if refusals else one
