"""Policies that act on their recent past: by a window of observations, or by a whole sequence."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_agents.networks import (
    ActingNetwork,
    Network,
    SequenceNetwork,
    Steps,
    Window,
    step_features,
)
from neorl_agents.networks._windows import FLAGS
from neorl_core import Affine

# Policies that remember the last steps of an episode.


class HistoryCarry(NamedTuple):
    """Carry of a :class:`HistoryPolicy`; all zero before an episode.

    Attributes:
        window: The last steps of the episode as the network sees them, oldest first.
        sent: The action since the newest of them in [-1, 1], followed by 1 if it is known, else 0.
    """

    window: Float[Array, "step feature"]
    sent: Float[Array, " act_and_known"]


class HistoryPolicy(eqx.Module):
    """A network that sees the last ``steps`` observations and the actions before them.

    The window is empty at the start of an episode. A step that did not happen, or whose observation
    was not finite, is zero with flags of zero, as in training. An action is unknown if it is not
    finite or followed an unknown observation. If the **current** observation is not finite, neither
    is the action, as in a policy without memory; later steps continue without that observation.

    Attributes:
        obs: Map from physical observations to scaled ones.
        network: Network on the flattened window whose last activation maps into [-1, 1].
        action: Map from physical actions to [-1, 1].
        low: Lower ends of the action channels in physical units, shape ``(act,)``.
        high: Upper ends, shape ``(act,)``.
        steps: Length of the window; static.
    """

    obs: Affine
    network: ActingNetwork
    action: Affine
    low: Float[Array, " act"]
    high: Float[Array, " act"]
    steps: int = eqx.field(static=True)

    def initial_carry(self) -> HistoryCarry:
        """An empty window."""
        n_obs, n_action = self.obs.offset.shape[0], self.low.shape[0]
        dtype = self.low.dtype
        return HistoryCarry(
            jnp.zeros((self.steps, n_obs + n_action + FLAGS), dtype),
            jnp.zeros(n_action + 1, dtype),
        )

    def __call__(
        self, carry: HistoryCarry, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[HistoryCarry, Float[Array, " act"]]:
        """The action for one more observation, both in physical units; the key is ignored.

        Raises:
            ValueError: If ``obs`` is not one observation.
        """
        carry, unit = self.unit(carry, obs)
        return carry, jnp.clip(self.action.to_physical(unit), self.low, self.high)

    def carry_of_window(self, window: Window) -> HistoryCarry:
        """The carry just before the newest observation of a window is passed in.

        Args:
            window: A window of ``steps`` steps in physical units.
        """
        features = step_features(
            self.obs.to_scaled(window.obs), self.action.to_scaled(window.action),
            window.obs_known, window.action_known,
        )  # fmt: skip
        known = features[-1:, -1]  # Flag of the action before the newest observation.
        sent = jnp.concatenate([features[-1, -FLAGS - self.low.shape[0] : -FLAGS], known])
        return HistoryCarry(jnp.concatenate([jnp.zeros_like(features[:1]), features[:-1]]), sent)

    def sent(self, carry: HistoryCarry, action: Float[Array, " act"]) -> HistoryCarry:
        """The carry after the plant received ``action``; NaN if it is not known."""
        obs_known = carry.window[-1, -FLAGS] > 0
        known = obs_known & jnp.all(jnp.isfinite(action))
        unit = jnp.where(known, self.action.to_scaled(action), 0)
        flagged_action = jnp.concatenate([unit, known[None].astype(unit.dtype)])
        return carry._replace(sent=flagged_action.astype(carry.sent.dtype))

    def unit(
        self, carry: HistoryCarry, obs: Float[Array, " obs"]
    ) -> tuple[HistoryCarry, Float[Array, " act"]]:
        """The action in [-1, 1], before the map to physical units.

        Raises:
            ValueError: If ``obs`` is not one observation.
        """
        require_one(obs, self.obs)
        known = jnp.all(jnp.isfinite(obs))
        newest = step_features(
            self.obs.to_scaled(obs), carry.sent[:-1], known, carry.sent[-1] > 0
        ).astype(carry.window.dtype)
        window = jnp.concatenate([carry.window[1:], newest[None]])
        unit = jnp.where(known, self.network(window.reshape(-1)), jnp.nan)
        return HistoryCarry(window, jnp.zeros_like(carry.sent)), unit


def require_one(obs: Array, scaler: Affine) -> None:
    """Refuses an array that is not one observation."""
    expected = scaler.offset.shape
    if obs.shape != expected:
        raise ValueError(
            f"the policy takes one observation of shape {expected}, got {obs.shape}; use jax.vmap "
            "for a batch"
        )


# A policy that reads the last steps, and the remainder of its target return and cost budgets.


class SequenceCarry(NamedTuple):
    """Carry of a :class:`SequencePolicy`: its last steps, oldest first.

    Attributes:
        aim: Remainder of the return and of each cost, divided by the horizon, in scaled units.
        obs: Scaled observations, zero if unknown.
        action: The action before each of them in [-1, 1], zero if unknown.
        known: Whether the observation, and whether the action is known: 1 or 0.
        time: Index of each step in its episode.
        sent: The action since the newest step in [-1, 1], followed by 1 if it is known, else 0.
        remaining: Remainder for the current step, like ``aim``.
        step: Index of the next step.
    """

    aim: Float[Array, "step aim"]
    obs: Float[Array, "step obs"]
    action: Float[Array, "step act"]
    known: Float[Array, "step 2"]
    time: Int[Array, " step"]
    sent: Float[Array, " act_and_known"]
    remaining: Float[Array, " aim"]
    step: Int[Array, ""]


def received_action(
    scale: Affine, action: Float[Array, " act"], obs_known: Bool[Array, ""]
) -> Float[Array, " act_and_known"]:
    """The action that the plant received in [-1, 1], followed by 1 if it is known, else 0.

    ``action`` is in physical units, NaN if unknown.
    """
    known = obs_known & jnp.all(jnp.isfinite(action))
    unit = jnp.where(known, scale.to_scaled(action), 0)
    return jnp.concatenate([unit, known[None].astype(unit.dtype)])


def amount_spent(
    predicted: Float[Array, " budget"],
    remaining: Float[Array, " budget"],
    step: Int[Array, ""],
    horizon: Int[Array, ""] | int,
    known: Bool[Array, ""],
) -> Float[Array, " budget"]:
    """Amount that the previous step uses up; zero before the first step.

    Unless the step is ``known``, an even share of the remainder over the rest of the horizon is
    used up.
    """
    share = remaining / jnp.maximum(horizon - step + 1, 1).astype(remaining.dtype)
    return jnp.where(step > 0, jnp.where(known, predicted, share), 0)


class SequencePolicy(eqx.Module):
    """A transformer that acts on the remainder of a target return and of a budget for each cost.

    A policy does not observe its reward at run time. When an observation arrives, the network
    ``predictor`` therefore predicts the reward and the costs of the step from the previous
    observation, the action sent since and the new observation, and they are subtracted. If one of
    the three is unknown, an even share of the remainder over the rest of the horizon is subtracted.
    A budget never falls below zero.

    After ``horizon`` steps the policy starts again, as after a restart: with the whole target, the
    whole budget and an empty memory. If the current observation is not finite, neither is the
    action.

    Attributes:
        obs: Map from physical observations to scaled ones.
        network: The transformer; the first outputs of the newest step are the action before a tanh.
        predictor: Network from ``[obs, action, next obs]`` in scaled units to the reward and the
            costs of the step, in their units.
        action: Map from physical actions to [-1, 1].
        low: Lower ends of the action channels in physical units, shape ``(act,)``.
        high: Upper ends, shape ``(act,)``.
        target: The target return of an episode, in the unit of the log's reward.
        budget: Largest sum of each cost in an episode, in the unit of the cost, shape ``(cost,)``;
            for a cost with a limit per step, the number of steps above it.
        reward_unit: Divisor of the reward.
        reward_offset: Subtracted from the reward of every step before that.
        cost_unit: Divisor of each cost, shape ``(cost,)``.
    """

    obs: Affine
    network: SequenceNetwork
    predictor: Network
    action: Affine
    low: Float[Array, " act"]
    high: Float[Array, " act"]
    target: Float[Array, ""]
    budget: Float[Array, " cost"]
    reward_unit: Float[Array, ""]
    reward_offset: Float[Array, ""]
    cost_unit: Float[Array, " cost"]

    def initial_carry(self) -> SequenceCarry:
        """An empty memory, with the whole target and budgets."""
        shape, dtype = self.network.shape, self.low.dtype
        target_return = (self.target / shape.horizon - self.reward_offset) / self.reward_unit
        cost_budget = self.budget / self.cost_unit / shape.horizon
        return SequenceCarry(
            aim=jnp.zeros((shape.steps, shape.aims), dtype),
            obs=jnp.zeros((shape.steps, shape.n_obs), dtype),
            action=jnp.zeros((shape.steps, shape.n_action), dtype),
            known=jnp.zeros((shape.steps, 2), dtype),
            time=jnp.zeros(shape.steps, jnp.int32),
            sent=jnp.zeros(shape.n_action + 1, dtype),
            remaining=jnp.concatenate([target_return[None], cost_budget]).astype(dtype),
            step=jnp.zeros((), jnp.int32),
        )

    def __call__(
        self, carry: SequenceCarry, obs: Float[Array, " obs"], key: PRNGKeyArray | None = None
    ) -> tuple[SequenceCarry, Float[Array, " act"]]:
        """The action for one more observation, both in physical units; the key is ignored.

        Raises:
            ValueError: If ``obs`` is not one observation.
        """
        require_one(obs, self.obs)
        known = jnp.all(jnp.isfinite(obs))
        carry = self._observed(self._restarted(carry), obs, known)
        outputs, _ = self.network(
            Steps(
                carry.aim, carry.obs, carry.action, carry.known[:, 0] > 0, carry.known[:, 1] > 0,
                carry.time,
            )
        )  # fmt: skip
        unit = jnp.where(known, jnp.tanh(outputs[-1, : self.network.shape.n_action]), jnp.nan)
        return carry, jnp.clip(self.action.to_physical(unit), self.low, self.high)

    def sent(self, carry: SequenceCarry, action: Float[Array, " act"]) -> SequenceCarry:
        """The carry after the plant received ``action``; NaN if it is not known."""
        sent = received_action(self.action, action, carry.known[-1, 0] > 0)
        return carry._replace(sent=sent.astype(carry.sent.dtype))

    def remaining(self, carry: SequenceCarry) -> tuple[Float[Array, ""], Float[Array, " cost"]]:
        """Remaining target return and budgets, in the units of the log."""
        scaled, horizon = carry.remaining, self.network.shape.horizon
        # The current step remains too, hence + 1; before the first observation there is none.
        remaining_steps = jnp.clip(horizon - carry.step + 1, 0, horizon)
        target_return = (
            scaled[0] * horizon * self.reward_unit + remaining_steps * self.reward_offset
        )
        return target_return, scaled[1:] * horizon * self.cost_unit

    def _restarted(self, carry: SequenceCarry) -> SequenceCarry:
        finished = carry.step >= self.network.shape.horizon
        return jax.tree.map(
            lambda new, old: jnp.where(finished, new, old), self.initial_carry(), carry
        )

    def _observed(self, carry: SequenceCarry, obs: Any, known: Array) -> SequenceCarry:
        """The memory with the newest observation in it, and the remainder now."""
        horizon, dtype = self.network.shape.horizon, carry.obs.dtype
        unit_obs = jnp.where(known, self.obs.to_scaled(obs), 0).astype(dtype)
        action_known = carry.sent[-1] > 0
        predicted = (
            self.predictor(jnp.concatenate([carry.obs[-1], carry.sent[:-1], unit_obs])) / horizon
        )
        all_known = (carry.known[-1, 0] > 0) & action_known & known
        spent = amount_spent(predicted, carry.remaining, carry.step, horizon, all_known)
        remaining = carry.remaining - spent
        remaining = jnp.concatenate([remaining[:1], jnp.maximum(remaining[1:], 0)]).astype(dtype)
        flags = jnp.stack([known, action_known]).astype(dtype)

        def rolled(old: Array, newest: Array) -> Array:
            return jnp.concatenate([old[1:], newest[None]])

        return SequenceCarry(
            aim=rolled(carry.aim, remaining),
            obs=rolled(carry.obs, unit_obs),
            action=rolled(carry.action, carry.sent[:-1]),
            known=rolled(carry.known, flags),
            time=rolled(carry.time, carry.step),
            sent=jnp.zeros_like(carry.sent),
            remaining=remaining,
            step=carry.step + 1,
        )
