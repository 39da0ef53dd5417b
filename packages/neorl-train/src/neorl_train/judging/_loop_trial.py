"""How to try new numbers of a loop: steps of the test, when to go back, what it touches."""

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neorl_agents.loops import LoopJudgement, LoopRecord, Replay, days_for
from neorl_train.judging._loop_change import LogFacts, LoopChange
from neorl_train.judging._wording import duration_words

SETTLINGS = 3
"""Settling times of a turn of the trial, at least."""
TURNS = 4
"""Turns of each setting in the trial, at least."""


def turn_length(settling: float) -> float:
    """Length of a turn of the trial in seconds: three settling times, rounded up to clock time."""
    least = SETTLINGS * settling
    unit = 3600.0 if least > 1800 else 300.0
    return unit * math.ceil(least / unit - 1e-9)


def trial_steps(
    record: LoopRecord,
    settling: Sequence[float],
    replayed: Replay | None,
    proposed: LoopJudgement,
    *,
    in_two_moves: bool,
) -> tuple[str, ...]:
    """The steps of a trial in hours and turns, in words.

    Args:
        record: Rows of the loop under today's numbers.
        settling: Settling times of today's and of the proposed loop in seconds.
        replayed: The log under both loops; ``None`` if it could not be replayed.
        proposed: Judgement of the proposed loop.
        in_two_moves: Whether there are halfway values.
    """
    turn = turn_length(max(settling))
    size = _step_size(record)
    overshoot = 100 * float(np.max(np.nan_to_num(proposed.setpoint_figures.overshoot)))
    moved = np.abs(np.asarray(proposed.setpoint.output, np.float64)).max() * size
    unit, output = record.measurement_unit, record.output_unit
    plan = []
    if in_two_moves:
        plan.append(
            "Gain or reset changes by more than a factor of two, so change it in two moves: type "
            f"the halfway values, watch for {duration_words(turn)}, then type the new ones."
        )
    plan.append(
        "Type the new values in automatic, at rest, with the output away from its limits. The "
        "output must not jump; if it does, type the old values and ask why."
    )
    plan.append(
        f"Move the setpoint by {f'{size:.2g} {unit}'.rstrip()} and back. Expected: overshoot up to "
        f"{overshoot:.0f} %, settled within {duration_words(settling[1])}, output moved by at most "
        f"{f'{moved:.2g} {output}'.rstrip()}."
    )
    ratio, days = _expected_ratio(replayed), math.nan
    if ratio is not None:
        days = days_for(record, ratio)
    turns = TURNS
    if math.isfinite(days):
        turns = max(TURNS, math.ceil(days * 86_400 / turn))
    whole = 2 * turns * turn
    plan.append(
        f"Then alternate: {duration_words(turn)} with the new values, {duration_words(turn)} with "
        f"the old ones (three settling times of {duration_words(max(settling))} or more), {turns} "
        f"turns of each, {duration_words(whole)} in all. Write down when each turn begins."
    )
    words = (
        f" By the replayed log it is {ratio:.2f} times as large." if ratio is not None
        else " The log was too short to say how long the trial must be; this is the least."
    )  # fmt: skip
    plan.append(
        "Export the turns with the new values as NEW.csv and those with the old ones as OLD.csv, "
        "and let neorl-train loop NEW.csv --before OLD.csv compare the mean size of setpoint "
        f"minus measurement.{words}"
    )
    return tuple(plan)


def one_at_a_time(changes: Sequence[LoopChange]) -> list[LoopChange]:
    """Lets the plan of every change begin with the others that were proposed with it.

    A sheet judges its loop while the others run as they do today.
    """
    if len(changes) < 2:
        return list(changes)
    planned = []
    for change in changes:
        others = ", ".join(one.loop for one in changes if one is not change)
        first = (
            f"New values are proposed for {others} too. Change one loop at a time, and leave the "
            "others as they are until its trial has ended: loops that act on each other may ring "
            "together although each alone is stable."
        )
        planned.append(dataclasses.replace(change, plan=(first, *change.plan)))
    return planned


def _expected_ratio(replayed: Replay | None) -> float | None:
    if replayed is None:
        return None
    old, new = (loop.absolute_error.value for loop in replayed.loops[:2])
    ratio = new / old if old > 0 else 1.0
    return ratio if 0 < ratio < 0.999 and math.isfinite(ratio) else None


def _step_size(record: LoopRecord) -> float:
    """A step of the setpoint that shows above the error, and is small on the instrument."""
    on = record.valid & record.automatic
    low, high = record.measurement_range
    deviation = float(np.std((record.setpoint - record.measurement)[on])) if on.any() else 0.0
    least = 0.02 * (high - low)
    size = max(least, 2 * deviation) if math.isfinite(deviation) else least
    return float(f"{min(size, 0.1 * (high - low)):.1g}")


def stop_rules(record: LoopRecord, settling: float, facts: LogFacts) -> tuple[str, ...]:
    """When to type the old numbers at once, in words."""
    on = record.valid & record.automatic
    error = np.abs((record.setpoint - record.measurement)[on])
    stop = []
    if len(error) and np.isfinite(error).all():
        stop.append(
            f"the measurement is more than {float(error.max()):.3g} {record.measurement_unit} from "
            "its setpoint, the largest distance in the log"
        )
    stop.append(
        "three swings in a row, each larger than the one before, without a move of setpoint or load"
    )
    stop.append(f"the output stands at a limit for more than {duration_words(settling)}")
    stop.append(
        "an alarm or interlock below" if facts.touched else "any alarm or interlock on the loop"
    )
    return tuple(stop)


def touched_by_loop(
    configuration: Mapping[str, Any], controlled: str, manipulated: str
) -> tuple[str, ...]:
    """Limits, costs and interlocks of a ``plant.toml`` that name the tags of a loop, in words.

    Args:
        configuration: The converted ``plant.toml``, as a dataset's provenance holds it.
        controlled: Tag of the measurement.
        manipulated: Tag of the output.
    """
    words = []
    for tag in configuration.get("tag", ()):
        # A range that is not declared is infinite, which is stored as text.
        low, high = float(tag.get("low", -math.inf)), float(tag.get("high", math.inf))
        if tag.get("name") in (controlled, manipulated) and math.isfinite(high - low):
            words.append(
                f"range of {tag['name']}: {low:g} to {high:g} {tag.get('unit', '')}".rstrip()
            )
    for lock in configuration.get("interlock", ()):
        sets = ", ".join(f"{name} = {value}" for name, value in lock.get("set", {}).items())
        text = f"interlock {lock.get('name', '')}: when {lock.get('when')}, set {sets}"
        words.append(text)
    words += [
        f"constraint {json.dumps(limit, default=str, ensure_ascii=False)}"
        for limit in configuration.get("constraint", ())
    ]
    words += [
        f"limit {cost.get('name', '')}: {cost.get('expression')}, at most {cost.get('limit')}"
        for cost in configuration.get("cost", ())
    ]
    named = re.compile(rf"(?<!\w)(?:{re.escape(controlled)}|{re.escape(manipulated)})(?!\w)")
    return tuple(one for one in words if named.search(one))
