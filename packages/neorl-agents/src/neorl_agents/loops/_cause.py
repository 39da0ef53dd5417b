"""What ails a loop: one of four answers, with the reason, and what would tell where none can."""

from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from neorl_agents.classical import simc_rule
from neorl_agents.loops._controller import LoggedController
from neorl_agents.loops._health import LoopFigures, smooth
from neorl_agents.loops._judgement import stacked
from neorl_agents.loops._model import LoopModel
from neorl_agents.loops._proposal import half_rule
from neorl_agents.loops._record import LoopRecord
from neorl_agents.loops._valve import ValveTest, valve_test
from neorl_core.loops import PIDGains, TransferFunction, loop_margins

Answer = Literal["retune", "mend the valve or sensor", "leave it", "cannot tell"]

IN_MANUAL = 0.5
"""Share of the rows in automatic below which nothing is said of a tuning."""
SATURATED = 0.2
"""Share of the time in automatic at a limit from which the output is the fault."""
NOISY = 0.01
"""Noise, as a share of the measurement's range, from which the sensor is the fault."""
ALL_NOISE = 0.5
"""Share of the error's variance that must be noise for it."""
FROZEN = 200
"""Rows for which a measurement stands still only if its sensor does."""
STICKS = 15.0
"""Logarithm of the likelihood by which a sticking valve must predict better."""
MAY_STICK = 6.0
NOT_WORSE = 1.0
"""The same below which both indices must be wrong."""
ROUND = 0.4
"""Index of the output's shape below which its swings are sines, and no valve sticks."""
WEAK = 2.2
"""Peak sensitivity above which a loop is tuned too tightly."""
SLUGGISH = 3.0
"""Factor by which the integrated error of a load could fall that makes a loop sluggish."""


SURE = 0.8
"""Probability, over the members of the model, from which a tuning is called wrong."""
UNLIKELY = 0.5
"""The same up to which it is called right."""
NEAR_LEAST = 0.5
"""Harris index, at its lower end, from which no tuning is worth while: the standard deviation of
the error could fall by three tenths at most."""


class Cause(NamedTuple):
    """What ails a loop.

    Attributes:
        answer: ``"retune"``, ``"mend the valve or sensor"``, ``"leave it"`` or ``"cannot tell"``.
        reason: One sentence.
        evidence: Sentences with the figures behind it.
        needed: What would tell, if the answer is ``"cannot tell"``, or what to do next.
        kind: The cause in one word: ``"stiction"``, ``"outside"``, ``"tight"``, ``"sluggish"``,
            ``"saturation"``, ``"noise"``, ``"frozen"``, ``"healthy"``, ``"manual"``,
            ``"excitation"``.
    """

    answer: Answer
    reason: str
    evidence: tuple[str, ...]
    needed: str
    kind: str


class Tuning(NamedTuple):
    """Today's tuning on the members of a model.

    Attributes:
        peak_sensitivity: Of every member, infinite where the loop is unstable.
        improvement: Of every member, the factor by which the rule of SIMC would lower the
            integrated error of a step of the load.
    """

    peak_sensitivity: np.ndarray
    improvement: np.ndarray


def loop_cause(record: LoopRecord, figures: LoopFigures, model: LoopModel) -> Cause:
    """Decides what ails a loop.

    What no tuning cures is asked for first: an operator who took the loop out of automatic, an
    output at its limits, a sensor that stands still or is noisy, a valve that sticks, an
    oscillation that lasts. Only then is the tuning judged, on the members of the model.

    Args:
        record: Rows of the loop.
        figures: Their health.
        model: The model of the process.
    """
    use = figures.figures
    for rule in (_manual, _limits, _sensor):
        found = rule(record, figures)
        if found is not None:
            return found
    swing = float(np.nanstd(_without_trend(record.output)))
    valve = valve_test(record, swing)
    found = _valve(record, figures, valve)
    if found is not None:
        return found
    tuning = _tuning(figures.controller, model, record.period)
    found = _oscillates(record, figures, tuning)
    if found is not None:
        return found
    return _tuned(record, figures, model, tuning, float(use.error_deviation))


def _without_trend(output: np.ndarray) -> np.ndarray:
    known = np.where(np.isfinite(output), output, np.nanmean(output))
    return known - smooth(known, max(len(known) // 20, 50))


def _manual(record: LoopRecord, figures: LoopFigures) -> Cause | None:
    automatic = float(figures.figures.automatic)
    if automatic >= IN_MANUAL:
        return None
    return Cause(
        "cannot tell",
        f"The loop was in automatic only {automatic:.0%} of the time.",
        (),
        "Ask why it is taken out of automatic, and give a log of some days in automatic.",
        "manual",
    )


def _limits(record: LoopRecord, figures: LoopFigures) -> Cause | None:
    saturation = float(figures.figures.saturation)
    if not saturation > SATURATED:
        return None
    return Cause(
        "mend the valve or sensor",
        f"The output was at a limit {saturation:.0%} of the time in automatic, and there no tuning "
        "has an effect.",
        (f"range of the output {record.output_range[0]:g} to {record.output_range[1]:g}",),
        "Look for a valve that is too small or blocked, a wrong range, or a load beyond what the "
        "plant was built for.",
        "saturation",
    )


def _sensor(record: LoopRecord, figures: LoopFigures) -> Cause | None:
    low, high = record.measurement_range
    noise, deviation = float(figures.figures.noise), float(figures.figures.error_deviation)
    if figures.frozen > FROZEN * record.period:
        return Cause(
            "mend the valve or sensor",
            f"The measurement stood still for {figures.frozen / 3600:.1f} h while the output "
            "moved.",
            (),
            "Look at the transmitter and at the archive's compression.",
            "frozen",
        )
    share = noise**2 / deviation**2 if deviation > 0 else 0.0
    if record.ranges_known and noise > NOISY * (high - low) and share > ALL_NOISE:
        return Cause(
            "mend the valve or sensor",
            f"The measurement is noisy: {noise:.3g} {record.measurement_unit}, "
            f"{noise / (high - low):.1%} of its range, and {share:.0%} of the variance of the "
            "error.",
            (f"travel of the output {float(figures.figures.travel):.4g} a day",),
            "Look at the transmitter, its impulse lines and its filter.",
            "noise",
        )
    return None


def _valve(record: LoopRecord, figures: LoopFigures, valve: ValveTest) -> Cause | None:
    indices, swing = figures.stiction, figures.swing
    shape = f"shape of the output {indices.fit:.2f} (a triangle from 0.6)"
    phase = f"phase of the measurement {indices.shift:.2f} (a sticking valve from 0.67)"
    better = (
        f"a valve that sticks over {valve.stickband:.2g} {record.output_unit} explains the rows "
        f"better, by {valve.gain:.0f} in the logarithm of the likelihood"
    )
    sure = indices.agree and swing.regular and valve.gain > MAY_STICK
    if sure or (valve.gain > STICKS and (indices.fit >= 0.5 or indices.agree)):
        return Cause(
            "mend the valve or sensor",
            "The valve sticks: the output must move by about "
            f"{valve.stickband:.2g} {record.output_unit} before the measurement answers.",
            (shape, phase, better),
            "Stroke the valve in manual by small steps, and look at its packing and positioner.",
            "stiction",
        )
    unsure = indices.agree and swing.regular and valve.gain > NOT_WORSE
    if unsure or (valve.gain > STICKS and indices.fit >= ROUND):
        return Cause(
            "cannot tell",
            "The valve may stick, but the tests of it disagree.",
            (shape, phase, better),
            "Hold the output in manual for some periods: if the oscillation stops, stroke the "
            "valve by small steps; if it goes on, it comes from outside.",
            "valve",
        )
    return None


def _oscillates(record: LoopRecord, figures: LoopFigures, tuning: Tuning | None) -> Cause | None:
    swing = figures.swing
    if not swing.regular:
        return None
    weak = tuning is not None and _shares(tuning)[0] > UNLIKELY
    # What drives a loop at one period looks to a fit as the resonance of a tight one. The rows tell
    # them apart, as a stable loop rings down; one on its limit of stability does not.
    driven = swing.driven and not (tuning is not None and _unstable(tuning) > UNLIKELY)
    every = f"The loop oscillates every {swing.period / 60:.3g} min"
    seen = (
        f"regularity {swing.regularity:.1f} (regular from 1), correlation {swing.once:.2f} after "
        f"one period and {swing.often:.2f} after six",
    )
    if driven or (swing.lasts and not weak):
        with_others = f", together with {', '.join(swing.shared)}" if swing.shared else ""
        return Cause(
            "leave it",
            f"{every}{with_others}, and the oscillation is driven from outside.",
            seen,
            "Look for its source upstream; to be sure, hold the output in manual for some periods: "
            "it goes on if it comes from outside.",
            "outside",
        )
    if weak:
        return Cause(
            "retune", f"{every}, because its tuning is too tight.", seen, "Lower the gain.", "tight"
        )
    return None


def _tuned(
    record: LoopRecord,
    figures: LoopFigures,
    model: LoopModel,
    tuning: Tuning | None,
    deviation: float,
) -> Cause:
    swing = figures.swing
    # Rows contradict a model on which the loop is unstable, as it would not have stayed calm.
    contradicted = tuning is not None and not swing.regular and _unstable(tuning) > UNLIKELY
    if contradicted:
        tuning = None
    if tuning is None:
        if swing.regular and not swing.lasts and np.isfinite(swing.often):
            return Cause(
                "retune",
                f"The loop swings every {swing.period / 60:.3g} min after every disturbance, and "
                "the swings die away: its tuning is too tight.",
                (
                    f"regularity {swing.regularity:.1f}, correlation {swing.once:.2f} after one "
                    f"period and {swing.often:.2f} after six",
                ),
                "Lower the gain.",
                "tight",
            )
        index, low = float(figures.harris.index), float(figures.harris.low)
        if low > NEAR_LEAST and not swing.regular:
            return Cause(
                "leave it",
                "No controller could lower the standard deviation of the error by more than "
                f"{1 - np.sqrt(low):.0%}, and the loop does not oscillate.",
                (f"Harris index {index:.2f}, at least {low:.2f}",),
                "",
                "healthy",
            )
        needed = model.why_not or (
            "the model of the rows says that the loop is unstable, which it is not; make more or "
            "larger moves of the setpoint"
            if contradicted
            else "the output does not follow a PI of setpoint minus measurement; give the "
            "setpoint, or declare the controller"
        )
        return Cause(
            "cannot tell",
            "Nothing is wrong that the rows show, but they do not show whether another tuning "
            "would be better.",
            (),
            needed[0].upper() + needed[1:] + ".",
            "excitation",
        )
    # Members on which the loop is unstable have no finite one, and nothing lies between those.
    peaks = np.quantile(tuning.peak_sensitivity, [0.5, 0.05, 0.95], method="nearest")
    middle, low, high = (f"{x:.2f}" if np.isfinite(x) else "unstable" for x in peaks)
    gain = float(np.median(tuning.improvement))
    evidence = (
        f"peak sensitivity {middle} [{low}, {high}] (1.4 to 2 is usual)",
        f"another tuning could divide the integrated error of a load by {gain:.1f}",
    )
    weak, slow = _shares(tuning)
    # A model may tell which way to go and be too vague to say how far.
    vague = f" Gains are not proposed yet: {model.why_not}." if model.why_not else ""
    if weak > SURE:
        needed = f"Lower the gain.{vague}"
        return Cause("retune", "The tuning is too tight.", evidence, needed, "tight")
    if slow > SURE:
        needed = f"Raise the gain or shorten the integral time.{vague}"
        return Cause("retune", "The tuning is sluggish.", evidence, needed, "sluggish")
    if max(weak, slow) > UNLIKELY:
        needed = model.why_not or "make more or larger moves of the setpoint"
        return Cause(
            "cannot tell",
            "The tuning may be too tight." if weak > slow else "The tuning may be sluggish.",
            evidence,
            needed[0].upper() + needed[1:] + ".",
            "excitation",
        )
    return Cause(
        "leave it", "The loop is tuned well enough, and nothing ails it.", evidence, "", "healthy"
    )


def _unstable(tuning: Tuning) -> float:
    """Share of the members on which the loop is unstable."""
    return float(np.mean(~np.isfinite(tuning.peak_sensitivity)))


def _shares(tuning: Tuning) -> tuple[float, float]:
    """Shares of the members on which the tuning is too tight, and on which it is sluggish."""
    weak = tuning.peak_sensitivity > WEAK
    return float(np.mean(weak)), float(np.mean(~weak & (tuning.improvement > SLUGGISH)))


def _tuning(controller: LoggedController, model: LoopModel, period: float) -> Tuning | None:
    if not (model.members and controller.known):
        return None
    members = stacked(model, period)
    if np.ptp(np.sign(members.numerator[:, 0])) > 0:
        return None  # Nothing can be said while the direction is open.
    kp, ki = (np.float64(x) for x in (controller.kp, controller.ki))
    stable, peaks = (np.asarray(one) for one in _sensitivity(members, kp, ki, period))
    peaks = np.where(stable, peaks, np.inf)
    best = np.array([_simc_integral(one, period) for one in model.members])
    return Tuning(peaks, best / ki)


@jax.jit
def _sensitivity(members: TransferFunction, kp: Any, ki: Any, period: Any) -> tuple[Any, Any]:
    """Whether each member's loop is stable, and its peak sensitivity."""
    gains = PIDGains(kp, ki, 0.0, 0.0)
    found = jax.vmap(lambda one: loop_margins(one, gains, dt=period))(members)
    return found.stable, found.peak_sensitivity


def _simc_integral(process: Any, period: float) -> float:
    """``ki`` of a PI by SIMC with a closed-loop time of one dead time.

    Half a period counts as the hold.
    """
    roots = np.roots(np.asarray(process.denominator))
    integrates = bool(np.any(roots == 0))
    lags = sorted((-1 / root.real for root in roots if root != 0), reverse=True)
    gain = float(np.asarray(process.numerator)[0])
    lag, theta = half_rule([np.inf] * integrates + lags, float(process.dead_time) + period / 2)
    if not integrates:
        gain, theta = gain / lag, max(theta, period)
    kp, integral = simc_rule(gain, lag, theta, theta)
    return kp / integral
