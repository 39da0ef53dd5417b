"""Implicit Q-learning."""

from collections.abc import Mapping
from functools import partial
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
from neorl_core.losses import expectile_loss, masked_mean
from neorl_core.targets import td_target

LOG_STD_RANGE = {"original": (-5.0, 2.0), "corl": (-20.0, 2.0)}


class IQL(BaseLearner):
    """Implicit Q-learning: expectile regression of values, then weighted regression of actions.

    With ``q = min_i Q'_i(s, a)`` of the target critics, one update takes these steps in order:

    1. value: ``mean |expectile - 1[q < V(s)]| (q - V(s))^2``;
    2. actor, with the **new** ``V``: ``-mean min(exp(inverse_temperature (q - V(s))),
       max_weight) log pi(a|s)``, the weight without gradient;
    3. critics, with the new ``V``: ``mean (Q_1 - y)^2 + mean (Q_2 - y)^2``,
       ``y = r + discount (1 - terminated) V(s')``;
    4. targets: towards the new critics by ``tau``.

    ``pi`` is an unsquashed Gaussian whose mean is a tanh network, with one standard deviation per
    action channel. Its learning rate falls along half a cosine to zero over ``decay_updates``; the
    other rates are constant. Acting uses the mean.

    Variants: ``"original"`` as above, with orthogonal initialisation and the log standard deviation
    clipped to [-5, 2]; ``"corl"`` takes ``V`` from **before** step 1 in steps 2 and 3, halves the
    critics' loss, clips to [-20, 2] and initialises uniformly.

    Fine-tuning (``neorl_agents.online``): ``"original"`` keeps the actor's rate constant, as the
    authors' code does; it explores by sampling the policy (:meth:`explore`).

    Deviations: a plant's channels are in physical units, so observations are standardised and
    rewards divided by their standard deviation (the original does neither, and scales the rewards
    of its locomotion tasks by ``reward_scale="return_range"``); the actor's rate is constant unless
    ``decay_updates`` is given (both codes always let it fall); no dropout in the actor; and those
    common to all learners (:class:`neorl_agents.learning.BaseLearner`).

    Attributes:
        expectile: Expectile of the value; 0.5 evaluates the behaviour, and values
            towards 1 approach the best action in the data.
        inverse_temperature: The ``beta`` of the actor's weights.
        max_weight: Largest weight of the actor's regression.
        discount: Discount of the reward per step.
        tau: Fraction by which the target critics move.
        value_learning_rate: Learning rate of the value.
        critic_learning_rate: Learning rate of the critics.
        actor_learning_rate: Learning rate of the actor, at the start.
        decay_updates: Updates over which the actor's rate falls to zero; 0 keeps it constant, -1
            stands for the length of the run (:func:`neorl_agents.learning.for_run`).
        variant: ``"original"`` or ``"corl"``; static.
        advantage_scale: ``"fixed"`` for the formula above; ``"std"`` first divides the advantage by
            its standard deviation in the batch, so that an inverse temperature has the same effect
            on every plant; static.

    Source: Kostrikov, Nair and Levine, Offline reinforcement learning with implicit Q-learning,
    arXiv 2110.06169; widths, rates and weights are the locomotion defaults of its code.
    """

    expectile: float = setting(0.7, above=0, below=1)
    inverse_temperature: float = setting(3.0, low=0)
    max_weight: float = setting(100.0, above=0)
    discount: float = setting(0.99, low=0, high=1)
    tau: float = setting(0.005, above=0, high=1)
    value_learning_rate: float = setting(3e-4, above=0)
    critic_learning_rate: float = setting(3e-4, above=0)
    actor_learning_rate: float = setting(3e-4, above=0)
    decay_updates: int = setting(0, low=WHOLE_RUN)
    variant: Literal["original", "corl"] = eqx.field(static=True, default="original")
    advantage_scale: Literal["fixed", "std"] = eqx.field(static=True, default="fixed")

    reads: ClassVar[tuple[str, ...]] = ("obs", "action", "reward", "next_obs", "terminated", "mask")
    rates: ClassVar[Mapping[str, str]] = {
        "value": "value_learning_rate",
        "critics": "critic_learning_rate",
        "actor": "actor_learning_rate",
    }
    schedules: ClassVar[tuple[str, ...]] = ("decay_updates",)
    fine_tuning: ClassVar[Mapping[str, Mapping[str, Any]]] = {"original": {"decay_updates": 0}}
    supports_n_step: ClassVar[bool] = True

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """A value, two critics and a Gaussian actor; the critics have targets."""
        initialiser = "orthogonal" if self.variant == "original" else "uniform"
        value_key, critic_key, actor_key = jax.random.split(key, 3)
        nets, act = self.networks, spec.n_action
        value = nets.obs_network(spec, 1, value_key, initialiser=initialiser)
        critics = nets.obs_action_networks(spec, 1, critic_key, initialiser=initialiser)
        mean = nets.obs_network(spec, act, actor_key, initialiser=initialiser, output=tanh)
        actor = GaussianActor(mean, jnp.zeros(act, jnp.float32))
        return {"value": value, "critics": critics, "actor": actor}, {"critics": critics}

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step of value, actor and critics; the key is ignored."""
        rows = only_batch(rows)
        q = jnp.min(q_values(state.targets["critics"], rows.obs, rows.action), axis=0)
        old_value = state.parameters["value"]
        state, value_loss, v = self.descend(state, "value", _value_loss, rows, q, self.expectile)
        if self.variant == "original":
            both = jnp.concatenate([rows.obs, rows.next_obs])
            v, next_v = jnp.split(_values(state.parameters["value"], both), 2)
        else:  # The values before the step are known from its loss.
            next_v = _values(old_value, rows.next_obs)

        rate = self.actor_learning_rate * cosine(state.updates, self.decay_updates)
        log_std_range = LOG_STD_RANGE[self.variant]
        state, regression = regress_actor(
            self, state, rows, q - v, log_std_range=log_std_range, rate=rate
        )

        target = td_target(rows.reward, rows.discount * next_v, rows.terminated, discount=1.0)
        factor = 1.0 if self.variant == "original" else 0.5
        scaled_loss = partial(_scaled_critic_loss, factor=factor)
        state, loss, mean_q = self.descend(state, "critics", scaled_loss, rows, target)
        state = state.with_averaged_targets("critics", tau=self.tau)
        return state, {
            "value_loss": value_loss,
            **regression,
            "critic_loss": loss,
            **value_metrics(mean_q, state.preparation, rows, discount=self.discount),
        }

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The mean of the trained policy, in physical units."""
        return network_policy(state.preparation, state.parameters["actor"].mean)

    def explore(self, state: LearnerState) -> GaussianPolicy:
        """The trained policy with its own noise, in physical units."""
        log_std = jnp.clip(state.parameters["actor"].log_std, *LOG_STD_RANGE[self.variant])
        return GaussianPolicy(self.policy(state), log_std)


def _values(value: Network, obs: Float[Array, "batch obs"]) -> Float[Array, " batch"]:
    return value(obs)[..., 0]


def _value_loss(
    value: Network, rows: UnitRows, q: Float[Array, " batch"], expectile: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
    v = _values(value, rows.obs)
    return masked_mean(expectile_loss(v, q, expectile=expectile), rows.mask), v


def _scaled_critic_loss(
    critics: Network, rows: UnitRows, target: Float[Array, " batch"], *, factor: float
) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
    loss, q = critic_loss(critics, rows, target)
    return factor * loss, q
