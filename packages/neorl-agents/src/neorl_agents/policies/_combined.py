"""Policies made of others: an average, a choice by a budget, and a correction."""

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.networks import MLP, BudgetedChoice, Network, largest
from neorl_agents.policies._network_policy import (
    CategoricalPolicy,
    EpsilonGreedyPolicy,
    GaussianPolicy,
    NetworkPolicy,
    SquashedGaussianPolicy,
)
from neorl_agents.policies._sequence_policy import (
    HistoryPolicy,
    amount_spent,
    received_action,
    require_one,
)
from neorl_core import Affine, InputError, Policy
from neorl_core.control import follow

# The mean action of several policies, such as the seeds of one learner.


DRAWN = (CategoricalPolicy, EpsilonGreedyPolicy, GaussianPolicy, SquashedGaussianPolicy)


class AveragePolicy(eqx.Module):
    """``action = mean_i member_i(obs)``, the average of several policies for one plant.

    Every member keeps a memory of its own, and the action that the plant received is reported to
    all of them. An average can be exported in every form in which its members can. If the action of
    one member is not finite, neither is the mean. :func:`average_policy` checks the members.

    Attributes:
        members: The policies, in physical units; at least two.

    Source: Breiman, Bagging predictors, Machine Learning 24 (1996), for the average of predictors
    that were fitted to the same data.
    """

    members: tuple[Policy, ...]

    def initial_carry(self) -> tuple[Any, ...]:
        """The initial carry of every member."""
        return tuple(member.initial_carry() for member in self.members)

    def __call__(
        self, carry: tuple[Any, ...], obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[tuple[Any, ...], Float[Array, " act"]]:
        """The mean action for one observation, both in physical units; the key is ignored."""
        answers = [member(own, obs, None) for member, own in zip(self.members, carry, strict=True)]
        actions = [action for _, action in answers]
        mean = reduce(jnp.add, actions) / len(actions)
        # A mean can leave the range of its terms, and hence the box, by a rounding error.
        low, high = reduce(jnp.minimum, actions), reduce(jnp.maximum, actions)
        return tuple(own for own, _ in answers), jnp.clip(mean, low, high)

    def sent(self, carry: tuple[Any, ...], action: Float[Array, " act"]) -> tuple[Any, ...]:
        """Reports the applied action to every member."""
        pairs = zip(self.members, carry, strict=True)
        return tuple(member.sent(own, action) for member, own in pairs)

    def follow(self, carry: tuple[Any, ...], action: Float[Array, " act"]) -> tuple[Any, ...]:
        """Reports another controller's action to every member."""
        pairs = zip(self.members, carry, strict=True)
        return tuple(follow(member, own, action) for member, own in pairs)


def average_policy(members: Sequence[Policy]) -> AveragePolicy:
    """The average of several policies whose actions are numbers that may be averaged.

    Args:
        members: Deterministic policies in physical units for the same plant.

    Returns:
        Their average.

    Raises:
        InputError: If there are fewer than two, or one draws its actions at random or chooses one
            of several channels: the mean of two choices is neither of them.

    Example:
        >>> from neorl_core.control import ConstantPolicy
        >>> average = average_policy([ConstantPolicy(jnp.ones(1)), ConstantPolicy(4 * jnp.ones(1))])
        >>> average(average.initial_carry(), jnp.zeros(3))[1]
        Array([2.5], dtype=float32)
    """
    if len(members) < 2:
        raise InputError(f"an average needs at least two policies, got {len(members)}")
    for member in members:
        kind = type(member).__name__
        if isinstance(member, DRAWN):
            raise InputError(
                f"{kind} draws its actions, which cannot be averaged; take the deterministic "
                "policies of the learner"
            )
        if _chooses(member):
            raise InputError(
                f"this {kind} chooses one of several channels, and the mean of two choices is "
                "neither of them; take one of the policies"
            )
    return AveragePolicy(tuple(members))


def _chooses(part: Any) -> bool:
    """Whether a network in a policy selects the largest of its outputs."""
    if part is largest:
        return True
    if isinstance(part, tuple):
        return any(map(_chooses, part))
    if dataclasses.is_dataclass(part):
        return any(_chooses(getattr(part, field.name)) for field in dataclasses.fields(part))
    return False


# A policy that chooses under a budget for each cost and subtracts the cost predicted so far.


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


# A controller with a network of bounded authority added to its action.


class ResidualCarry(NamedTuple):
    """Carry of a residual policy.

    Attributes:
        base: Carry of the controller.
        correction: The network's addition to its last action, physical units, shape ``(act,)``.
    """

    base: Any
    correction: Float[Array, " act"]


class ResidualPolicy(eqx.Module):
    """``action = clip(base + authority * tanh(network(obs, base)), low, high)``.

    The action never differs from the controller's by more than ``authority``, whatever the network
    predicts. The applied action minus the network's addition is reported to the controller, so its
    integral terms continue as if it acted without the network.

    Attributes:
        base: The controller, in physical units.
        obs: Map from physical observations to the network's inputs.
        action: Map from physical actions to [-1, 1].
        network: Network from observation and the controller's action to one number per action.
        authority: Largest addition to each action, physical units, shape ``(act,)``.
        low: Lower ends of the action channels in physical units, shape ``(act,)``.
        high: Upper ends, shape ``(act,)``.

    Source: Johannink et al., Residual reinforcement learning for robot control, arXiv 1812.03201;
    the bound is an addition of this project.
    """

    base: Policy
    obs: Affine
    action: Affine
    network: MLP
    authority: Float[Array, " act"]
    low: Float[Array, " act"]
    high: Float[Array, " act"]

    def initial_carry(self) -> ResidualCarry:
        """The controller's initial carry, with nothing added yet."""
        return ResidualCarry(self.base.initial_carry(), jnp.zeros_like(self.authority))

    def __call__(
        self, carry: ResidualCarry, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[ResidualCarry, Float[Array, " act"]]:
        """The action for one observation, both in physical units; the key is ignored.

        NaN if the controller's action is not finite. If the network's output is not finite, the
        controller acts without it.
        """
        base_carry, action = self.base(carry.base, obs, None)
        scaled_obs = jnp.clip(self.obs.to_scaled(obs), -5.0, 5.0)
        inputs = jnp.concatenate([scaled_obs, jnp.clip(self.action.to_scaled(action), -1.0, 1.0)])
        relative_correction = jnp.tanh(self.network(inputs))
        corrected = (
            action
            + jnp.where(jnp.isfinite(relative_correction), relative_correction, 0.0)
            * self.authority
        )
        clipped = jnp.clip(corrected, self.low, self.high)
        applied_correction = jnp.where(jnp.isfinite(clipped - action), clipped - action, 0.0)
        return ResidualCarry(base_carry, applied_correction), clipped

    def sent(self, carry: ResidualCarry, action: Float[Array, " act"]) -> ResidualCarry:
        """Reports the applied action, minus the network's addition, to the controller."""
        return carry._replace(base=self.base.sent(carry.base, action - carry.correction))

    def follow(self, carry: ResidualCarry, action: Float[Array, " act"]) -> ResidualCarry:
        """Reports another controller's action to the controller; the network remembers nothing."""
        return carry._replace(base=follow(self.base, carry.base, action))
