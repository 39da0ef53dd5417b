"""SAC-N: a soft actor-critic with many critics."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.algorithms._soft_actor import (
    LOG_STD_RANGE,
    SOFT_RATES,
    actor_step,
    max_entropy,
    sample_action,
    soft_target,
    temperature_step,
)
from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    Networks,
    UnitRows,
    critic_loss,
    only_batch,
    value_metrics,
)
from neorl_agents.networks import Network
from neorl_agents.networks._gaussian_heads import squashed_mean
from neorl_agents.policies import HistoryPolicy, NetworkPolicy, network_policy
from neorl_core import Spec
from neorl_core.infrastructure import setting
from neorl_core.losses import masked_mean


class SACN(BaseLearner):
    """SAC-N: pessimism from the smallest value of ``n_critics`` independent critics.

    One update takes these steps, in this order, each on the result of the one before:

    1. temperature, ``exp(x)``: ``-x mean (log pi(a|s) + target_entropy)``;
    2. actor: ``mean (temperature log pi(a|s) - min_i Q_i(s, a))``;
    3. critics: ``sum_i mean (Q_i(s, a) - y)^2``,
       ``y = r + discount (1 - terminated) (min_i Q'_i(s', a') - temperature log pi(a'|s'))``;
    4. targets: towards the new critics by ``tau``.

    ``pi`` is a tanh-Gaussian, its log standard deviation clipped to [-5, 2]; acting uses ``tanh``
    of the mean. Many critics are needed, because the minimum of a few is not pessimistic away from
    the data. If most logged actions lie at one of the bounds, a few critics cannot tell which bound
    is right in a state, and the entropy bonus keeps actions away from both.

    The order is CORL's. The authors' code computes all three losses first, with one sample for
    temperature and actor, and then takes the steps.

    Deviations: observations are standardised, rewards divided by their standard deviation; the
    logarithm of ``1 - tanh^2`` is exact (the codes add 1e-6 to its argument), and so is the norm of
    EDAC's gradients (1e-10); first layers are initialised from ``U(-1, 1) / sqrt(inputs)`` (the
    authors take the number of outputs); and those common to all learners
    (:class:`neorl_agents.learning.BaseLearner`).

    Attributes:
        discount: Discount of the reward per step.
        tau: Fraction by which the target critics move.
        target_entropy: Target of the policy's entropy in nats per action channel.
        actor_learning_rate: Learning rate of the actor.
        critic_learning_rate: Learning rate of the critics.
        temperature_learning_rate: Learning rate of the entropy's temperature.
        n_critics: Number of critics; static.

    Source: An et al., Uncertainty-based offline reinforcement learning with diversified
    Q-ensemble, arXiv 2110.01548. Order and defaults are those of CORL.
    """

    discount: float = setting(0.99, low=0, high=1)
    tau: float = setting(0.005, above=0, high=1)
    target_entropy: float = setting(-1.0, low=-20, high=20)
    actor_learning_rate: float = setting(3e-4, above=0)
    critic_learning_rate: float = setting(3e-4, above=0)
    temperature_learning_rate: float = setting(3e-4, above=0)
    n_critics: int = setting(10, low=2, static=True)
    networks: Networks = Networks(hidden=(256, 256, 256))

    reads: ClassVar[tuple[str, ...]] = ("obs", "action", "reward", "next_obs", "terminated", "mask")
    rates: ClassVar[Mapping[str, str]] = SOFT_RATES

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """An actor, ``n_critics`` critics and a temperature; the critics have targets."""
        actor_key, critic_key = jax.random.split(key)
        actor = self.networks.obs_network(
            spec, 2 * spec.n_action, actor_key, hidden_bias=0.1, last_bound=1e-3
        )
        critics = self.networks.obs_action_networks(
            spec, 1, critic_key, members=self.n_critics, hidden_bias=0.1, last_bound=3e-3
        )
        log_temperature = jnp.zeros((), jnp.float32)
        parameters = {"actor": actor, "critics": critics, "log_temperature": log_temperature}
        return parameters, {"critics": critics}

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step of temperature, actor and critics, then one of the targets."""
        rows = only_batch(rows)
        keys = jax.random.split(key, 3)
        _, log_prob = sample_action(state.parameters["actor"], rows.obs, keys[0], LOG_STD_RANGE)
        state = temperature_step(self, state, rows, log_prob)
        temperature = jnp.exp(state.parameters["log_temperature"])
        state, actor_loss, _ = actor_step(self, state, rows, temperature, keys[1])
        target = soft_target(self, state, rows, rows.reward, temperature, keys[2])
        state, loss, (q, critic_metrics) = self.descend(
            state, "critics", self.critic_loss, rows, target
        )
        entropy_bonus = max_entropy(temperature, rows.action.shape[-1])
        values = value_metrics(
            q,
            state.preparation,
            rows,
            discount=self.discount,
            penalised=True,
            entropy=entropy_bonus,
        )
        return state.with_averaged_targets("critics", tau=self.tau), {
            "critic_loss": loss,
            "actor_loss": actor_loss,
            "entropy": -masked_mean(log_prob, rows.mask),
            "temperature": temperature,
            **critic_metrics,
            **values,
        }

    def critic_loss(
        self, critics: Network, rows: UnitRows, target: Float[Array, " batch"]
    ) -> tuple[Float[Array, ""], tuple[Array, Metrics]]:
        """The squared errors, summed over the critics; the values of the rows; metrics."""
        loss, q = critic_loss(critics, rows, target)
        return loss, (q, {})

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The deterministic policy, in physical units."""
        return network_policy(state.preparation, squashed_mean(state.parameters["actor"]))
