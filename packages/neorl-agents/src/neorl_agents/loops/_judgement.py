"""PID loops judged on every member of a process model: margins, and steps of setpoint and load."""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from neorl_agents.loops._model import Interval, LoopModel
from neorl_core import InputError
from neorl_core.loops import (
    LoopMargins,
    PIDGains,
    SampledModel,
    StepFigures,
    StepResponse,
    TransferFunction,
    loop_margins,
    step_figures,
    step_response,
)

SENSITIVITY, GAIN_MARGIN = 2.0, 1.7
"""A loop is accepted if the peak sensitivity of its worst member is at most, and its gain margin at
least this: Astrom and Hagglund, Advanced PID control, 2006, section 4.6, want Ms of 1.4 to 2."""

TOGETHER = 96
"""Loops that one call of the compiled program judges; fewer are filled up, so that it compiles
once for all of them."""

_STEPS, _MOST_STEPS = 1000, 4000


class LoopJudgement(NamedTuple):
    """Loops on the members of a model; every leaf has the leading axes ``(loop, member)``.

    Attributes:
        margins: Margins and peak sensitivity with the period of the controller.
        setpoint: Measurement and output after a step of the setpoint by one measured unit.
        load: The same after a step of the load by one output unit.
        setpoint_figures: Figures of the former.
        load_figures: Figures of the latter.
    """

    margins: LoopMargins
    setpoint: StepResponse
    load: StepResponse
    setpoint_figures: StepFigures
    load_figures: StepFigures

    def of(self, loop: int) -> "LoopJudgement":
        """The judgement of one loop, with the leading axis ``(member,)``."""
        return jax.tree.map(lambda leaf: leaf[loop], self)


class StepGrid(NamedTuple):
    """Times at which step responses are simulated.

    Attributes:
        dt: Seconds between them; the period of the loop, or longer if that is very short.
        steps: Their number.
    """

    dt: float
    steps: int


def step_grid(model: LoopModel, period: float, gains: Sequence[PIDGains] = ()) -> StepGrid:
    """A grid long enough for the steps of loops around a model to settle.

    Six times the longest of the process and of the loops, whose time is ``1 / |K ki|``, or ``kp /
    ki`` around an integrating process, at most ten times that of the process.

    Args:
        model: Model with at least one member.
        period: Period of the controller in seconds.
        gains: The loops, such as today's.
    """
    lags = sum(constant.value for constant in model.time_constants)
    process = model.dead_time.value + lags + period
    if model.integrating:
        process = 8 * process
    times = [process]
    for loop in gains:
        ki = abs(float(loop.ki))
        if ki > 0:
            rate = (
                abs(float(loop.kp)) / ki if model.integrating else 1 / (abs(model.gain.value) * ki)
            )
            times.append(min(rate, 10 * process))
    horizon = 6 * max(times)
    dt = period if isinstance(model.members[0], SampledModel) else max(period, horizon / _STEPS)
    # Rounding of the quotient is not to add a step.
    return StepGrid(dt, min(max(math.ceil(horizon / dt - 1e-6), 16), _MOST_STEPS))


def judged_loops(
    model: LoopModel, gains: Sequence[PIDGains], *, period: float, grid: StepGrid
) -> LoopJudgement:
    """Judges loops on all members of a model in one compiled program.

    Args:
        model: Model with at least one member.
        gains: The loops.
        period: Period of the controller in seconds.
        grid: Times of the step responses.

    Returns:
        The judgement as NumPy arrays. Steps of a loop that is unstable on a member are not finite
        or grow.

    Raises:
        InputError: If the model has no member or there is no loop.
    """
    if not model.members or not gains:
        raise InputError("judging loops takes a model with a member and at least one loop")
    members = stacked(model, period)
    # Two lengths are simulated, so that loops of one log share the compiled program, which takes
    # far longer to compile than to run. What lies beyond the grid counts in the figures alone.
    steps = _STEPS if grid.steps <= _STEPS else _MOST_STEPS
    parts = []
    for first in range(0, len(gains), TOGETHER):
        some = list(gains[first : first + TOGETHER])
        filled = some + some[-1:] * (TOGETHER - len(some))
        columns = np.asarray(filled, np.float32).T
        loops = PIDGains(*(jnp.asarray(column) for column in columns))
        judged = loops_on_members(
            members, loops, jnp.float32(period), jnp.float32(grid.dt), steps=steps
        )
        parts.append(judged)
    every = jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(gains)], *parts)
    setpoint, load = (
        StepResponse(*(leaf[..., : grid.steps] for leaf in one))
        for one in (every.setpoint, every.load)
    )
    return every._replace(setpoint=setpoint, load=load)


def stacked(model: LoopModel, period: float) -> Any:
    """The members as one process whose leaves have the leading axis ``(member,)``.

    A transfer function of lower order than another gets a lag of a twentieth of a period.
    """
    members = list(model.members)
    orders = {len(np.atleast_1d(one[1])) for one in members}
    if isinstance(members[0], TransferFunction) and len(orders) > 1:
        members = [_of_order(one, max(orders), period / 20) for one in members]
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(one) for one in leaves]), *members)


def _of_order(process: Any, length: int, lag: float) -> TransferFunction:
    numerator, denominator, dead_time = (np.asarray(leaf, np.float64) for leaf in process)
    while len(denominator) < length:
        denominator = np.convolve(denominator, [lag, 1.0])
    return TransferFunction(*(jnp.asarray(leaf) for leaf in (numerator, denominator, dead_time)))


@functools.partial(jax.jit, static_argnames=("steps", "points"))
def loops_on_members(
    members: Any, gains: PIDGains, dt: Any, step_dt: Any, *, steps: int, points: int = 512
) -> LoopJudgement:
    """The judgement of loops ``(loop,)`` on members ``(member,)``; pure.

    Args:
        members: One process whose leaves are stacked along a first axis.
        gains: Gains, each of shape ``(loop,)``.
        dt: Period of the controller in seconds.
        step_dt: Period of the simulated steps in seconds; that of a :class:`SampledModel`.
        steps: Number of simulated periods.
        points: Frequencies of the grid of the margins.
    """

    def one(loop: PIDGains, member: SampledModel | TransferFunction) -> LoopJudgement:
        def moved(setpoint: Array, load: Array) -> tuple[StepResponse, StepFigures]:
            response = step_response(
                member, loop, dt=step_dt, steps=steps, setpoint=setpoint, load=load
            )
            return response, step_figures(*response, setpoint=setpoint, dt=step_dt)

        margins = loop_margins(member, loop, dt=dt, points=points)
        # Both steps in one program, which is compiled once.
        both = jax.vmap(moved)(jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0]))
        (setpoint, setpoint_figures), (load, load_figures) = (
            jax.tree.map(lambda leaf, step=step: leaf[step], both) for step in (0, 1)
        )
        return LoopJudgement(margins, setpoint, load, setpoint_figures, load_figures)

    return jax.vmap(lambda loop: jax.vmap(lambda member: one(loop, member))(members))(gains)


def over_members(numbers: Any) -> Interval:
    """A number of each member as that of the first with the extremes; NaN counts as infinite."""
    numbers = np.asarray(numbers, np.float64)
    known = np.where(np.isnan(numbers), np.inf, numbers)
    return Interval(float(known[0]), float(known.min()), float(known.max()))


class MarginTable(NamedTuple):
    """The margins of one loop as intervals over the members of a model.

    Attributes:
        stable: Whether the loop is stable with every member.
        gain_margin: Factor; its lower end is the worst member's.
        phase_margin: Degrees.
        delay_margin: Seconds.
        peak_sensitivity: ``Ms``; its upper end is the worst member's.
        worst: Number of the member with the largest peak sensitivity, from 1; 1 is fitted on all
            rows.
    """

    stable: bool
    gain_margin: Interval
    phase_margin: Interval
    delay_margin: Interval
    peak_sensitivity: Interval
    worst: int

    @property
    def accepted(self) -> bool:
        """Whether the worst member, not the mean, has at most ``Ms`` 2 and at least 1.7."""
        return (
            self.stable
            and self.peak_sensitivity.high <= SENSITIVITY
            and self.gain_margin.low >= GAIN_MARGIN
        )


def margin_table(judged: LoopJudgement) -> MarginTable:
    """The margins of one loop, from :meth:`LoopJudgement.of`.

    An unstable member has margins of one, zero degrees and zero seconds, and an infinite ``Ms``.
    """
    margins, stable = judged.margins, np.asarray(judged.margins.stable, bool)
    gain, phase, delay = (
        over_members(np.where(stable, number, none))
        for number, none in (
            (margins.gain_margin, 1.0),
            (margins.phase_margin, 0.0),
            (margins.delay_margin, 0.0),
        )
    )
    sensitivity = np.where(stable, margins.peak_sensitivity, np.inf)
    worst = int(np.argmax(sensitivity)) + 1
    peak = over_members(sensitivity)
    return MarginTable(bool(stable.all()), gain, phase, delay, peak, worst)
