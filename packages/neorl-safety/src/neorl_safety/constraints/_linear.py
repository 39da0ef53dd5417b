"""Linear inequalities between actions, with right sides that may depend on the observation."""

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
    require,
    require_fields,
)
from neorl_safety.constraints._records import (
    coefficient_records,
    coefficients,
    column,
    finite,
    row_words,
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
    """``{"kind": "linear", "sum", "at_most", "plus"}``: one record a row.

    ``sum`` and ``plus`` hold a coefficient with its unit for each action and observation that
    takes part: ``{"feed": {"value": 1.0, "per": "kg/h"}}``. A row that is to be at least something
    has all its signs turned.
    """

    def to_records(self, channels: Channels, constraint: Linear) -> list[dict[str, Any]]:
        """A record for every row."""
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
        rows = np.zeros((len(records), len(channels.action)), np.float32)
        by_obs = np.zeros((len(records), len(channels.obs)), np.float32)
        at_most = []
        for i, (where, fields) in enumerate(records):
            require_fields(where, fields, {"sum", "at_most", "plus"})
            rows[i] = coefficients(channels.action, where, "sum", fields["sum"])
            require(bool(rows[i].any()), f"{where}: sum names no action, so nothing is limited")
            by_obs[i] = coefficients(channels.obs, where, "plus", fields["plus"])
            at_most.append(finite(where, "at_most", fields["at_most"]))
        return Linear(jnp.asarray(rows), column(at_most), jnp.asarray(by_obs))

    def describe(self, channels: Channels, constraint: Linear) -> list[str]:
        """Such as ``"1 feed +2 jacket at most 500 +0.5 T_R"``."""
        return [
            f"{row_words(channels.action, row)} at most {at_most:g} "
            f"{_signed(row_words(channels.obs, by_obs))}".rstrip()
            for row, at_most, by_obs in zip(*map(np.asarray, constraint), strict=True)
        ]

    def lower(self, constraint: Linear, situation: Situation) -> Rows:
        """The rows with their right sides of now; bad where a number or a reading is not finite."""
        dtype = situation.start.dtype
        rows = constraint.rows.astype(dtype)
        by_obs, obs = constraint.by_obs.astype(dtype), situation.obs.astype(dtype)[None]
        # A reading that takes no part may be lost: zero times NaN is NaN.
        parts = jnp.where(by_obs == 0, 0, by_obs * obs)
        bounds = constraint.at_most.astype(dtype) + jnp.sum(parts, axis=-1)
        return Rows(rows, bounds, malformed_rows(rows, bounds))


def malformed_rows(rows: Array, bounds: Array) -> Array:
    """Where a coefficient or a right side is not finite, or a coefficient subnormal."""
    fine = jnp.all(jnp.isfinite(rows) & ~subnormal(rows), axis=-1) & jnp.isfinite(bounds)
    return ~fine


def _signed(words: str) -> str:
    return words if not words or words.startswith("-") else f"+{words}"
