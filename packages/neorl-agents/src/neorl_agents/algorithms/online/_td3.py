"""TD3: twin delayed deep deterministic policy gradient."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_agents.algorithms._delayed import delayed_critic_steps, smoothed_action
from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    Steps,
    UnitRows,
    all_batches,
    nth_batch,
)
from neorl_agents.networks import Network, first_q_value, q_values, tanh
from neorl_agents.policies import GaussianPolicy, HistoryPolicy, NetworkPolicy, network_policy
from neorl_core import Spec
from neorl_core.infrastructure import setting
from neorl_core.losses import masked_mean
from neorl_core.targets import clipped_double_td_target


class TD3(BaseLearner):
    """TD3: clipped double critics, delayed actor steps, smoothed targets; for a simulated plant.

    One update is ``policy_delay`` critic steps and one actor step. Critics, with
    ``e = clip(noise_std N(0, 1), -noise_clip, noise_clip)``:

    ``y = r + discount (1 - terminated) min_i Q'_i(s', clip(pi'(s') + e, -1, 1))``,
    ``loss = mean (Q_1 - y)^2 + mean (Q_2 - y)^2``;

    actor, on the last of the batches: ``-mean Q_1(s, pi(s))``. Then both targets move by ``tau``.
    It explores with the actor's action plus Gaussian noise; before the first update, while the
    buffer fills, with uniform actions.

    Attributes:
        discount: Discount of the reward per step.
        tau: Fraction by which the targets move.
        actor_learning_rate: Learning rate of the actor.
        critic_learning_rate: Learning rate of the critics.
        noise_std: Standard deviation of the smoothing noise on the target's action, in [-1, 1]
            units.
        noise_clip: Bound of that noise.
        exploration_std: Standard deviation of the exploration noise, in [-1, 1] units.
        policy_delay: Critic steps per actor step; static.

    Source: Fujimoto, van Hoof and Meger, Addressing function approximation error in actor-critic
    methods, arXiv 1802.09477. Deviations: rewards stay in their unit and observations are scaled by
    their ranges.
    """

    discount: float = setting(0.99, low=0, high=1)
    tau: float = setting(0.005, above=0, high=1)
    actor_learning_rate: float = setting(3e-4, above=0)
    critic_learning_rate: float = setting(3e-4, above=0)
    noise_std: float = setting(0.2, low=0)
    noise_clip: float = setting(0.5, low=0)
    exploration_std: float = setting(0.1, above=0)
    policy_delay: int = setting(2, low=1, static=True)
    steps: Steps = Steps(reward_scale="none")

    reads: ClassVar[tuple[str, ...]] = ("obs", "action", "reward", "next_obs", "terminated", "mask")
    rates: ClassVar[Mapping[str, str]] = {
        "actor": "actor_learning_rate",
        "critics": "critic_learning_rate",
    }

    @property
    def batches_per_update(self) -> int:
        """One batch for every critic step of an update."""
        return self.policy_delay

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """An actor and two critics, all with targets."""
        actor_key, critic_key = jax.random.split(key)
        networks = {
            "actor": self.networks.obs_network(spec, spec.n_action, actor_key, output=tanh),
            "critics": self.networks.obs_action_networks(spec, 1, critic_key),
        }
        return networks, networks

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes ``policy_delay`` critic steps, one actor step and one step of the targets."""
        flat = all_batches(rows)
        next_action = smoothed_action(self, state.targets["actor"], flat.next_obs, key)
        next_q = q_values(state.targets["critics"], flat.next_obs, next_action)
        targets = clipped_double_td_target(
            flat.reward, next_q, flat.terminated, discount=self.discount
        )
        state, metrics = delayed_critic_steps(self, state, rows, targets.reshape(rows.reward.shape))
        last, critics = nth_batch(rows, self.policy_delay - 1), state.parameters["critics"]
        state, loss, _ = self.descend(state, "actor", _actor_loss, critics, last)
        return state.with_averaged_targets("actor", "critics", tau=self.tau), {
            **metrics,
            "actor_loss": loss,
        }

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The trained policy, in physical units."""
        return network_policy(state.preparation, state.parameters["actor"])

    def explore(self, state: LearnerState) -> "UniformFirst":
        """Uniform actions before the first update, then the policy with Gaussian noise."""
        noise = jnp.log(jnp.full_like(state.preparation.low, self.exploration_std))
        return UniformFirst(GaussianPolicy(self.policy(state), noise), state.updates == 0)


class UniformFirst(eqx.Module):
    """Uniform actions until an actor has been trained, then those of its exploration.

    An untrained actor with small noise acts nearly alike in every state, so critics would see few
    actions.

    Attributes:
        trained: The exploration of a trained actor.
        untrained: Whether no update was made yet.
    """

    trained: GaussianPolicy
    untrained: Bool[Array, ""]

    def initial_carry(self) -> Any:
        """Initial carry of the exploration."""
        return self.trained.initial_carry()

    def __call__(
        self, carry: Any, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[Any, Float[Array, " act"]]:
        """Samples an action for one observation, both in physical units.

        Raises:
            ValueError: If no key is given.
        """
        carry, action = self.trained(carry, obs, key)
        assert key is not None  # the exploration requires one
        low, high = self.trained.mean.low, self.trained.mean.high
        uniform = jax.random.uniform(
            jax.random.fold_in(key, 1), low.shape, low.dtype, minval=low, maxval=high
        )
        return carry, jnp.where(self.untrained, uniform, action)

    def sent(self, carry: Any, action: Float[Array, " act"]) -> Any:
        """Reports the applied action to the exploration."""
        return self.trained.sent(carry, action)


def _actor_loss(actor: Network, critics: Network, rows: UnitRows) -> tuple[Float[Array, ""], Array]:
    q = first_q_value(critics, rows.obs, actor(rows.obs))
    return -masked_mean(q, rows.mask), q
