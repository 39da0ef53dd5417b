"""REINFORCE with a baseline."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.algorithms.online._on_policy import (
    ActionKind,
    Estimates,
    ScaledValue,
    as_rows,
    estimate,
    exploring_policy,
    fresh_actor,
    fresh_value,
    greedy_policy,
    log_prob_and_entropy,
    require_no_encoder,
    reward_and_costs,
    standardise,
    statistics_rate,
)
from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    Networks,
    Steps,
    UnitRows,
)
from neorl_agents.networks import Network
from neorl_agents.policies import (
    CategoricalPolicy,
    HistoryPolicy,
    NetworkPolicy,
    SquashedGaussianPolicy,
)
from neorl_core import Spec
from neorl_core.infrastructure import setting


class Reinforce(BaseLearner):
    """REINFORCE: the gradient of ``log pi(a|s)`` weighted by the return minus a baseline.

    One update takes one gradient step of actor and baseline on a rollout of the current policy:

    ``mean -log pi(a|s) A - entropy_weight H`` and ``mean (V(s) - G)^2 / 2``, with ``G`` the
    discounted return that followed in the rollout (at the end of the rollout or at a time limit,
    the value takes over), and ``A`` the difference ``G - V(s)`` with mean 0 and standard deviation
    1 over the rollout. The value is divided by the standard deviation of the returns so far. Both
    use Adam with gradients clipped to a norm of 1.

    Attributes:
        discount: Discount of the reward per step.
        actor_learning_rate: Learning rate of the actor.
        value_learning_rate: Learning rate of the baseline.
        entropy_weight: Weight of the entropy.
        follow: Fraction by which mean and scale of the value move towards those of each rollout, in
            (0, 1].
        actions: ``"squashed"`` for a tanh-Gaussian, ``"choice"`` if one of all channels is chosen;
            static.
        rollout: Steps of every episode per update; static.

    Source: Williams, Simple statistical gradient-following algorithms, Machine Learning 8 (1992).
    """

    discount: float = setting(0.99, low=0, high=1)
    actor_learning_rate: float = setting(1e-3, above=0)
    value_learning_rate: float = setting(3e-3, above=0)
    entropy_weight: float = setting(0.0, low=0)
    follow: float = setting(0.05, above=0, high=1)
    actions: ActionKind = eqx.field(static=True, default="squashed")
    rollout: int = setting(200, low=1, static=True)
    networks: Networks = Networks(hidden=(64, 64))
    steps: Steps = Steps(optimiser="sac", reward_scale="none")

    reads: ClassVar[tuple[str, ...]] = (
        "obs", "action", "reward", "next_obs", "terminated", "truncated",
    )  # fmt: skip
    rates: ClassVar[Mapping[str, str]] = {
        "actor": "actor_learning_rate",
        "value": "value_learning_rate",
    }
    needs_rollouts: ClassVar[bool] = True

    def check(self) -> None:
        """Raises a ``ValueError`` for hyperparameters that do not fit each other."""
        require_no_encoder(self)

    def source(self, given: Any) -> Any:
        """A source of fresh rollouts."""
        return given.rollouts(self.rollout)

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """An actor and its baseline."""
        actor_key, value_key = jax.random.split(key)
        actor = fresh_actor(self.networks, spec, actor_key, self.actions)
        return {"actor": actor, "value": fresh_value(self, spec, value_key)}, {}

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step of the baseline, and one of the actor with the old baseline."""
        actor, value = state.parameters["actor"], state.parameters["value"]
        signals = reward_and_costs(self, state, rows)
        estimates = estimate(
            actor, value, rows, signals, discount=self.discount, lam=1.0, kind=self.actions
        )
        flat = as_rows(rows)
        value = value.with_statistics(estimates.returns, statistics_rate(state, self.follow))
        state = state.with_parameters(value=value)
        state, value_loss, _ = self.descend(state, "value", _value_loss, flat, estimates.returns)
        state, advantage, multiplier_metrics = self.penalised_advantage(
            state, rows, estimates, value
        )
        state, loss, entropy = self.descend(state, "actor", self.actor_loss, flat, advantage)
        return state, {
            "actor_loss": loss,
            "value_loss": value_loss,
            "entropy": entropy,
            **multiplier_metrics,
        }

    def penalised_advantage(
        self, state: LearnerState, rows: UnitRows, estimates: Estimates, value: ScaledValue
    ) -> tuple[LearnerState, Float[Array, " row"], Metrics]:
        """The advantage that the actor maximises: that of the reward."""
        return state, estimates.advantages[:, 0], {}

    def actor_loss(
        self, actor: Network, rows: UnitRows, advantage: Float[Array, " row"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Loss of the actor, and its mean entropy."""
        log_prob, entropy = log_prob_and_entropy(actor, rows, self.actions)
        entropy = jnp.mean(entropy)
        loss = -jnp.mean(log_prob * standardise(advantage))
        return loss - self.entropy_weight * entropy, entropy

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The mean of the trained policy, or its likeliest choice, in physical units."""
        return greedy_policy(state, state.parameters["actor"], self.actions)

    def explore(self, state: LearnerState) -> SquashedGaussianPolicy | CategoricalPolicy:
        """The trained policy, which samples its actions, in physical units."""
        return exploring_policy(state, state.parameters["actor"], self.actions)


def _value_loss(
    value: ScaledValue, rows: UnitRows, returns: Float[Array, " row"]
) -> tuple[Float[Array, ""], Array]:
    loss = value.loss(rows.obs, returns)
    return loss, loss
