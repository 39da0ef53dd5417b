"""Gains that are robust over all members of a process model, from calm to tight."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from neorl_agents.classical import simc_rule
from neorl_agents.classical._tuning import parallel_gains
from neorl_agents.loops._judgement import (
    GAIN_MARGIN,
    TOGETHER,
    LoopJudgement,
    MarginTable,
    StepGrid,
    judged_loops,
    margin_table,
    step_grid,
)
from neorl_agents.loops._model import LoopModel
from neorl_core import InputError
from neorl_core.loops import PIDGains

_DIAL = 23
"""Positions, so that today's loop and four integral times at each are judged together."""
_INTEGRALS = (0.4, 0.63, 1.0, 1.6)


@dataclasses.dataclass(frozen=True)
class TuningSettings:
    """What the search may propose.

    Attributes:
        sensitivity: Largest peak sensitivity ``Ms`` of the worst member. It is below the 2 at which
            a loop is refused, because a plant is none of the members.
        gain_margin: Least gain margin of the worst member.
        noise_share: Standard deviation that the noise of the measurement may give the output from
            row to row, as a share of the output's range; today's loop may have more.
        gain: Least reduction of the load's integrated error that is worth a change.
    """

    sensitivity: float = 1.8
    gain_margin: float = GAIN_MARGIN
    noise_share: float = 0.01
    gain: float = 0.1


class TuningPoint(NamedTuple):
    """One loop between calm and tight.

    Attributes:
        closed_loop_time: The dial, ``tau_c`` in seconds: the time constant that the rule asks of
            the closed loop.
        gains: The loop, in engineering units and parallel form.
        margins: Its margins over the members.
        load_error: Integrated error after a step of the load by one output unit, mean over the
            members, measured units times seconds; infinite if a member is unstable.
        noise: Standard deviation of the output's moves from row to row by the measurement's noise,
            in output units.
        refusals: Why it is not proposed, in words; empty if it may be.
    """

    closed_loop_time: float
    gains: PIDGains
    margins: MarginTable
    load_error: float
    noise: float
    refusals: tuple[str, ...]


class Proposal(NamedTuple):
    """The gains to try, and why not more.

    Attributes:
        today: Today's loop.
        chosen: The proposed one; today's if it is kept.
        kept: Whether today's loop is kept.
        reason: Why, in one sentence.
        profile: Loops from calm to tight, each with the best integral time of its dial.
        stopped: The rule that refuses the next tighter loop, and where; empty if none does.
    """

    today: TuningPoint
    chosen: TuningPoint
    kept: bool
    reason: str
    profile: tuple[TuningPoint, ...]
    stopped: str


class _Search(NamedTuple):
    """What does not change during a search."""

    model: LoopModel
    period: float
    grid: StepGrid
    noise: float
    noise_limit: float
    settings: TuningSettings


def propose(
    model: LoopModel,
    today: PIDGains,
    *,
    period: float,
    output_span: float,
    noise: float = 0.0,
    settings: TuningSettings = TuningSettings(),
) -> Proposal:
    """Searches for the loop with the least error after a load that is robust on every member.

    The family has one dial, the closed-loop time ``tau_c``. With the process ``K exp(-theta s) /
    ((T1 s + 1)(T2 s + 1))`` the rule is ``Kc = T1 / (K (tau_c + theta))``, ``Ti = min(T1, 4 (tau_c
    + theta))`` and, where today's loop has a derivative, ``Td = T2`` in series form; without one
    half of ``T2`` counts as dead time and half as lag. Around an integrating process, ``Kc = 1 / (K
    (tau_c + theta))`` and ``Ti = 4 (tau_c + theta)``. At every position of the dial four integral
    times are tried, and around the best loop gain, integral time and derivative are refined twice.
    The first member gives the numbers of the rule; all members judge.

    Args:
        model: Usable model of the process.
        today: Today's loop, in engineering units and parallel form.
        period: Period of the controller in seconds.
        output_span: Range of the output in its unit.
        noise: Standard deviation of the measurement's noise, in its unit.
        settings: Limits of the search.

    Raises:
        InputError: If the model is not usable, or today's loop acts against it.

    Source: Skogestad, Simple analytic rules for model reduction and PID controller tuning, J.
    Process Control 13 (2003) 291; the constraint on the worst member: Astrom, Panagopoulos and
    Hagglund, Design of PI controllers based on non-convex optimization, Automatica 34 (1998) 585.
    """
    if not model.usable:
        raise InputError(f"this loop gets no gains: {model.why_not}")
    direction = math.copysign(1.0, model.gain.value)
    if today.kp * direction < 0 or today.ki * direction < 0:
        raise InputError(
            "the controller's direction contradicts the model: a larger output "
            f"{'raises' if direction > 0 else 'lowers'} the measurement, so it must be "
            f"{'reverse' if direction > 0 else 'direct'} acting; check which is declared"
        )
    lowest = max(settings.noise_share * output_span, _noise_moves(today, period, noise))
    search = _Search(model, period, step_grid(model, period, [today]), noise, lowest, settings)
    times, candidates = _family(model, today, period)
    now, *family = _points(search, [math.nan, *times], [today, *candidates])
    profile = tuple(
        _best(family[start : start + len(_INTEGRALS)])
        for start in range(0, len(family), len(_INTEGRALS))
    )
    best = _best([point for point in family if not point.refusals] or family)
    for width in (1.0, 0.35):
        if best.refusals:
            break
        nearby = _nearby(best.gains, width, derivative=bool(today.kd))
        found = _points(search, [best.closed_loop_time] * len(nearby), nearby)
        best = _best([best, *(point for point in found if not point.refusals)])
    chosen, kept, reason = _choice(now, best, settings)
    return Proposal(now, chosen, kept, reason, profile, _stopped(profile, best))


def halfway(before: PIDGains, after: PIDGains) -> PIDGains:
    """The loop between two: geometric means of gain and times.

    A large change of a gain is made in two moves; a loop on the way shows the direction.
    """

    def between(first: float, second: float) -> float:
        if first * second > 0:
            return math.copysign(math.sqrt(first * second), second)
        return (first + second) / 2

    return PIDGains(*(between(float(a), float(b)) for a, b in zip(before, after, strict=True)))


def _family(model: LoopModel, today: PIDGains, period: float) -> tuple[list[float], list[PIDGains]]:
    """Loops by the rule, calm first, with several integral times for each position of the dial."""
    lags = [math.inf] * model.integrating + [lag.value for lag in model.time_constants]
    theta = model.dead_time.value + period / 2
    if today.kd != 0:
        first, (second, theta) = lags[0], half_rule(lags[1:], theta)
    else:
        (first, theta), second = half_rule(lags, theta), 0.0
    first = max(first, 0.05 * theta)
    # A process with little dead time has no limit of its own; the period is one.
    unit = max(theta, 0.02 * first if math.isfinite(first) else 0.0, 2 * period)
    kp, _, kd, tau = (float(number) for number in today)
    filtered = tau * kp / kd if kd and kp and tau else 0.1
    times, gains = [], []
    for dial in unit * np.geomspace(16, 0.12, _DIAL):
        slope = model.gain.value if model.integrating else model.gain.value / first
        gain, integral = simc_rule(slope, first, theta, dial)
        for factor in _INTEGRALS:
            lead = second / (1 + second / (integral * factor))
            times.append(float(dial))
            gains.append(parallel_gains(gain, integral * factor, second, lead * filtered))
    return times, gains


def half_rule(lags: Sequence[float], dead_time: float) -> tuple[float, float]:
    """The lag and the dead time that stand for several lags, the longest first, behind a dead time.

    Half of the second lag counts as lag and half as dead time, and shorter ones as dead time.

    Source: Skogestad, Simple analytic rules for model reduction and PID controller tuning, J.
    Process Control 13 (2003) 291.
    """
    first, second, *shorter = (*lags, 0.0, 0.0)
    return first + second / 2, dead_time + second / 2 + sum(shorter)


def _nearby(centre: PIDGains, width: float, *, derivative: bool) -> list[PIDGains]:
    """Loops around one, as many as are judged together."""
    found = []
    derivatives = np.exp(width * np.linspace(-0.4, 0.4, 3)) if derivative else [1.0]
    rows = 8 if derivative else 12
    columns = TOGETHER // (rows * len(derivatives))
    for gain in np.exp(width * np.linspace(-0.35, 0.35, rows)):
        for integral in np.exp(width * np.linspace(-0.6, 0.6, columns)):
            for d in derivatives:
                kp, kd = centre.kp * gain, centre.kd * gain * d
                tau = centre.tau * d
                found.append(PIDGains(*map(float, (kp, centre.ki * gain / integral, kd, tau))))
    return found


def _points(
    search: _Search, times: Sequence[float], gains: Sequence[PIDGains]
) -> list[TuningPoint]:
    judged = judged_loops(search.model, gains, period=search.period, grid=search.grid)
    return [
        _point(search, time, one, judged.of(number))
        for number, (time, one) in enumerate(zip(times, gains, strict=True))
    ]


def _point(search: _Search, time: float, gains: PIDGains, judged: LoopJudgement) -> TuningPoint:
    margins = margin_table(judged)
    noise = _noise_moves(gains, search.period, search.noise)
    errors = judged.load_figures.absolute_error
    error = float(np.mean(errors)) if margins.stable else math.inf
    point = TuningPoint(time, gains, margins, error, noise, ())
    return point._replace(refusals=tuple(_refusals(point, search)))


def _refusals(point: TuningPoint, search: _Search) -> list[str]:
    margins, settings = point.margins, search.settings
    member = f"member {margins.worst} of {len(search.model.members)} of the model"
    if not margins.stable:
        return [f"unstable with {member}"]
    refusals = []
    if margins.peak_sensitivity.high > settings.sensitivity:
        refusals.append(
            f"peak sensitivity {margins.peak_sensitivity.high:.2f} with {member}, where "
            f"{settings.sensitivity:g} is allowed"
        )
    if margins.gain_margin.low < settings.gain_margin:
        refusals.append(
            f"gain margin {margins.gain_margin.low:.2f} with the worst member of the model, where "
            f"{settings.gain_margin:g} is wanted"
        )
    if point.noise > search.noise_limit * (1 + 1e-6):
        refusals.append(
            f"the noise of the measurement would move the output by {point.noise:.3g} a row, where "
            f"{search.noise_limit:.3g} is allowed"
        )
    return refusals


def _noise_moves(gains: PIDGains, period: float, noise: float) -> float:
    """Standard deviation of the output's moves by white noise of the measurement.

    A move is ``-(kp + kd / (tau + dt)) (n_t - n_{t-1})`` and the slower rest of the derivative.
    """
    return float(math.sqrt(2) * abs(gains.kp + gains.kd / (gains.tau + period)) * noise)


def _best(points: Sequence[TuningPoint]) -> TuningPoint:
    """The least error among those that may be proposed; without one, the most robust."""
    free = [point for point in points if not point.refusals]
    if free:
        return min(free, key=lambda point: point.load_error)
    return min(points, key=lambda point: (point.margins.peak_sensitivity.high, point.load_error))


def _choice(
    today: TuningPoint, best: TuningPoint, settings: TuningSettings
) -> tuple[TuningPoint, bool, str]:
    if best.refusals:
        why = "; ".join(best.refusals)
        return today, True, f"no loop of the family is robust on every member: {why}"
    if not today.margins.accepted:
        found = "it is unstable with a member of the model"
        if today.margins.stable:
            found = (
                f"its peak sensitivity is {today.margins.peak_sensitivity.high:.2f} and its gain "
                f"margin {today.margins.gain_margin.low:.2f} with the worst member"
            )
        return best, False, f"today's loop is not robust: {found}"
    less = 1 - best.load_error / today.load_error
    if less < settings.gain:
        why = (
            f"the best robust loop would reduce the error after a load by {100 * max(less, 0):.0f} "
            f"%, and less than {100 * settings.gain:.0f} % is not worth a change"
        )
        return today, True, why
    return best, False, f"it reduces the integrated error after a load by {100 * less:.0f} %"


def _stopped(profile: Sequence[TuningPoint], best: TuningPoint) -> str:
    """The first refusal on the dial beyond the tightest loop that may be proposed."""
    free = [number for number, point in enumerate(profile) if not point.refusals]
    if not free:
        return f"already the calmest: {'; '.join(profile[0].refusals)}"
    if free[-1] + 1 == len(profile):
        return ""
    tighter = profile[free[-1] + 1]
    faster = abs(tighter.gains.kp / best.gains.kp) if best.gains.kp else math.inf
    return (
        f"stopped by: {'; '.join(tighter.refusals)} (closed-loop time "
        f"{tighter.closed_loop_time:.3g} s, gain {faster:.2g} times the proposed one)"
    )
