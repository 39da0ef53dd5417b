"""Barriers from a log: a linear model, its error on held-out steps, and the resulting record."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from neorl_core import InputError
from neorl_core.linear_systems import identify_linear
from neorl_safety.constraints._barrier import barrier_records
from neorl_safety.constraints._protocol import (
    Channels,
    Record,
    coefficients,
    index_of,
    number,
    require,
    require_fields,
    require_unit,
)

HELD_OUT, MISSES, DECAY, MOST_STEPS, SUFFICIENT_RATIO = 0.25, 0.05, 0.5, 20, 3.0
OPTIONAL = {"obs", "sum", "unit", "at_most", "at_least", "steps", "decay", "misses"}


class IdentifiedModel(NamedTuple):
    """A linear model of a log, ``x_next = state @ x + effect @ u + constant``, in physical units.

    Attributes:
        state: Shape ``(obs, obs)``.
        effect: Shape ``(obs, act)``.
        constant: Shape ``(obs,)``.
        action_spans: Width of the range that holds 98 % of the log's actions, shape ``(act,)``.
        held_out: Gap-free pieces of the log that were not used for the fit: observations of shape
            ``(time, obs)`` and actions of shape ``(time, act)``.
    """

    state: np.ndarray
    effect: np.ndarray
    constant: np.ndarray
    action_spans: np.ndarray
    held_out: tuple[tuple[np.ndarray, np.ndarray], ...]

    def errors(self, weight: np.ndarray, steps: int) -> np.ndarray:
        """Held-out excess of ``weight @ x`` over its prediction ``steps`` steps ahead."""
        errors = [np.zeros(0)]
        for obs, action in self.held_out:
            count = len(obs) - steps
            if count <= 0:
                continue
            x = obs[:count]
            for step in range(steps):
                x = x @ self.state.T + action[step : count + step] @ self.effect.T + self.constant
            errors.append((obs[steps:] - x) @ weight)
        return np.concatenate(errors)


def identified_model(
    obs: ArrayLike, action: ArrayLike, starts: ArrayLike, *, mask: ArrayLike | None = None
) -> IdentifiedModel:
    """Fits a linear model to a log; the last quarter of its rows is held out to measure the error.

    Args:
        obs: Observations, shape ``(time, obs)``, physical units.
        action: Action that the plant received in each row, shape ``(time, act)``.
        starts: First row of every episode, ascending from 0.
        mask: False for rows to leave out; rows that hold a NaN are always left out.

    Returns:
        The model, for ``keep_below`` in :func:`declared_constraints`.

    Raises:
        InputError: If the log has too few rows, or does not determine a model because some action
            or observation never moves.

    Example:
        >>> import numpy as np
        >>> from neorl_safety.constraints import identified_model
        >>> rng = np.random.default_rng(0)
        >>> u = rng.normal(size=(400, 1))
        >>> x = np.zeros((400, 1))
        >>> for t in range(399):
        ...     x[t + 1] = 0.9 * x[t] + 0.2 * u[t]
        >>> identified_model(x, u, [0]).effect.round(3).tolist()
        [[0.2]]
    """
    x, u = np.asarray(obs, np.float64), np.asarray(action, np.float64)
    usable = np.logical_and.reduce(np.isfinite(np.column_stack([x, u])), axis=1)
    if mask is not None:
        usable = usable & np.asarray(mask, bool)
    is_start = np.zeros(len(x), bool)
    is_start[np.asarray(starts, int)] = True
    pairs = np.flatnonzero(usable[:-1] & usable[1:] & ~is_start[1:])
    n_fitted = int(len(pairs) * (1 - HELD_OUT))
    n_obs, n_action = x.shape[1], u.shape[1]
    needed = 10 * (n_obs + n_action + 1)
    if len(pairs) < needed:
        raise InputError(
            f"the log has {len(pairs)} usable pairs of rows; a model of {n_obs} observations and "
            f"{n_action} actions needs at least {needed}"
        )
    first, ends = pairs[:n_fitted], jnp.zeros(n_fitted, bool)
    now, action_spans, following = (
        jnp.asarray(column, jnp.float32) for column in (x[first], u[first], x[first + 1])
    )
    model = identify_linear(now, action_spans, following, ends, ends, ridge=1e-6)
    parts = [np.asarray(part, np.float64) for part in (model.a, model.b, model.offset)]
    if not all(np.isfinite(part).all() for part in parts):
        raise InputError(
            "the log does not determine a linear model; does every action and observation move?"
        )
    state, effect, constant = parts
    spans = np.subtract(*np.quantile(u[first], [0.99, 0.01], axis=0))
    held_out_pairs = pairs[n_fitted:]
    breaks = np.flatnonzero(np.diff(held_out_pairs) != 1) + 1
    segments = [
        np.append(part, part[-1] + 1) for part in np.split(held_out_pairs, breaks) if len(part)
    ]
    return IdentifiedModel(
        state, effect, constant, spans, tuple((x[rows], u[rows]) for rows in segments)
    )


def keep_below_records(
    channels: Channels, record: Record, model: IdentifiedModel | None
) -> list[dict[str, Any]]:
    """Converts a record ``keep_below`` to barriers, with the prediction error that they assume.

    Args:
        channels: Channels of action and observation.
        record: ``obs`` (or ``sum``, weights by observation) with ``at_most`` or ``at_least``, and
            optionally ``steps``, ``decay`` and ``misses``.
        model: Model of the log; ``None`` if there is none.

    Returns:
        Records of the kind ``barrier``, one for each end.

    Raises:
        InputError: If there is no model, a field is bad, or the actions move the quantity by less
            than its prediction error.
    """
    where, fields = record
    require_fields(where, fields, set(), OPTIONAL)
    require(
        model is not None,
        f"{where}: this kind needs a model of the plant, identified from a log; name a log as the "
        "source of the run, or give `model=identified_model(...)`",
    )
    assert model is not None
    weight = _weights(channels, where, fields)
    ends = [(sign, number(where, end, fields[end])) for end, sign in ENDS if end in fields]
    require(bool(ends), f"{where}: give at_most, or at_least, or both")
    misses = number(where, "misses", fields.get("misses", MISSES))
    require(
        0 < misses < 1,
        f"{where}: misses must be a fraction of the steps, in (0, 1), got {misses:g}",
    )
    decay = number(where, "decay", fields.get("decay", DECAY))
    requested = fields.get("steps")
    is_integer = isinstance(requested, int) and not isinstance(requested, bool)
    require(
        requested is None or (is_integer and 1 <= requested <= MOST_STEPS),
        f"{where}: steps must be an integer from 1 to {MOST_STEPS}, got {requested!r}",
    )
    records = []
    for sign, limit in ends:
        steps, margin, missed = _best_lookahead(where, sign * weight, model, misses, requested)
        (barrier,) = barrier_records(
            channels,
            (model.state, model.effect, model.constant),
            keep={c.name: sign * w for c, w in zip(channels.obs, weight, strict=True) if w},
            at_most=sign * limit,
            decay=decay,
            margin=margin,
            steps=steps,
        )
        records.append({**barrier, "steps": steps, "missed": missed})
    return records


ENDS = (("at_most", 1.0), ("at_least", -1.0))


def _weights(channels: Channels, where: str, fields: Mapping[str, Any]) -> np.ndarray:
    require(
        ("obs" in fields) != ("sum" in fields), f"{where}: give obs, or sum with weights, not both"
    )
    if "sum" in fields:
        return np.asarray(coefficients(channels.obs, where, "sum", fields["sum"]), np.float64)
    index = index_of(channels.obs, where, "obs", fields["obs"])
    if "unit" in fields:
        require_unit(where, "unit", fields["unit"], channels.obs[index])
    return np.eye(len(channels.obs))[index]


def _best_lookahead(
    where: str,
    weight: np.ndarray,
    model: IdentifiedModel,
    misses: float,
    requested: int | None,
) -> tuple[int, float, float]:
    """Steps ahead, the margin for the prediction error, and how often it was exceeded.

    Chooses the fewest steps after which the actions move the quantity by three times its error.
    """
    lookaheads: list[tuple[float, int, float, float, float]] = []
    transition, effect = np.eye(len(weight)), np.zeros_like(model.effect)
    for steps in range(1, MOST_STEPS + 1):
        effect, transition = model.state @ effect + model.effect, model.state @ transition
        if requested not in (None, steps):
            continue
        errors = model.errors(weight, steps)
        if len(errors) < 1 / misses:
            break
        margin = max(float(np.quantile(errors, 1 - misses, method="higher")), 0.0)
        largest_effect = float(np.abs(weight @ effect) @ model.action_spans)
        # A model without any error gives a large ratio, and no division by zero.
        ratio = largest_effect / max(margin, 1e-12 * max(largest_effect, 1e-300))
        lookaheads.append((ratio, steps, margin, float(np.mean(errors > margin)), largest_effect))
        if ratio >= SUFFICIENT_RATIO:
            break
    require(
        bool(lookaheads),
        f"{where}: the log has too few held-out rows to estimate an error that the model exceeds "
        f"in only {misses:g} of them; record more, or raise misses",
    )
    ratio, steps, margin, missed, largest_effect = max(lookaheads)
    require(
        ratio > 1,
        f"{where}: within {steps} steps the actions of the log move the quantity by at most "
        f"{largest_effect:.3g}, which is not more than the error of the model, {margin:.3g}; use a "
        "log in which the actions move more",
    )
    return steps, margin, missed


def with_models(
    channels: Channels, records: Sequence[Mapping[str, Any]], model: IdentifiedModel | None
) -> list[Mapping[str, Any]]:
    """Replaces every record ``keep_below`` by barriers.

    Args:
        channels: Channels of action and observation.
        records: Declared records.
        model: Model of the log; ``None`` if there is none.

    Returns:
        Records that all belong to kinds of constraints. A record with two ends becomes two
        barriers; the second one stands after all other records, so that messages number every
        declared record as its author does.

    Raises:
        InputError: See :func:`declared_constraints`.
    """
    expanded: list[Mapping[str, Any]] = []
    second_ends: list[Mapping[str, Any]] = []
    for i, record in enumerate(records):
        if isinstance(record, Mapping) and record.get("kind") == "keep_below":
            fields = {name: value for name, value in record.items() if name != "kind"}
            named = Record(f"constraint {i + 1} (keep_below)", fields)
            first, *others = keep_below_records(channels, named, model)
            expanded.append(first)
            second_ends += others
        else:
            expanded.append(record)
    return expanded + second_ends
