"""Observations and actions in scales of order one."""

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
    """A plant seen and moved in scaled units; rewards and costs keep theirs.

    Attributes:
        env: The environment that is transformed.
        scales: Offset and scale of every observed channel, in its unit.
        actions: Whether actions are in [-1, 1] too.
    """

    scales: Scales = eqx.field(static=True)
    actions: bool = eqx.field(static=True, default=True)

    @property
    def spec(self) -> Spec:
        """The channels in scaled units, ``"1"``."""
        return _spec(self.env.spec, self.scales, self.actions)

    def tunings(self) -> dict[str, AdaptedPolicy]:
        """The plant's controllers, for scaled readings and actions."""
        action = self._action_map if self.actions else None
        n_obs = self.env.spec.n_obs
        return {
            name: AdaptedPolicy(policy, self._obs_map, action, n_obs)
            for name, policy in self.env.tunings().items()
        }

    def operator_plan(self) -> Any:
        """Refused: the plan is in the units of the plant."""
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
        """A new episode."""
        state, obs = self.env.reset(params, key)
        return state, self._obs_map.to_scaled(obs)

    def step(
        self, params: Any, state: Any, action: Float[Array, " act"], key: PRNGKeyArray
    ) -> tuple[Any, Step]:
        """One control period; scaled actions outside [-1, 1] are clipped by the plant."""
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
    """Transforms an environment so that observations and actions are of order one.

    Args:
        env: An environment.
        obs: Scales of the observed channels, such as :func:`neorl_core.standardiser` makes them
            from a log; the measuring ranges as [-1, 1] by default.
        actions: Whether actions are in [-1, 1] too.

    Returns:
        An environment of the same contract.

    Raises:
        ValueError: If ``obs`` has other channels, or a scale that is not positive.

    Example:
        >>> import neorl_envs
        >>> normalised(neorl_envs.make("ChemicalReactor-v0")).spec.obs[3].high
        1.0
    """
    scale = unit_interval(env.spec.obs) if obs is None else obs
    scale.to_scaled(jnp.asarray(lows(env.spec.obs), jnp.float32))  # refuses other channels
    offset, width = (tuple(np.asarray(x, float).tolist()) for x in (scale.offset, scale.scale))
    return Normalised(env, (offset, width), actions)


@functools.cache
def _spec(spec: Spec, scales: Scales, actions: bool) -> Spec:
    def scaled(channels: tuple[Channel, ...], offset: Any, scale: Any) -> tuple[Channel, ...]:
        low, high = ((np.asarray(ends(channels)) - offset) / scale for ends in (lows, highs))
        # Whole numbers where the range itself is the scale.
        low, high = (np.where(abs(x - np.round(x)) < 1e-6, np.round(x), x) for x in (low, high))
        ends = zip(channels, low.tolist(), high.tolist(), strict=True)
        return tuple(Channel(channel.name, "1", a, b) for channel, a, b in ends)

    obs = scaled(spec.obs, *map(np.asarray, scales))
    action = spec.action
    if actions:
        unit = unit_interval(spec.action)
        action = scaled(spec.action, np.asarray(unit.offset), np.asarray(unit.scale))
    return Spec(obs, action, spec.cost, spec.dt, spec.horizon)
