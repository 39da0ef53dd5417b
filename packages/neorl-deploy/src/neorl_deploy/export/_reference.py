"""The training side's answers to the test vectors, which the exported programs must reproduce."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from neorl_deploy.export._rounding import perturbed_policy

if TYPE_CHECKING:
    from neorl_safety.guards import GuardedPolicy


@dataclasses.dataclass(frozen=True)
class Reference:
    """The guarded policy as the training side runs it: not exported, with its arrays as arguments.

    The exported program contains the arrays as constants and was lowered separately, so an
    agreement of the two is evidence about the export.

    Attributes:
        policy: The guarded policy.
    """

    policy: GuardedPolicy

    def single(
        self, obs: np.ndarray, last_sent: np.ndarray, seed: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Action and flags for every row, each from a fresh carry.

        Args:
            obs: One observation per row, shape ``(row, obs)``.
            last_sent: Actions that the plant received previously, shape ``(row, act)``.
            seed: Perturbs the numbers of the policy by their last bit, differently in every row;
                ``None`` leaves them unchanged.

        Returns:
            Shapes ``(row, act)`` and ``(row,)``.
        """
        action, flags = self._single(self.policy, (obs, last_sent), _keys(seed, len(obs)))
        return np.asarray(action), np.asarray(flags)

    def sequence(
        self, obs: np.ndarray, overrides: np.ndarray, seed: int | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A sequence of consecutive steps.

        Args:
            obs: One observation per step, shape ``(step, obs)``.
            overrides: Action that the plant received instead of the policy's, NaN where there was
                none, shape ``(step, act)``.
            seed: Perturbs the numbers of the policy by their last bit, differently in every step;
                ``None`` leaves them unchanged.

        Returns:
            The ``last_sent`` input, the action and the flags of every step.
        """
        outputs = self._sequence(self.policy, (obs, overrides), _keys(seed, len(obs)))
        last_sent, action, flags = (np.asarray(output) for output in outputs)
        return last_sent, action, flags

    @functools.cached_property
    def _single(self) -> Callable[..., Any]:
        import jax

        def run(policy: GuardedPolicy, rows: tuple[Any, Any], keys: Any) -> tuple[Any, Any]:
            def first_step(inputs: tuple[tuple[Any, Any], Any]) -> tuple[Any, Any]:
                (obs, last_sent), key = inputs
                acting = policy if key is None else perturbed_policy(policy, key)
                carry = acting.sent(acting.initial_carry(), last_sent)
                carry, action = acting(carry, obs, None)
                return action, carry.report.flags

            return jax.lax.map(first_step, (rows, keys))

        return jax.jit(run)

    @functools.cached_property
    def _sequence(self) -> Callable[..., Any]:
        import jax
        import jax.numpy as jnp

        def run(policy: GuardedPolicy, rows: tuple[Any, Any], keys: Any) -> Any:
            def step(state: tuple[Any, Any], inputs: Any) -> tuple[Any, Any]:
                (carry, last_sent), ((obs, override), key) = state, inputs
                acting = policy if key is None else perturbed_policy(policy, key)
                carry, action = acting(acting.sent(carry, last_sent), obs, None)
                # NaN marks a step in which nobody else acted.
                received = jnp.where(jnp.isnan(override), action, override)
                return (carry, received), (last_sent, action, carry.report.flags)

            unknown = jnp.full((rows[1].shape[1],), jnp.nan, rows[1].dtype)
            return jax.lax.scan(step, (policy.initial_carry(), unknown), (rows, keys))[1]

        return jax.jit(run)


def _keys(seed: int | None, count: int) -> Any:
    import jax

    return None if seed is None else jax.random.split(jax.random.key(seed), count)
