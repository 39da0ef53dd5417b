"""Expressions over tags: SQL expressions of polars, evaluated row by row and never as Python code.

They may use arithmetic, comparisons, ``CASE WHEN``, ``abs``, ``greatest``, ``least``, ``power``,
``sqrt``, ``exp``, ``ln`` and the like, but no Python names or calls. An expression that looks
beyond its own row, such as a sum or a window, is refused: the reward could depend on the future.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Bool, Int

from neorl_core import InputError
from neorl_core.infrastructure import nearest_name

PROBES = 5


class Expression:
    """An expression over named columns; its value is unknown if any column it uses is.

    Args:
        text: The expression.
        names: Columns that it may use.
        source: Its place for error messages, such as ``"plant.toml: reward.expression"``.

    Raises:
        InputError: If it cannot be parsed, uses another name, or looks beyond its row.
    """

    def __init__(self, text: str, names: Sequence[str], source: str) -> None:
        self.text, self.source = text, source
        try:
            self._expression = pl.sql_expr(text)
            self.roots = sorted(set(self._expression.meta.root_names()))
        except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
            raise InputError(f"{source}: cannot read {text!r}: {_reason(error)}") from error
        for name in self.roots:
            if name not in names:
                near = nearest_name(name, names)
                hint = f"did you mean {near!r}? " if near else ""
                raise InputError(
                    f"{source}: {text!r} uses {name!r}, which is not a tag; {hint}put a name with "
                    "characters other than letters, digits and _ in double quotes"
                )
        self._require_one_row(text, source)

    def __call__(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """The value of every row, float64; NaN if a column it uses is NaN or it has no value."""
        rows = len(next(iter(columns.values())))
        frame = pl.DataFrame({name: columns[name] for name in self.roots} or {"": np.zeros(rows)})
        value = self._of(frame)
        known = np.ones(rows, np.bool_)
        for name in self.roots:
            known &= ~np.isnan(columns[name])
        return np.where(known, value, np.nan)

    def condition(
        self, columns: Mapping[str, np.ndarray], at: Int[np.ndarray, " row"]
    ) -> Bool[np.ndarray, " row"]:
        """Whether the expression is true in every row; false where its value is unknown.

        ``at`` is the time of every row in nanoseconds since 1970, for the message. Raises an
        ``InputError`` if a known value is neither 0 nor 1; the message names the time.
        """
        value = np.nan_to_num(self(columns), nan=0.0, posinf=np.inf, neginf=-np.inf)
        wrong = np.flatnonzero((value != 0) & (value != 1))
        if len(wrong):
            time = np.datetime_as_string(np.datetime64(int(at[wrong[0]]), "ns"), unit="s")
            raise InputError(
                f"{self.source}: {self.text!r} must be true or false (1 or 0), got "
                f"{value[wrong[0]]:g} at {time}Z; compare it with a number, such as "
                f"{self.text + ' > 0.5'!r}"
            )
        return value == 1

    def tree(self) -> Any:
        """The expression tree as plain values, in the format of this version of polars."""
        return json.loads(self._expression.meta.serialize(format="json"))

    def _of(self, frame: pl.DataFrame) -> np.ndarray:
        value = frame.fill_nan(None).select(
            self._expression.cast(pl.Float64, strict=False).alias("value")
        )["value"]
        if len(value) == 1 and len(frame) != 1:
            value = value.new_from_index(0, len(frame))
        return value.fill_null(math.nan).to_numpy()

    def _require_one_row(self, text: str, source: str) -> None:
        """Raises unless rows evaluated together have the same values as evaluated one by one."""
        random = np.random.default_rng(0)
        frame = pl.DataFrame({name: random.uniform(1, 9, PROBES) for name in self.roots or [""]})
        try:
            together = self._of(frame)
            alone = [self._of(frame.slice(row, 1)) for row in range(PROBES)]
        except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
            raise InputError(f"{source}: cannot compute {text!r}: {_reason(error)}") from error
        # polars rounds a division differently for one row than for many
        if together.shape != (PROBES,) or not np.allclose(
            together, np.concatenate(alone), rtol=1e-9, atol=1e-12, equal_nan=True
        ):
            raise InputError(
                f"{source}: {text!r} looks beyond its row (a sum, mean or window); only values of "
                "one step may enter"
            )


def _reason(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
