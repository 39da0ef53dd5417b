"""The rows of a batch in the units of the networks."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_agents.learning._limits import counted_cost_unit
from neorl_agents.networks import Window, step_features
from neorl_agents.policies import Preparation
from neorl_agents.sampling import Batch, ReturnsToGo, as_batch
from neorl_core import Transition

MARGIN = 1e-5
"""Logged actions are clipped to ``1 - MARGIN`` of their range: a tanh cannot reach its bound."""


class UnitRows(NamedTuple):
    """Rows in the units in which a learner's equations are written.

    A field that the batch does not have is ``None``, which the annotations leave out: a learner is
    given every field that its ``reads`` lists, except possibly ``mask``.

    Attributes:
        obs: Standardised observations; if networks see a window, the flattened windows.
        action: In [-1, 1], at least ``1e-5`` inside its bounds.
        reward: Rewards in the unit of the critics; over several steps, their discounted sum.
        cost: Each cost in units of its own; limits are ``preparation.cost_limit``.
        next_obs: Like ``obs``, of the next step, or of the last one of several steps.
        next_action: Like ``action``; zero at the end of an episode.
        terminated: True if the plant ended the episode, so that no value follows.
        truncated: True if the record ended here although the plant went on.
        mask: True for the rows to use; ``None`` if all are used.
        discount: Discount of the value that follows: the learner's own for every row, or that of
            several steps.
        mc_return: Return that followed in the log, in the unit of the critics; minus infinity if
            it is not known yet.
        weight: Weight of each row in the loss, if rows are not sampled uniformly; with a last axis
            of members for an ensemble whose members weight rows differently.
        to_go: Returns and costs that follow every step of the window, in units; a cost with a limit
            per step counts steps.
    """

    obs: Float[Array, "*batch obs"]
    action: Float[Array, "*batch act"]
    reward: Float[Array, " *batch"]
    cost: Float[Array, "*batch cost"]
    next_obs: Float[Array, "*batch obs"]
    next_action: Float[Array, "*batch act"]
    terminated: Bool[Array, " *batch"]
    truncated: Bool[Array, " *batch"]
    mask: Bool[Array, " *batch"] | None
    discount: Float[Array, " *batch"]
    mc_return: Float[Array, " *batch"]
    weight: Float[Array, " *batch"] | None = None
    to_go: ReturnsToGo | None = None


def unit_rows(
    preparation: Preparation,
    batch: Transition | Batch,
    *,
    discount: float | Float[Array, ""] = 1.0,
) -> UnitRows:
    """The batch as equations use it: standardised, actions in [-1, 1], rewards and costs in units.

    Rows whose mask is false become zeros, so that not even a NaN in them reaches a gradient.

    Args:
        preparation: Maps of the learner's state.
        batch: Rows in physical units, any leading axes. Fields may be ``None``.
        discount: Discount of the reward per step, for rows of one step.

    Returns:
        The rows in the units of the networks.

    Raises:
        ValueError: If the observations are not windows of ``preparation.window`` steps, or are
            windows although networks see none; if a field does not have the channels of the
            learner's specification, or one number or flag per row. The message names the field.
    """
    drawn_batch = as_batch(batch)
    _require_form(preparation, drawn_batch.rows.obs)
    _require_shapes(preparation, drawn_batch.rows)
    rows: Any = _without_masked(drawn_batch.rows)
    step_discount = jnp.asarray(discount, rows.action.dtype)
    row_discount = step_discount if drawn_batch.discount is None else drawn_batch.discount

    def converted(column: Any, in_units: Callable[[Preparation, Any], Any]) -> Any:
        return None if column is None else in_units(preparation, column)

    return UnitRows(
        obs=network_inputs(preparation, rows.obs),
        action=_clipped_action(preparation, rows.action),
        reward=converted(
            rows.reward, partial(_reward_in_units, step_discount, row_discount, rows.terminated)
        ),
        cost=converted(rows.cost, _cost_in_units),
        next_obs=converted(rows.next_obs, network_inputs),
        next_action=_next_action(preparation, rows),
        terminated=rows.terminated,
        truncated=rows.truncated,
        mask=rows.mask,
        discount=jnp.broadcast_to(row_discount, rows.action.shape[:-1]),
        mc_return=converted(drawn_batch.mc_return, partial(_return_in_units, step_discount)),
        weight=drawn_batch.weight,
        to_go=converted(drawn_batch.to_go, _to_go_in_units),
    )


def only_batch(rows: UnitRows) -> UnitRows:
    """The only batch of an update that takes one."""
    return nth_batch(rows, 0)


def nth_batch(rows: UnitRows, number: int) -> UnitRows:
    """One of the batches of an update."""
    return jax.tree.map(lambda x: x[number], rows)


def all_batches(rows: UnitRows) -> UnitRows:
    """All rows of an update as one batch."""
    return jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), rows)


def network_inputs(preparation: Preparation, obs: Any) -> Array:
    """An observation as networks see it: scaled, and flattened if it is a window."""
    if not isinstance(obs, Window):
        return preparation.obs.to_scaled(obs)
    steps = step_features(
        preparation.obs.to_scaled(obs.obs),
        preparation.action.to_scaled(obs.action),
        obs.obs_known,
        obs.action_known,
    )
    return steps.reshape(*steps.shape[:-2], -1)


def _require_form(preparation: Preparation, obs: Any) -> None:
    steps = obs.obs.shape[-2] if isinstance(obs, Window) else 0
    if steps != preparation.window:
        expected, received = (
            f"windows of {n} steps" if n else "rows" for n in (preparation.window, steps)
        )
        raise ValueError(
            f"the networks read {expected}, got {received}; sample batches with the learner's own "
            "sampler"
        )


def _require_shapes(preparation: Preparation, batch: Transition) -> None:
    rows = batch.action.shape[:-1]
    n_obs, n_action = preparation.obs.offset.shape[-1:], preparation.low.shape[-1:]
    expected: dict[str, tuple[int, ...]] = dict.fromkeys(
        ("reward", "terminated", "truncated", "mask"), ()
    )
    expected |= {"obs": n_obs, "next_obs": n_obs, "action": n_action, "next_action": n_action}
    expected["cost"] = preparation.cost_unit.shape[-1:]
    for name, channels in expected.items():
        column = getattr(batch, name)
        column = column.obs[..., 0, :] if isinstance(column, Window) else column
        if column is not None and column.shape != (*rows, *channels):
            raise ValueError(
                f"the batch does not fit the specification: {name} has the shape {column.shape}, "
                f"expected {(*rows, *channels)} for a plant with {n_obs[0]} observations and "
                f"{n_action[0]} actions; give rows of the plant that the learner was made for"
            )


def _reward_in_units(
    step_discount: Array,
    row_discount: Array,
    terminated: Any,
    preparation: Preparation,
    reward: Array,
) -> Array:
    """The reward, or the discounted sum of several, with the mean subtracted from each.

    If the plant ends an episode, the means of all the later steps are also subtracted from its last
    reward. Rewards are centred only if no logged row is terminated, but a plant on which the
    learner is fine-tuned may still end an episode. Every value is then ``offset / (1 - discount)``
    below the value without centring and, as without centring, an ended episode earns nothing more.
    """
    discount_sum = _discount_sum(step_discount, 1 - row_discount)
    if terminated is not None:
        discount_sum = jnp.where(terminated, _discount_sum(step_discount, 1.0), discount_sum)
    return (reward - preparation.reward_offset * discount_sum) / preparation.reward_unit


def _discount_sum(step_discount: Array, part: Array | float) -> Array:
    """The sum of discounts that multiplies a constant, if ``1 - part`` of the last value is left.

    ``1 + own + ... + own^(k - 1) = (1 - own^k) / (1 - own)``; 1 if nothing is discounted, in which
    case no reward is centred.
    """
    return jnp.where(
        step_discount < 1, part / jnp.where(step_discount < 1, 1 - step_discount, 1), 1
    )


def _cost_in_units(preparation: Preparation, cost: Array) -> Array:
    return cost / jnp.broadcast_to(preparation.cost_unit, cost.shape)


def _return_in_units(step_discount: Array, preparation: Preparation, returns: Array) -> Array:
    # A truncated episode continues for ever with the log's mean reward, and an episode that the
    # plant ended lacks the mean of every later step, so both are shifted by the same amount.
    offset = preparation.reward_offset * _discount_sum(step_discount, 1.0)
    # The return is not known before the episode ends; a masked row may hold anything.
    scaled = (returns - offset) / preparation.reward_unit
    return jnp.where(jnp.isfinite(scaled), scaled, -jnp.inf)


def _to_go_in_units(preparation: Preparation, to_go: ReturnsToGo) -> ReturnsToGo:
    # A learner that reads no costs has no costs ahead.
    unit = counted_cost_unit(preparation)[: to_go.costs.shape[-1]]
    return to_go._replace(
        returns=(to_go.returns - preparation.reward_offset * to_go.steps_left)
        / preparation.reward_unit,
        costs=to_go.costs / jnp.broadcast_to(unit, to_go.costs.shape),
    )


def _clipped_action(preparation: Preparation, action: Array) -> Array:
    limit = 1 - MARGIN
    return jnp.clip(preparation.action.to_scaled(action), -limit, limit)


def _next_action(preparation: Preparation, batch: Transition) -> Any:
    if batch.next_action is None:
        return None
    action = _clipped_action(preparation, batch.next_action)
    for ends in (batch.terminated, batch.truncated):
        if ends is not None:
            action = jnp.where(ends[..., None], 0, action)
    return action


def _without_masked(batch: Transition) -> Transition:
    mask = batch.mask
    if mask is None:
        return batch

    def zero(x: Array) -> Array:
        mask_like = mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))
        return jnp.where(mask_like, x, jnp.zeros((), x.dtype))

    def zeroed(x: Any) -> Any:
        return jax.tree.map(zero, x)

    return batch._replace(
        obs=zeroed(batch.obs),
        action=zeroed(batch.action),
        reward=zeroed(batch.reward),
        next_obs=zeroed(batch.next_obs),
        next_action=zeroed(batch.next_action),
        cost=zeroed(batch.cost),
    )
