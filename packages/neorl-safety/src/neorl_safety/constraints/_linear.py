"""Linear inequalities between actions, whose right sides may depend on the observation."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_safety.constraints._numbers import subnormal
from neorl_safety.constraints._protocol import (
    Channels,
    Record,
    Rows,
    Situation,
    coefficient_records,
    coefficients,
    column,
    finite,
    require,
    require_fields,
    row_text,
    shortest,
)


class Linear(NamedTuple):
    """``rows @ u <= at_most + by_obs @ obs``.

    Attributes:
        rows: Coefficients of the actions, shape ``(row, act)``.
        at_most: Constant part of the right side, shape ``(row,)``.
        by_obs: Coefficients of the observations in the right side, shape ``(row, obs)``.
    """

    rows: Float[Array, "row act"]
    at_most: Float[Array, " row"]
    by_obs: Float[Array, "row obs"]


class LinearKind:
    """``{"kind": "linear", "sum", "at_most", "plus"}``: one record per row.

    ``sum`` and ``plus`` hold a coefficient for each action and observation involved. It is a
    number, in the row's unit per unit of the channel, or the same number with its unit, ``{"feed":
    {"value": 1.0, "per": "kg/h"}}``. ``plus`` is optional. With ``at_least`` in place of
    ``at_most`` all signs are reversed; with both there are two rows. May also be declared as
    ``sum``.
    """

    def to_records(self, channels: Channels, constraint: Linear) -> list[dict[str, Any]]:
        """One record for every row."""
        return [
            {
                "sum": coefficient_records(channels.action, row),
                "at_most": shortest(at_most),
                "plus": coefficient_records(channels.obs, by_obs),
            }
            for row, at_most, by_obs in zip(*map(np.asarray, constraint), strict=True)
        ]

    def from_records(self, channels: Channels, records: Sequence[Record]) -> Linear:
        """The rows, in the order of the records."""
        rows, by_obs, at_most = [], [], []
        for where, fields in records:
            require_fields(where, fields, {"sum"}, {"at_most", "at_least", "plus"})
            row = coefficients(channels.action, where, "sum", fields["sum"])
            require(bool(row.any()), f"{where}: sum names no action, so nothing is limited")
            plus = coefficients(channels.obs, where, "plus", fields.get("plus", {}))
            ends = [end for end in ("at_most", "at_least") if end in fields]
            require(bool(ends), f"{where}: give at_most, or at_least, or both")
            for end in ends:
                sign = 1.0 if end == "at_most" else -1.0
                rows.append(sign * row)
                by_obs.append(sign * plus)
                at_most.append(sign * finite(where, end, fields[end]))
        shapes = (len(rows), len(channels.action)), (len(rows), len(channels.obs))
        return Linear(
            jnp.asarray(np.reshape(rows, shapes[0]), jnp.float32),
            column(at_most),
            jnp.asarray(np.reshape(by_obs, shapes[1]), jnp.float32),
        )

    def describe(self, channels: Channels, constraint: Linear) -> list[str]:
        """For example ``"1 feed + 2 jacket at most 500 + 0.5 T_R"``, or ``at least``."""
        sentences = []
        for row, at_most, by_obs in zip(*map(np.asarray, constraint), strict=True):
            # A row of `at_least` is stored with the opposite sign.
            flipped = bool(np.signbit(at_most)) or not (row > 0).any()
            sign, side = (-1.0, "at least") if flipped else (1.0, "at most")
            sentences.append(
                f"{row_text(channels.action, sign * row)} {side} {sign * at_most:g} "
                f"{_signed_sum(row_text(channels.obs, sign * by_obs))}".rstrip()
            )
        return sentences

    def lower(self, constraint: Linear, situation: Situation) -> Rows:
        """The rows with their current right sides; bad if a number or a reading is not finite."""
        dtype = situation.start.dtype
        rows = constraint.rows.astype(dtype)
        by_obs, obs = constraint.by_obs.astype(dtype), situation.obs.astype(dtype)[None]
        # An unused reading may be lost: zero times NaN is NaN.
        parts = jnp.where(by_obs == 0, 0, by_obs * obs)
        bounds = constraint.at_most.astype(dtype) + jnp.sum(parts, axis=-1)
        return Rows(rows, bounds, malformed_rows(rows, bounds))


def malformed_rows(rows: Array, bounds: Array) -> Array:
    """Marks rows with a non-finite coefficient or right side, or a subnormal coefficient."""
    usable = jnp.all(jnp.isfinite(rows) & ~subnormal(rows), axis=-1) & jnp.isfinite(bounds)
    return ~usable


def _signed_sum(text: str) -> str:
    if not text:
        return ""
    return f"- {text[1:]}" if text.startswith("-") else f"+ {text}"
