"""Checks whether other estimators contradict the gain that a plant model predicts."""

import dataclasses
import math

import numpy as np

from neorl_agents.retuning import Prediction, Refusal
from neorl_train.choosing._value_estimates import MIN_SIZE, ValueEstimates, reach_of_members
from neorl_train.judging import OtherEstimate
from neorl_train.judging._wording import number

LEVEL, Z_95 = 0.95, 1.96
"""Coverage of an interval, and its number of standard errors between an estimate and its end."""


def other_estimates(
    prediction: Prediction, candidate: ValueEstimates | None, incumbent: ValueEstimates | None
) -> tuple[OtherEstimate, ...]:
    """Estimates of a candidate's gain from methods other than the networks of a plant model.

    The error allowed for fitted Q evaluation is the one that it makes where the log shows the
    truth: the difference between the fitted values of the incumbent and the logged returns. For an
    ensemble, the variation of the gain between its members is allowed too. A member has the same
    initial weights, batches and bootstrap for the candidate and the incumbent, so that what these
    change in both values cancels in its gain.
    Importance sampling with fewer than ten effective episodes is uninformative and is left out.

    Args:
        prediction: Prediction of the plant model for the candidate.
        candidate: Estimates from the rows of the log; ``None`` if none were requested.
        incumbent: The same estimates for the incumbent.

    Returns:
        One estimate per method, with the largest gain that it leaves possible.
    """
    linear = prediction.by_member[-1]
    others = [
        OtherEstimate(
            "the linear part of the plant model", linear, linear + prediction.high - prediction.gain
        )
    ]
    if candidate is None or incumbent is None:
        return tuple(others)
    by_member = candidate.first - incumbent.first
    difference = by_member.mean(axis=0)
    gain = float(difference.mean())
    error = float(difference.std(ddof=1)) / np.sqrt(len(difference))
    reach = float(np.hypot(Z_95 * error, reach_of_members(by_member.mean(axis=1), LEVEL)))
    others.append(OtherEstimate("fitted Q evaluation", gain, gain + reach + incumbent.gap))
    if min(candidate.effective, incumbent.effective) >= MIN_SIZE:
        for name in ("importance", "doubly_robust"):
            candidate_value, incumbent_value = getattr(candidate, name), getattr(incumbent, name)
            title = "importance sampling" if name == "importance" else "the doubly robust estimate"
            others.append(
                OtherEstimate(
                    title,
                    candidate_value.value - incumbent_value.value,
                    candidate_value.high - incumbent_value.low,
                )
            )
    return tuple(others)


def refuse_if_contradicted(prediction: Prediction, others: tuple[OtherEstimate, ...]) -> Prediction:
    """The prediction, refused if an estimator contradicts its gain.

    An estimator contradicts if it predicts a loss that exceeds its own error, or if it diverged.
    """
    refusals: list[Refusal] = []
    for other in others if prediction.gain > 0 else ():
        if math.isnan(other.high):
            sentence = f"{other.name} diverged and gives no estimate of its gain"
            refusals.append(Refusal("agreement", sentence))
        elif other.high < 0:
            sentence = (
                f"{other.name} predicts a loss of {number(-other.gain)}, at least "
                f"{number(-other.high)}, where the plant model predicts a gain of "
                f"{number(prediction.gain)}"
            )
            refusals.append(Refusal("agreement", sentence))
    return (
        dataclasses.replace(prediction, refused_by=(*prediction.refused_by, *refusals))
        if refusals
        else prediction
    )
