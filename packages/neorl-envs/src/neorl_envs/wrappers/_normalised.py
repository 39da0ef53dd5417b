"""Scales observations and actions to order one."""

import functools
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import Affine, Channel, Environment, Spec, Step, highs, lows, unit_interval
from neorl_envs.wrappers._base import Wrapper
from neorl_envs.wrappers._policies import AdaptedPolicy

Scales = tuple[tuple[float, ...], tuple[float, ...]]


class Normalised(Wrapper):
    """A plant with scaled observations and actions; rewards and costs are unchanged.

    Attributes:
        env: The wrapped environment.
        scales: Offset and scale of every observed channel, in its unit.
        actions: Whether actions are also scaled, to [-1, 1].
    """

    scales: Scales = eqx.field(static=True)
    actions: bool = eqx.field(static=True, default=True)

    @property
    def spec(self) -> Spec:
        """The specification with scaled channels, whose unit is ``"1"``."""
        return _spec(self.env.spec, self.scales, self.actions)

    def tunings(self) -> dict[str, AdaptedPolicy]:
        """The plant's controllers, adapted to scaled readings and actions."""
        action = self._action_map if self.actions else None
        n_obs = self.env.spec.n_obs
        return {
            name: AdaptedPolicy(policy, self._obs_map, action, n_obs)
            for name, policy in self.env.tunings().items()
        }

    def operator_plan(self) -> Any:
        """Raises, because the plan is in the units of the plant."""
        raise TypeError("record a log on the plant itself and scale what is read from it")

    def action_rates(self) -> tuple[float, ...]:
        """Largest change of each actuator per second, in scaled units."""
        rates = self.env.action_rates()
        if not self.actions:
            return rates
        half = np.asarray(self._action_map.scale)
        return tuple(float(rate / each) for rate, each in zip(rates, half, strict=True))

    def bands(self) -> dict[str, tuple[float, float]]:
        """Soft limits in scaled units."""
        names = [channel.name for channel in self.env.spec.obs]
        offset, scale = self.scales
        return {
            name: tuple(
                (end - offset[names.index(name)]) / scale[names.index(name)] for end in ends
            )
            for name, ends in self.env.bands().items()
        }

    def reset(self, params: Any, key: PRNGKeyArray) -> tuple[Any, Float[Array, " obs"]]:
        """Starts an episode."""
        state, obs = self.env.reset(params, key)
        return state, self._obs_map.to_scaled(obs)

    def step(
        self, params: Any, state: Any, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[Any, Step]:
        """Simulates one control period; the plant clips scaled actions outside [-1, 1]."""
        physical = self._action_map.to_physical(action) if self.actions else action
        state, step = self.env.step(params, state, physical, key)
        applied = self._action_map.to_scaled(step.applied) if self.actions else step.applied
        obs, final_obs = map(self._obs_map.to_scaled, (step.obs, step.final_obs))
        return state, step._replace(obs=obs, final_obs=final_obs, applied=applied)

    @property
    def _obs_map(self) -> Affine:
        offset, scale = (np.asarray(row, np.float32) for row in self.scales)
        return Affine(jnp.asarray(offset), jnp.asarray(scale))

    @property
    def _action_map(self) -> Affine:
        return unit_interval(self.env.spec.action)


def normalised(env: Environment, *, obs: Affine | None = None, actions: bool = True) -> Normalised:
    """Scales the observations and actions of an environment to order one.

    Args:
        env: An environment.
        obs: Scales of the observed channels, for example from a log by
            :func:`neorl_core.standardiser`; by default the measuring ranges map to [-1, 1].
        actions: Whether actions are also scaled, to [-1, 1].

    Returns:
        An environment with the same interface.

    Raises:
        ValueError: If ``obs`` does not match the channels, or a scale is not positive.

    Example:
        >>> import neorl_envs
        >>> normalised(neorl_envs.make("ChemicalReactor-v0")).spec.obs[3].high
        1.0
    """
    scale = unit_interval(env.spec.obs) if obs is None else obs
    scale.to_scaled(jnp.asarray(lows(env.spec.obs), jnp.float32))  # raises for other channels
    offset, width = (tuple(np.asarray(x, float).tolist()) for x in (scale.offset, scale.scale))
    return Normalised(env, (offset, width), actions)


@functools.cache
def _spec(spec: Spec, scales: Scales, actions: bool) -> Spec:
    def scaled(channels: tuple[Channel, ...], offset: Any, scale: Any) -> tuple[Channel, ...]:
        low, high = ((np.asarray(ends(channels)) - offset) / scale for ends in (lows, highs))
        # Round to integers if the range itself is the scale.
        low, high = (np.where(abs(x - np.round(x)) < 1e-6, np.round(x), x) for x in (low, high))
        ends = zip(channels, low.tolist(), high.tolist(), strict=True)
        return tuple(Channel(channel.name, "1", a, b) for channel, a, b in ends)

    obs = scaled(spec.obs, *map(np.asarray, scales))
    action = spec.action
    if actions:
        unit = unit_interval(spec.action)
        action = scaled(spec.action, np.asarray(unit.offset), np.asarray(unit.scale))
    return Spec(obs, action, spec.cost, spec.dt, spec.horizon)
