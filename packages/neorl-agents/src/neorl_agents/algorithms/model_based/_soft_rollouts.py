"""Shared parts of MOPO and its relatives: a soft actor-critic on rollouts in a model of the log."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.algorithms._soft_actor import (
    LOG_STD_RANGE,
    SOFT_RATES,
    actor_step,
    max_entropy,
    soft_target,
    temperature_step,
)
from neorl_agents.learning import (
    WHOLE_RUN,
    BaseLearner,
    Fit,
    LearnerState,
    Metrics,
    Networks,
    Source,
    Steps,
    UnitRows,
    critic_loss,
    only_batch,
    require,
    value_metrics,
)
from neorl_agents.models import DynamicsModel, ModelRollouts
from neorl_agents.networks import Network
from neorl_agents.networks._gaussian_heads import squashed_mean
from neorl_agents.online import rows_of_the_log
from neorl_agents.policies import (
    HistoryPolicy,
    NetworkPolicy,
    SquashedGaussianPolicy,
    network_policy,
)
from neorl_core import Spec
from neorl_core.infrastructure import setting
from neorl_core.losses import masked_mean

ENSEMBLE = DynamicsModel(
    members=5,
    elites=4,
    learning_rate=2e-3,
    decay_updates=WHOLE_RUN,
    networks=Networks(hidden=(128, 128)),
    steps=Steps(batch_size=128),
)
"""The default model; a narrow peak of the reward needs wide networks, a linear plant does not."""


class Rollouts(eqx.Module):
    """The rollouts of a learner in its model; every field is static.

    Attributes:
        length: Number of steps of a rollout.
        starts: Number of rollouts started together, from rows of the log.
        every: Updates between two sets of rollouts; must divide ``training.chunk``.
        capacity: Number of predicted rows kept in the buffer.
        share: Fraction of every batch that comes from the log.
    """

    length: int = setting(5, low=1, static=True)
    starts: int = setting(400, low=1, static=True)
    every: int = setting(100, low=1, static=True)
    capacity: int = setting(50_000, low=1, static=True)
    share: float = setting(0.05, low=0, high=1, static=True)


class SoftRollouts(BaseLearner):
    """SAC on batches of which a given fraction comes from the log and the rest from a model.

    A :class:`neorl_agents.models.DynamicsModel` is fitted first. Then, before every
    ``rollouts.every`` updates, the current policy acts in the model from states of the log, and the
    predicted rows replace the oldest ones. One update takes these steps, each on the result of the
    one before:

    1. critics: ``sum_i mean (Q_i(s, a) - y)^2``,
       ``y = r + discount (1 - terminated) (min_i Q'_i(s', a') - temperature log pi(a'|s'))``;
    2. actor, a tanh-Gaussian: ``mean (temperature log pi(a|s) - min_i Q_i(s, a))``;
    3. temperature, ``exp(x)``: ``-x mean (log pi(a|s) + target_entropy)``;
    4. targets: towards the new critics by ``tau``.

    The defaults of the rates of actor and temperature are those of the stored tables
    (``docs/results/learners-in-a-model.md``). OfflineRL-Kit's 1e-4 is for a million updates or
    more: a step of Adam changes the logarithm of the temperature by about its rate, so that in
    30,000 updates it could only fall to 0.05, and in 2,000 to 0.82.

    Subclasses change the rows that rollouts give (:meth:`imagined`), the reward in the targets
    (:meth:`reward`), the loss of the critics, or the model itself.

    If networks see a window (``networks.encoder``), so does the model, and rollouts extend it.

    Attributes:
        discount: Discount of the reward per step.
        tau: Fraction by which the target critics move.
        target_entropy: Target of the policy's entropy in nats per action channel.
        actor_learning_rate: Learning rate of the actor.
        critic_learning_rate: Learning rate of the critics.
        temperature_learning_rate: Learning rate of the entropy's temperature.
        model_updates: Updates of the model before the first one of the learner; static.
        model: The model and how it is fitted; its window is that of ``networks``.
        rollouts: The rollouts in the model.
    """

    discount: float = setting(0.99, low=0, high=1)
    tau: float = setting(0.005, above=0, high=1)
    target_entropy: float = setting(-1.0, low=-20, high=20)
    actor_learning_rate: float = setting(3e-4, above=0)
    critic_learning_rate: float = setting(3e-4, above=0)
    temperature_learning_rate: float = setting(1e-3, above=0)
    model_updates: int = setting(10_000, low=1, static=True)
    model: DynamicsModel = ENSEMBLE
    rollouts: Rollouts = Rollouts()

    reads: ClassVar[tuple[str, ...]] = (
        "obs", "action", "reward", "next_obs", "terminated", "truncated", "mask",
    )  # fmt: skip
    rates: ClassVar[Mapping[str, str]] = SOFT_RATES

    @property
    def entropy_backup(self) -> bool:
        """Whether the targets of the critics include the entropy of the next action."""
        return True

    @property
    def least_target(self) -> float:
        """The value below which targets of the critics are cut off."""
        return -jnp.inf

    @property
    def largest_temperature(self) -> float:
        """The value above which the temperature is cut off where it is used."""
        return jnp.inf

    def actor_rate(self, state: LearnerState) -> Float[Array, ""] | None:
        """The learning rate of the actor, if it is not constant."""
        return None

    def check(self) -> None:
        """Raises a ``ValueError`` for hyperparameters that do not fit each other."""
        rows = self.rollouts.length * self.rollouts.starts
        holds_all = self.rollouts.capacity >= rows
        require(self, "rollouts.capacity", holds_all, f"at least {rows}, the rows of all rollouts")
        self.model.validate()

    def fits(self) -> Mapping[str, Fit]:
        """The model, which must be fitted before training starts."""
        return {"model": Fit(self.fitted_model(), self.model_updates)}

    def fitted_model(self) -> DynamicsModel:
        """The model to fit: with the learner's window, and its schedule resolved."""
        encoder_settings = {
            name: getattr(self.networks, name) for name in ("encoder", "history_steps")
        }
        networks = replace(self.model.networks, **encoder_settings)
        length = self.model.decay_updates
        length = self.model_updates if isinstance(length, int) and length == WHOLE_RUN else length
        return replace(self.model, networks=networks, decay_updates=length)

    def source(self, given: Source) -> ModelRollouts:
        """The log, mixed with rollouts in the model."""
        settings = self.rollouts
        return ModelRollouts(
            given,
            self.fitted_model(),
            steps=settings.length,
            starts=settings.starts,
            capacity=settings.capacity,
            share=settings.share,
            cycle=settings.every,
        )

    @property
    def logged_rows(self) -> int:
        """Number of rows at the start of every batch that come from the log."""
        return rows_of_the_log(self.steps.batch_size, self.rollouts.share)

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """An actor, two critics and a temperature; the critics have targets."""
        actor_key, critic_key = jax.random.split(key)
        critics = self.networks.obs_action_networks(spec, 1, critic_key)
        parameters = {
            "actor": self.networks.obs_network(spec, 2 * spec.n_action, actor_key),
            "critics": critics,
            "log_temperature": jnp.zeros((), jnp.float32),
        }
        return parameters, {"critics": critics}

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step of critics, actor and temperature, then one of the targets."""
        rows = only_batch(rows)
        target_key, actor_key, step_key = jax.random.split(key, 3)
        reward_key, critic_key = jax.random.split(step_key)
        temperature = jnp.exp(state.parameters["log_temperature"])
        temperature = jnp.minimum(temperature, self.largest_temperature)
        reward, reward_metrics = self.reward(state, rows, reward_key)
        bonus = temperature * self.entropy_backup
        target = soft_target(self, state, rows, reward, bonus, target_key)
        target = jnp.maximum(target, self.least_target)
        state, loss, (q, critic_metrics) = self.critic_step(state, rows, target, critic_key)
        state, actor_loss, log_prob = actor_step(
            self, state, rows, temperature, actor_key, rate=self.actor_rate(state)
        )
        state = temperature_step(self, state, rows, log_prob)
        entropy_bonus = max_entropy(temperature * self.entropy_backup, rows.action.shape[-1])
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
            **reward_metrics,
            **critic_metrics,
            **values,
        }

    def reward(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[Float[Array, " batch"], Metrics]:
        """The reward in the targets of the critics, here that of the rows, and metrics."""
        return rows.reward, {}

    def critic_step(
        self, state: LearnerState, rows: UnitRows, target: Float[Array, " batch"], key: PRNGKeyArray
    ) -> tuple[LearnerState, Float[Array, ""], tuple[Float[Array, " batch"], Metrics]]:
        """Takes one step of the critics; also returns loss, mean value of every row, metrics."""
        return self.descend(state, "critics", _squared_critic_loss, rows, target)

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The deterministic policy, in physical units."""
        return network_policy(state.preparation, squashed_mean(state.parameters["actor"]))

    def explore(self, state: LearnerState) -> SquashedGaussianPolicy:
        """The sampling policy, which also acts in the model, in physical units."""
        stochastic_policy = network_policy(state.preparation, state.parameters["actor"])
        return SquashedGaussianPolicy(stochastic_policy, LOG_STD_RANGE)


def _squared_critic_loss(
    critics: Network, rows: UnitRows, target: Float[Array, " batch"]
) -> tuple[Float[Array, ""], tuple[Float[Array, " batch"], Metrics]]:
    loss, q = critic_loss(critics, rows, target)
    return loss, (q, {})
