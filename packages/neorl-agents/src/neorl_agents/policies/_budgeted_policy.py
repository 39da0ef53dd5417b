"""A policy that chooses under a budget for each cost, and counts down what an episode has cost."""

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.networks import BudgetedChoice, Network
from neorl_agents.policies._history_policy import HistoryPolicy, require_one
from neorl_agents.policies._network_policy import NetworkPolicy
from neorl_agents.policies._sequence_policy import received, taken_off


class BudgetedCarry(NamedTuple):
    """Carry of a :class:`BudgetedPolicy`.

    Attributes:
        inner: What the policy inside remembers.
        obs: The last observation in scaled units, and behind it 1 where it is known.
        sent: The action since then in [-1, 1], and behind it 1 where it is known.
        left: What is left of each budget, in the unit of the budget.
        step: Number of the next step of the episode.
    """

    inner: Any
    obs: Float[Array, " obs_and_known"]
    sent: Float[Array, " act_and_known"]
    left: Float[Array, " cost"]
    step: Int[Array, ""]


class BudgetedPolicy(eqx.Module):
    """A :class:`~neorl_agents.networks.BudgetedChoice` whose budgets shrink by what was spent.

    Nobody tells a policy its costs. So it counts by itself: when an observation comes, the network
    ``counts`` says from the observation before it, the action sent since and the new one what that
    step cost, and that is taken off the budgets. Where one of the three is unknown, the even share
    of what is left over the rest of the horizon is taken off. What is left stays within zero and
    the budget.

    In step ``t`` of ``horizon`` the choice is made under the budget that would spend as much in
    each step, ``left horizon / (horizon - t)``: at even spending the same in every step, less
    after a step that cost more than its share, and more towards the end of an episode that was
    cheap.

    After ``horizon`` steps the count begins anew with the whole budget, as after a restart.

    Attributes:
        inner: The policy that chooses, with the whole budgets in ``inner.network.budget``.
        counts: Network of ``[obs, action, next obs]`` in scaled units to the costs of the step, in
            their units; steps above the limit for a cost with a limit per step.
        cost_unit: What each cost is divided by, shape ``(cost,)``.
        horizon: Steps of an episode.
    """

    inner: NetworkPolicy | HistoryPolicy
    counts: Network
    cost_unit: Float[Array, " cost"]
    horizon: Int[Array, ""]

    @property
    def choice(self) -> BudgetedChoice:
        """The network that chooses, under the whole budgets."""
        network: Any = self.inner.network
        return network

    def initial_carry(self) -> BudgetedCarry:
        """An empty memory, and everything left."""
        dtype = self.inner.low.dtype
        n_obs, n_action = self.inner.obs.offset.shape[0], self.inner.low.shape[0]
        return BudgetedCarry(
            inner=self.inner.initial_carry(),
            obs=jnp.zeros(n_obs + 1, dtype),
            sent=jnp.zeros(n_action + 1, dtype),
            left=jnp.asarray(self.choice.budget, dtype),
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
        seen = jnp.where(known, self.inner.obs.to_scaled(obs), 0).astype(dtype)
        left, step = self._left(carry, seen, known)
        rest = (self.horizon - step).astype(dtype)
        rate = left * self.horizon.astype(dtype) / jnp.maximum(rest, 1)
        acting = replace(self.inner, network=replace(self.choice, budget=rate))
        inner, action = acting(carry.inner, obs, key)
        return BudgetedCarry(
            inner=inner,
            obs=jnp.concatenate([seen, known[None].astype(dtype)]),
            sent=jnp.zeros_like(carry.sent),
            left=left,
            step=step + 1,
        ), action

    def sent(self, carry: BudgetedCarry, action: Float[Array, " act"]) -> BudgetedCarry:
        """Remembers what the plant received; NaN where that is not known."""
        sent = received(self.inner.action, action, carry.obs[-1] > 0).astype(carry.sent.dtype)
        return carry._replace(inner=self.inner.sent(carry.inner, action), sent=sent)

    def _left(
        self, carry: BudgetedCarry, seen: Float[Array, " obs"], known: Array
    ) -> tuple[Float[Array, " cost"], Int[Array, ""]]:
        """What is left for the step that begins, and its number."""
        whole = self.initial_carry().left
        steps = jnp.concatenate([carry.obs[:-1], carry.sent[:-1], seen])
        counted = self.counts(steps) * self.cost_unit
        all_known = (carry.obs[-1] > 0) & (carry.sent[-1] > 0) & known
        spent = taken_off(counted, carry.left, carry.step, self.horizon, all_known)
        left = jnp.clip(carry.left - spent, 0, whole)
        over = carry.step >= self.horizon
        return jnp.where(over, whole, left).astype(seen.dtype), jnp.where(over, 0, carry.step)
