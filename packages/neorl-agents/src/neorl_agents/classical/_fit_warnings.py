"""Warnings about a fitted loop, in sentences that say what to do."""

from neorl_agents.classical._first_order import FirstOrderModel
from neorl_agents.classical._tuning import PIDGains

LEAST_MARGIN = 1.5
"""Smallest gain margin accepted without a warning; SIMC has about 3 on its own model."""
LEAST_SHARE = 0.5
"""Smallest explained share of the variance accepted without a warning in an imitated loop."""
MOST_ERROR = 0.2
"""Largest relative standard error of a gain accepted without a warning."""


def tuning_warnings(model: FirstOrderModel, margin: float | None, longest: int) -> list[str]:
    """Warnings about a loop that was tuned from ``model``."""
    warnings = []
    if margin is not None and margin < LEAST_MARGIN:
        instability = (
            "it swings" if margin < 1 else f"it swings with {margin:.2g} times the plant's gain"
        )
        warnings.append(
            f"on a freer model of the same log {instability} (gain margin {margin:.2g}, "
            f"{LEAST_MARGIN:g} or more is sound): the dead time that was identified, "
            f"{model.delay * model.dt:g} s, is too short or the gain too small, as where the plant "
            "is not of first order; raise closed_loop, or fit lqg or a PID by the rule lambda"
        )
    if model.delay == longest and longest > 0:
        warnings.append(
            f"its dead time is the longest that was tried, {longest} periods: raise longest_delay, "
            "or the input does not show in this output"
        )
    if model.gain_error > MOST_ERROR:
        warnings.append(
            f"its gain is known to {model.gain_error:.0%} of itself: the log has too little "
            "movement of the input beside noise and loads; move it, or take more rows"
        )
    if model.share <= 0:
        warnings.append(
            "it explains nothing of the moves of the output: loads moved it as much as the input "
            "did, or feedback hides the input; compare gain and dead time with what a step showed"
        )
    return warnings


def imitation_warnings(share: float, gains: PIDGains) -> list[str]:
    """Warnings about a loop that was fitted to the logged actions."""
    warnings = []
    if share < LEAST_SHARE:
        warnings.append(
            f"it explains {share:.0%} of the moves of the action: no such loop made this log "
            "(operators, limits, another set-point, feed-forward); do not take it for the logged "
            "controller"
        )
    if gains.kp * gains.ki < 0:
        warnings.append(
            f"its integral part works against its proportional part (an integral time of "
            f"{gains.kp / gains.ki:.3g} s): no PID in use does that, and it would drive the loop "
            "to a limit; check the set-point of the loop, or fit a PID from a model"
        )
    return warnings


def delay_warnings(delay: tuple[int, ...], inputs: list[str], longest: int) -> list[str]:
    """Warnings about the delays of an identified plant."""
    at_limit = [name for name, periods in zip(inputs, delay, strict=True) if periods == longest > 0]
    if not at_limit:
        return []
    return [
        f"the dead time of {', '.join(at_limit)} is the longest that was tried, {longest} periods: "
        "raise longest_delay, or the input does not show in what is measured"
    ]
