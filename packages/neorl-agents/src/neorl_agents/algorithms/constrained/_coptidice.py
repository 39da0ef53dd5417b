"""COptiDICE: the best state-action distribution close to the log's that keeps the limits."""

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
    counted_costs,
    only_batch,
    step_limits,
    weight_metrics,
    weighted_regression_loss,
)
from neorl_agents.networks import GaussianActor, Network, tanh
from neorl_agents.policies import HistoryPolicy, NetworkPolicy, network_policy
from neorl_core import Spec
from neorl_core.infrastructure import setting
from neorl_core.losses import masked_mean

LOG_STD_RANGE = (-5.0, 2.0)


class COptiDICE(BaseLearner):
    """Offline constrained learning by the correction of a stationary distribution.

    The distribution of states and actions under a policy is written as ``w(s, a)`` times that of
    the log. The learner seeks the ``w`` that a policy can have and that maximises ``E[w r] - alpha
    E[f(w)]`` subject to ``E[w c_j] <= d_j`` for every cost. Its Lagrangian gives

    ``e = r - sum_j multiplier_j c_j + discount (1 - terminated) nu(s') - nu(s)``,
    ``w = max(0, f'^-1(e / alpha))``

    and one update takes one step of ``nu`` to minimise ``(1 - discount) mean nu(s) + mean (w e -
    alpha f(w))``, one of the multipliers to minimise ``sum_j multiplier_j (d_j - mean w c_j)``,
    after which they are clipped at zero, and one of a Gaussian actor to minimise ``-mean w log
    pi(a|s)``. ``f`` is the soft chi-square: ``w log w - w + 1`` below one, ``(w - 1)^2 / 2`` above.

    The threshold is that of one step: ``d_j = limit_j / horizon``, in the unit of ``c_j``, because
    ``w c_j`` is one step's cost under the new distribution
    (:func:`neorl_agents.learning.step_limits`). OSRL compares it with the threshold of a discounted
    sum, which is ``1 / (1 - discount)`` times as large, so that costs of 0 and 1 can never reach
    it.

    Deviations: episodes begin in any state of the log (the paper: in the logged first states),
    because a policy takes over a plant in whatever state it is; no upper bound on the cost (the
    paper's ``epsilon`` of 0.01 bounds the cost that a finite log does not show); no noise on the
    rows of the regression (OSRL: 10 %); one ``nu`` (OSRL: the smaller of two); multipliers that are
    clipped at zero (OSRL: the soft-plus of a number); an actor like that of IQL (OSRL scores logged
    actions before the tanh by which its policy acts); the weights of the regression from before the
    step of ``nu``, as in the authors' code (OSRL: after it); several limits at once (OSRL: one);
    rates of 3e-4 (OSRL: 1e-4); a time limit does not end an episode (in OSRL it does).

    Attributes:
        alpha: Weight of the distance to the log's distribution.
        discount: Discount of rewards and costs per step.
        allowed_violations: Mean number of steps per episode that may exceed a limit per step.
        nu_learning_rate: Learning rate of ``nu``.
        multiplier_learning_rate: Learning rate of the multipliers.
        actor_learning_rate: Learning rate of the actor.

    Source: Lee et al., COptiDICE: offline constrained reinforcement learning via stationary
    distribution correction estimation, arXiv 2204.08957; ``alpha`` and ``f`` as in OSRL, whose
    rates are 1e-4 where those here are 3e-4.
    """

    alpha: float = setting(0.5, above=0)
    discount: float = setting(0.99, low=0, below=1)
    allowed_violations: float = setting(0.1, above=0)
    nu_learning_rate: float = setting(3e-4, above=0)
    multiplier_learning_rate: float = setting(3e-4, above=0)
    actor_learning_rate: float = setting(3e-4, above=0)

    reads: ClassVar[tuple[str, ...]] = (
        "obs", "action", "reward", "cost", "next_obs", "terminated", "mask",
    )  # fmt: skip
    rates: ClassVar[Mapping[str, str]] = {
        "nu": "nu_learning_rate",
        "multipliers": "multiplier_learning_rate",
        "actor": "actor_learning_rate",
    }
    keeps_limits: ClassVar[bool] = True

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """``nu``, multipliers of zero and a Gaussian actor."""
        nu_key, actor_key = jax.random.split(key)
        mean = self.networks.obs_network(spec, spec.n_action, actor_key, output=tanh)
        return {
            "nu": self.networks.obs_network(spec, 1, nu_key),
            "multipliers": jnp.zeros(spec.n_cost, jnp.float32),
            "actor": GaussianActor(mean, jnp.zeros(spec.n_action, jnp.float32)),
        }, {}

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step of ``nu``, the multipliers and the actor; the key is ignored."""
        rows = only_batch(rows)
        cost = counted_costs(state.preparation, rows.cost)
        limits = step_limits(state.preparation, allowed_violations=self.allowed_violations)
        penalised_reward = rows.reward - cost @ state.parameters["multipliers"]
        state, nu_loss, weights = self.descend(
            state, "nu", _nu_loss, rows, penalised_reward, self.alpha, self.discount
        )
        expected_cost = jax.vmap(masked_mean, in_axes=(1, None))(weights[:, None] * cost, rows.mask)
        state, _, _ = self.descend(state, "multipliers", _multiplier_loss, limits - expected_cost)
        multipliers = jnp.maximum(state.parameters["multipliers"], 0)
        state = state.with_parameters(multipliers=multipliers)
        state, actor_loss, _ = self.descend(state, "actor", _actor_loss, rows, weights)
        return state, {
            "nu_loss": nu_loss,
            "actor_loss": actor_loss,
            "multiplier": jnp.max(multipliers),
            "cost_excess": jnp.max(expected_cost - limits),
            "effective_sample": weight_metrics(weights, rows.mask, jnp.inf)["effective_sample"],
        }

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The mean of the trained policy, in physical units."""
        return network_policy(state.preparation, state.parameters["actor"].mean)


def soft_chi_square(weight: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """``w log w - w + 1`` below one and ``(w - 1)^2 / 2`` above; 1 at zero, 0 at one."""
    clipped = jnp.clip(weight, jnp.finfo(weight.dtype).tiny, 1)
    return jnp.where(
        weight < 1, clipped * jnp.log(clipped) - clipped + 1, jnp.square(weight - 1) / 2
    )


def inverse_slope(y: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """The ``w`` where :func:`soft_chi_square` has slope ``y``: ``exp(y)``, ``y + 1`` from 0 up."""
    return jnp.where(y < 0, jnp.exp(jnp.minimum(y, 0)), y + 1)


def _nu_loss(
    nu: Network,
    rows: UnitRows,
    penalised_reward: Float[Array, " batch"],
    alpha: Float[Array, ""],
    discount: Float[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
    """The loss and the weights of the rows, which carry no gradient."""
    value, next_value = jnp.split(nu(jnp.concatenate([rows.obs, rows.next_obs]))[..., 0], 2)
    residual = penalised_reward + discount * jnp.where(rows.terminated, 0, next_value) - value
    weight = jax.lax.stop_gradient(inverse_slope(residual / alpha))
    # At the maximising w, the derivative with respect to e of the second term is w itself.
    advantage_term = weight * residual - alpha * soft_chi_square(weight)
    return masked_mean((1 - discount) * value + advantage_term, rows.mask), weight


def _multiplier_loss(
    multipliers: Float[Array, " cost"], slack: Float[Array, " cost"]
) -> tuple[Float[Array, ""], None]:
    return jnp.sum(multipliers * slack), None


def _actor_loss(
    actor: GaussianActor, rows: UnitRows, weights: Float[Array, " batch"]
) -> tuple[Float[Array, ""], None]:
    return weighted_regression_loss(actor, rows, weights, log_std_range=LOG_STD_RANGE)
