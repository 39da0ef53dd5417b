"""Proximal policy optimisation."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.algorithms.online._on_policy import (
    ACTION_KINDS,
    ActionKind,
    Estimates,
    ScaledValue,
    as_rows,
    best_policy,
    drawing_policy,
    estimates,
    following_part,
    fresh_actor,
    fresh_value,
    log_prob_and_entropy,
    require_present_rows,
    signals_of,
    standardised,
)
from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    Networks,
    Steps,
    UnitRows,
    linear,
    require_choice,
    require_count,
    require_number,
)
from neorl_agents.networks import Network
from neorl_agents.policies import (
    CategoricalPolicy,
    HistoryPolicy,
    NetworkPolicy,
    SquashedGaussianPolicy,
)
from neorl_core import Spec
from neorl_core.losses import ppo_clipped_loss

MOST_MOVED = 20.0
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
    deviation), the value's loss is not clipped, and a Gaussian is squashed by a tanh, with a
    standard deviation that depends on the observation. A time limit does not end an episode: the
    value continues.

    Attributes:
        clip: Largest distance of the ratio from one, positive.
        discount: Discount of the reward per step, in [0, 1].
        trace: The lambda of the advantages, in [0, 1].
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

    clip: float = 0.2
    discount: float = 0.99
    trace: float = 0.95
    value_weight: float = 0.5
    entropy_weight: float = 0.0
    learning_rate: float = 2.5e-4
    decay_updates: int = -1
    follow: float = 0.05
    actions: ActionKind = eqx.field(static=True, default="squashed")
    rollout: int = eqx.field(static=True, default=128)
    epochs: int = eqx.field(static=True, default=4)
    minibatches: int = eqx.field(static=True, default=4)
    networks: Networks = Networks(hidden=(64, 64))
    steps: Steps = Steps(optimiser="ppo", reward_scale="none")

    reads: ClassVar[tuple[str, ...]] = (
        "obs", "action", "reward", "next_obs", "terminated", "truncated",
    )  # fmt: skip
    rates: ClassVar[Mapping[str, str]] = {"networks": "learning_rate"}
    schedules: ClassVar[tuple[str, ...]] = ("decay_updates",)
    needs_rollouts: ClassVar[bool] = True

    def check(self) -> None:
        """Raises a ``ValueError`` that names the first hyperparameter with a bad value."""
        require_number(self, "clip", low=0, open_low=True)
        require_number(self, "trace", low=0, high=1)
        require_number(self, "value_weight", "entropy_weight", low=0)
        require_number(self, "follow", low=0, high=1, open_low=True)
        require_choice(self, "actions", ACTION_KINDS)
        require_count(self, "decay_updates", least=-1)
        require_count(self, "rollout", "epochs", "minibatches")
        require_present_rows(self)

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
        about = estimates(
            networks.actor,
            networks.value,
            rows,
            signals_of(self, state, rows),
            discount=self.discount,
            lam=self.trace,
            kind=self.actions,
        )
        count = flat.reward.shape[0]
        if count % self.minibatches:
            raise ValueError(
                f"a rollout of {count} rows cannot be cut into {self.minibatches} equal "
                "minibatches; change PPO.rollout, the number of episodes or PPO.minibatches"
            )
        value = networks.value.following(about.returns, following_part(state, self.follow))
        state = state.with_parameters(networks=ActorValue(networks.actor, value))
        state, advantage, prices = self.priced(state, rows, about, value)
        rate = self.learning_rate * linear(state.updates, self.decay_updates, 0.0)

        def step(state: LearnerState, chosen: Array) -> tuple[LearnerState, Metrics]:
            part = jax.tree.map(lambda x: x[chosen], (flat, about, advantage))
            state, loss, more = self.descend(state, "networks", self.loss, *part, rate=rate)
            return state, {"loss": loss, **more}

        def shuffled(epoch_key: PRNGKeyArray) -> Array:
            return jax.random.permutation(epoch_key, count).reshape(self.minibatches, -1)

        order = jax.vmap(shuffled)(jax.random.split(key, self.epochs))
        chosen = order.reshape(self.epochs * self.minibatches, -1)
        state, metrics = jax.lax.scan(step, state, chosen)
        return state, {
            **jax.tree.map(jnp.mean, metrics),
            **prices,
            "return_mean": value.mean[0],
            "return_scale": value.scale[0],
        }

    def priced(
        self, state: LearnerState, rows: UnitRows, about: Estimates, value: ScaledValue
    ) -> tuple[LearnerState, Float[Array, " row"], Metrics]:
        """The advantage that the actor maximises: that of the reward."""
        return state, about.advantages[:, 0], {}

    def loss(
        self,
        networks: ActorValue,
        rows: UnitRows,
        about: Estimates,
        advantage: Float[Array, " row"],
    ) -> tuple[Float[Array, ""], Metrics]:
        """The loss of one minibatch."""
        log_prob, entropy = log_prob_and_entropy(networks.actor, rows, self.actions)
        # An infinite ratio would make the gradient NaN; beyond this bound the gradient is zero.
        moved = jnp.clip(log_prob - about.log_prob, -MOST_MOVED, MOST_MOVED)
        log_prob, weight = about.log_prob + moved, standardised(advantage)
        surrogate = jnp.mean(ppo_clipped_loss(log_prob, about.log_prob, weight, epsilon=self.clip))
        value_loss, entropy = networks.value.loss(rows.obs, about.returns), jnp.mean(entropy)
        loss = surrogate + self.value_weight * value_loss - self.entropy_weight * entropy
        moved = -jnp.mean(moved)
        return loss, {
            "actor_loss": surrogate, "value_loss": value_loss, "entropy": entropy, "moved": moved,
        }  # fmt: skip

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The mean of the trained policy, or its likeliest choice, in physical units."""
        return best_policy(state, state.parameters["networks"].actor, self.actions)

    def explore(self, state: LearnerState) -> SquashedGaussianPolicy | CategoricalPolicy:
        """The trained policy, which samples its actions, in physical units."""
        return drawing_policy(state, state.parameters["networks"].actor, self.actions)
