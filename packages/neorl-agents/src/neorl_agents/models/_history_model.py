"""A model of the plant from a log: a linear part by least squares and a learned residual."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from neorl_core import Spec

CLIP = 8.0
"""Bound on inputs in standard deviations, so that a rollout does not diverge."""
PAST = 0.3
"""Weight of a typical change in the inputs, relative to the observations themselves."""


class Remainder(eqx.Module):
    """A network of two hidden layers with SiLU, whose output is small at first."""

    layers: tuple[tuple[Array, Array], ...]

    def __call__(self, inputs: Float[Array, " in"]) -> Float[Array, " out"]:
        """The addition to the linear part, in standard deviations of that part's residual."""
        *hidden, (last, bias) = self.layers
        for weight, offset in hidden:
            inputs = jax.nn.silu(inputs @ weight + offset)
        return inputs @ last + bias


class Scales(NamedTuple):
    """Means and standard deviations of the log, physical units.

    Attributes:
        obs: Scales of the observations, shape ``(2, obs)``.
        action: Scales of the actions, shape ``(2, act)``.
        change: Scales of the changes of the predicted channels, shape ``(2, predicted)``.
        outcome: Scales of the reward and the costs, shape ``(2, 1 + cost)``.
        low: Smallest observation that a rollout may reach, shape ``(obs,)``.
        high: Largest.
        seen_low: The 0.1 % quantile of every observation of the log, shape ``(obs,)``.
        seen_high: The 99.9 % quantile.
    """

    obs: Float[Array, "2 obs"]
    action: Float[Array, "2 act"]
    change: Float[Array, "2 predicted"]
    outcome: Float[Array, "2 outcome"]
    low: Float[Array, " obs"]
    high: Float[Array, " obs"]
    seen_low: Float[Array, " obs"]
    seen_high: Float[Array, " obs"]


class Part(eqx.Module):
    """A linear map and the remainder of every member.

    Attributes:
        linear: Coefficients with the intercept as last row, shape ``(in + 1, out)``.
        spread: Standard deviation of the linear map's residual, shape ``(out,)``.
        remainder: Networks with the member as first axis of every array.
    """

    linear: Float[Array, "rows out"]
    spread: Float[Array, " out"]
    remainder: Remainder

    def __call__(self, inputs: Float[Array, " in"], member: Int[Array, ""]) -> Array:
        """The output of one member; only that of the linear map if ``member`` is negative."""
        member_network = jax.tree.map(lambda x: x[jnp.maximum(member, 0)], self.remainder)
        learned = jnp.where(member < 0, 0.0, 1.0) * member_network(inputs) * self.spread
        return inputs @ self.linear[:-1] + self.linear[-1] + learned


class HistoryModel(eqx.Module):
    """Predicts a step of the plant from the last observations and actions.

    With ``h`` the last ``history`` observations and actions, ``u`` the action, ``u-`` the one
    before and ``x'`` the next observation, a member ``m`` predicts

    ``x' = x + A h + s f_m(h, u)``, ``(r, c) = B (x, x', u, u-) + s' g_m(x, x', u, u-)``,

    in standardised units. ``A`` and ``B`` are fitted by ridge regression and the networks ``f``,
    ``g`` to its residuals, whose standard deviations are ``s`` and ``s'``. A last output of ``g``
    is the log-odds that the plant ends the episode. Channels that the controller does not influence
    (weather, demand, setpoints) are not predicted: a rollout takes them from the log.

    Attributes:
        dynamics: Changes of the predicted channels.
        outcome: Reward, costs and the log-odds of an end.
        scales: Scales of the log that the model was fitted to.
        spec: Channels; static.
        predicted: Indices of the predicted observations; static.
        history: Number of past steps; static.
        ends: Whether an episode of the log was ended by the plant; static.

    Source: Ljung, System identification: theory for the user, 1999, section 4.2, for the linear
    part; Chua et al., arXiv 1805.12114, for the ensemble.
    """

    dynamics: Part
    outcome: Part
    scales: Scales
    spec: Spec = eqx.field(static=True)
    predicted: tuple[int, ...] = eqx.field(static=True)
    history: int = eqx.field(static=True)
    ends: bool = eqx.field(static=True)

    @property
    def members(self) -> int:
        """Number of networks."""
        return len(self.dynamics.remainder.layers[0][0])

    def next_obs(
        self,
        obs: Float[Array, "step obs"],
        actions: Float[Array, "step act"],
        action: Float[Array, " act"],
        member: Int[Array, ""],
    ) -> Float[Array, " predicted"]:
        """The predicted channels one step on, physical units.

        Args:
            obs: The last ``history`` observations, the current one last.
            actions: The actions that led to each of them.
            action: The current action.
            member: Index of a network; -1 for only the linear part.
        """
        inputs = history_inputs(self.scales, self.predicted, obs, actions, action)
        change = self.dynamics(inputs, member) * self.scales.change[1] + self.scales.change[0]
        return obs[-1][jnp.asarray(self.predicted)] + change

    def outcomes(
        self,
        obs: Float[Array, " obs"],
        last_action: Float[Array, " act"],
        action: Float[Array, " act"],
        next_obs: Float[Array, " obs"],
        member: Int[Array, ""],
    ) -> tuple[Float[Array, " outcome"], Float[Array, ""]]:
        """Reward and costs of a step in physical units, and the log-odds that it is the last.

        Args:
            obs: Observation before the step.
            last_action: The action of the step before.
            action: The action.
            next_obs: Observation after the step.
            member: Index of a network; -1 for only the linear part.
        """
        inputs = outcome_inputs(self.scales, self.predicted, obs, last_action, action, next_obs)
        scale = self.scales.outcome
        # A linear map cannot predict the end of an episode, so a network does it for the linear
        # part.
        end = self.outcome(inputs, jnp.maximum(member, 0))[-1]
        return self.outcome(inputs, member)[:-1] * scale[1] + scale[0], end


def _standardise(values: Array, scale: Array) -> Array:
    return jnp.clip((values - scale[0]) / scale[1], -CLIP, CLIP)


def history_inputs(
    scales: Scales, predicted: tuple[int, ...], obs: Array, actions: Array, action: Array
) -> Float[Array, " in"]:
    """The current observation, its differences from the past ones, and all actions."""
    differences = (obs[:-1] - obs[-1:])[:, jnp.asarray(predicted)] / scales.change[1][None]
    both = jnp.concatenate([actions, action[None]])
    scaled_actions = jax.vmap(_standardise, in_axes=(0, None))(both, scales.action)
    scaled_obs = _standardise(obs[-1], scales.obs)
    return jnp.concatenate(
        [scaled_obs, jnp.clip(PAST * differences, -CLIP, CLIP).ravel(), scaled_actions.ravel()]
    )


def outcome_inputs(
    scales: Scales,
    predicted: tuple[int, ...],
    obs: Array,
    last_action: Array,
    action: Array,
    next_obs: Array,
) -> Float[Array, " in"]:
    change = (next_obs - obs)[jnp.asarray(predicted)] / scales.change[1]
    parts = (
        _standardise(obs, scales.obs),
        _standardise(next_obs, scales.obs),
        jnp.clip(PAST * change, -CLIP, CLIP),
        _standardise(action, scales.action),
        _standardise(last_action, scales.action),
    )
    return jnp.concatenate(parts)
