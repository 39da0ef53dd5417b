"""Behaviour cloning."""

from functools import partial
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import PRNGKeyArray

from neorl_agents.algorithms._hyperparameters import (
    require_choice,
    require_count,
    require_number,
    require_widths,
)
from neorl_agents.algorithms._protocol import Metrics
from neorl_agents.networks._activations import tanh
from neorl_agents.networks._mlp import MLP, init_mlp
from neorl_agents.optimisers import OPTIMISERS, descend, init_optimiser
from neorl_agents.policies._network_policy import NetworkPolicy
from neorl_agents.policies._scaling import Scaling, init_scaling, network_policy, scaled
from neorl_core import DataStatistics, Spec, Transition, as_arrays
from neorl_core.losses import masked_mean


class BCState(eqx.Module):
    """The training state of :class:`BC`."""

    actor: MLP
    optimiser: optax.OptState
    scaling: Scaling


class BC(eqx.Module):
    """Behaviour cloning: the regression of logged actions on observations.

    The policy ``pi`` is a tanh network on standardised observations, and the loss, in [-1, 1]
    units, the mean over the batch and the action channels of ``(pi(s) - a)^2``. A tanh never
    reaches its bound, so logged actions are clipped to ``1 - 1e-5`` of their range.

    Attributes:
        learning_rate: Learning rate of the actor.
        hidden: Widths of the hidden layers; static.
        batch_size: Rows of one gradient step; static.
        optimiser: Name of the optimiser in ``neorl_agents.optimisers.OPTIMISERS``; static.

    Source: as in CORL's ``any_percent_bc.py`` (fraction 1), whose defaults these are.
    """

    learning_rate: float = 3e-4
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256), converter=tuple)
    batch_size: int = eqx.field(static=True, default=256)
    optimiser: str = eqx.field(static=True, default="adam")

    fields: ClassVar[tuple[str, ...]] = ("obs", "action", "mask")
    batches_per_update: ClassVar[int] = 1

    def validate(self) -> None:
        """Raises a ``ValueError`` that names the first field with a bad value."""
        require_number(self, "learning_rate", low=0, open_low=True)
        require_widths(self, "hidden")
        require_count(self, "batch_size")
        require_choice(self, "optimiser", OPTIMISERS)

    def init(self, spec: Spec, statistics: DataStatistics, key: PRNGKeyArray) -> BCState:
        """A fresh state; see :class:`neorl_agents.Algorithm`."""
        self.validate()
        return _init(as_arrays(self), statistics, key, spec)

    def update(
        self, state: BCState, batch: Transition, key: PRNGKeyArray
    ) -> tuple[BCState, Metrics]:
        """One gradient step; the key is ignored."""
        rows = jax.tree.map(_only, scaled(state.scaling, batch))
        loss, gradient = jax.value_and_grad(_imitation_loss)(state.actor, rows)
        actor, optimiser = descend(
            self.optimiser, state.actor, state.optimiser, gradient, self.learning_rate
        )
        return BCState(actor, optimiser, state.scaling), {"actor_loss": loss}

    def policy(self, state: BCState) -> NetworkPolicy:
        """The trained policy, in physical units."""
        return network_policy(state.scaling, state.actor)


@partial(jax.jit, static_argnums=3)
def _init(algorithm: BC, statistics: DataStatistics, key: PRNGKeyArray, spec: Spec) -> BCState:
    actor = init_mlp((spec.n_obs, *algorithm.hidden, spec.n_action), key, output=tanh)
    optimiser = init_optimiser(algorithm.optimiser, actor, algorithm.learning_rate)
    return BCState(actor, optimiser, init_scaling(spec, statistics, "none"))


def _imitation_loss(actor: MLP, rows: Transition) -> jax.Array:
    distance = jnp.mean(jnp.square(actor(rows.obs) - rows.action), axis=-1)
    return masked_mean(distance, rows.mask)


def _only(x: jax.Array) -> jax.Array:
    return x[0]
