"""TD3+BC: twin delayed policy gradient with a behaviour-cloning term."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.algorithms._delayed import delayed_critic_steps, smoothed_action
from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    UnitRows,
    all_batches,
    held_actions,
    nth_batch,
)
from neorl_agents.networks import Network, first_q_value, q_values, tanh
from neorl_agents.policies import HistoryPolicy, NetworkPolicy, network_policy
from neorl_core import Spec
from neorl_core.infrastructure import setting
from neorl_core.losses import masked_mean, td3_bc_policy_loss
from neorl_core.targets import clipped_double_td_target


class TD3BC(BaseLearner):
    """TD3+BC: twin delayed policy gradient with a behaviour-cloning term.

    One update is ``policy_delay`` critic steps and one actor step. Critics, with
    ``e = clip(noise_std N(0, 1), -noise_clip, noise_clip)``:

    ``y = r + discount (1 - terminated) min_i Q'_i(s', clip(pi'(s') + e, -1, 1))``,
    ``loss = mean (Q_1 - y)^2 + mean (Q_2 - y)^2``.

    Actor, on the last of the batches:

    ``loss = -lam mean Q_1(s, pi(s)) + mean (pi(s) - a)^2``, ``lam = alpha / mean |Q_1|`` without
    gradient; the second mean is over the batch and the action channels.

    Then both targets move by ``tau``; they move on actor steps only.

    Attributes:
        alpha: Weight of the value against the distance to the log; 0 is behaviour cloning.
        discount: Discount of the reward per step.
        tau: Fraction by which the targets move.
        actor_learning_rate: Learning rate of the actor.
        critic_learning_rate: Learning rate of the critics.
        noise_std: Standard deviation of the smoothing noise on the target's action, in [-1, 1]
            units.
        noise_clip: Bound of that noise.
        policy_delay: Critic steps per actor step; static.

    Source: Fujimoto and Gu, A minimalist approach to offline reinforcement learning,
    arXiv 2106.06860; the defaults are those of its code. Deviations: a channel is scaled by at
    least a thousandth of its measuring range (the code adds 1e-3), rewards are divided by their
    standard deviation, and logged actions are clipped to ``1 - 1e-5`` of their range.
    """

    alpha: float = setting(2.5, low=0)
    discount: float = setting(0.99, low=0, high=1)
    tau: float = setting(0.005, above=0, high=1)
    actor_learning_rate: float = setting(3e-4, above=0)
    critic_learning_rate: float = setting(3e-4, above=0)
    noise_std: float = setting(0.2, low=0)
    noise_clip: float = setting(0.5, low=0)
    policy_delay: int = setting(2, low=1, static=True)

    reads: ClassVar[tuple[str, ...]] = ("obs", "action", "reward", "next_obs", "terminated", "mask")
    rates: ClassVar[Mapping[str, str]] = {
        "actor": "actor_learning_rate",
        "critics": "critic_learning_rate",
    }
    supports_n_step: ClassVar[bool] = True

    @property
    def batches_per_update(self) -> int:
        """One batch for every critic step of an update."""
        return self.policy_delay

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """An actor and two critics, all with targets."""
        actor_key, critic_key = jax.random.split(key)
        networks = {
            "actor": self.networks.obs_network(spec, spec.n_action, actor_key, output=tanh),
            "critics": self.networks.obs_action_networks(
                spec, 1, critic_key, initialiser="uniform"
            ),
        }
        return networks, networks

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes ``policy_delay`` critic steps, one actor step and one step of the targets."""
        targets = self.critic_targets(state, rows, key)
        state, metrics = delayed_critic_steps(self, state, rows, targets)
        state, actor_loss, actor_metrics = self.descend(
            state,
            "actor",
            _actor_loss,
            state.parameters["critics"],
            nth_batch(rows, self.policy_delay - 1),
            self.alpha,
        )
        state = state.with_averaged_targets("actor", "critics", tau=self.tau)
        return state, {**metrics, "actor_loss": actor_loss, **actor_metrics}

    def critic_targets(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> Float[Array, "step batch"]:
        """Regression targets of the critics, for all critic steps of an update in one pass.

        The target networks do not change between two actor steps, so one wide pass is enough.

        Args:
            state: State that holds the target networks.
            rows: Leading axes ``(policy_delay, batch_size)``.
            key: Random key of the smoothing noise.

        Returns:
            The targets, in the scale of the critics.
        """
        flat = all_batches(rows)
        next_action = smoothed_action(self, state.targets["actor"], flat.next_obs, key)
        next_q = q_values(state.targets["critics"], flat.next_obs, next_action)
        targets = clipped_double_td_target(
            flat.reward, flat.discount[None] * next_q, flat.terminated, discount=1.0
        )
        return targets.reshape(rows.reward.shape)

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The trained policy, in physical units."""
        return network_policy(state.preparation, state.parameters["actor"])


def _actor_loss(
    actor: Network, critics: Network, rows: UnitRows, alpha: Float[Array, ""]
) -> tuple[Float[Array, ""], Metrics]:
    action = actor(rows.obs)
    q = first_q_value(critics, rows.obs, action)
    distance = masked_mean(jnp.mean(jnp.square(action - rows.action), axis=-1), rows.mask)
    held = held_actions(action, rows.action, rows.mask)
    loss = td3_bc_policy_loss(q, action, rows.action, rows.mask, alpha=alpha)
    return loss, {"distance": distance, "held_at_bound": held}
