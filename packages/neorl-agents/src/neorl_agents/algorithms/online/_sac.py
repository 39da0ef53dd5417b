"""Soft actor-critic."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from neorl_agents.algorithms._soft_actor import (
    LOG_STD_RANGE,
    SOFT_RATES,
    actor_step,
    max_entropy,
    soft_target,
    temperature_step,
)
from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    Steps,
    UnitRows,
    critic_loss,
    only_batch,
    value_metrics,
)
from neorl_agents.networks._gaussian_heads import squashed_mean
from neorl_agents.policies import (
    HistoryPolicy,
    NetworkPolicy,
    SquashedGaussianPolicy,
    network_policy,
)
from neorl_core import Spec
from neorl_core.infrastructure import setting
from neorl_core.losses import masked_mean


class SAC(BaseLearner):
    """SAC: two soft critics and a tanh-Gaussian actor with an entropy bonus.

    One update takes these steps, in this order, each on the result of the one before:

    1. critics: ``sum_i mean (Q_i(s, a) - y)^2``,
       ``y = r + discount (1 - terminated) (min_i Q'_i(s', a') - temperature log pi(a'|s'))``;
    2. actor: ``mean (temperature log pi(a|s) - min_i Q_i(s, a))``;
    3. temperature, ``exp(x)``: ``-x mean (log pi(a|s) + target_entropy)``;
    4. targets: towards the new critics by ``tau``.

    There are three optimisers: Adam with gradients clipped to a norm of 1 for actor and critics,
    plain Adam for the temperature. Acting uses ``tanh`` of the mean; exploration samples.

    Attributes:
        discount: Discount of the reward per step.
        tau: Fraction by which the target critics move.
        target_entropy: Target of the policy's entropy in nats per action channel.
        actor_learning_rate: Learning rate of the actor.
        critic_learning_rate: Learning rate of the critics.
        temperature_learning_rate: Learning rate of the entropy's temperature.

    Source: Haarnoja et al., Soft actor-critic algorithms and applications, arXiv 1812.05905.
    Deviations: rewards stay in their unit, observations are scaled by their ranges, and the log
    standard deviation is clipped to [-5, 2].
    """

    discount: float = setting(0.99, low=0, high=1)
    tau: float = setting(0.005, above=0, high=1)
    target_entropy: float = setting(-1.0, low=-20, high=20)
    actor_learning_rate: float = setting(3e-4, above=0)
    critic_learning_rate: float = setting(3e-4, above=0)
    temperature_learning_rate: float = setting(3e-4, above=0)
    steps: Steps = Steps(optimiser="sac", reward_scale="none")

    reads: ClassVar[tuple[str, ...]] = ("obs", "action", "reward", "next_obs", "terminated", "mask")
    rates: ClassVar[Mapping[str, str]] = SOFT_RATES
    own_optimisers: ClassVar[Mapping[str, str]] = {"log_temperature": "adam"}

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """An actor, two critics and a temperature of one; the critics have targets."""
        actor_key, critic_key = jax.random.split(key)
        actor = self.networks.obs_network(spec, 2 * spec.n_action, actor_key, last_bound=1e-3)
        critics = self.networks.obs_action_networks(spec, 1, critic_key)
        parameters = {
            "actor": actor, "critics": critics, "log_temperature": jnp.zeros((), jnp.float32),
        }  # fmt: skip
        return parameters, {"critics": critics}

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step of critics, actor and temperature, then one of the targets."""
        rows = only_batch(rows)
        target_key, actor_key = jax.random.split(key)
        temperature = jnp.exp(state.parameters["log_temperature"])
        target = soft_target(self, state, rows, rows.reward, temperature, target_key)
        state, loss, q = self.descend(state, "critics", critic_loss, rows, target)
        state, actor_loss, log_prob = actor_step(self, state, rows, temperature, actor_key)
        state = temperature_step(self, state, rows, log_prob)
        entropy_bonus = max_entropy(temperature, rows.action.shape[-1])
        values = value_metrics(
            q, state.preparation, rows, discount=self.discount, entropy=entropy_bonus
        )
        return state.with_averaged_targets("critics", tau=self.tau), {
            "critic_loss": loss,
            "actor_loss": actor_loss,
            "entropy": -masked_mean(log_prob, rows.mask),
            "temperature": temperature,
            **values,
        }

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The deterministic policy, in physical units."""
        return network_policy(state.preparation, squashed_mean(state.parameters["actor"]))

    def explore(self, state: LearnerState) -> SquashedGaussianPolicy:
        """The trained policy, which samples its actions, in physical units."""
        stochastic_policy = network_policy(state.preparation, state.parameters["actor"])
        return SquashedGaussianPolicy(stochastic_policy, LOG_STD_RANGE)
