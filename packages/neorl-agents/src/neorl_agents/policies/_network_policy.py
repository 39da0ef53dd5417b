"""A network as a policy in physical units, with the scalings that a learner prepared."""

from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_agents.networks import ActingNetwork, pooled_scaling
from neorl_agents.policies._sequence_policy import HistoryPolicy, require_one
from neorl_core import (
    Affine,
    DataStatistics,
    Spec,
    highs,
    lows,
    standardiser,
    unit_interval,
)

# Policies that consist of a network between two affine maps.


class NetworkPolicy(eqx.Module):
    """Every deterministic, memoryless network policy: one class, so that evaluation compiles once.

    ``action = clip(to_physical(network(to_scaled(obs))), low, high)``

    Attributes:
        obs: Map from physical observations to the inputs that the network was trained on.
        network: Network whose last activation maps into [-1, 1].
        action: Map from physical actions to [-1, 1].
        low: Lower ends of the action channels in physical units, shape ``(act,)``.
        high: Upper ends, shape ``(act,)``.
    """

    obs: Affine
    network: ActingNetwork
    action: Affine
    low: Float[Array, " act"]
    high: Float[Array, " act"]

    def initial_carry(self) -> tuple[()]:
        """An empty carry."""
        return ()

    def __call__(
        self, carry: tuple[()], obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[tuple[()], Float[Array, " act"]]:
        """The action for one observation, both in physical units; the key is ignored.

        Raises:
            ValueError: If ``obs`` is not one observation.
        """
        carry, unit = self.unit(carry, obs)
        return carry, jnp.clip(self.action.to_physical(unit), self.low, self.high)

    def sent(self, carry: tuple[()], action: Float[Array, " act"]) -> tuple[()]:
        """The carry unchanged."""
        return carry

    def unit(
        self, carry: tuple[()], obs: Float[Array, " obs"]
    ) -> tuple[tuple[()], Float[Array, " act"]]:
        """The action in [-1, 1], before the map to physical units.

        Raises:
            ValueError: If ``obs`` is not one observation.
        """
        require_one(obs, self.obs)
        return carry, self.network(self.obs.to_scaled(obs))


class GaussianPolicy(eqx.Module):
    """A network policy with Gaussian noise in [-1, 1] units, clipped to the box, for exploration.

    Attributes:
        mean: The deterministic policy.
        log_std: Logarithm of the standard deviation of every action channel, in units of half its
            range, shape ``(act,)``.
    """

    mean: NetworkPolicy | HistoryPolicy
    log_std: Float[Array, " act"]

    def initial_carry(self) -> Any:
        """Initial carry of the deterministic policy."""
        return self.mean.initial_carry()

    def __call__(
        self, carry: Any, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[Any, Float[Array, " act"]]:
        """Samples an action for one observation, both in physical units.

        Raises:
            ValueError: If no key is given.
        """
        carry, unit = self.mean.unit(carry, obs)
        noise = jax.random.normal(_require_key(key), unit.shape, unit.dtype)
        action = self.mean.action.to_physical(unit + jnp.exp(self.log_std) * noise)
        return carry, jnp.clip(action, self.mean.low, self.mean.high)

    def sent(self, carry: Any, action: Float[Array, " act"]) -> Any:
        """Reports the applied action to the deterministic policy."""
        return self.mean.sent(carry, action)


class SquashedGaussianPolicy(eqx.Module):
    """Samples of a tanh-Gaussian whose parameters a network predicts, for exploration.

    Attributes:
        parameters: The network between its maps; the first half of its outputs are the means, the
            second half the log standard deviations, one of each for every action channel.
        log_std_range: Range to which the log standard deviations are clipped; static.
    """

    parameters: NetworkPolicy | HistoryPolicy
    log_std_range: tuple[float, float] = eqx.field(static=True)

    def initial_carry(self) -> Any:
        """Initial carry of the network's policy."""
        return self.parameters.initial_carry()

    def __call__(
        self, carry: Any, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[Any, Float[Array, " act"]]:
        """Samples an action for one observation, both in physical units.

        Raises:
            ValueError: If no key is given.
        """
        inner = self.parameters
        carry, outputs = inner.unit(carry, obs)
        mean, log_std = jnp.split(outputs, 2)
        log_std = jnp.clip(log_std, *self.log_std_range)
        noise = jax.random.normal(_require_key(key), mean.shape, mean.dtype)
        action = inner.action.to_physical(jnp.tanh(mean + jnp.exp(log_std) * noise))
        return carry, jnp.clip(action, inner.low, inner.high)

    def sent(self, carry: Any, action: Float[Array, " act"]) -> Any:
        """Reports the applied action to the network's policy."""
        return self.parameters.sent(carry, action)


class CategoricalPolicy(eqx.Module):
    """Samples one of the action channels, which gets its high end, the others their low end.

    Attributes:
        logits: The network between its maps; one output for every action channel.
    """

    logits: NetworkPolicy | HistoryPolicy

    def initial_carry(self) -> Any:
        """Initial carry of the network's policy."""
        return self.logits.initial_carry()

    def __call__(
        self, carry: Any, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[Any, Float[Array, " act"]]:
        """Samples an action for one observation, both in physical units.

        Raises:
            ValueError: If no key is given.
        """
        inner = self.logits
        carry, outputs = inner.unit(carry, obs)
        chosen_index = jax.random.categorical(_require_key(key), outputs)
        return carry, jnp.where(jnp.arange(len(outputs)) == chosen_index, inner.high, inner.low)

    def sent(self, carry: Any, action: Float[Array, " act"]) -> Any:
        """Reports the applied action to the network's policy."""
        return self.logits.sent(carry, action)


class EpsilonGreedyPolicy(eqx.Module):
    """A policy that chooses one action channel, or at random any of them, for exploration.

    Attributes:
        choice: The policy; the channel that it chooses gets its high end, the others their low end.
        epsilon: Probability of a random channel.
    """

    choice: NetworkPolicy | HistoryPolicy
    epsilon: Float[Array, ""]

    def initial_carry(self) -> Any:
        """Initial carry of the network's policy."""
        return self.choice.initial_carry()

    def __call__(
        self, carry: Any, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[Any, Float[Array, " act"]]:
        """The choice, or a random one, for one observation, both in physical units.

        Raises:
            ValueError: If no key is given.
        """
        explore_key, action_key = jax.random.split(_require_key(key))
        carry, action = self.choice(carry, obs)
        random_channel = jax.random.randint(action_key, (), 0, len(action))
        random_action = jnp.where(
            jnp.arange(len(action)) == random_channel, self.choice.high, self.choice.low
        )
        explores = jax.random.uniform(explore_key) < self.epsilon
        return carry, jnp.where(explores, random_action, action)

    def sent(self, carry: Any, action: Float[Array, " act"]) -> Any:
        """Reports the applied action to the network's policy."""
        return self.choice.sent(carry, action)


def _require_key(key: PRNGKeyArray | None) -> PRNGKeyArray:
    if key is None:
        raise ValueError("this policy samples its actions and needs a key: policy(carry, obs, key)")
    return key


# Maps between the physical units of a log and the units of networks.


RewardScale = Literal["none", "std", "return_range"]
"""Divisor of the reward; see :func:`prepare`."""

REWARD_SCALES: tuple[RewardScale, ...] = get_args(RewardScale)

ROUNDING = 2.5e-7
"""Rewards that differ by at most this fraction of their size are one constant, up to rounding."""


class Preparation(eqx.Module):
    """Maps between physical units and those of the networks, which are part of a learner's state.

    Nothing in it is trained. Sites that are to average their networks must share one.

    Attributes:
        obs: Map that standardises observations.
        action: Map from the range of every action channel to [-1, 1].
        low: Lower ends of the action channels, physical units.
        high: Upper ends.
        reward_unit: Divisor of the reward, in its own unit; positive.
        reward_offset: Subtracted from the reward first: the log's mean reward if rewards are
            centred (see :func:`prepare`), else zero.
        reward_range: Smallest and largest reward of the training split, as critics see them.
        cost_unit: Divisor of each cost, in its own unit; positive.
        cost_limit: The run's limit of each cost, divided by its unit: of the sum over an episode,
            or of every step, according to ``cost_per``.
        horizon: Largest number of steps of an episode.
        endless: One if the log is known to have no terminated row, so that critics, which go on
            behind a truncation, value endless episodes; otherwise zero.
        window: Number of steps that networks see, including the current one; zero if they see only
            the current observation; static.
        cost_per: ``"episode"`` or ``"step"`` for each cost; static.
    """

    obs: Affine
    action: Affine
    low: Float[Array, " act"]
    high: Float[Array, " act"]
    reward_unit: Float[Array, ""]
    reward_offset: Float[Array, ""]
    reward_range: Float[Array, "2"]
    cost_unit: Float[Array, " cost"]
    cost_limit: Float[Array, " cost"]
    horizon: Int[Array, ""]
    endless: Int[Array, ""]
    window: int = eqx.field(static=True, default=0)
    cost_per: tuple[str, ...] = eqx.field(static=True, default=())


def prepare(
    spec: Spec,
    statistics: DataStatistics,
    reward_scale: RewardScale = "std",
    *,
    window: int = 0,
    centred: bool | Bool[Array, ""] = False,
) -> Preparation:
    """Computes the maps from a training split.

    The reward is divided by 1 for ``"none"``, by ``std(reward)`` for ``"std"`` and by
    ``(max - min) / 1000`` of the returns of the episodes for ``"return_range"`` (as in the
    publication of implicit Q-learning). If that divisor is zero up to rounding, the magnitude of
    the mean reward is used, and 1 if that is zero too. A channel that hardly moves in the data is
    scaled by a thousandth of its measuring range. Nodes of the same kind in a graph share their
    scaling (:func:`neorl_agents.networks.pooled_scaling`).

    A cost is divided by its standard deviation; a cost that never varies by its limit, and by 1 if
    that is zero too.

    If no row of the split is terminated, a constant in the reward changes the rank of no policy,
    but moves every value away from zero by ``1 / (1 - discount)`` times that constant, which short
    trainings do not reach. ``centred`` then subtracts the mean reward, which changes nothing else
    in the problem: from the reward of a row that a plant terminates later, online, the mean of
    every step it cuts off is subtracted too. If a row is terminated, or this is not known, nothing
    is subtracted, because that would change the value of ending an episode.

    Args:
        spec: Specification, which gives the measuring ranges, the action box and the limits.
        statistics: Statistics of the training split, with the reward that the learner will see.
        reward_scale: Name of the divisor.
        window: Number of steps that networks see; zero if only the current observation.
        centred: Whether the mean reward is subtracted if no row is terminated; never for the
            published scales ``"none"`` and ``"return_range"``.

    Returns:
        The maps, float32.
    """
    f32 = jnp.float32
    mean, std = (jnp.asarray(x, f32) for x in (statistics.obs.mean, statistics.obs.std))
    mean, std = pooled_scaling(spec, mean, std)
    # In float64, because a narrow range far from zero has a width of zero in float32.
    span = np.subtract(highs(spec.obs), lows(spec.obs))
    one = jnp.ones((), f32)
    unit = one if reward_scale == "none" else _reward_unit(statistics, reward_scale)
    rewards = jnp.stack([statistics.reward.min.astype(f32), statistics.reward.max.astype(f32)])
    offset = jnp.zeros((), f32)
    endless = jnp.zeros((), jnp.int32)
    if statistics.terminated is not None:
        ended = statistics.terminated
        endless = jnp.asarray((ended.count > 0) & (ended.max == 0), jnp.int32)
    if reward_scale == "std":
        offset = jnp.where((endless > 0) & centred, jnp.asarray(statistics.reward.mean, f32), 0)
    limits = jnp.asarray([channel.limit for channel in spec.cost], f32)
    cost_unit = _cost_unit(statistics, limits)
    return Preparation(
        obs=standardiser(mean, std, span=jnp.asarray(span, f32)),
        action=unit_interval(spec.action),
        low=jnp.asarray(lows(spec.action), f32),
        high=jnp.asarray(highs(spec.action), f32),
        reward_unit=unit,
        reward_offset=offset,
        reward_range=(rewards - offset) / unit,
        cost_unit=cost_unit,
        cost_limit=limits / cost_unit,
        horizon=jnp.asarray(spec.horizon, jnp.int32),
        endless=endless,
        window=window,
        cost_per=tuple(str(channel.per) for channel in spec.cost),
    )


def network_policy(
    preparation: Preparation, network: ActingNetwork
) -> NetworkPolicy | HistoryPolicy:
    """The policy of a network trained under a preparation, in physical units.

    Returns:
        A :class:`HistoryPolicy` if networks see a window, else a :class:`NetworkPolicy`.
    """
    maps = preparation
    divisor: Any = (maps.obs, network, maps.action, maps.low, maps.high)
    return HistoryPolicy(*divisor, steps=maps.window) if maps.window else NetworkPolicy(*divisor)


def _cost_unit(statistics: DataStatistics, limits: Float[Array, " cost"]) -> Float[Array, " cost"]:
    std = jnp.asarray(statistics.cost.std, jnp.float32)
    varies = jnp.isfinite(std) & (std > 0)
    return jnp.where(varies, std, jnp.where(limits > 0, limits, 1))


def _reward_unit(statistics: DataStatistics, reward_scale: RewardScale) -> Float[Array, ""]:
    """The spread of the rewards; for a constant reward its size, so that its unit has no effect."""
    scale_statistics = statistics.reward if reward_scale == "std" else statistics.episode_return
    moments = (
        statistics.reward.mean,
        scale_statistics.std,
        scale_statistics.min,
        scale_statistics.max,
    )
    mean, std, low, high = (jnp.asarray(x, jnp.float32) for x in moments)
    spread, divisor = (std, 1) if reward_scale == "std" else (high - low, 1000)
    varies = spread > ROUNDING * jnp.maximum(jnp.abs(low), jnp.abs(high))
    size = jnp.where(jnp.isfinite(mean) & (mean != 0), jnp.abs(mean), 1)
    return jnp.where(jnp.isfinite(spread) & varies, spread / divisor, size)
