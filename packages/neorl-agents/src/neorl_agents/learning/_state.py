"""The training state of a learner, in named parts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from neorl_agents.policies import Preparation
from neorl_core.targets import polyak

UPDATES = "updates"
"""Name of the counter of calls of ``update``."""


class LearnerState(eqx.Module):
    """Everything of a learner that changes or is passed on, grouped by how it is used.

    Sites average ``parameters`` (and ``targets``); a warm start copies them; a restart sets
    ``counters`` to zero; ``preparation`` and ``context`` are never trained.

    Attributes:
        parameters: Everything that gradients train, by name: networks, temperatures, multipliers.
        targets: Slow copies of parameters, by the name of the original.
        optimisers: State of the optimiser of every parameter, by the same name.
        counters: Integers; ``"updates"`` counts calls of ``update``.
        preparation: Maps between physical units and those of the networks.
        context: Final states of learners that were trained before, by name.
    """

    parameters: dict[str, Any]
    targets: dict[str, Any]
    optimisers: dict[str, optax.OptState]
    counters: dict[str, Int[Array, ""]]
    preparation: Preparation
    context: dict[str, Any]

    @property
    def updates(self) -> Int[Array, ""]:
        """Number of calls of ``update`` so far."""
        return self.counters[UPDATES]

    def with_parameters(self, **parameters: Any) -> "LearnerState":
        """The state with some parameters replaced."""
        return replace(self, parameters={**self.parameters, **parameters})

    def with_optimisers(self, **optimisers: Any) -> "LearnerState":
        """The state with some optimisers replaced."""
        return replace(self, optimisers={**self.optimisers, **optimisers})

    def with_targets(self, **targets: Any) -> "LearnerState":
        """The state with some targets replaced."""
        return replace(self, targets={**self.targets, **targets})

    def with_counters(self, **counters: Int[Array, ""]) -> "LearnerState":
        """The state with some counters replaced."""
        return replace(self, counters={**self.counters, **counters})

    def with_averaged_targets(self, *names: str, tau: float | Float[Array, ""]) -> "LearnerState":
        """The state with targets moved towards their parameters by ``tau``.

        Args:
            *names: Names of targets.
            tau: Fraction of the distance to move, in (0, 1].
        """
        moved = {name: polyak(self.targets[name], self.parameters[name], tau=tau) for name in names}
        return self.with_targets(**moved)


def restarted(state: LearnerState) -> LearnerState:
    """The state with all counters at zero, so that schedules start again.

    Networks, targets and optimisers stay as they are.
    """
    zeros = {name: jnp.zeros_like(count) for name, count in state.counters.items()}
    return state.with_counters(**zeros)


def no_context(context: Mapping[str, Any] | None) -> dict[str, Any]:
    """A context as a plain dictionary; empty if there is none."""
    return dict(context or {})
