"""A policy that chooses under a budget for each cost and subtracts the cost predicted so far."""

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.networks import BudgetedChoice, Network
from neorl_agents.policies._history_policy import HistoryPolicy, require_one
from neorl_agents.policies._network_policy import NetworkPolicy
from neorl_agents.policies._sequence_policy import amount_spent, received_action


class BudgetedCarry(NamedTuple):
    """Carry of a :class:`BudgetedPolicy`.

    Attributes:
        inner: Carry of the policy inside.
        obs: The last observation in scaled units, followed by 1 if it is known, else 0.
        sent: The action since then in [-1, 1], followed by 1 if it is known, else 0.
        remaining: Remainder of each budget, in the unit of the budget.
        step: Index of the next step of the episode.
    """

    inner: Any
    obs: Float[Array, " obs_and_known"]
    sent: Float[Array, " act_and_known"]
    remaining: Float[Array, " cost"]
    step: Int[Array, ""]


class BudgetedPolicy(eqx.Module):
    """A :class:`~neorl_agents.networks.BudgetedChoice` with budgets that shrink as they are spent.

    A policy does not observe its costs at run time. When an observation arrives, the network
    ``predictor`` therefore predicts the costs of the step from the previous observation, the action
    sent since and the new observation, and they are subtracted from the budgets. If one of the
    three is unknown, an even share of the remainder over the rest of the horizon is subtracted. The
    remainder is kept between zero and the budget.

    In step ``t`` of ``horizon`` the choice is made under ``remaining horizon / (horizon - t)``, the
    budget that would be spent if every step cost its share of the remainder. It stays the same
    while spending is even, is smaller after a step that cost more than its share, and grows towards
    the end of an episode that was cheap.

    After ``horizon`` steps the policy starts again with the whole budget, as after a restart.

    Attributes:
        inner: The policy that chooses, with the whole budgets in ``inner.network.budget``.
        predictor: Network from ``[obs, action, next obs]`` in scaled units to the costs of the
            step, in their units; for a cost with a limit per step, the steps above it.
        cost_unit: Divisor of each cost, shape ``(cost,)``.
        horizon: Number of steps of an episode.
    """

    inner: NetworkPolicy | HistoryPolicy
    predictor: Network
    cost_unit: Float[Array, " cost"]
    horizon: Int[Array, ""]

    @property
    def choice(self) -> BudgetedChoice:
        """The network that chooses, under the whole budgets."""
        network: Any = self.inner.network
        return network

    def initial_carry(self) -> BudgetedCarry:
        """An empty memory and whole budgets."""
        dtype = self.inner.low.dtype
        n_obs, n_action = self.inner.obs.offset.shape[0], self.inner.low.shape[0]
        return BudgetedCarry(
            inner=self.inner.initial_carry(),
            obs=jnp.zeros(n_obs + 1, dtype),
            sent=jnp.zeros(n_action + 1, dtype),
            remaining=jnp.asarray(self.choice.budget, dtype),
            step=jnp.zeros((), jnp.int32),
        )

    def __call__(
        self, carry: BudgetedCarry, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[BudgetedCarry, Float[Array, " act"]]:
        """The action for one observation, both in physical units; the key is ignored.

        Raises:
            ValueError: If ``obs`` is not one observation.
        """
        require_one(obs, self.inner.obs)
        known = jnp.all(jnp.isfinite(obs))
        dtype = carry.obs.dtype
        unit_obs = jnp.where(known, self.inner.obs.to_scaled(obs), 0).astype(dtype)
        remaining, step = self._remaining(carry, unit_obs, known)
        remaining_steps = (self.horizon - step).astype(dtype)
        rate = remaining * self.horizon.astype(dtype) / jnp.maximum(remaining_steps, 1)
        acting = replace(self.inner, network=replace(self.choice, budget=rate))
        inner, action = acting(carry.inner, obs, key)
        return BudgetedCarry(
            inner=inner,
            obs=jnp.concatenate([unit_obs, known[None].astype(dtype)]),
            sent=jnp.zeros_like(carry.sent),
            remaining=remaining,
            step=step + 1,
        ), action

    def sent(self, carry: BudgetedCarry, action: Float[Array, " act"]) -> BudgetedCarry:
        """The carry after the plant received ``action``; NaN if it is not known."""
        sent = received_action(self.inner.action, action, carry.obs[-1] > 0).astype(
            carry.sent.dtype
        )
        return carry._replace(inner=self.inner.sent(carry.inner, action), sent=sent)

    def _remaining(
        self, carry: BudgetedCarry, unit_obs: Float[Array, " obs"], known: Array
    ) -> tuple[Float[Array, " cost"], Int[Array, ""]]:
        """The remainder of the budgets for the new step, and its index."""
        full_budget = self.initial_carry().remaining
        steps = jnp.concatenate([carry.obs[:-1], carry.sent[:-1], unit_obs])
        predicted = self.predictor(steps) * self.cost_unit
        all_known = (carry.obs[-1] > 0) & (carry.sent[-1] > 0) & known
        spent = amount_spent(predicted, carry.remaining, carry.step, self.horizon, all_known)
        remaining = jnp.clip(carry.remaining - spent, 0, full_budget)
        finished = carry.step >= self.horizon
        return jnp.where(finished, full_budget, remaining).astype(unit_obs.dtype), jnp.where(
            finished, 0, carry.step
        )
