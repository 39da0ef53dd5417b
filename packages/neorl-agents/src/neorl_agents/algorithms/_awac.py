"""Advantage-weighted actor critic."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    Networks,
    UnitRows,
    critic_loss,
    only_batch,
    regress_actor,
    value_metrics,
    weight_metrics,
)
from neorl_agents.networks import GaussianActor, identity, q_values, tanh
from neorl_agents.policies import GaussianPolicy, HistoryPolicy, NetworkPolicy, network_policy
from neorl_core import Spec
from neorl_core.infrastructure import setting
from neorl_core.losses import masked_mean, scaled_advantage
from neorl_core.targets import clipped_double_td_target

LOG_STD_RANGE = (-20.0, 2.0)
ORIGINAL_LOG_STD_RANGE = (-6.0, 0.0)
Variant = Literal["bounded", "corl", "original"]


class AWAC(BaseLearner):
    """AWAC: an actor-critic whose actor clones logged actions, weighted by their advantage.

    One update takes these steps, in this order:

    1. critics: ``mean (Q_1 - y)^2 + mean (Q_2 - y)^2``,
       ``y = r + discount (1 - terminated) min_i Q'_i(s', a')``, ``a' ~ pi(.|s')``;
    2. actor, with the new critics: ``-mean min(exp(inverse_temperature A), max_weight)
       log pi(a|s)``, ``A = min_i Q_i(s, a) - min_i Q_i(s, b)``, ``b ~ pi(.|s)``, the weight
       without gradient;
    3. targets: towards the new critics by ``tau``.

    ``pi`` is an unsquashed Gaussian whose mean is a tanh network, with one standard deviation per
    action channel; sampled actions are clipped to [-1, 1]. Acting uses the mean.

    Variants: ``"bounded"`` as above. ``"corl"`` has no tanh on the mean, so a mean may lie outside
    the range; acting clips it. ``"original"`` is the authors' code: weights ``n
    softmax(inverse_temperature A)`` over the ``n`` rows of the batch, without a ceiling; the
    advantage from the critics **before** their step; the log standard deviation
    ``6 sigmoid(x) - 6``, which starts at -3; sampled actions are not clipped. Its locomotion runs
    use ``inverse_temperature`` 0.5 and four hidden layers in the actor.

    Deviations: observations are standardised and rewards divided by their standard deviation; the
    authors' weight decay of the actor (1e-4) is left out; and those common to all learners
    (:class:`neorl_agents.learning.BaseLearner`).

    Attributes:
        inverse_temperature: ``1 / lambda``.
        max_weight: Largest weight of the actor's regression; ``"original"`` has none.
        discount: Discount of the reward per step.
        tau: Fraction by which the target critics move.
        actor_learning_rate: Learning rate of the actor.
        critic_learning_rate: Learning rate of the critics.
        variant: ``"bounded"``, ``"corl"`` or ``"original"``; static.
        advantage_scale: ``"fixed"``, or ``"std"`` to divide the advantage by its standard deviation
            in the batch first; static.

    Source: Nair et al., AWAC: accelerating online reinforcement learning with offline datasets,
    arXiv 2006.09359, and the code of its authors (rlkit). Defaults are those of CORL for
    locomotion.
    """

    inverse_temperature: float = setting(3.0, low=0)
    max_weight: float = setting(100.0, above=0)
    discount: float = setting(0.99, low=0, high=1)
    tau: float = setting(0.005, above=0, high=1)
    actor_learning_rate: float = setting(3e-4, above=0)
    critic_learning_rate: float = setting(3e-4, above=0)
    variant: Variant = eqx.field(static=True, default="bounded")
    advantage_scale: Literal["fixed", "std"] = eqx.field(static=True, default="fixed")
    networks: Networks = Networks(hidden=(256, 256, 256))

    reads: ClassVar[tuple[str, ...]] = ("obs", "action", "reward", "next_obs", "terminated", "mask")
    rates: ClassVar[Mapping[str, str]] = {
        "actor": "actor_learning_rate",
        "critics": "critic_learning_rate",
    }

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """A Gaussian actor and two critics; the critics have targets."""
        actor_key, critic_key = jax.random.split(key)
        output = identity if self.variant == "corl" else tanh
        mean = self.networks.obs_network(spec, spec.n_action, actor_key, output=output)
        actor = GaussianActor(mean, jnp.zeros(spec.n_action, jnp.float32))
        critics = self.networks.obs_action_networks(spec, 1, critic_key)
        return {"actor": actor, "critics": critics}, {"critics": critics}

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step of critics and actor, then one of the targets."""
        rows = only_batch(rows)
        next_key, policy_key = jax.random.split(key)
        actor = state.parameters["actor"]
        next_action = self._sample(actor, rows.next_obs, next_key)
        next_q = q_values(state.targets["critics"], rows.next_obs, next_action)
        target = clipped_double_td_target(
            rows.reward, next_q, rows.terminated, discount=self.discount
        )
        old_critics = state.parameters["critics"]
        state, loss, mean_q = self.descend(state, "critics", critic_loss, rows, target)

        critics = old_critics if self.variant == "original" else state.parameters["critics"]
        policy_q = q_values(critics, rows.obs, self._sample(actor, rows.obs, policy_key))
        logged_q = q_values(critics, rows.obs, rows.action)
        advantage = jnp.min(logged_q, axis=0) - jnp.min(policy_q, axis=0)
        if self.variant == "original":
            state, regression = self._actor_regression(state, rows, advantage)
        else:
            state, regression = regress_actor(
                self, state, rows, advantage, log_std_range=LOG_STD_RANGE
            )
        return state.with_averaged_targets("critics", tau=self.tau), {
            "critic_loss": loss,
            **regression,
            **value_metrics(mean_q, state.preparation, rows, discount=self.discount),
        }

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The mean of the trained policy, in physical units."""
        return network_policy(state.preparation, state.parameters["actor"].mean)

    def explore(self, state: LearnerState) -> GaussianPolicy:
        """The trained policy with its own noise, in physical units."""
        return GaussianPolicy(self.policy(state), self._log_std(state.parameters["actor"]))

    def _log_std(self, actor: GaussianActor) -> Float[Array, " act"]:
        if self.variant != "original":
            return jnp.clip(actor.log_std, *LOG_STD_RANGE)
        low, high = ORIGINAL_LOG_STD_RANGE
        return low + (high - low) * jax.nn.sigmoid(actor.log_std)

    def _sample(
        self, actor: GaussianActor, obs: Float[Array, "batch obs"], key: PRNGKeyArray
    ) -> Float[Array, "batch act"]:
        mean = actor.mean(obs)
        noise = jax.random.normal(key, mean.shape, mean.dtype)
        sampled = mean + jnp.exp(self._log_std(actor))[None] * noise
        return sampled if self.variant == "original" else jnp.clip(sampled, -1, 1)

    def _actor_regression(
        self, state: LearnerState, rows: UnitRows, advantage: Float[Array, " batch"]
    ) -> tuple[LearnerState, Metrics]:
        """The authors' actor step: the weights sum to the number of unmasked rows."""
        if self.advantage_scale == "std":
            advantage = scaled_advantage(advantage, rows.mask)
        valid = jnp.ones(advantage.shape, jnp.bool_) if rows.mask is None else rows.mask
        score = jnp.where(valid, self.inverse_temperature * advantage, -jnp.inf)
        largest = jnp.max(score, initial=jnp.finfo(score.dtype).min)
        weights = jnp.exp(score - largest)
        weights = weights * jnp.sum(valid) / jnp.maximum(jnp.sum(weights), 1e-30)
        weights = jax.lax.stop_gradient(weights)

        def loss(actor: GaussianActor) -> tuple[Float[Array, ""], None]:
            error = (rows.action - actor.mean(rows.obs)) / jnp.exp(self._log_std(actor))[None]
            log_prob = -jnp.sum(jnp.square(error) / 2 + self._log_std(actor)[None], axis=-1)
            log_prob = log_prob - rows.action.shape[-1] * math.log(2 * math.pi) / 2
            return -masked_mean(weights * log_prob, rows.mask), None

        state, value, _ = self.descend(state, "actor", loss)
        return state, {
            "actor_loss": value,
            "advantage": masked_mean(advantage, rows.mask),
            **weight_metrics(weights, rows.mask, jnp.inf),
        }
