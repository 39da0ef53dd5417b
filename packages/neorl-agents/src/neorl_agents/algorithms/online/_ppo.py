"""Proximal policy optimisation."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

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
    WHOLE_RUN,
    BaseLearner,
    LearnerState,
    Metrics,
    Networks,
    Steps,
    UnitRows,
    linear,
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
from neorl_core.losses import ppo_clipped_loss

MAX_LOG_RATIO = 20.0
"""Bound on the logarithm of the ratio of probabilities."""


class ActorValue(NamedTuple):
    """Two networks under one optimiser, so that their gradients share one norm.

    Attributes:
        actor: Parameters of the distribution of actions.
        value: Network from observations to the return that follows.
    """

    actor: Network
    value: ScaledValue


class PPO(BaseLearner):
    """PPO: a clipped probability ratio on fresh rollouts of the current policy.

    One update makes ``epochs`` passes over a rollout of ``rollout`` steps of every episode, each
    split at random into ``minibatches``. The advantages ``A`` are generalised advantages, with the
    values from before the update, and have mean 0 and standard deviation 1 in every minibatch. Each
    minibatch gives one gradient step on

    ``mean max(-ratio A, -clip(ratio, 1 - clip, 1 + clip) A) + value_weight mean (V - G)^2 / 2
    - entropy_weight H``,

    by Adam (``e = 1e-5``) with gradients clipped to a global norm of 0.5. Its rate falls linearly
    to zero over ``decay_updates``.

    Deviations from the common codes: value and returns ``G`` are divided by the standard deviation
    of the returns of the rollouts so far (instead of dividing rewards by a running standard
    deviation), without a correction of the value network when that scale moves; the value's last
    layer starts with an orthogonal gain of sqrt 2 (elsewhere 1); networks have ReLU (elsewhere
    tanh); observations are not normalised by running moments; nothing stops an update by its
    divergence; the value's loss is not clipped, and a Gaussian is squashed by a tanh, with a
    standard deviation that depends on the observation. A time limit does not end an episode: the
    value continues.

    Attributes:
        clip: Largest distance of the ratio from one.
        discount: Discount of the reward per step.
        trace: The lambda of the advantages.
        value_weight: Weight of the value's loss.
        entropy_weight: Weight of the entropy.
        learning_rate: Learning rate at the start.
        decay_updates: Updates over which the rate falls to zero; 0 keeps it constant, -1 stands for
            the length of the run.
        follow: Fraction by which mean and scale of the value move towards those of each rollout, in
            (0, 1].
        actions: ``"squashed"`` for a tanh-Gaussian, ``"choice"`` if one of all channels is chosen;
            static.
        rollout: Steps of every episode per update; static.
        epochs: Passes over a rollout; static.
        minibatches: Minibatches per pass; static.

    Source: Schulman et al., arXiv 1707.06347; Huang et al., The 37 implementation details of PPO
    (2022), for the rate, the clip of the norm and the order.
    """

    clip: float = setting(0.2, above=0)
    discount: float = setting(0.99, low=0, high=1)
    trace: float = setting(0.95, low=0, high=1)
    value_weight: float = setting(0.5, low=0)
    entropy_weight: float = setting(0.0, low=0)
    learning_rate: float = setting(2.5e-4, above=0)
    decay_updates: int = setting(-1, low=WHOLE_RUN)
    follow: float = setting(0.05, above=0, high=1)
    actions: ActionKind = eqx.field(static=True, default="squashed")
    rollout: int = setting(128, low=1, static=True)
    epochs: int = setting(4, low=1, static=True)
    minibatches: int = setting(4, low=1, static=True)
    networks: Networks = Networks(hidden=(64, 64))
    steps: Steps = Steps(optimiser="ppo", reward_scale="none")

    reads: ClassVar[tuple[str, ...]] = (
        "obs", "action", "reward", "next_obs", "terminated", "truncated",
    )  # fmt: skip
    rates: ClassVar[Mapping[str, str]] = {"networks": "learning_rate"}
    schedules: ClassVar[tuple[str, ...]] = ("decay_updates",)
    needs_rollouts: ClassVar[bool] = True

    def check(self) -> None:
        """Raises a ``ValueError`` for hyperparameters that do not fit each other."""
        require_no_encoder(self)

    def source(self, given: Any) -> Any:
        """A source of fresh rollouts."""
        return given.rollouts(self.rollout)

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """Actor and value, under one optimiser."""
        actor_key, value_key = jax.random.split(key)
        actor = fresh_actor(self.networks, spec, actor_key, self.actions)
        return {"networks": ActorValue(actor, fresh_value(self, spec, value_key))}, {}

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes all gradient steps on one rollout.

        Raises:
            ValueError: If the rows of a rollout cannot be cut into equal minibatches.
        """
        networks, flat = state.parameters["networks"], as_rows(rows)
        estimates = estimate(
            networks.actor,
            networks.value,
            rows,
            reward_and_costs(self, state, rows),
            discount=self.discount,
            lam=self.trace,
            kind=self.actions,
        )
        count = flat.reward.shape[0]
        if count % self.minibatches:
            raise ValueError(
                f"a rollout of {count} rows cannot be divided into {self.minibatches} equal "
                "minibatches; change PPO.rollout, the number of episodes or PPO.minibatches"
            )
        value = networks.value.with_statistics(
            estimates.returns, statistics_rate(state, self.follow)
        )
        state = state.with_parameters(networks=ActorValue(networks.actor, value))
        state, advantage, multiplier_metrics = self.penalised_advantage(
            state, rows, estimates, value
        )
        rate = self.learning_rate * linear(state.updates, self.decay_updates, 0.0)

        def step(state: LearnerState, indices: Array) -> tuple[LearnerState, Metrics]:
            minibatch = jax.tree.map(lambda x: x[indices], (flat, estimates, advantage))
            state, loss, loss_metrics = self.descend(
                state, "networks", self.loss, *minibatch, rate=rate
            )
            return state, {"loss": loss, **loss_metrics}

        def shuffled(epoch_key: PRNGKeyArray) -> Array:
            return jax.random.permutation(epoch_key, count).reshape(self.minibatches, -1)

        order = jax.vmap(shuffled)(jax.random.split(key, self.epochs))
        indices = order.reshape(self.epochs * self.minibatches, -1)
        state, metrics = jax.lax.scan(step, state, indices)
        return state, {
            **jax.tree.map(jnp.mean, metrics),
            **multiplier_metrics,
            "return_mean": value.mean[0],
            "return_scale": value.scale[0],
        }

    def penalised_advantage(
        self, state: LearnerState, rows: UnitRows, estimates: Estimates, value: ScaledValue
    ) -> tuple[LearnerState, Float[Array, " row"], Metrics]:
        """The advantage that the actor maximises: that of the reward."""
        return state, estimates.advantages[:, 0], {}

    def loss(
        self,
        networks: ActorValue,
        rows: UnitRows,
        estimates: Estimates,
        advantage: Float[Array, " row"],
    ) -> tuple[Float[Array, ""], Metrics]:
        """The loss of one minibatch."""
        log_prob, entropy = log_prob_and_entropy(networks.actor, rows, self.actions)
        # An infinite ratio would make the gradient NaN; beyond this bound the gradient is zero.
        log_ratio = jnp.clip(log_prob - estimates.log_prob, -MAX_LOG_RATIO, MAX_LOG_RATIO)
        log_prob, weight = estimates.log_prob + log_ratio, standardise(advantage)
        surrogate = jnp.mean(
            ppo_clipped_loss(log_prob, estimates.log_prob, weight, epsilon=self.clip)
        )
        value_loss, entropy = networks.value.loss(rows.obs, estimates.returns), jnp.mean(entropy)
        loss = surrogate + self.value_weight * value_loss - self.entropy_weight * entropy
        approximate_kl = -jnp.mean(log_ratio)
        return loss, {
            "actor_loss": surrogate, "value_loss": value_loss, "entropy": entropy,
            "approximate_kl": approximate_kl,
        }  # fmt: skip

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The mean of the trained policy, or its likeliest choice, in physical units."""
        return greedy_policy(state, state.parameters["networks"].actor, self.actions)

    def explore(self, state: LearnerState) -> SquashedGaussianPolicy | CategoricalPolicy:
        """The trained policy, which samples its actions, in physical units."""
        return exploring_policy(state, state.parameters["networks"].actor, self.actions)
