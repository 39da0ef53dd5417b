"""Advantage-weighted actor critic."""

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
    regress_actor,
    require_choice,
    require_number,
    single,
    value_metrics,
)
from neorl_agents.networks import GaussianActor, identity, q_values, tanh
from neorl_agents.policies import GaussianPolicy, HistoryPolicy, NetworkPolicy, network_policy
from neorl_core import Spec
from neorl_core.targets import clipped_double_td_target

LOG_STD_RANGE = (-20.0, 2.0)


class AWAC(BaseLearner):
    """AWAC: critics of the policy, and logged actions weighted by how much better they are.

    One update is, in this order,

    1. critics: ``mean (Q_1 - y)^2 + mean (Q_2 - y)^2``,
       ``y = r + discount (1 - terminated) min_i Q'_i(s', a')``, ``a' ~ pi(.|s')``;
    2. actor, with the new critics: ``-mean min(exp(inverse_temperature A), max_weight)
       log pi(a|s)``, ``A = min_i Q_i(s, a) - min_i Q_i(s, b)``, ``b ~ pi(.|s)``, the weight
       without gradient;
    3. targets: towards the new critics by ``tau``.

    ``pi`` is a Gaussian that is not squashed, around a tanh network, with one deviation per action
    channel; drawn actions are clipped to [-1, 1]. Acting uses the mean.

    Variants: ``"original"`` as above; ``"corl"`` has no tanh behind the mean, so that a mean may
    lie outside of the range; acting clips it.

    Deviations: observations are standardised, rewards divided by their deviation; weights are not
    normalised over the batch (the paper's Lagrange form would be, its code and CORL are not).

    Attributes:
        inverse_temperature: ``1 / lambda``, not negative.
        max_weight: Largest weight of the actor's regression.
        discount: Discount of the reward per step, in [0, 1].
        tau: Fraction by which the target critics move, in (0, 1].
        actor_learning_rate: Learning rate of the actor.
        critic_learning_rate: Learning rate of the critics.
        variant: ``"original"`` or ``"corl"``; static.
        advantage_scale: ``"fixed"``, or ``"std"`` to divide the advantage by its standard deviation
            in the batch first; static.

    Source: Nair et al., AWAC: accelerating online reinforcement learning with offline datasets,
    arXiv 2006.09359. Defaults are those of CORL for locomotion.
    """

    inverse_temperature: float = 3.0
    max_weight: float = 100.0
    discount: float = 0.99
    tau: float = 0.005
    actor_learning_rate: float = 3e-4
    critic_learning_rate: float = 3e-4
    variant: Literal["original", "corl"] = eqx.field(static=True, default="original")
    advantage_scale: Literal["fixed", "std"] = eqx.field(static=True, default="fixed")
    networks: Networks = Networks(hidden=(256, 256, 256))

    reads: ClassVar[tuple[str, ...]] = ("obs", "action", "reward", "next_obs", "terminated", "mask")
    rates: ClassVar[Mapping[str, str]] = {
        "actor": "actor_learning_rate",
        "critics": "critic_learning_rate",
    }

    def check(self) -> None:
        """Raises a ``ValueError`` that names the first hyperparameter with a bad value."""
        require_number(self, "inverse_temperature", low=0)
        require_number(self, "max_weight", low=0, open_low=True)
        require_number(self, "tau", low=0, high=1, open_low=True)
        require_choice(self, "variant", ("original", "corl"))
        require_choice(self, "advantage_scale", ("fixed", "std"))

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """A Gaussian actor and two critics; the critics have targets."""
        actor_key, critic_key = jax.random.split(key)
        last = tanh if self.variant == "original" else identity
        mean = self.networks.of_obs(spec, spec.n_action, actor_key, output=last)
        actor = GaussianActor(mean, jnp.zeros(spec.n_action, jnp.float32))
        critics = self.networks.of_both(spec, 1, critic_key)
        return {"actor": actor, "critics": critics}, {"critics": critics}

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """One gradient step of critics and actor, then one of the targets."""
        rows = single(rows)
        next_key, own_key = jax.random.split(key)
        actor = state.parameters["actor"]
        following = _drawn(actor, rows.next_obs, next_key)
        after = q_values(state.targets["critics"], rows.next_obs, following)
        target = clipped_double_td_target(
            rows.reward, after, rows.terminated, discount=self.discount
        )
        state, loss, mean_q = self.descend(state, "critics", critic_loss, rows, target)

        critics = state.parameters["critics"]
        own = q_values(critics, rows.obs, _drawn(actor, rows.obs, own_key))
        logged = q_values(critics, rows.obs, rows.action)
        advantage = jnp.min(logged, axis=0) - jnp.min(own, axis=0)
        state, regression = regress_actor(self, state, rows, advantage, log_std_range=LOG_STD_RANGE)
        return state.tracked("critics", tau=self.tau), {
            "critic_loss": loss,
            **regression,
            **value_metrics(mean_q, state.preparation, rows.mask, discount=self.discount),
        }

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The mean of the trained policy, in physical units."""
        return network_policy(state.preparation, state.parameters["actor"].mean)

    def explore(self, state: LearnerState) -> GaussianPolicy:
        """The trained policy with its own noise, in physical units."""
        log_std = jnp.clip(state.parameters["actor"].log_std, *LOG_STD_RANGE)
        return GaussianPolicy(self.policy(state), log_std)


def _drawn(
    actor: GaussianActor, obs: Float[Array, "batch obs"], key: PRNGKeyArray
) -> Float[Array, "batch act"]:
    mean = actor.mean(obs)
    noise = jax.random.normal(key, mean.shape, mean.dtype)
    return jnp.clip(mean + jnp.exp(jnp.clip(actor.log_std, *LOG_STD_RANGE))[None] * noise, -1, 1)
