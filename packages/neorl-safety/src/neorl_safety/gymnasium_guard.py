"""The guard as a Gymnasium environment, for training elsewhere (extra ``gymnasium``)."""

from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_core import InputError, Policy, Spec, highs, lows
from neorl_safety.constraints import AnyConstraints
from neorl_safety.filters import flag_names
from neorl_safety.guards import GuardCarry, GuardedPolicy, Supervision, guard

__all__ = ["GuardedEnv"]

# A Gymnasium wrapper that passes every action through the guard.


class _Requested(eqx.Module):
    """A policy that proposes the action requested from outside, which is its carry."""

    n_action: int = eqx.field(static=True)

    def initial_carry(self) -> Float[Array, " act"]:
        return jnp.full((self.n_action,), jnp.nan)

    def __call__(
        self, carry: Float[Array, " act"], obs: Array, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, " act"], Float[Array, " act"]]:
        return carry, carry

    def sent(self, carry: Float[Array, " act"], action: Array) -> Float[Array, " act"]:
        return carry


@jax.jit
def _decide(
    safe: GuardedPolicy, carry: GuardCarry, obs: Array, request: Array
) -> tuple[GuardCarry, Array]:
    carry, action = safe(carry._replace(policy=request), obs)
    return safe.sent(carry, action), action


class GuardedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose actions pass through the guard before the plant receives them.

    Limits, monitors, supervisor and fallback are those of :func:`~neorl_safety.guards.guard`, in
    physical units. ``info["guard"]`` reports which action was applied, by how much it differs from
    the request, and why. Changes that the environment makes to the action after the guard are not
    read back, so its own limits should be no tighter.

    Args:
        env: Environment with flat observations in physical units, and actions in physical units
            or all in [-1, 1].
        constraints: Hard constraints on the action.
        fallback: Takes over if the request is rejected.
        spec: The control problem: channels, ranges and period.
        supervision: When the fallback takes over and hands back; the default of ``guard`` if not
            given.

    Raises:
        InputError: If the spaces do not match the specification.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        constraints: AnyConstraints,
        fallback: Policy,
        spec: Spec,
        *,
        supervision: Supervision | None = None,
    ) -> None:
        super().__init__(env)
        self._safe = guard(
            _Requested(spec.n_action), constraints, fallback, spec, supervision=supervision
        )
        self._low, self._high = (np.asarray(end(spec.action), np.float32) for end in (lows, highs))
        self._normalised = _is_normalised(env, spec, self._low, self._high)
        self._carry = self._safe.initial_carry()
        self._obs: np.ndarray | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode in the environment and in the guard."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._carry = self._safe.initial_carry()
        self._obs = np.asarray(obs, np.float32)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Runs one step with the action that the guard returns.

        Raises:
            InputError: If called before the first :meth:`reset`.
        """
        if self._obs is None:
            raise InputError("call reset before step: the guard needs an observation")
        request = np.asarray(action, np.float32)
        if self._normalised:
            request = self._low + (request + 1) / 2 * (self._high - self._low)
        self._carry, applied = _decide(self._safe, self._carry, self._obs, request)
        applied_action = np.asarray(applied)
        scaled = 2 * (applied_action - self._low) / (self._high - self._low) - 1
        env_action = np.clip(scaled, -1, 1) if self._normalised else applied_action
        obs, reward, terminated, truncated, info = self.env.step(env_action.astype(np.float32))
        self._obs = np.asarray(obs, np.float32)
        report = self._carry.report
        guard_info = {
            "applied": applied_action,
            "intervention": np.asarray(report.intervention),
            "flags": flag_names(int(report.flags)),
        }
        return obs, reward, terminated, truncated, {**info, "guard": guard_info}


def _is_normalised(
    env: gymnasium.Env[Any, Any], spec: Spec, low: np.ndarray, high: np.ndarray
) -> bool:
    """Whether actions lie in [-1, 1]; raises an error for any range but that or the channels'."""
    space, observations = env.action_space, env.observation_space
    if not isinstance(space, gymnasium.spaces.Box) or space.shape != low.shape:
        raise InputError(f"the action space is {space}; expected a box of shape {low.shape}")
    if observations.shape != (spec.n_obs,):
        raise InputError(
            f"the observation space is {observations}; expected the shape ({spec.n_obs},)"
        )
    if np.allclose(space.low, low) and np.allclose(space.high, high):
        return False
    if np.allclose(space.low, -1) and np.allclose(space.high, 1):
        return True
    raise InputError(
        f"the action space is {space}; expected [-1, 1] or the ranges {low.tolist()} to "
        f"{high.tolist()} of the channels"
    )
