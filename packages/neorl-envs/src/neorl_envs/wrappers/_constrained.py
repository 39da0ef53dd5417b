"""Adds limits of measured channels as costs to any plant."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import CostChannel, Environment, InputError, Spec, Step
from neorl_core.infrastructure import unknown_name
from neorl_envs.wrappers._base import Wrapper


class ChannelLimit(NamedTuple):
    """Limits of one measured channel.

    Attributes:
        index: Index of the channel in the observation.
        low: Smallest allowed value; minus infinity for no limit.
        high: Largest allowed value; infinity for no limit.
    """

    index: int
    low: float
    high: float


class Constrained(Wrapper):
    """A plant with additional limits, each of which adds a cost named ``<channel>_limit``.

    The cost is ``c = max(low - y, y - high, 0)`` in the channel's unit, where ``y`` is the reading
    after the step. The limit of this cost is zero in every step. Rewards and the ends of episodes
    do not change.

    Attributes:
        env: The wrapped environment.
        limits: Limits of the channels, in the order of the additional costs.
        penalty: Reward subtracted for one unit of an additional cost, by :meth:`penalty_weights`.
    """

    limits: tuple[ChannelLimit, ...] = eqx.field(static=True, default=())
    penalty: float = eqx.field(static=True, default=1.0)

    @property
    def spec(self) -> Spec:
        """Channels, period and horizon, with the additional costs last."""
        plain = self.env.spec
        channels = [plain.obs[limit.index] for limit in self.limits]
        further = (CostChannel(f"{c.name}_limit", c.unit, 0.0, "step") for c in channels)
        return Spec(plain.obs, plain.action, (*plain.cost, *further), plain.dt, plain.horizon)

    def bands(self) -> dict[str, tuple[float, float]]:
        """Soft limits of measured channels, including the additional ones."""
        names = [channel.name for channel in self.env.spec.obs]
        return {
            **self.env.bands(),
            **{names[limit.index]: (limit.low, limit.high) for limit in self.limits},
        }

    def penalty_weights(self) -> dict[str, float]:
        """Reward subtracted for one unit of each cost."""
        names = [channel.name for channel in self.spec.cost[self.env.spec.n_cost :]]
        return {**self.env.penalty_weights(), **dict.fromkeys(names, self.penalty)}

    def step(
        self, params: Any, state: Any, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[Any, Step]:
        """Simulates one control period."""
        state, step = self.env.step(params, state, action, key)
        limited = step.final_obs[jnp.asarray([limit.index for limit in self.limits], jnp.int32)]
        low, high = (
            jnp.asarray([getattr(limit, end) for limit in self.limits], limited.dtype)
            for end in ("low", "high")
        )
        excess = jnp.maximum(jnp.maximum(low - limited, limited - high), 0)
        return state, step._replace(cost=jnp.concatenate([step.cost, excess]))


def constrained(
    env: Environment, limits: Mapping[str, tuple[float, float]], *, penalty: float = 1.0
) -> Constrained:
    """Adds limits of measured channels to any plant, even one without costs.

    Args:
        env: A plant.
        limits: Smallest and largest allowed value of each limited channel, by name and in its
            unit; infinite for no limit.
        penalty: Reward subtracted for each unit beyond a limit, in training and in ranking.

    Returns:
        An environment with the same interface and one additional cost for each limit.

    Raises:
        InputError: If a channel is unknown (the message suggests the nearest name), or if a limit
            is empty, lies outside the measuring range, or is already among the costs.

    Example:
        >>> import neorl_envs
        >>> env = constrained(neorl_envs.make("Pipeline-v0"), {"outflow": (0.0, 150.0)})
        >>> [cost.name for cost in env.spec.cost]
        ['outflow_limit']
    """
    names = [channel.name for channel in env.spec.obs]
    bounds = []
    for name, (low, high) in limits.items():
        if name not in names:
            raise unknown_name("measured channel", name, names)
        channel = env.spec.obs[names.index(name)]
        if not (low < high and low < channel.high and high > channel.low):
            raise InputError(
                f"limits of {name!r} must have low below high and a part of its range, "
                f"{channel.low:g} to {channel.high:g} {channel.unit}, got {low:g} and {high:g}"
            )
        if f"{name}_limit" in [cost.name for cost in env.spec.cost]:
            raise InputError(f"{name!r} is limited already; give both its limits at once")
        bounds.append(ChannelLimit(names.index(name), float(low), float(high)))
    if not (math.isfinite(penalty) and penalty >= 0):
        raise InputError(f"penalty must be a number of at least 0, got {penalty}")
    return Constrained(env, tuple(bounds), float(penalty))
