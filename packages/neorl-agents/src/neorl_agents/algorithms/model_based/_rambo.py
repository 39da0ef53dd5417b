"""RAMBO: the model is trained against the policy, as far as the log allows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.algorithms._soft_actor import LOG_STD_RANGE, sample_action
from neorl_agents.algorithms.model_based._soft_rollouts import (
    Rollouts,
    SoftRollouts,
)
from neorl_agents.learning import (
    LearnerState,
    Metrics,
    UnitRows,
    only_batch,
)
from neorl_agents.models import Moments, newest, next_network_inputs
from neorl_agents.networks import q_values
from neorl_agents.networks._gaussian_heads import squashed_mean
from neorl_agents.policies import Preparation
from neorl_core import DataStatistics, Spec
from neorl_core.infrastructure import setting
from neorl_core.losses import masked_mean


class RAMBO(SoftRollouts):
    """Robust adversarial model-based offline RL: a model that is as bad as the log allows.

    The members of the fitted model are trained further, with one gradient step per update on

    ``adversarial_weight (n + 1) / 2 mean_model A log p(s'|s, a) + L(log)``,
    ``A = r + discount (1 - terminated) min_i Q'_i(s', a') - min_i Q_i(s, a)``

    with ``L`` the model's own losses on rows of the log, summed over its ``n`` predicted
    observations and with the half of a log-likelihood. OfflineRL-Kit's own loss is a mean over
    observations and reward without that half, smaller by ``(n + 1) / 2``, which the factor makes up
    for; so a weight has the strength that it has there. ``s'`` is sampled in states and actions of
    predicted rows from members chosen at random, ``p`` is the mixture of all members, and ``A`` is
    standardised in the batch. Half of every batch comes from the log. The linear part stays as it
    was fitted. Everything else is inherited from
    :class:`neorl_agents.algorithms.model_based._soft_rollouts.SoftRollouts`.

    Variants: ``"soft"`` values ``s'`` by the target critics at a sampled action and divides ``A``
    by the standard deviation of the batch. ``"original"`` is OfflineRL-Kit's code: the online
    critics at the mean action, the sample standard deviation, and a temperature of at most one. The
    learner's page has its settings.

    Deviations: ``p`` is only the density of the next observation, since rewards are predicted from
    it; one step per update instead of 1,000 after every 1,000; the adversary sees rows of the
    buffer, up to 2,500 updates old, where the code makes fresh rollouts of the current policy; all
    members are used, not the elites; the policy is not cloned from the log first (there in 50
    epochs); and those of :class:`MOPO` except for its penalty.

    Attributes:
        adversarial_weight: Weight of the adversarial term; with 0 the model is only
            trained further on the log.
        model_learning_rate: Learning rate of the members in this training.
        variant: ``"soft"`` or ``"original"``; static.

    The other fields are those of :class:`~neorl_agents.MOPO`, except ``penalty_weight``.

    Source: Rigter, Lacerda and Hawes, RAMBO-RL: robust adversarial model-based offline
    reinforcement learning, arXiv 2204.12581, equations 8 to 10. Weight, shares and the rates of
    critics and members are those of OfflineRL-Kit.
    """

    adversarial_weight: float = setting(3e-4, low=0)
    model_learning_rate: float = setting(3e-4, above=0)
    rollouts: Rollouts = replace(Rollouts(), share=0.5)
    variant: Literal["soft", "original"] = eqx.field(static=True, default="soft")

    rates: ClassVar[Mapping[str, str]] = {
        **SoftRollouts.rates,
        "change": "model_learning_rate",
        "outcome": "model_learning_rate",
    }

    @property
    def largest_temperature(self) -> float:
        """One in the original."""
        return 1.0 if self.variant == "original" else jnp.inf

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parameters of a soft actor-critic, and members of a model that is not yet fitted."""
        learner_key, model_key = jax.random.split(key)
        parameters, targets = super().fresh(spec, learner_key)
        members = self.fitted_model().fresh(spec, model_key)[0]
        return {**parameters, **{name: members[name] for name in ("change", "outcome")}}, targets

    def init(
        self,
        spec: Spec,
        statistics: DataStatistics,
        key: PRNGKeyArray,
        *,
        preparation: Preparation | None = None,
        context: Mapping[str, LearnerState] | None = None,
    ) -> LearnerState:
        """A fresh state with the members that were fitted before."""
        state = super().init(spec, statistics, key, preparation=preparation, context=context)
        if "model" not in state.context:
            return state
        fitted = state.context["model"].parameters
        members = {name: jax.tree.map(jnp.copy, fitted[name]) for name in ("change", "outcome")}
        return state.with_parameters(**members)

    def model_state(self, state: LearnerState) -> LearnerState:
        """The model as trained so far, in which rollouts are made."""
        members = {name: state.parameters[name] for name in ("change", "outcome")}
        return state.context["model"].with_parameters(**members)

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes the steps of the soft actor-critic, then one of the model."""
        learner_key, model_key = jax.random.split(key)
        state, metrics = super().learn(state, rows, learner_key)
        rows, fitted = only_batch(rows), self.model_state(state)
        model = self.fitted_model()
        logged, predicted = self._logged_and_predicted(rows)
        logged_rows = _convert_reward(state.preparation, fitted.preparation, logged)
        structure = fitted.parameters["structure"]
        sampled_step = self.sampled_step(state, fitted, predicted, model_key)

        def change_loss(members: Any) -> tuple[Float[Array, ""], Array]:
            parameters = {**fitted.parameters, "change": members}
            moments = model.change(parameters, predicted.obs, predicted.action)
            density = mixture_log_density(moments, sampled_step[0], structure.predicted)
            adversarial_term = masked_mean(sampled_step[1] * density, predicted.mask)
            model_loss, _ = model.change_loss(members, structure, fitted.preparation, logged_rows)
            weight = self.adversarial_weight * adversarial_scale(structure.predicted)
            return weight * adversarial_term + model_loss, adversarial_term

        def outcome_loss(members: Any) -> tuple[Float[Array, ""], None]:
            return model.outcome_loss(members, structure, fitted.preparation, logged_rows)

        state, loss, adversarial_term = self.descend(state, "change", change_loss)
        state, _, _ = self.descend(state, "outcome", outcome_loss)
        return state, {**metrics, "model_loss": loss, "adversarial_term": adversarial_term}

    def sampled_step(
        self, state: LearnerState, fitted: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[Float[Array, "batch obs"], Float[Array, " batch"]]:
        """Observation changes sampled from randomly chosen members, and their advantages."""
        member_key, noise_key, action_key = jax.random.split(key, 3)
        model, maps = self.fitted_model(), state.preparation
        moments = model.change(fitted.parameters, rows.obs, rows.action)
        batch = rows.reward.shape[0]
        chosen = jax.random.randint(member_key, (batch,), 0, model.members), jnp.arange(batch)
        noise = jax.random.normal(noise_key, moments.mean.shape[1:], moments.mean.dtype)
        change = moments.mean[chosen] + moments.std[chosen] * noise
        following = newest(maps, rows.obs) + change
        outcome, odds = model.outcome(fitted.parameters, rows.obs, rows.action, following)
        predicted_rows = rows._replace(reward=outcome.mean[chosen][:, 0])
        reward = _convert_reward(fitted.preparation, maps, predicted_rows).reward
        next_inputs = next_network_inputs(maps, rows.obs, rows.action, following)
        actor, critics = state.parameters["actor"], state.targets["critics"]
        if self.variant == "original":
            action, critics = squashed_mean(actor)(next_inputs), state.parameters["critics"]
        else:
            action, _ = sample_action(actor, next_inputs, action_key, LOG_STD_RANGE)
        value = jnp.min(q_values(critics, next_inputs, action), axis=0)
        value_now = jnp.min(q_values(state.parameters["critics"], rows.obs, rows.action), axis=0)
        continues = jnp.where(odds[chosen] > 0, 0.0, 1.0)
        advantage = reward + self.discount * continues * value - value_now
        ddof = int(self.variant == "original")
        return change, standardise(advantage, rows.mask, ddof=ddof)

    def _logged_and_predicted(self, rows: UnitRows) -> tuple[UnitRows, UnitRows]:
        """The rows of the log and the predicted ones; at least one of each."""
        size = rows.reward.shape[0]
        n_logged = min(max(self.logged_rows, 1), size - 1)
        return tuple(  # pyright: ignore[reportReturnType]
            jax.tree.map(lambda x, part=part: x[part], rows)
            for part in (slice(0, n_logged), slice(n_logged, size))
        )


def mixture_log_density(
    moments: Moments, change: Float[Array, "batch obs"], counted: Float[Array, " obs"]
) -> Float[Array, " batch"]:
    """The log-density of a change under the mixture of all members, up to a constant.

    ``counted`` is 1 for observations that are predicted, 0 for others.
    """
    is_predicted = counted[None, None] > 0
    std = jnp.where(is_predicted, moments.std, 1)
    error = jnp.where(is_predicted, (change[None] - moments.mean) / std, 0)
    log_density = jnp.sum(-jnp.square(error) / 2 - jnp.log(std), axis=-1)
    return jax.nn.logsumexp(log_density, axis=0) - jnp.log(jnp.float32(log_density.shape[0]))


def adversarial_scale(predicted: Float[Array, " obs"]) -> Float[Array, ""]:
    """By how much a summed log-likelihood outweighs OfflineRL-Kit's mean: ``(n + 1) / 2``.

    ``predicted`` is 1 for each of the ``n`` observations that are predicted, 0 for others. The mean
    there is over these and the reward.
    """
    return (jnp.sum(predicted) + 1) / 2


def standardise(x: Float[Array, " batch"], mask: Any, *, ddof: int = 0) -> Float[Array, " batch"]:
    """``(x - mean) / std`` over the unmasked rows; no gradient.

    ``ddof = 1`` gives the sample standard deviation.
    """
    x = jax.lax.stop_gradient(x)
    error = x - masked_mean(x, mask)
    number = x.shape[0] if mask is None else jnp.sum(mask)
    correction = number / jnp.maximum(number - ddof, 1)
    return error / (jnp.sqrt(correction * masked_mean(jnp.square(error), mask)) + 1e-6)


def _convert_reward(source: Preparation, target: Preparation, rows: UnitRows) -> UnitRows:
    """Rows with the reward in the unit of another preparation of the same log."""
    reward = rows.reward * source.reward_unit + source.reward_offset - target.reward_offset
    return rows._replace(reward=reward / target.reward_unit)
