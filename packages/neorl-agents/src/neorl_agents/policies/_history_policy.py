"""Policies that remember the last steps of an episode."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.networks import ActingNetwork, Window, step_features
from neorl_agents.networks._windows import FLAGS
from neorl_core import Affine


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
