"""Monitors based on learned models: an ensemble's disagreement, a safety critic's value."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_safety.monitoring._monitor import MonitorInput, Score, score_of

Apply = Callable[[Any, Array, Array], Array]


class CriticMonitor(eqx.Module):
    """The value that a safety critic assigns to the action that the policy proposes.

    Attributes:
        critic: Parameters of the critic.
        threshold: Value above which it alarms, scalar.
        apply: Function ``apply(critic, obs, action)``, larger for worse; module-level and static.
    """

    critic: Any
    threshold: Float[Array, ""]
    apply: Apply = eqx.field(static=True)

    def initial_carry(self) -> tuple[()]:
        """An empty carry: the monitor has no memory."""
        return ()

    def __call__(self, carry: tuple[()], inputs: MonitorInput) -> tuple[tuple[()], Score]:
        """The critic's value; infinite where it is NaN."""
        return carry, score_of(self.apply(self.critic, inputs.obs, inputs.action), self.threshold)


class EnsembleMonitor(eqx.Module):
    """The standard deviation of the outputs of an ensemble.

    Attributes:
        members: Parameters with a leading axis of members.
        threshold: Value above which it alarms, scalar.
        apply: ``apply(member, obs, action)``, which returns a scalar or a vector; static.
    """

    members: Any
    threshold: Float[Array, ""]
    apply: Apply = eqx.field(static=True)

    def initial_carry(self) -> tuple[()]:
        """An empty carry: the monitor has no memory."""
        return ()

    def __call__(self, carry: tuple[()], inputs: MonitorInput) -> tuple[tuple[()], Score]:
        """The largest standard deviation over the members, among all outputs."""
        predictions = jax.vmap(self.apply, in_axes=(0, None, None))(
            self.members, inputs.obs, inputs.action
        )
        return carry, score_of(jnp.max(jnp.std(predictions, axis=0)), self.threshold)
