"""Warnings about a fitted loop, in sentences that say what to do."""

from neorl_agents.classical._first_order import FirstOrderModel
from neorl_agents.classical._imitation import ImitatedLoop

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
            "the loop is unstable"
            if margin < 1
            else f"the loop becomes unstable at {margin:.2g} times the plant's gain"
        )
        warnings.append(
            f"on a more flexible model of the same log {instability} (gain margin {margin:.2g}; "
            f"{LEAST_MARGIN:g} or more is sound). The identified dead time, "
            f"{model.delay * model.dt:g} s, is too short or the gain is too small, for example "
            "because the plant is not of first order; raise closed_loop, or fit lqg or a PID with "
            "rule = 'lambda'"
        )
    if model.delay == longest and longest > 0:
        warnings.append(
            f"its dead time is the longest that was tried, {longest} periods: either the true one "
            "is longer, then raise longest_delay, or the input has no effect on this output, then "
            "check the pairing"
        )
    if model.gain_error > MOST_ERROR:
        warnings.append(
            f"the standard error of its gain is {model.gain_error:.0%} of the gain, because the "
            "input moves too little compared with noise and disturbances; record a log in which it "
            "moves more, or use more rows"
        )
    if model.share <= 0:
        warnings.append(
            "the model explains none of the variance of the output changes: disturbances moved the "
            "output as much as the input did, or feedback hides the input's effect; compare gain "
            "and dead time with those of a step test"
        )
    return warnings


def imitation_warnings(loop: ImitatedLoop) -> list[str]:
    """Warnings about a loop that was fitted to the logged actions."""
    warnings = []
    if loop.contradiction is not None:
        free = {name: gain for name, gain in loop.contradiction._asdict().items() if gain}
        gains = ", ".join(f"{name} {gain:.4g}" for name, gain in free.items())
        zeros = " and ".join(name for name in free if not getattr(loop.gains, name))
        warnings.append(
            f"gains of opposite signs ({gains}) explain the logged actions best, but no PID "
            "controller has such gains (an integral or derivative time would be negative), so the "
            f"loop is fitted without {zeros}; check the setpoint and the pairing of the loop"
        )
    if loop.share < LEAST_SHARE:
        warnings.append(
            f"it explains {loop.share:.0%} of the variance of the action, so no such loop recorded "
            "this log (operators, limits, another setpoint or a feed-forward may have moved the "
            "action); do not take it for the logged controller"
        )
    return warnings


def delay_warnings(delay: tuple[int, ...], inputs: list[str], longest: int) -> list[str]:
    """Warnings about the delays of an identified plant."""
    at_limit = [name for name, periods in zip(inputs, delay, strict=True) if periods == longest > 0]
    if not at_limit:
        return []
    return [
        f"the dead time of {', '.join(at_limit)} is the longest that was tried, {longest} periods: "
        "either the true one is longer, then raise longest_delay, or the input has no effect on "
        "the measured outputs, then check the pairing"
    ]
