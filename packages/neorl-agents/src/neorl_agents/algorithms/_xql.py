"""Extreme Q-learning."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.learning import (
    WHOLE_RUN,
    BaseLearner,
    LearnerState,
    Metrics,
    UnitRows,
    cosine,
    critic_loss,
    only_batch,
    regress_actor,
    value_metrics,
)
from neorl_agents.networks import GaussianActor, Network, q_values, tanh
from neorl_agents.policies import GaussianPolicy, HistoryPolicy, NetworkPolicy, network_policy
from neorl_core import Spec
from neorl_core.infrastructure import setting
from neorl_core.losses import gumbel_loss, masked_mean
from neorl_core.targets import td_target

LOG_STD_RANGE = (-5.0, 2.0)


class XQL(BaseLearner):
    """Extreme Q-learning: values by Gumbel regression, then weighted regression of actions.

    With ``q = min_i Q'_i(s, a)`` of the target critics, one update takes these steps in order:

    1. value: ``mean (exp(z) - z - 1) exp(-m)``, ``z = min((q - V(s)) / temperature, max_exponent)``
       and ``m`` the largest ``z`` of the batch, at least -1, without gradient: ``V`` becomes the
       soft maximum ``temperature log E exp(Q / temperature)`` over the log's actions;
    2. actor, with the new ``V``: ``-mean min(exp(inverse_temperature (q - V(s))), max_weight)
       log pi(a|s)``, the weight without gradient;
    3. critics, with the new ``V``: ``mean (Q_1 - y)^2 + mean (Q_2 - y)^2``,
       ``y = r + discount (1 - terminated) V(s')``;
    4. targets: towards the new critics by ``tau``.

    It differs from :class:`IQL` only in step 1. A small temperature approaches the largest value in
    the data but is unstable; the bound on the exponent keeps steps finite, not the values correct.

    Deviations: observations are standardised, rewards divided by their standard deviation, so that
    a temperature has the same effect on every plant; the critics' loss is squared (the code has
    half of Huber's with width 20); the actor's rate is constant unless ``decay_updates`` is given
    (the code always lets it fall); no layer normalisation of the value network; no noise on the
    logged actions of the value loss and no random actions in it (some of the authors' locomotion
    runs have noise of 0.1, others random actions); a temperature of 2 (the code's default is 1, its
    scripts have 1 to 10); and those common to all learners
    (:class:`neorl_agents.learning.BaseLearner`).

    Attributes:
        temperature: Temperature of the soft maximum in the scale of the critics.
        max_exponent: Largest exponent of the Gumbel loss.
        inverse_temperature: The ``beta`` of the actor's weights.
        max_weight: Largest weight of the actor's regression.
        discount: Discount of the reward per step.
        tau: Fraction by which the target critics move.
        value_learning_rate: Learning rate of the value.
        critic_learning_rate: Learning rate of the critics.
        actor_learning_rate: Learning rate of the actor, at the start.
        decay_updates: Updates over which the actor's rate falls along half a cosine to zero; 0
            keeps it constant, -1 stands for the length of the run
            (:func:`neorl_agents.learning.for_run`).
        advantage_scale: ``"fixed"``, or ``"std"`` to divide the advantage by its standard deviation
            in the batch first; static.

    Source: Garg et al., Extreme Q-learning: MaxEnt RL without entropy, arXiv 2301.02328,
    equation 8 and appendix C.
    """

    temperature: float = setting(2.0, above=0)
    max_exponent: float = setting(7.0, above=0)
    inverse_temperature: float = setting(3.0, low=0)
    max_weight: float = setting(100.0, above=0)
    discount: float = setting(0.99, low=0, high=1)
    tau: float = setting(0.005, above=0, high=1)
    value_learning_rate: float = setting(3e-4, above=0)
    critic_learning_rate: float = setting(3e-4, above=0)
    actor_learning_rate: float = setting(3e-4, above=0)
    decay_updates: int = setting(0, low=WHOLE_RUN)
    advantage_scale: Literal["fixed", "std"] = eqx.field(static=True, default="fixed")

    reads: ClassVar[tuple[str, ...]] = ("obs", "action", "reward", "next_obs", "terminated", "mask")
    rates: ClassVar[Mapping[str, str]] = {
        "value": "value_learning_rate",
        "critics": "critic_learning_rate",
        "actor": "actor_learning_rate",
    }
    schedules: ClassVar[tuple[str, ...]] = ("decay_updates",)

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """A value, two critics and a Gaussian actor; the critics have targets."""
        value_key, critic_key, actor_key = jax.random.split(key, 3)
        nets, act = self.networks, spec.n_action
        value = nets.obs_network(spec, 1, value_key, initialiser="orthogonal")
        critics = nets.obs_action_networks(spec, 1, critic_key, initialiser="orthogonal")
        mean = nets.obs_network(spec, act, actor_key, initialiser="orthogonal", output=tanh)
        actor = GaussianActor(mean, jnp.zeros(act, jnp.float32))
        return {"value": value, "critics": critics, "actor": actor}, {"critics": critics}

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step of value, actor and critics, then one of the targets."""
        rows = only_batch(rows)
        q = jnp.min(q_values(state.targets["critics"], rows.obs, rows.action), axis=0)
        state, value_loss, _ = self.descend(state, "value", self.value_loss, rows, q)
        both = state.parameters["value"](jnp.concatenate([rows.obs, rows.next_obs]))[..., 0]
        v, next_v = jnp.split(both, 2)
        rate = self.actor_learning_rate * cosine(state.updates, self.decay_updates)
        state, regression = regress_actor(
            self, state, rows, q - v, log_std_range=LOG_STD_RANGE, rate=rate
        )
        target = td_target(rows.reward, next_v, rows.terminated, discount=self.discount)
        state, loss, mean_q = self.descend(state, "critics", critic_loss, rows, target)
        return state.with_averaged_targets("critics", tau=self.tau), {
            "value_loss": value_loss,
            **regression,
            "critic_loss": loss,
            **value_metrics(mean_q, state.preparation, rows, discount=self.discount),
        }

    def value_loss(
        self, value: Network, rows: UnitRows, q: Float[Array, " batch"]
    ) -> tuple[Float[Array, ""], None]:
        """The mean of the rescaled Gumbel loss."""
        loss = gumbel_loss(
            value(rows.obs)[..., 0],
            q,
            rows.mask,
            temperature=self.temperature,
            max_exponent=self.max_exponent,
        )
        return masked_mean(loss, rows.mask), None

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The mean of the trained policy, in physical units."""
        return network_policy(state.preparation, state.parameters["actor"].mean)

    def explore(self, state: LearnerState) -> GaussianPolicy:
        """The trained policy with its own noise, in physical units."""
        log_std = jnp.clip(state.parameters["actor"].log_std, *LOG_STD_RANGE)
        return GaussianPolicy(self.policy(state), log_std)
