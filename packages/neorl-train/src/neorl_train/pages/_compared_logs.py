"""Loops before and after a change: compared, written as pages, and in words."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from neorl_agents.loops import LoopRecord, PeriodComparison, compare_periods
from neorl_core import InputError
from neorl_core.infrastructure import write_text
from neorl_train.pages._periods_page import answer_sentence, answer_words, periods_page
from neorl_train.pages.sections._loop_change import file_part


class ComparedLoop(NamedTuple):
    """One loop in two logs.

    Attributes:
        loop: Its tag.
        found: The comparison.
        page: The page that shows it.
        words: The answer, with the values to go back to if it is worse.
        sentence: Why.
    """

    loop: str
    found: PeriodComparison
    page: Path
    words: str
    sentence: str


def compared_logs(
    before: Sequence[LoopRecord],
    after: Sequence[LoopRecord],
    folder: Path,
    *,
    files: tuple[str, str],
    band: float | None = None,
    dead_times: Mapping[str, float] = {},
    settling_times: Mapping[str, float] = {},
    roll_back: Mapping[str, str] = {},
) -> list[ComparedLoop]:
    """Compares every loop that both logs hold, and writes a page for each.

    Args:
        before: Loops of the log under the old values.
        after: Loops of the log under the new ones.
        folder: Where the pages go.
        files: Names of the two logs, for the pages.
        band: Size of the error up to which a row counts as inside; by default the standard
            deviation of the old error.
        dead_times: Dead time of a loop in seconds, by its tag.
        settling_times: Settling time of a loop in seconds, by its tag.
        roll_back: Values to go back to, in words, by tag.

    Raises:
        InputError: If no loop is in both logs, or a loop cannot be compared.
    """
    old = {record.name: record for record in before}
    both = [record for record in after if record.name in old]
    if not both:
        raise InputError(
            f"no loop is in both logs: {files[0]} has {', '.join(old)}, {files[1]} has "
            f"{', '.join(record.name for record in after)}; name the columns of one loop alike"
        )
    compared = []
    for record in both:
        name = record.name
        found = compare_periods(
            old[name],
            record,
            band=band if band is not None else usual_band(old[name]),
            dead_time=dead_times.get(name, 0.0),
            settling_time=settling_times.get(name, 0.0),
        )
        back = roll_back.get(name, "")
        page = folder / f"{file_part(name)}-before-and-after.html"
        write_text(page, periods_page(found, name, files, back))
        words, sentence = answer_words(found, back), answer_sentence(found)
        compared.append(ComparedLoop(name, found, page, words, sentence))
    return compared


def usual_band(record: LoopRecord) -> float:
    """The standard deviation of the logged error, with two digits.

    Raises:
        InputError: If the error does not vary.
    """
    on = record.valid & record.automatic
    error = (record.setpoint - record.measurement)[on]
    deviation = float(np.std(error)) if len(error) else np.nan
    if not (np.isfinite(deviation) and deviation > 0):
        raise InputError(f"{record.name}: its error does not vary in automatic; give a band")
    return float(f"{deviation:.2g}")
