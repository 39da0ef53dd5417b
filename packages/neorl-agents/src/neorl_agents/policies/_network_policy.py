"""Policies that consist of a network between two affine maps."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.networks import ActingNetwork
from neorl_agents.policies._history_policy import HistoryPolicy, require_one
from neorl_core import Affine


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
