"""Discrete-time barriers: a linear model keeps a quantity of the plant above zero."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from neorl_core import InputError
from neorl_safety.constraints._linear import malformed_rows
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
    signed,
)

NUMBERS = ("offset", "next_offset", "decay", "margin")
FIELDS = {"now", "next_by_obs", "next_by_action", *NUMBERS}
OPTIONAL = {"steps", "missed"}
"""Optional fields on the origin of the model; they do not affect any action."""


class Barrier(NamedTuple):
    """``h_next >= (1 - decay) h + margin``, where ``h`` and its prediction are linear.

    ``h = now @ obs + offset`` is safe where it is not negative, and ``h_next = next_by_obs @ obs +
    next_by_action @ u + next_offset`` is a model's prediction.

    Attributes:
        now: Coefficients of the quantity, shape ``(row, obs)``.
        offset: Constant part of the quantity, shape ``(row,)``.
        next_by_obs: Coefficients of the prediction, shape ``(row, obs)``.
        next_by_action: Effect of the action on the prediction, shape ``(row, act)``.
        next_offset: Constant part of the prediction, shape ``(row,)``.
        decay: Fraction of the distance to the limit that may be used up within the prediction
            horizon, in (0, 1], shape ``(row,)``.
        margin: Margin for the error of the prediction, shape ``(row,)``.
        steps: Periods that the prediction looks ahead, shape ``(row,)``; NaN if not stated.
        missed: Fraction of the steps held out from the fit whose prediction error exceeded the
            margin, shape ``(row,)``; NaN if not stated.
    """

    now: Float[Array, "row obs"]
    offset: Float[Array, " row"]
    next_by_obs: Float[Array, "row obs"]
    next_by_action: Float[Array, "row act"]
    next_offset: Float[Array, " row"]
    decay: Float[Array, " row"]
    margin: Float[Array, " row"]
    steps: Float[Array, " row"] | None = None
    missed: Float[Array, " row"] | None = None


class BarrierKind:
    """``{"kind": "barrier", "now", "offset", "next_by_obs", "next_by_action", ...}``.

    Also has ``next_offset``, ``decay`` and ``margin``; coefficients as for the kind ``linear``.
    """

    def to_records(self, channels: Channels, constraint: Barrier) -> list[dict[str, Any]]:
        """One record for every barrier."""
        c: Any = jax.tree.map(np.asarray, constraint)
        return [
            {
                "now": coefficient_records(channels.obs, c.now[i]),
                "next_by_obs": coefficient_records(channels.obs, c.next_by_obs[i]),
                "next_by_action": coefficient_records(channels.action, c.next_by_action[i]),
                **{name: shortest(getattr(c, name)[i]) for name in NUMBERS},
                **{
                    name: shortest(value[i])
                    for name, value in (("steps", c.steps), ("missed", c.missed))
                    if value is not None and np.isfinite(value[i])
                },
            }
            for i in range(len(c.offset))
        ]

    def from_records(self, channels: Channels, records: Sequence[Record]) -> Barrier:
        """The barriers, in the order of the records."""
        rows: dict[str, list[Any]] = {field: [] for field in Barrier._fields}
        for where, fields in records:
            require_fields(where, fields, FIELDS, OPTIONAL)
            for field in sorted(OPTIONAL):
                is_given = field in fields
                rows[field].append(finite(where, field, fields[field]) if is_given else np.nan)
            for field in ("now", "next_by_obs", "next_by_action"):
                columns = channels.action if field == "next_by_action" else channels.obs
                rows[field].append(coefficients(columns, where, field, fields[field]))
            for field in NUMBERS:
                rows[field].append(finite(where, field, fields[field]))
            require(0 < rows["decay"][-1] <= 1, f"{where}: decay must lie in (0, 1]")
            require(rows["margin"][-1] >= 0, f"{where}: margin must not be negative")
            require(
                bool(np.any(rows["next_by_action"][-1])),
                f"{where}: no action changes the prediction, so no action can keep the limit; "
                "predict further ahead (steps)",
            )
        parts = [
            jnp.asarray(np.reshape(rows[field], (len(records), -1)), jnp.float32)
            if field in ("now", "next_by_obs", "next_by_action")
            else column(rows[field])
            for field in Barrier._fields
        ]
        return Barrier(*parts)

    def describe(self, channels: Channels, constraint: Barrier) -> list[str]:
        """For example ``"T_R at most 380 K, by a linear model: ..."``."""
        c: Any = jax.tree.map(np.asarray, constraint)
        missing_values = np.full(len(c.offset), np.nan)
        steps, missed = (missing_values if part is None else part for part in (c.steps, c.missed))
        sentences = []
        for i, (now, offset) in enumerate(zip(c.now, c.offset, strict=True)):
            horizon_text = "" if np.isnan(steps[i]) else f" {_steps(steps[i])} ahead"
            sentence = (
                f"{_limit_text(channels, now, float(offset))}, by a linear model: its prediction"
                f"{horizon_text} keeps {100 * (1 - c.decay[i]):g} % of the present distance to the "
                f"limit and a margin of {c.margin[i]:.4g}"
            )
            if not np.isnan(missed[i]):
                missed_share = f"{100 * missed[i]:.2g} %"
                sentence += f", which the error exceeded in {missed_share} of the held-out steps"
            sentences.append(sentence)
        return sentences

    def lower(self, constraint: Barrier, situation: Situation) -> Rows:
        """The rows ``-next_by_action @ u <= h_next(u = 0) - (1 - decay) h - margin``."""
        dtype = situation.start.dtype
        c: Barrier = jax.tree.map(lambda leaf: leaf.astype(dtype), constraint)
        shrinkage = 1 - c.decay
        by_obs = c.next_by_obs - shrinkage[:, None] * c.now
        # A lost observation that the row does not use must not spoil it: 0 NaN is NaN.
        parts = jnp.where(by_obs == 0, 0, by_obs * situation.obs.astype(dtype)[None])
        bounds = jnp.sum(parts, axis=-1) + c.next_offset - shrinkage * c.offset - c.margin
        rows = -c.next_by_action
        usable = (c.decay > 0) & (c.decay <= 1) & (c.margin >= 0)
        return Rows(rows, bounds, malformed_rows(rows, bounds) | ~usable)


def _steps(count: float) -> str:
    return "one step" if count == 1 else f"{count:g} steps"


def _limit_text(channels: Channels, now: np.ndarray, offset: float) -> str:
    """What a barrier keeps: one observation below or above its limit, or a sum above zero."""
    (indices,) = np.nonzero(now)
    if len(indices) == 1 and abs(now[indices[0]]) == 1:
        channel, weight = channels.obs[indices[0]], float(now[indices[0]])
        side = "at most" if weight < 0 else "at least"
        return f"{channel.name} {side} {-offset / weight:g} {channel.unit}"
    return f"{row_text(channels.obs, now)} {signed(offset)} stays above zero"


def barrier_records(
    channels: Channels,
    model: tuple[ArrayLike, ArrayLike, ArrayLike],
    *,
    keep: Mapping[str, float],
    at_most: float,
    decay: float,
    margin: float = 0.0,
    steps: int = 1,
) -> list[dict[str, Any]]:
    """Keeps a weighted sum of observations at or below a limit, by a linear model of the plant.

    With ``h(x) = at_most - keep @ x`` and the model ``x_next = A x + B u + c``, with ``u`` held for
    ``steps`` periods: ``h(x_steps) >= (1 - decay) h(x) + margin``. Exact for the model, since both
    are linear. For the plant it holds only as far as the model and the margin do.

    Args:
        channels: Channels of action and observation, such as ``channels_of(constraints)``.
        model: ``A`` of shape ``(obs, obs)``, ``B`` of shape ``(obs, act)``, ``c`` of shape
            ``(obs,)``, for one period, in physical units.
        keep: Weight of every observation in the sum, by name.
        at_most: The limit, in the unit of the sum.
        decay: Fraction of the distance to the limit that may be used up in these periods, in (0,
            1].
        margin: Allowance for the prediction error, for example a conformal quantile of it.
        steps: Periods ahead; more than one if an action acts with delay.

    Returns:
        One record of the kind ``barrier``, for :func:`declared_constraints`.

    Raises:
        InputError: If a shape does not match the channels, ``steps`` is below one or a name is
            unknown.

    Source: Agrawal and Sreenath, Discrete control barrier functions, RSS 2017.
    """
    n_obs, n_action = len(channels.obs), len(channels.action)
    a, b, c = (np.asarray(part, np.float64) for part in model)
    for part, shape in ((a, (n_obs, n_obs)), (b, (n_obs, n_action)), (c, (n_obs,))):
        if part.shape != shape:
            raise InputError(f"a part of the model has shape {part.shape}; expected {shape}")
    if steps < 1:
        raise InputError(f"steps must be at least one, got {steps}")
    names = [channel.name for channel in channels.obs]
    unknown = sorted(set(keep) - set(names))
    if unknown:
        raise InputError(
            f"keep names {', '.join(unknown)}; the observations are {', '.join(names)}"
        )
    weight = np.array([keep.get(name, 0.0) for name in names])
    state, effect, constant = np.eye(n_obs), np.zeros_like(b), np.zeros_like(c)
    for _ in range(steps):
        state, effect, constant = a @ state, a @ effect + b, a @ constant + c
    return [
        {
            "kind": "barrier",
            "now": _coefficients(channels.obs, -weight),
            "offset": float(at_most),
            "next_by_obs": _coefficients(channels.obs, -weight @ state),
            "next_by_action": _coefficients(channels.action, -weight @ effect),
            "next_offset": float(at_most - weight @ constant),
            "decay": float(decay),
            "margin": float(margin),
        }
    ]


def _coefficients(channels: Sequence[Any], row: np.ndarray) -> dict[str, dict[str, Any]]:
    return coefficient_records(channels, np.asarray(row, np.float32))
