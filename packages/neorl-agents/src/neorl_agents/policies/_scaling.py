"""Between the physical units of a log and the units that learners see."""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_agents.networks import ActingNetwork, Window, step_features
from neorl_agents.policies._history_policy import HistoryPolicy
from neorl_agents.policies._network_policy import NetworkPolicy
from neorl_core import (
    Affine,
    DataStatistics,
    Spec,
    Transition,
    highs,
    lows,
    standardiser,
    unit_interval,
)

RewardScale = Literal["none", "std", "return_range"]
"""What the reward is divided by; see :func:`init_scaling`."""

ROUNDING = 2.5e-7
"""Rewards that differ by no more than this part of their size are one reward, rounded."""

MARGIN = 1e-5
"""Logged actions are clipped to ``1 - MARGIN`` of their range: a tanh cannot reach its bound."""


class Scaling(eqx.Module):
    """The maps that a learner carries in its state, so that they travel with it. Not trained.

    Attributes:
        obs: Map that standardises observations.
        action: Map from the range of every action channel to [-1, 1].
        low: Lower ends of the action channels, physical units.
        high: Upper ends.
        reward: The reward that a learner sees as one, in the unit of the reward.
        reward_range: Smallest and largest reward of the training split, as a learner sees them.
        window: Number of steps that networks see of the past and the present together; zero for
            the present observation alone; static.
    """

    obs: Affine
    action: Affine
    low: Float[Array, " act"]
    high: Float[Array, " act"]
    reward: Float[Array, ""]
    reward_range: Float[Array, "2"]
    window: int = eqx.field(static=True, default=0)


def init_scaling(
    spec: Spec,
    statistics: DataStatistics,
    reward_scale: RewardScale = "std",
    *,
    window: int = 0,
) -> Scaling:
    """The scaling of a training split.

    The reward is divided by 1 for ``"none"``, by ``std(reward)`` for ``"std"`` and by
    ``(max - min) / 1000`` of the returns of the episodes for ``"return_range"`` (as implicit
    Q-learning was published with); where that is zero but for rounding, by the size of the mean
    reward, and by 1 where that is zero too. A channel that hardly moves in the data is scaled by a
    thousandth of its measuring range.

    Args:
        spec: Specification, which gives the measuring ranges and the action box.
        statistics: Statistics of the training split, with the reward that the learner will see.
        reward_scale: Name of the divisor.
        window: Number of steps that networks see; zero for the present observation alone.

    Returns:
        The maps, float32.
    """
    f32 = jnp.float32
    mean, std = (jnp.asarray(x, f32) for x in (statistics.obs.mean, statistics.obs.std))
    # In float64: a narrow range far from zero has a width of zero in float32.
    span = np.subtract(highs(spec.obs), lows(spec.obs))
    one = jnp.ones((), f32)
    unit = one if reward_scale == "none" else _reward_unit(statistics, reward_scale)
    rewards = jnp.stack([statistics.reward.min.astype(f32), statistics.reward.max.astype(f32)])
    return Scaling(
        obs=standardiser(mean, std, span=jnp.asarray(span, f32)),
        action=unit_interval(spec.action),
        low=jnp.asarray(lows(spec.action), f32),
        high=jnp.asarray(highs(spec.action), f32),
        reward=unit,
        reward_range=rewards / unit,
        window=window,
    )


def scaled(scaling: Scaling, batch: Transition) -> Transition:
    """A batch as learners see it: standardised, actions in [-1, 1], rewards in units of their own.

    Logged actions are clipped to ``1 - MARGIN`` of their range, the next ones too; a next action
    is zero where an episode ends, if the batch says where (``terminated``, ``truncated``).
    Rows whose mask is false become zeros, so that not even a NaN in them reaches a gradient.

    Args:
        scaling: Maps of the learner's state.
        batch: Rows in physical units, any leading axes. Fields may be ``None``.

    Returns:
        The batch in the learner's units. Where networks see a window, observations are the windows
        laid flat.

    Raises:
        ValueError: If the observations are no windows of ``scaling.window`` steps, or windows where
            networks see none; if a field has not the channels of the specification that the learner
            was made for, or not one number or flag a row. The field is named.
    """
    _require_form(scaling, batch.obs)
    _require_shapes(scaling, batch)
    batch = _blank(batch)
    next_obs = batch.next_obs
    return batch._replace(
        obs=_seen(scaling, batch.obs),
        action=_inside(scaling, batch.action),
        reward=None if batch.reward is None else batch.reward / scaling.reward,
        next_obs=None if next_obs is None else _seen(scaling, next_obs),
        next_action=_next_action(scaling, batch),
    )


def network_policy(scaling: Scaling, network: ActingNetwork) -> NetworkPolicy | HistoryPolicy:
    """The policy of a network trained under ``scaling``, in physical units.

    Returns:
        A :class:`HistoryPolicy` where networks see a window, else a :class:`NetworkPolicy`.
    """
    parts: Any = (scaling.obs, network, scaling.action, scaling.low, scaling.high)
    return HistoryPolicy(*parts, steps=scaling.window) if scaling.window else NetworkPolicy(*parts)


def _seen(scaling: Scaling, obs: Any) -> Array:
    """An observation as networks see it: scaled, a window laid flat."""
    if not isinstance(obs, Window):
        return scaling.obs.to_scaled(obs)
    steps = step_features(
        scaling.obs.to_scaled(obs.obs),
        scaling.action.to_scaled(obs.action),
        obs.obs_known,
        obs.action_known,
    )
    return steps.reshape(*steps.shape[:-2], -1)


def _require_form(scaling: Scaling, obs: Any) -> None:
    steps = obs.obs.shape[-2] if isinstance(obs, Window) else 0
    if steps != scaling.window:
        expected, got = (f"windows of {n} steps" if n else "rows" for n in (scaling.window, steps))
        raise ValueError(
            f"the networks see {expected}, got {got}; draw batches with the learner's own sampler"
        )


def _require_shapes(scaling: Scaling, batch: Transition) -> None:
    rows = batch.action.shape[:-1]
    n_obs, n_action = scaling.obs.offset.shape[-1:], scaling.low.shape[-1:]
    expected = dict.fromkeys(("reward", "terminated", "truncated", "mask"), ())
    expected |= {"obs": n_obs, "next_obs": n_obs, "action": n_action, "next_action": n_action}
    for name, channels in expected.items():
        column = getattr(batch, name)
        column = column.obs[..., 0, :] if isinstance(column, Window) else column
        if column is not None and column.shape != (*rows, *channels):
            raise ValueError(
                f"batch and specification disagree: {name} has the shape {column.shape}, expected "
                f"{(*rows, *channels)} for a plant with {n_obs[0]} observations and {n_action[0]} "
                "actions; give rows of the plant that the learner was made for"
            )


def _inside(scaling: Scaling, action: Array) -> Array:
    limit = 1 - MARGIN
    return jnp.clip(scaling.action.to_scaled(action), -limit, limit)


def _next_action(scaling: Scaling, batch: Transition) -> Array | None:
    if batch.next_action is None:
        return None
    action = _inside(scaling, batch.next_action)
    for ends in (batch.terminated, batch.truncated):
        if ends is not None:
            action = jnp.where(ends[..., None], 0, action)
    return action


def _reward_unit(statistics: DataStatistics, reward_scale: RewardScale) -> Float[Array, ""]:
    """What tells rewards apart; of a constant one its size, so that no unit plays a part."""
    of = statistics.reward if reward_scale == "std" else statistics.episode_return
    numbers = (statistics.reward.mean, of.std, of.min, of.max)
    mean, std, low, high = (jnp.asarray(x, jnp.float32) for x in numbers)
    spread, parts = (std, 1) if reward_scale == "std" else (high - low, 1000)
    varies = spread > ROUNDING * jnp.maximum(jnp.abs(low), jnp.abs(high))
    size = jnp.where(jnp.isfinite(mean) & (mean != 0), jnp.abs(mean), 1)
    return jnp.where(jnp.isfinite(spread) & varies, spread / parts, size)


def _blank(batch: Transition) -> Transition:
    mask = batch.mask
    if mask is None:
        return batch

    def zero(x: Array) -> Array:
        beside = mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))
        return jnp.where(beside, x, jnp.zeros((), x.dtype))

    def zeroed(x: Any) -> Any:
        return jax.tree.map(zero, x)

    return batch._replace(
        obs=zeroed(batch.obs),
        action=zeroed(batch.action),
        reward=zeroed(batch.reward),
        next_obs=zeroed(batch.next_obs),
        next_action=zeroed(batch.next_action),
    )
