"""Formats numbers for people: aligned, with their interval, and without false precision."""

import math
from collections.abc import Iterable, Sequence

from neorl_core.costs import limit_kind
from neorl_train.judging._tables import Estimate, PolicyRow, ResultTables

MINUS, DASH, NBSP = "\N{MINUS SIGN}", "\N{EN DASH}", "\N{NO-BREAK SPACE}"


def no_simulator(plant: str = "NAME") -> str:
    """Why a log alone gives no answer, and the options that change that."""
    return (
        "there is no simulator of this plant, and its log alone does not show the results of "
        f"another policy; name a simulator with --evaluation.environment {plant}, or, for an "
        "estimate from the log, today's controller with --retuning.controller pid_imitation "
        "--classical.controllers pid_imitation"
    )


def decimals(estimates: Iterable[Estimate | None], *, most: int = 4) -> int:
    """Decimal places for a column of estimates: two significant digits of a typical width."""
    widths = _widths(estimates)
    return _digits(widths[len(widths) // 2], 2, most) if widths else 0


def finest(estimates: Iterable[Estimate | None]) -> int:
    """Decimal places for a column of very different estimates: one digit of the smallest width."""
    widths = _widths(estimates)
    return _digits(widths[0], 1, 2) if widths else 0


def _widths(estimates: Iterable[Estimate | None]) -> list[float]:
    widths = [estimate.high - estimate.low for estimate in estimates if estimate is not None]
    return sorted(width for width in widths if width > 0 and math.isfinite(width))


def _digits(width: float, significant: int, most: int) -> int:
    # The first digit of `width` stands floor(log10(width)) places before the point.
    return min(max(significant - 1 - math.floor(math.log10(width)), 0), most)


def significant(value: float, digits: int = 3) -> str:
    """A number without an interval, with significant digits and all digits before the point."""
    if value == 0 or not math.isfinite(value):
        return with_decimals(value, 0)
    return with_decimals(value, max(digits - 1 - math.floor(math.log10(abs(value))), 0))


def with_decimals(value: float, digits: int) -> str:
    """A number with a fixed number of decimal places and a real minus sign."""
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "infinite" if value > 0 else f"{MINUS}infinite"
    text = f"{value:,.{digits}f}".replace(",", "\N{THIN SPACE}")
    if float(f"{value:.{digits}f}") == 0:
        return f"{0:.{digits}f}"
    return text.replace("-", MINUS)


def interval(estimate: Estimate, digits: int) -> str:
    """An interval as ``[low, high]``."""
    return f"[{with_decimals(estimate.low, digits)},{NBSP}{with_decimals(estimate.high, digits)}]"


def with_interval(estimate: Estimate, digits: int) -> str:
    """An estimate as ``value [low, high]``."""
    return f"{with_decimals(estimate.value, digits)}{NBSP}{interval(estimate, digits)}"


def with_sign(value: float, digits: int) -> str:
    """A difference with its sign, even if it is positive."""
    text = with_decimals(value, digits)
    return text if value <= 0 or text.strip("0.") == "" else f"+{text}"


def sign_digits(estimate: Estimate, digits: int, *, most: int = 4) -> int:
    """Decimal places with which no non-zero end of a difference is rounded to zero.

    The sign of an end matters, so it gets as many digits as it needs, up to ``most``.
    """
    ends = [end for end in (estimate.low, estimate.high) if end != 0 and math.isfinite(end)]
    while digits < most and any(float(f"{end:.{digits}f}") == 0 for end in ends):
        digits += 1
    return digits


def difference(estimate: Estimate, digits: int, *, space: str = NBSP) -> str:
    """A paired difference with its interval, in which the sign of each end is visible.

    A normal space allows a line break before the interval.
    """
    digits = sign_digits(estimate, digits)
    return f"{with_sign(estimate.value, digits)}{space}{interval(estimate, digits)}"


def percent(fraction: float) -> str:
    """A fraction in per cent; small fractions are not rounded to zero."""
    if math.isnan(fraction):
        return DASH
    value = 100 * fraction
    if value in (0, 100):
        return f"{value:.0f}{NBSP}%"
    if value < 0.1:
        return f"<{NBSP}0.1{NBSP}%"
    return f"{value:.1f}{NBSP}%" if value < 99.95 else f">{NBSP}99.9{NBSP}%"


def fraction_interval(fraction: Estimate) -> str:
    """A fraction with its interval in per cent."""
    return (
        f"{percent(fraction.value)}{NBSP}[{percent(fraction.low)},{NBSP}{percent(fraction.high)}]"
    )


def plain(value: float) -> str:
    """A number on an axis, as short as possible."""
    return f"{value:g}"


def confidence(level: float) -> str:
    """A confidence level as text: ``95 %`` for 0.95."""
    return f"{100 * level:g} %"


def enumeration(names: Sequence[str]) -> str:
    """A list as text: ``a, b and c``."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


NARROW = 0.1
"""Part of a bound within which a number only just keeps or breaks it."""


def narrowly(value: float, bound: float) -> str:
    """What is said behind a bound that a number only just keeps or breaks; else nothing.

    Example:
        >>> narrowly(-24.28, 24.29), narrowly(24.3, 24.29), narrowly(3.0, 24.29)
        (', only just kept', ', only just broken', '')
    """
    size = abs(value)
    if not (bound > 0 and abs(size - bound) <= NARROW * bound):
        return ""
    return ", only just kept" if size <= bound else ", only just broken"


def quantity(value: float, unit: str) -> str:
    """A number with its unit; the unit ``1`` of dimensionless numbers is not shown."""
    return with_unit(number(value), unit)


def with_unit(text: str, unit: str) -> str:
    """A number as text with its unit, which is not shown if it is ``1`` or not known, ``?``.

    Example:
        >>> [with_unit("5", unit) for unit in ("bar", "1", "?", "100 units")]
        ['5 bar', '5', '5', '5 × 100 units']
    """
    if unit in ("1", "?"):
        return text
    return f"{text} × {unit}" if unit[:1].isdigit() else f"{text} {unit}"


def with_ends(value: float, low: float, high: float) -> str:
    """A number with its interval, all with three significant digits.

    Example:
        >>> with_ends(0.0202, 0.01532, 0.02508)
        '0.0202 [0.0153, 0.0251]'
    """
    return f"{short(value)} [{short(low)}, {short(high)}]"


def short(value: float, *, beside: float | None = None) -> str:
    """A number with three significant digits, and with all digits before the point.

    It gets more digits where rounding would put it on the other side of a number, or onto it.

    Args:
        value: The number.
        beside: Number that it is compared with, such as a limit.

    Example:
        >>> short(3.8729), short(-1234.5), short(5.0004, beside=5.0)
        ('3.87', '-1234', '5.0004')
    """
    if value == 0 or not math.isfinite(value):
        return number(value)
    places = -math.floor(math.log10(abs(value)))
    for digits in range(3, 10):
        decimals = max(digits - 1 + places, 0)
        text = f"{value:.{decimals}f}" if decimals < 7 else f"{value:.{digits - 1}e}"
        if "." in text and "e" not in text:
            text = text.rstrip("0").rstrip(".")
        rounded = float(text)
        if beside is None or (rounded > beside, rounded < beside) == (
            value > beside,
            value < beside,
        ):
            return text
    return number(value)


def amount(value: float, unit: str, *, beside: float | None = None) -> str:
    """A number as :func:`short` writes it, with its unit."""
    return with_unit(short(value, beside=beside), unit)


def number(value: float) -> str:
    """A number with four significant digits, without an exponent if possible."""
    if value != value:
        return "not a number"
    if value == 0:
        return "0"
    if 1e4 <= abs(value) < 1e7:
        return f"{value:.0f}"
    text = f"{value:.4g}"
    return text if "e" not in text else f"{value:.2e}"


def duration_words(seconds: float) -> str:
    """A time in the unit in which one plans.

    Example:
        >>> [duration_words(t) for t in (90, 5400, 36_000, 300_000)]
        ['1.5 min', '1.5 h', '10 h', '3.5 days']
    """
    if not math.isfinite(seconds):
        return "an unknown time"
    for size, least, word in ((86_400.0, 2 * 86_400.0, "days"), (3600.0, 3600.0, "h"),
                              (60.0, 60.0, "min")):  # fmt: skip
        if seconds >= least:
            return f"{seconds / size:.2g} {word}"
    return f"{seconds:.2g} s"


def table_text(tables: ResultTables) -> str:
    """Return, paired gain and limited costs of every policy, one line each.

    Learners are shown with their guard, as they would be deployed, all others as they are.
    """
    shown = [row for row in tables.rows if row.guarded == (row.role == "learner")]
    digits = decimals(row.returns for row in shown)
    heads = ["policy", f"return, {tables.reward_unit}"]
    if tables.environment:
        heads.append(f"gain over {tables.reference}")
    for channel in tables.spec.cost:
        text = limit_kind(channel).limit_words(channel.limit, channel.unit)
        heads.append(f"{channel.name} (limit {text})")
    cells = [heads, *(_cells(row, tables, digits) for row in shown)]
    where = (
        f"{tables.environment}, {tables.n_starts} common starts"
        if tables.environment
        else ("the log's own episodes; no policy was run")
    )
    title = f"{where}: mean [{confidence(tables.level)} interval]"
    return "\n".join([title, *align(cells)])


def _cells(row: PolicyRow, tables: ResultTables, digits: int) -> list[str]:
    name = f"{row.name} + guard" if row.guarded else row.name
    cells = [name, with_interval(row.returns, digits)]
    if tables.environment:
        gain = row.difference
        no_gain = row.name == tables.reference or gain is None
        cells.append("" if no_gain or gain is None else difference(gain, digits, space=" "))
    for cell in row.costs:
        cells.append(with_interval(cell.limited, decimals([cell.limited], most=2)))
    return cells


def align(cells: Sequence[Sequence[str]]) -> list[str]:
    """Aligns columns to their widest cells, the first one left, the others right."""
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
