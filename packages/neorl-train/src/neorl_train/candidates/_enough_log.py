"""Whether the episodes of a log, and a plant model's memory, suffice to retune its loops."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from neorl_agents.loops import Interval, LoopModel, LoopReport, judged_loops, step_grid
from neorl_agents.models import HistoryModelSettings
from neorl_core import InputError, Policy, Spec
from neorl_core.loops import PIDGains
from neorl_train.candidates._retuned import gains_of_loop
from neorl_train.judging._loop_trial import SETTLINGS
from neorl_train.judging._wording import duration_words


def settling(model: LoopModel, gains: PIDGains, *, period: float) -> Interval | None:
    """How long a loop takes to rest after a step of its setpoint or of its load.

    The longer of the two counts: a setpoint is reached long before a slow integral has taken out a
    load, and an episode must show both. A loop rests when its distance from the setpoint stays
    within 5 % of the largest one.

    Args:
        model: Model of the process, with at least one member.
        gains: The loop, in engineering units and parallel form.
        period: Period of the controller in seconds.

    Returns:
        Seconds on the members on which the loop is stable: on the first of them, the least and the
        longest; at most the simulated time, which is six times that of the process or of the loop.
        Nothing if the loop is stable on no member.
    """
    grid = step_grid(model, period, [gains])
    judged = judged_loops(model, [gains], period=period, grid=grid).of(0)
    stable = np.asarray(judged.margins.stable, bool)
    steps = judged.setpoint_figures.settling_time, judged.load_figures.settling_time
    times: Float[np.ndarray, " member"] = np.max(steps, axis=0).astype(np.float64)[stable]
    if not len(times):
        return None
    times = np.minimum(times, grid.dt * grid.steps)
    return Interval(*map(float, (times[0], times.min(), times.max())))


def short_episodes(name: str, settled: Interval, rows: int, period: float) -> str:
    """Says that episodes are too short to show what another tuning does; else nothing.

    They are if they hold less than three settling times even of the fastest member.

    Args:
        name: Tag of the loop.
        settled: Seconds that it takes to rest today.
        rows: Usual length of an episode.
        period: Seconds between rows.
    """
    if rows * period >= SETTLINGS * settled.low:
        return ""
    need = math.ceil(SETTLINGS * settled.value / period - 1e-9)
    time, low, high = map(duration_words, settled)
    return (
        f"{name}: an episode has {rows} rows, {duration_words(rows * period)}, and the loop takes "
        f"{time} [{low}, {high}] to rest after a step of its setpoint or load; three times that, "
        f"{need} rows or {duration_words(need * period)}, is needed, or a return does not show "
        f"what a tuning does; write length = {need} under [episodes] in plant.toml, or 0 where "
        "gaps end the episodes, and convert again; or rely on neorl-train loop, which takes none"
    )


def forgetful(name: str, model: LoopModel, rows: int, period: float) -> str:
    """Says that a plant model forgets a move before the measurement answers; else nothing.

    Args:
        name: Tag of the loop.
        model: What the log shows of its process.
        rows: Longest history of a plant model.
        period: Seconds between rows.
    """
    memory = rows * period
    if not model.usable or model.dead_time.low <= memory:
        return ""
    need, longer = (math.ceil(model.dead_time.high / length) for length in (period, rows))
    return (
        f"{name}: its dead time is about {model.dead_time.value:.3g} s, {need} rows, and a plant "
        f"model remembers at most {rows} rows, {memory:g} s, so it does not see what a move brings "
        f"about; convert the log with period_s = {longer} in plant.toml, or rely on neorl-train "
        "loop"
    )


def too_short(
    name: str, model: LoopModel, today: PIDGains, rows: int, period: float, most: int
) -> list[str]:
    """Why a loop cannot be retuned in a plant model of its log; nothing if it can.

    Nothing is said of a loop of which the log does not show a usable model.

    Args:
        name: Tag of the loop.
        model: What the log shows of its process.
        today: The loop today, in engineering units and parallel form.
        rows: Usual length of an episode.
        period: Seconds between rows.
        most: Longest history of a plant model, in rows.
    """
    settled = settling(model, today, period=period) if model.usable else None
    short = short_episodes(name, settled, rows, period) if settled else ""
    return [why for why in (short, forgetful(name, model, most, period)) if why]


def require_enough(
    reports: Sequence[LoopReport],
    policy: Policy,
    spec: Spec,
    lengths: Sequence[int] | np.ndarray,
    settings: HistoryModelSettings,
) -> HistoryModelSettings:
    """Refuses a log that is too short for its loops, before a plant model is learned from it.

    Nothing is said of a loop of which the log does not show a usable model.

    Args:
        reports: The declared loops.
        policy: Today's controller.
        spec: Channels of the log.
        lengths: Rows of each episode; the middle one counts, as gaps may cut a few of them short.
        settings: Settings of the plant model.

    Returns:
        The settings with those histories alone that cover the dead times.

    Raises:
        InputError: Names every loop with the length that there is and the length that is needed.
    """
    rows, most, reasons = int(np.median(lengths)), max(settings.history), list[str]()
    least = 0.0
    for report in reports:
        gains = gains_of_loop(policy, spec, report.record.tags["output"])
        if gains is not None and report.model.usable:
            reasons += too_short(report.record.name, report.model, gains, rows, spec.dt, most)
            least = max(least, report.model.dead_time.low)
    if reasons:
        raise InputError("; ".join(reasons))
    covering = tuple(one for one in settings.history if one * spec.dt >= least)
    return dataclasses.replace(settings, history=covering)
