"""Parser of the numbers in a log, shared by the draft and the conversion.

A text is a number only if all of it follows the declared notation. An undeclared mark is never
dropped: with a decimal comma, `51.84` is refused rather than read as 5184.
"""

import dataclasses
from typing import Literal

import polars as pl

Decimal = Literal[".", ","]
Thousands = Literal["", ".", ",", " ", "'"]

MARKS = {".": r"\.", ",": ",", " ": "[ \u00a0\u2009\u202f]", "'": "['\u2019]"}
"""Patterns of marks between groups of three digits; narrow spaces count as spaces."""
UNIT = r"(?:[^\W\d_]|[%\u2030\u00b0\u20ac$])[^,;]*"
"""Text that may follow a number in its cell; it begins with a letter or a sign such as % or °."""
NOT_A_NUMBER = r"^[+-]?(?i:nan)$"


@dataclasses.dataclass(frozen=True)
class Notation:
    """Notation of the numbers of one tag.

    Attributes:
        decimal: The decimal mark.
        thousands: The mark between groups of three digits; empty if there is none.
    """

    decimal: Decimal = "."
    thousands: Thousands = ""

    @property
    def pattern(self) -> str:
        """Regular expression of a number, without anchors."""
        mark = MARKS[self.decimal]
        whole = "[0-9]+"
        if self.thousands:
            whole = f"(?:{self.grouped}|[0-9]+)"
        exponent = "(?:[eE][+-]?[0-9]+)?"
        return f"[+\u2212-]?(?:{whole}(?:{mark}[0-9]*)?|{mark}[0-9]+){exponent}"

    @property
    def grouped(self) -> str:
        """Regular expression of digits in groups of three, the first of which is not a zero."""
        return f"[1-9][0-9]{{0,2}}(?:{MARKS[self.thousands]}[0-9]{{3}})+"


def parse(text: pl.Series, notation: Notation) -> tuple[pl.Series, pl.Series | None]:
    """Parses texts that have no leading or trailing spaces.

    Null stands for an empty cell. Returns the numbers as float64 (null for a text that does not
    follow the notation, NaN for the text NaN), and the unit that follows each number in its cell
    (``None`` if no cell has one).
    """
    number, units = text, None
    if not text.str.contains(f"^(?:{notation.pattern})$").fill_null(True).all():
        whole = rf"^({notation.pattern})\s*({UNIT})?$"
        number, units = text.str.extract(whole, 1), text.str.extract(whole, 2)
        units = units if units.is_not_null().any() else None
        absent = text.str.contains(NOT_A_NUMBER).fill_null(False)
        number = pl.select(pl.when(absent).then(pl.lit("nan")).otherwise(number)).to_series()
    if notation.thousands:
        number = number.str.replace_all(MARKS[notation.thousands], "")
    if notation.decimal != ".":
        number = number.str.replace(notation.decimal, ".", literal=True)
    return number.str.replace("\u2212", "-", literal=True).cast(pl.Float64, strict=False), units


def is_grouped(text: pl.Series, notation: Notation) -> pl.Series:
    """Whether each text is a number with a thousands mark."""
    return text.str.contains(rf"^[+\u2212-]?{notation.grouped}").fill_null(False)


def decides(text: pl.Series, notation: Notation) -> pl.Series:
    """Whether a number proves that its mark separates thousands: two groups, or a decimal mark."""
    group, decimal = MARKS[notation.thousands], MARKS[notation.decimal]
    two_groups, mark = f"{notation.grouped}{group}", f"(?:[0-9]|{group})*{decimal}"
    return text.str.contains(rf"^[+\u2212-]?(?:{two_groups}|{mark})").fill_null(False)


def is_long(text: pl.Series) -> pl.Series:
    """Whether a number has four or more consecutive digits before any mark."""
    return text.str.contains(r"^[+\u2212-]?[0-9]{4}").fill_null(False)


def advice(text: str, notation: Notation) -> str:
    """Advice for an error message on a text that does not follow the notation."""

    def fits(decimal: Decimal, thousands: Thousands = "") -> bool:
        number, _ = parse(pl.Series([text], dtype=pl.String), Notation(decimal, thousands))
        return number.is_finite().fill_null(False).all()

    other: Decimal = "," if notation.decimal == "." else "."
    marks: tuple[Thousands, ...] = (other, " ", "'")
    hints = [f"decimal = {quote(other)} in its [[tag]]"] if fits(other) else []
    hints += [
        f"log.thousands = {quote(mark)} if the mark separates thousands"
        for mark in marks
        if mark != notation.thousands and fits(notation.decimal, mark)
    ]
    if not hints and any(fits(other, mark) for mark in (notation.decimal, *marks[1:])):
        hints = [f"decimal = {quote(other)} in its [[tag]], and log.thousands"]
    if hints:
        declared = f"the decimal mark {quote(notation.decimal)} is declared"
        return f"{declared}; set {', or '.join(hints)}"
    return "add the text to log.missing if it stands for none"


def quote(mark: str) -> str:
    """A mark in TOML notation."""
    return f'"{mark}"'
