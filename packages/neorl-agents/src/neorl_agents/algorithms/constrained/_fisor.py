"""FISOR: feasibility first, by a reachability critic, and weighted regression in both regions."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    UnitRows,
    critic_loss,
    only_batch,
    value_metrics,
    weighted_regression_loss,
)
from neorl_agents.networks import GaussianActor, Network, q_values, tanh
from neorl_agents.policies import HistoryPolicy, NetworkPolicy, Preparation, network_policy
from neorl_core import Spec
from neorl_core.costs import reachability_target
from neorl_core.infrastructure import setting
from neorl_core.losses import advantage_weights, expectile_loss, masked_mean
from neorl_core.targets import td_target

LOG_STD_RANGE = (-5.0, 2.0)


class FISOR(BaseLearner):
    """Feasibility-guided safe offline learning: hard limits first, then reward within them.

    A step violates if a cost is above its limit per step, or above the even share
    ``limit / horizon`` of its limit per episode; ``h`` is ``violation`` there and -1 elsewhere. One
    update takes these steps, in this order:

    1. feasibility value, with ``qc = max_i Qc'_i(s, a)``: the lower expectile
       ``mean |cost_expectile - 1[qc > Vc]| (qc - Vc)^2``, close to the smallest ``qc`` in the log;
    2. feasibility critics: ``mean (Qc_i - y)^2``,
       ``y = (1 - discount) h + discount max(h, Vc(s'))``, and ``y = h`` where terminated. The
       critic predicts the worst ``h`` to come, which is at most zero exactly where the limits can
       be kept for good;
    3. value of the reward, with ``q = min_i Q'_i(s, a)``: the upper expectile of ``q``;
    4. critics: ``mean (Q_i - y)^2``, ``y = r + discount (1 - terminated) V(s')``;
    5. actor: ``-mean w log pi(a|s)``. Where ``Vc <= 0``, ``w = 1[qc <= 0] min(exp(
       inverse_temperature (q - V)), max_weight)``; elsewhere ``w = min(exp(
       cost_inverse_temperature (Vc - qc)), max_cost_weight)``, which does the least harm;
    6. targets, by ``tau``.

    The actor is a Gaussian, like that of IQL, and acts by its mean: one pass of a network, which
    fits a control period. The paper's actor is a diffusion model of five steps and 16 samples,
    which can represent several good actions in one state; a Gaussian takes their mean. Further
    deviations: a step may cost what its limits allow (in the code any positive cost violates); a
    truncated step bootstraps (the code ends there); the actor's rate is constant (there it falls
    over three million updates), and its step comes last, with the new values (there it comes first,
    with the old ones); the trained actor acts (there a moving average of it, by 0.001 an update);
    no dropout in the actor; all costs share one ``h``.

    Attributes:
        cost_expectile: Expectile of the feasibility value; towards 1 it is the smallest logged.
        expectile: Expectile of the reward's value.
        inverse_temperature: Inverse temperature of the advantage where limits can be kept.
        cost_inverse_temperature: Inverse temperature of the feasibility advantage elsewhere.
        max_weight: Largest weight where limits can be kept.
        max_cost_weight: Largest weight where they cannot.
        violation: ``h`` of a step above a limit; every other step has -1.
        discount: Discount of both kinds of values per step.
        tau: Fraction by which the targets move.
        value_learning_rate: Learning rate of both values.
        critic_learning_rate: Learning rate of all critics.
        actor_learning_rate: Learning rate of the actor.

    Source: Zheng et al., Safe offline reinforcement learning with feasibility-guided diffusion
    model, arXiv 2401.10700; weights, rates and labels are the defaults of its code.
    """

    cost_expectile: float = setting(0.9, above=0, below=1)
    expectile: float = setting(0.9, above=0, below=1)
    inverse_temperature: float = setting(3.0, low=0)
    cost_inverse_temperature: float = setting(5.0, low=0)
    max_weight: float = setting(100.0, above=0)
    max_cost_weight: float = setting(150.0, above=0)
    violation: float = setting(25.0, above=0)
    discount: float = setting(0.99, low=0, high=1)
    tau: float = setting(0.005, above=0, high=1)
    value_learning_rate: float = setting(3e-4, above=0)
    critic_learning_rate: float = setting(3e-4, above=0)
    actor_learning_rate: float = setting(3e-4, above=0)

    reads: ClassVar[tuple[str, ...]] = (
        "obs", "action", "reward", "cost", "next_obs", "terminated", "mask",
    )  # fmt: skip
    rates: ClassVar[Mapping[str, str]] = {
        "value": "value_learning_rate",
        "cost_value": "value_learning_rate",
        "critics": "critic_learning_rate",
        "cost_critics": "critic_learning_rate",
        "actor": "actor_learning_rate",
    }
    keeps_limits: ClassVar[bool] = True

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """Two values, two pairs of critics and a Gaussian actor; the critics have targets."""
        keys, nets, act = jax.random.split(key, 5), self.networks, spec.n_action
        with_targets = {
            "critics": nets.obs_action_networks(spec, 1, keys[0], initialiser="orthogonal"),
            "cost_critics": nets.obs_action_networks(spec, 1, keys[1], initialiser="orthogonal"),
        }
        mean = nets.obs_network(spec, act, keys[4], initialiser="orthogonal", output=tanh)
        return with_targets | {
            "value": nets.obs_network(spec, 1, keys[2], initialiser="orthogonal"),
            "cost_value": nets.obs_network(spec, 1, keys[3], initialiser="orthogonal"),
            "actor": GaussianActor(mean, jnp.zeros(act, jnp.float32)),
        }, with_targets

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step of values, critics and actor; the key is ignored."""
        rows, targets = only_batch(rows), state.targets
        qc = jnp.max(q_values(targets["cost_critics"], rows.obs, rows.action), axis=0)
        q = jnp.min(q_values(targets["critics"], rows.obs, rows.action), axis=0)

        lower_expectile = 1 - self.cost_expectile
        state, cost_value_loss, _ = self.descend(
            state, "cost_value", _expectile, rows, qc, lower_expectile
        )
        vc, next_vc = _values_of_both(state.parameters["cost_value"], rows)
        h = constraint(state.preparation, rows.cost, self.violation)
        target = reachability_target(h, next_vc, rows.terminated, discount=self.discount)
        state, cost_loss, cost_q = self.descend(state, "cost_critics", critic_loss, rows, target)

        state, value_loss, _ = self.descend(state, "value", _expectile, rows, q, self.expectile)
        v, next_v = _values_of_both(state.parameters["value"], rows)
        target = td_target(rows.reward, next_v, rows.terminated, discount=self.discount)
        state, loss, mean_q = self.descend(state, "critics", critic_loss, rows, target)

        feasible = vc <= 0
        reward_weights = advantage_weights(
            q - v, inverse_temperature=self.inverse_temperature, max_weight=self.max_weight
        )
        cost_weights = advantage_weights(
            vc - qc,
            inverse_temperature=self.cost_inverse_temperature,
            max_weight=self.max_cost_weight,
        )
        weights = jnp.where(feasible, jnp.where(qc <= 0, reward_weights, 0), cost_weights)
        state, actor_loss, _ = self.descend(state, "actor", _actor_loss, rows, weights)
        state = state.with_averaged_targets("critics", "cost_critics", tau=self.tau)
        return state, {
            "cost_value_loss": cost_value_loss,
            "cost_loss": cost_loss,
            "cost_q": masked_mean(cost_q, rows.mask),
            "value_loss": value_loss,
            "critic_loss": loss,
            "actor_loss": actor_loss,
            "feasible": masked_mean(feasible.astype(q.dtype), rows.mask),
            "weighted_rows": masked_mean((weights > 0).astype(q.dtype), rows.mask),
            **value_metrics(mean_q, state.preparation, rows, discount=self.discount),
        }

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The mean of the trained policy, in physical units."""
        return network_policy(state.preparation, state.parameters["actor"].mean)


def constraint(
    preparation: Preparation, cost: Float[Array, "batch cost"], violation: float | Array
) -> Float[Array, " batch"]:
    """``h``: ``violation`` where a cost exceeds what its limit allows per step, else -1."""
    steps = [1 if per == "step" else preparation.horizon for per in preparation.cost_per]
    allowed = preparation.cost_limit / jnp.stack([jnp.asarray(n, cost.dtype) for n in steps])
    above = jnp.any(cost > jnp.broadcast_to(allowed, cost.shape), axis=-1)
    return jnp.where(above, violation, -1).astype(cost.dtype)


def _values_of_both(
    value: Network, rows: UnitRows
) -> tuple[Float[Array, " batch"], Float[Array, " batch"]]:
    value_now, next_value = jnp.split(value(jnp.concatenate([rows.obs, rows.next_obs]))[..., 0], 2)
    return value_now, next_value


def _expectile(
    value: Network, rows: UnitRows, q: Float[Array, " batch"], expectile: Float[Array, ""]
) -> tuple[Float[Array, ""], None]:
    loss = expectile_loss(value(rows.obs)[..., 0], q, expectile=expectile)
    return masked_mean(loss, rows.mask), None


def _actor_loss(
    actor: GaussianActor, rows: UnitRows, weights: Float[Array, " batch"]
) -> tuple[Float[Array, ""], None]:
    return weighted_regression_loss(actor, rows, weights, log_std_range=LOG_STD_RANGE)
