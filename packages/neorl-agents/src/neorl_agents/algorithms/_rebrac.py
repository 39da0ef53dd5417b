"""ReBRAC: TD3 regularised towards the behaviour in both actor and critics."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.algorithms._delayed import delayed_critic_steps, smoothed_action
from neorl_agents.learning import (
    WHOLE_RUN,
    BaseLearner,
    LearnerState,
    Metrics,
    Networks,
    Steps,
    UnitRows,
    all_batches,
    held_actions,
    linear,
    nth_batch,
)
from neorl_agents.networks import Network, q_values, tanh
from neorl_agents.policies import GaussianPolicy, HistoryPolicy, NetworkPolicy, network_policy
from neorl_core import Spec
from neorl_core.infrastructure import setting
from neorl_core.losses import masked_mean
from neorl_core.targets import polyak, regularised_td_target


class ReBRAC(BaseLearner):
    """ReBRAC: TD3 that penalises the distance to the log in actor and critics, separately weighted.

    One update is ``policy_delay`` critic steps and one actor step. Critics, with
    ``a' = clip(pi'(s') + e, -1, 1)``, ``e = clip(noise_std N(0, 1), -noise_clip,
    noise_clip)`` and ``b'`` the log's next action:

    ``y = r + discount (1 - terminated) (min_i Q'_i(s', a') - critic_weight d)``,
    ``d = sum_c (a'_c - b'_c)^2``,
    ``loss = mean (Q_1 - y)^2 + mean (Q_2 - y)^2``.

    Actor, on the last of the batches:

    ``loss = mean (actor_weight sum_c (pi(s)_c - a_c)^2 - lam min_i Q_i(s, pi(s)))``,
    ``lam = 1 / mean |min_i Q_i|`` without gradient.

    Distances are sums over the action channels, so the weights are smaller than those of a mean (as
    in :class:`TD3BC`) by the number of channels. At the end of an episode there is no next action,
    and so no penalty. Critics have layer normalisation after every hidden ReLU. Targets move on
    actor steps; the actor's target moves towards the actor from **before** the step, as in the
    authors' code.

    Both weights may decay: ``weight (1 + (final_weight - 1) min(step / decay_updates, 1))``.

    Fine-tuning (``neorl_agents.online``): ``"original"`` is the authors' code, in which online the
    critics have no penalty and the actor's falls to half; in ``"linear"`` both fall to zero.

    Deviations: observations are standardised and rewards divided by their standard deviation (the
    code does neither); the actor steps on the last batch of an update (the code: on the first);
    there is no penalty after a truncation; and those common to all learners
    (:class:`neorl_agents.learning.BaseLearner`). A log with gaps must set ``truncated`` before each
    of them, because the next row is then not the action that followed.

    Attributes:
        actor_weight: Weight of the distance to the log in the actor's loss.
        critic_weight: Weight of that distance in the critics' targets.
        discount: Discount of the reward per step.
        tau: Fraction by which the targets move.
        actor_learning_rate: Learning rate of the actor.
        critic_learning_rate: Learning rate of the critics.
        noise_std: Standard deviation of the smoothing noise on the target's action, in [-1, 1]
            units.
        noise_clip: Bound of that noise.
        decay_updates: Updates over which both weights decay; 0 keeps them constant, -1 stands for
            the length of the run (:func:`neorl_agents.learning.for_run`).
        final_weight: Fraction of both weights that is left after the decay.
        exploration_std: Standard deviation of the noise of :meth:`explore`, in [-1, 1] units.
        policy_delay: Critic steps per actor step; static.

    Source: Tarasov et al., Revisiting the minimalist approach to offline reinforcement learning,
    arXiv 2305.09836, equations 2 and 3. Defaults are those of its code for hopper-medium.
    """

    actor_weight: float = setting(0.01, low=0)
    critic_weight: float = setting(0.01, low=0)
    discount: float = setting(0.99, low=0, high=1)
    tau: float = setting(0.005, above=0, high=1)
    actor_learning_rate: float = setting(1e-3, above=0)
    critic_learning_rate: float = setting(1e-3, above=0)
    noise_std: float = setting(0.2, low=0)
    noise_clip: float = setting(0.5, low=0)
    decay_updates: int = setting(0, low=WHOLE_RUN)
    final_weight: float = setting(0.5, low=0, high=1)
    exploration_std: float = setting(0.1, low=0)
    policy_delay: int = setting(2, low=1, static=True)
    networks: Networks = Networks(hidden=(256, 256, 256))
    steps: Steps = Steps(batch_size=1024)

    reads: ClassVar[tuple[str, ...]] = (
        "obs",
        "action",
        "reward",
        "next_obs",
        "next_action",
        "terminated",
        "truncated",
        "mask",
    )
    rates: ClassVar[Mapping[str, str]] = {
        "actor": "actor_learning_rate",
        "critics": "critic_learning_rate",
    }
    schedules: ClassVar[tuple[str, ...]] = ("decay_updates",)
    fine_tuning: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "original": {
            "critic_weight": 0.0,
            "decay_updates": WHOLE_RUN,
            "final_weight": 0.5,
            "exploration_std": 0.03,
        },
        "linear": {"decay_updates": WHOLE_RUN, "final_weight": 0.0},
    }

    @property
    def batches_per_update(self) -> int:
        """One batch for every critic step of an update."""
        return self.policy_delay

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """An actor and two normalised critics, all with targets."""
        actor_key, critic_key = jax.random.split(key)
        actor = self.networks.obs_network(
            spec, spec.n_action, actor_key, output=tanh, hidden_bias=0.1, last_bound=1e-3
        )
        critics = self.networks.obs_action_networks(
            spec, 1, critic_key, hidden_bias=0.1, last_bound=3e-3, normalised=True
        )
        networks = {"actor": actor, "critics": critics}
        return networks, networks

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes ``policy_delay`` critic steps, one actor step and one step of the targets."""
        targets = self.critic_targets(state, rows, key)
        state, metrics = delayed_critic_steps(self, state, rows, targets, penalised=True)
        old_actor = state.parameters["actor"]
        state, actor_loss, actor_metrics = self.descend(
            state,
            "actor",
            _actor_loss,
            state.parameters["critics"],
            nth_batch(rows, self.policy_delay - 1),
            self.actor_weight * self.remaining(state),
        )
        target_actor = polyak(state.targets["actor"], old_actor, tau=self.tau)
        state = state.with_averaged_targets("critics", tau=self.tau).with_targets(
            actor=target_actor
        )
        return state, {**metrics, "actor_loss": actor_loss, **actor_metrics}

    def critic_targets(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> Float[Array, "step batch"]:
        """Regression targets of the critics, for all critic steps of an update in one pass."""
        flat = all_batches(rows)
        action = smoothed_action(self, state.targets["actor"], flat.next_obs, key)
        targets = regularised_td_target(
            flat.reward,
            q_values(state.targets["critics"], flat.next_obs, action),
            action,
            flat.next_action,
            flat.terminated,
            flat.truncated,
            discount=self.discount,
            weight=self.critic_weight * self.remaining(state),
        )
        return targets.reshape(rows.reward.shape)

    def remaining(self, state: LearnerState) -> Float[Array, ""]:
        """The fraction of both weights that is left."""
        return linear(state.updates, self.decay_updates, self.final_weight)

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The trained policy, in physical units."""
        return network_policy(state.preparation, state.parameters["actor"])

    def explore(self, state: LearnerState) -> GaussianPolicy:
        """The trained policy with Gaussian noise, in physical units."""
        noise = jnp.log(jnp.full_like(state.preparation.low, self.exploration_std))
        return GaussianPolicy(self.policy(state), noise)


def _actor_loss(
    actor: Network, critics: Network, rows: UnitRows, weight: Float[Array, ""]
) -> tuple[Float[Array, ""], Metrics]:
    action = actor(rows.obs)
    q = jnp.min(q_values(critics, rows.obs, action), axis=0)
    mean_abs_q = jax.lax.stop_gradient(masked_mean(jnp.abs(q), rows.mask))
    nonzero = mean_abs_q > jnp.finfo(q.dtype).tiny
    value = jnp.where(nonzero, masked_mean(q, rows.mask) / jnp.where(nonzero, mean_abs_q, 1), 0)
    distance = masked_mean(jnp.sum(jnp.square(action - rows.action), axis=-1), rows.mask)
    held = held_actions(action, rows.action, rows.mask)
    return weight * distance - value, {"distance": distance, "held_at_bound": held}
