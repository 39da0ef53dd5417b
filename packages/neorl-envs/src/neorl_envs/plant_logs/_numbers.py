"""Numbers as a log writes them: one parser for the draft and for the conversion.

A text is a number only if all of it follows the declared notation. A mark that was not declared is
never dropped: `51.84` under a decimal comma is refused, and not read as 5184.
"""

import dataclasses
from typing import Literal

import polars as pl

Decimal = Literal[".", ","]
Thousands = Literal["", ".", ",", " ", "'"]

MARKS = {".": r"\.", ",": ",", " ": "[ \u00a0\u2009\u202f]", "'": "['\u2019]"}
"""A mark between groups of three digits; any of the narrow spaces counts as a space."""
UNIT = r"(?:[^\W\d_]|[%\u2030\u00b0\u20ac$])[^,;]*"
"""What may follow a number in its cell: it begins with a letter or a sign such as % or a degree."""
NOT_A_NUMBER = r"^[+-]?(?i:nan)$"


@dataclasses.dataclass(frozen=True)
class Notation:
    """How the numbers of one tag are written.

    Attributes:
        decimal: The decimal mark.
        thousands: The mark between groups of three digits; empty where there is none.
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
        """Regular expression of digits in groups of three; a leading zero is no group."""
        return f"[1-9][0-9]{{0,2}}(?:{MARKS[self.thousands]}[0-9]{{3}})+"


def parse(text: pl.Series, notation: Notation) -> tuple[pl.Series, pl.Series | None]:
    """Numbers of texts without spaces at their ends.

    Args:
        text: Texts; null where there is none.
        notation: How numbers are written.

    Returns:
        The numbers as float64: null where a text does not follow the notation, and NaN where it
        says so itself. Second, the unit that follows each number in its cell; ``None`` where no
        cell has one.
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
    """Whether a number has a thousands mark."""
    return text.str.contains(rf"^[+\u2212-]?{notation.grouped}").fill_null(False)


def decides(text: pl.Series, notation: Notation) -> pl.Series:
    """Whether a number shows that its mark separates thousands: two groups, or a decimal mark."""
    group, decimal = MARKS[notation.thousands], MARKS[notation.decimal]
    two_groups, mark = f"{notation.grouped}{group}", f"(?:[0-9]|{group})*{decimal}"
    return text.str.contains(rf"^[+\u2212-]?(?:{two_groups}|{mark})").fill_null(False)


def is_long(text: pl.Series) -> pl.Series:
    """Whether a number has four digits or more in a row before any mark."""
    return text.str.contains(r"^[+\u2212-]?[0-9]{4}").fill_null(False)


def advice(text: str, notation: Notation) -> str:
    """What to do about a text that does not follow the notation."""

    def fits(decimal: Decimal, thousands: Thousands = "") -> bool:
        number, _ = parse(pl.Series([text], dtype=pl.String), Notation(decimal, thousands))
        return number.is_finite().fill_null(False).all()

    other: Decimal = "," if notation.decimal == "." else "."
    marks: tuple[Thousands, ...] = (other, " ", "'")
    hints = [f"decimal = {quoted(other)} in its [[tag]]"] if fits(other) else []
    hints += [
        f"log.thousands = {quoted(mark)} if the mark separates thousands"
        for mark in marks
        if mark != notation.thousands and fits(notation.decimal, mark)
    ]
    if not hints and any(fits(other, mark) for mark in (notation.decimal, *marks[1:])):
        hints = [f"decimal = {quoted(other)} in its [[tag]], and log.thousands"]
    if hints:
        declared = f"the decimal mark {quoted(notation.decimal)} is declared"
        return f"{declared}; set {', or '.join(hints)}"
    return "add the text to log.missing if it stands for none"


def quoted(mark: str) -> str:
    """A mark as TOML writes it."""
    return f'"{mark}"'
