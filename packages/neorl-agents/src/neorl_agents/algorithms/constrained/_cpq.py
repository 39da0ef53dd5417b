"""Constraints-penalised Q-learning."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_agents.algorithms.constrained._autoencoder import RATES as AUTOENCODER_RATES
from neorl_agents.algorithms.constrained._autoencoder import (
    autoencoder_step,
    divergence,
    fresh_autoencoder,
    latent,
)
from neorl_agents.algorithms.constrained._lagrangian import (
    MEMBERS,
    cost_critic_loss,
    cost_targets,
    cost_values,
)
from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    UnitRows,
    critic_limits,
    critic_loss,
    only_batch,
)
from neorl_agents.networks import Network, identity, q_values
from neorl_agents.networks._gaussian_heads import squashed_mean, squashed_parameters
from neorl_agents.policies import HistoryPolicy, NetworkPolicy, network_policy
from neorl_core import Spec
from neorl_core.distributions import tanh_gaussian_sample
from neorl_core.infrastructure import setting
from neorl_core.losses import masked_mean
from neorl_core.targets import td_target

LOG_STD_RANGE = (-20.0, 2.0)
LOG_PENALTY = 5.0
"""Bound on the magnitude of a penalty's logarithm."""


class OutOfDistribution(NamedTuple):
    """States with actions of the policy, and which of them are out of the log's distribution."""

    obs: Float[Array, "row obs"]
    actions: Float[Array, "row act"]
    mask: Bool[Array, " row"]


class CPQ(BaseLearner):
    """Constraints-penalised Q-learning: costly and out-of-distribution actions lose their value.

    Thresholds ``d_j`` are the run's limits as values of the cost critics
    (:func:`neorl_agents.learning.critic_limits`); "safe" is ``Qc_j(s, a) <= d_j`` for all ``j``.
    One update takes these steps, in this order:

    1. a variational autoencoder of the logged actions (with two latent numbers per channel):
       ``mean (decoded - a)^2 + kl_weight KL(q(z|s, a) || N(0, 1)) / latent``;
    2. cost critics: ``mean (Qc_j - y_j)^2 - penalty_j (mean_ood Qc_j - ood_level d_j)``,
       ``y_j = c_j + discount (1 - terminated) Qc'_j(s', a')`` with ``a'`` from the policy. Of
       ``n_samples`` actions of the policy in every state, those whose divergence in step 1 is in
       the upper ``1 - ood_quantile`` of the batch are out of distribution ("ood"). Then ``log
       penalty_j`` rises by ``penalty_learning_rate penalty_j (ood_level d_j - mean_ood Qc_j)``,
       clipped to [-5, 5];
    3. critics: ``mean (Q_1 - y)^2 + mean (Q_2 - y)^2``, ``y = r + discount (1 - terminated) v``,
       with ``v = min_i Q'_i(s', a')`` if ``a'`` is safe, else the smallest value that the log's
       rewards admit;
    4. actor, a tanh-Gaussian: ``-mean 1[safe] min_i Q_i(s, pi(s))``;
    5. targets, by ``tau``.

    Deviations: an unsafe action has the smallest value that the log's rewards admit, where the
    paper has zero, which is the same if no reward is negative (with negative ones zero would be the
    best value); a termination ends the costs too (OSRL bootstraps past it); every cost has two
    critics, and the larger is used (paper: one, OSRL: the smaller of two); the mean over actions
    out of distribution is over those only, and its gradient reaches the critics, as in the paper
    (in OSRL it does not, because the values are those of the targets); actions are judged as out of
    distribution after the tanh (OSRL: before it); value functions go on behind a time limit, as do
    those of costs (in OSRL a time-out ends both); OSRL takes the step of the reward critics before
    that of the cost critics, without a numerical effect; the autoencoder has the widths of all
    networks (OSRL: 400).

    Attributes:
        discount: Discount of rewards and costs per step.
        tau: Fraction by which the targets move.
        actor_learning_rate: Learning rate of the actor.
        critic_learning_rate: Learning rate of all critics.
        model_learning_rate: Learning rate of the autoencoder.
        penalty_learning_rate: Learning rate of the logarithms of the penalties.
        kl_weight: Weight of the divergence in the autoencoder.
        ood_quantile: Fraction of the sampled actions that is taken as in distribution; static.
        ood_level: Cost of actions out of distribution to aim at, as a multiple of ``d_j``.
        allowed_violations: Mean number of steps per episode that may exceed a limit per step.
        n_samples: Actions of the policy in every state of step 2; static.

    Source: Xu, Zhan and Zhu, Constraints penalized Q-learning for safe offline reinforcement
    learning, arXiv 2107.09003; rates and weights are those of OSRL.
    """

    discount: float = setting(0.99, low=0, high=1)
    tau: float = setting(0.005, above=0, high=1)
    actor_learning_rate: float = setting(1e-4, above=0)
    critic_learning_rate: float = setting(1e-3, above=0)
    model_learning_rate: float = setting(1e-3, above=0)
    penalty_learning_rate: float = setting(1e-4, above=0)
    kl_weight: float = setting(0.5, low=0)
    ood_quantile: float = setting(0.75, above=0, below=1, static=True)
    ood_level: float = setting(1.5, low=1)
    allowed_violations: float = setting(0.1, above=0)
    n_samples: int = setting(10, low=1, static=True)

    reads: ClassVar[tuple[str, ...]] = (
        "obs", "action", "reward", "cost", "next_obs", "terminated", "mask",
    )  # fmt: skip
    rates: ClassVar[Mapping[str, str]] = {
        **AUTOENCODER_RATES,
        "cost_critics": "critic_learning_rate",
        "critics": "critic_learning_rate",
        "actor": "actor_learning_rate",
        "log_penalty": "penalty_learning_rate",
    }
    keeps_limits: ClassVar[bool] = True

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """Encoder and decoder, cost critics, critics, an actor, and penalties of one."""
        keys, nets, act = jax.random.split(key, 5), self.networks, spec.n_action
        members = MEMBERS * spec.n_cost
        with_targets = {
            "critics": nets.obs_action_networks(spec, 1, keys[0], initialiser="uniform"),
            "cost_critics": nets.obs_action_networks(
                spec, 1, keys[1], members=members, initialiser="uniform"
            ),
        }
        return with_targets | {
            **fresh_autoencoder(nets, spec, keys[2], keys[3]),
            "actor": nets.obs_network(spec, 2 * act, keys[4], output=identity),
            "log_penalty": jnp.zeros(spec.n_cost, jnp.float32),
        }, with_targets

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step of all networks and of the penalties."""
        rows = only_batch(rows)
        model_key, ood_key, cost_key, reward_key, actor_key = jax.random.split(key, 5)
        limits = critic_limits(
            state.preparation, discount=self.discount, allowed_violations=self.allowed_violations
        )
        state, model_loss = autoencoder_step(self, state, rows, model_key)

        actor = state.parameters["actor"]
        ood = self._out_of_distribution(state, rows, ood_key)
        target = cost_targets(state, rows, _sample(actor, rows.next_obs, cost_key), self.discount)
        penalty = jnp.exp(state.parameters["log_penalty"])
        loss = partial(_penalised_cost_loss, level=self.ood_level * limits)
        state, cost_loss, (ood_value, cost_q) = self.descend(
            state, "cost_critics", loss, rows, target, ood, penalty
        )
        penalty_step = self.penalty_learning_rate * penalty * (self.ood_level * limits - ood_value)
        log_penalty = jnp.clip(
            state.parameters["log_penalty"] + penalty_step, -LOG_PENALTY, LOG_PENALTY
        )
        state = state.with_parameters(log_penalty=log_penalty)

        next_action = _sample(actor, rows.next_obs, reward_key)
        next_value = jnp.min(q_values(state.targets["critics"], rows.next_obs, next_action), axis=0)
        next_cost = cost_values(state.targets["cost_critics"], rows.next_obs, next_action)
        least_value = jnp.minimum(state.preparation.reward_range[0], 0) / jnp.maximum(
            1 - self.discount, jnp.finfo(next_value.dtype).eps
        )
        next_value = jnp.where(_safe(next_cost, limits), next_value, least_value)
        target = td_target(rows.reward, next_value, rows.terminated, discount=self.discount)
        state, loss, q = self.descend(state, "critics", critic_loss, rows, target)

        parameters = state.parameters
        critics_and_limits = (parameters["critics"], parameters["cost_critics"], limits)
        state, actor_loss, safe = self.descend(
            state, "actor", _actor_loss, critics_and_limits, rows, actor_key
        )
        state = state.with_averaged_targets("critics", "cost_critics", tau=self.tau)
        return state, {
            "model_loss": model_loss,
            "cost_loss": cost_loss,
            "cost_q": cost_q,
            "critic_loss": loss,
            "actor_loss": actor_loss,
            "q": masked_mean(q, rows.mask),
            "safe_actions": safe,
            "penalty": jnp.max(jnp.exp(log_penalty)),
        }

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """``tanh`` of the actor's mean, in physical units."""
        return network_policy(state.preparation, squashed_mean(state.parameters["actor"]))

    def _out_of_distribution(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> OutOfDistribution:
        """Actions of the policy that are out of the autoencoder's distribution."""
        keys = jax.random.split(key, self.n_samples)
        sample = partial(_sample, state.parameters["actor"], rows.obs)
        actions = jax.vmap(sample)(keys)
        kl = jax.vmap(
            lambda action: divergence(*latent(state.parameters["encoder"], rows.obs, action))
        )(actions)
        n_rows = len(rows.obs)
        if rows.mask is not None:
            kl, n_rows = jnp.where(rows.mask[None], kl, -jnp.inf), jnp.sum(rows.mask)
        # The cost critics' gradient of the other actions is zero, so they are left out of it.
        farthest = jax.lax.top_k(kl.ravel(), self._n_beyond(len(rows.obs)))[1]
        return OutOfDistribution(
            rows.obs[farthest % len(rows.obs)],
            actions.reshape(kl.size, -1)[farthest],
            jnp.arange(len(farthest)) < self._n_beyond(n_rows),
        )

    def _n_beyond(self, n_rows: int | Int[Array, ""]) -> Any:
        """Number of actions, sampled in so many rows, that are not below the quantile."""
        n = self.n_samples * n_rows
        below = self.ood_quantile * (n - 1)
        return n - (math.ceil(below) if isinstance(n, int) else jnp.ceil(below))


def _sample(
    actor: Network, obs: Float[Array, "batch obs"], key: PRNGKeyArray
) -> Float[Array, "batch act"]:
    return tanh_gaussian_sample(*squashed_parameters(actor, obs, LOG_STD_RANGE), key)[0]


def _penalised_cost_loss(
    critics: Network,
    rows: UnitRows,
    target: Float[Array, "cost batch"],
    ood: OutOfDistribution,
    penalty: Float[Array, " cost"],
    *,
    level: Float[Array, " cost"],
) -> tuple[Float[Array, ""], tuple[Float[Array, " cost"], Float[Array, ""]]]:
    """The squared error less the out-of-distribution term.

    The further results are the mean costs of that term's actions, and of the logged ones over all
    critics and costs.
    """
    loss, mean_value = cost_critic_loss(critics, rows, target)
    values = cost_values(critics, ood.obs, ood.actions)
    ood_value = jax.vmap(masked_mean, in_axes=(0, None))(values, ood.mask)
    return loss - jnp.sum(penalty * (ood_value - level)), (ood_value, mean_value)


def _safe(cost: Float[Array, "cost batch"], limits: Float[Array, " cost"]) -> Bool[Array, " batch"]:
    return jnp.all(cost <= limits[:, None], axis=0)


def _actor_loss(
    actor: Network,
    critics_and_limits: tuple[Network, Network, Float[Array, " cost"]],
    rows: UnitRows,
    key: PRNGKeyArray,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The negated value of safe actions; the fraction of safe ones."""
    critics, cost_critics, limits = critics_and_limits
    action = _sample(actor, rows.obs, key)
    q = jnp.min(q_values(critics, rows.obs, action), axis=0)
    safe = _safe(cost_values(cost_critics, rows.obs, action), limits).astype(q.dtype)
    return -masked_mean(safe * q, rows.mask), masked_mean(safe, rows.mask)
