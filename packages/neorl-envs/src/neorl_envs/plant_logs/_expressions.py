"""Expressions over tags: the SQL expressions of polars, one row at a time, never Python's own.

They hold arithmetic, comparisons, ``CASE WHEN``, ``abs``, ``greatest``, ``least``, ``power``,
``sqrt``, ``exp``, ``ln`` and the like, and neither names nor calls of Python. What looks beyond
its own row, as a sum or a window does, is refused: it would carry the future into the reward.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from neorl_core import InputError
from neorl_core.infrastructure import nearest_name

PROBES = 5


class Expression:
    """An expression over named columns; unknown where one of them is.

    Args:
        text: The expression.
        names: Columns that it may use.
        source: Named in the messages, as ``"plant.toml: reward.expression"``.

    Raises:
        InputError: If it cannot be read, uses another name, or looks beyond its row.
    """

    def __init__(self, text: str, names: Sequence[str], source: str) -> None:
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
        """One number a row, float64; NaN where a column it uses is NaN, or it has no value."""
        rows = len(next(iter(columns.values())))
        frame = pl.DataFrame({name: columns[name] for name in self.roots} or {"": np.zeros(rows)})
        value = self._of(frame)
        known = np.ones(rows, np.bool_)
        for name in self.roots:
            known &= ~np.isnan(columns[name])
        return np.where(known, value, np.nan)

    def tree(self) -> Any:
        """The expression as plain values, in the form that this version of polars gives it."""
        return json.loads(self._expression.meta.serialize(format="json"))

    def _of(self, frame: pl.DataFrame) -> np.ndarray:
        value = frame.fill_nan(None).select(
            self._expression.cast(pl.Float64, strict=False).alias("value")
        )["value"]
        if len(value) == 1 and len(frame) != 1:
            value = value.new_from_index(0, len(frame))
        return value.fill_null(math.nan).to_numpy()

    def _require_one_row(self, text: str, source: str) -> None:
        """Raises unless rows together give what they give alone."""
        random = np.random.default_rng(0)
        frame = pl.DataFrame({name: random.uniform(1, 9, PROBES) for name in self.roots or [""]})
        try:
            together = self._of(frame)
            alone = [self._of(frame.slice(row, 1)) for row in range(PROBES)]
        except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
            raise InputError(f"{source}: cannot compute {text!r}: {_reason(error)}") from error
        # polars rounds a division of one row otherwise than that of many
        if together.shape != (PROBES,) or not np.allclose(
            together, np.concatenate(alone), rtol=1e-9, atol=1e-12, equal_nan=True
        ):
            raise InputError(
                f"{source}: {text!r} looks beyond its row (a sum, mean or window); only values of "
                "one step may enter"
            )


def _reason(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
