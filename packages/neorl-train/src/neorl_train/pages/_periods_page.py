"""A loop before and after a change, on one page."""

from collections.abc import Sequence

from neorl_agents.loops import Interval, PeriodComparison, PeriodFigures, PeriodIndex
from neorl_train.judging._wording import NBSP, percent, significant
from neorl_train.pages._html import (
    Column,
    Content,
    Group,
    Html,
    bullets,
    join,
    page_with_answer,
    paragraph,
    table,
)

_BETTER = {True: "better", False: "worse", None: "not shown"}
_GOOD = {"better": True, "worse": False, "no difference shown": None}


def answer_words(found: PeriodComparison, roll_back: str = "") -> str:
    """The answer in a few words; ``roll_back`` are the values to go back to."""
    if found.answer == "worse":
        return f"worse: roll back to {roll_back or 'the old values'}"
    return found.answer


def answer_sentence(found: PeriodComparison) -> str:
    """Why, with what else may explain it, in sentences."""
    sentences = [*found.reason]
    if found.days_needed == found.days_needed:  # Not NaN.
        sentences.append(
            f"a difference of this size would probably show after {found.days_needed:.2g} days of "
            "each"
        )
    sentences += [f"caution: {one}" for one in found.cautions]
    return " ".join(f"{one[0].upper()}{one[1:]}." for one in sentences)


def periods_page(
    found: PeriodComparison, loop: str, files: tuple[str, str], roll_back: str = ""
) -> str:
    """The comparison as one HTML document, without scripts or external references.

    Args:
        found: The comparison.
        loop: Tag of the loop.
        files: Files of the period before and of that after.
        roll_back: Values to go back to.
    """
    question = f"Is {loop} better than before?"
    return page_with_answer(
        f"loop {loop}",
        question,
        answer_words(found, roll_back),
        answer_sentence(found),
        [
            ("indices", "Before and after", _table(found, files)),
            ("method", "How it was decided", _method(found)),
        ],
        good=_GOOD[found.answer],
        title=f"{loop}: {found.answer}",
    )


def _table(found: PeriodComparison, files: tuple[str, str]) -> Html:
    columns = [
        Column("Index", align="left"),
        Column("Unit", align="left"),
        Column("Before", files[0]),
        Column("After", files[1]),
        Column("After over before"),
        Column("Shown", align="left"),
    ]
    rows: list[Sequence[Content] | Group] = [_row(index) for index in found.indices.values()]
    rows.append(["oscillation", "", *(_swing(one) for one in (found.before, found.after)), "", ""])
    rows.append(
        ["time in automatic", "days", *(f"{one.days:.3g}" for one in (found.before, found.after)),
         "", ""]
    )  # fmt: skip
    return table(
        "In brackets: 95 % intervals, in which rows that depend on each other count as few.",
        columns,
        rows,
    )


def _row(index: PeriodIndex) -> list[Content]:
    share = index.name.startswith("share")
    ends = (index.before, index.after)
    shown = [_percent(one) if share else _interval(one) for one in ends]
    return [index.name, index.unit, *shown, _interval(index.ratio), _BETTER[index.better]]


def _interval(interval: Interval) -> str:
    value, low, high = (significant(number) for number in interval)
    if interval.low != interval.low:
        return "" if interval.value != interval.value else value
    return f"{value}{NBSP}[{low},{NBSP}{high}]"


def _percent(interval: Interval) -> str:
    value, low, high = (percent(min(number, 1.0)) for number in interval)
    return value if interval.low != interval.low else f"{value}{NBSP}[{low},{NBSP}{high}]"


def _swing(figures: PeriodFigures) -> str:
    swing = figures.oscillation
    if not float(swing.regularity) > 1:
        return "none that is regular"
    return f"period {significant(float(swing.period))} s"


def _method(found: PeriodComparison) -> Html:
    return join(
        [
            paragraph(
                "The answer rests on the mean size of setpoint minus measurement. It is better if "
                "the whole interval of its ratio lies below 1, and worse if it lies above, or if "
                "a regular oscillation began and the error grew. Without any change it would be "
                "better or worse in about 5 % of cases."
            ),
            bullets(
                [
                    f"Share of the time: an error above {found.band:g} counts as outside.",
                    "The Harris index compares the error with the least that any controller could "
                    "leave, so it depends less on how large the loads were.",
                ]
            ),
        ]
    )
