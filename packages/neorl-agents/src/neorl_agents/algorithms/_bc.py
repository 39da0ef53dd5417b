"""Behaviour cloning."""

from dataclasses import replace
from functools import partial
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.algorithms._batches import only
from neorl_agents.algorithms._hyperparameters import (
    as_widths,
    require_choice,
    require_count,
    require_number,
    require_widths,
)
from neorl_agents.algorithms._memory import encoding_of, fields_read, require_encoder, with_history
from neorl_agents.algorithms._protocol import Metrics
from neorl_agents.networks import Encoder, Network, identity, init_network, tanh
from neorl_agents.networks._gaussian_heads import squashed_mean, squashed_parameters
from neorl_agents.networks._mixture_head import (
    heaviest_component,
    mixture_outputs,
    mixture_parameters,
)
from neorl_agents.optimisers import OPTIMISERS, init_optimiser, minimise
from neorl_agents.policies._history_policy import HistoryPolicy
from neorl_agents.policies._network_policy import NetworkPolicy
from neorl_agents.policies._scaling import Scaling, init_scaling, network_policy, scaled
from neorl_agents.sampling import BestEpisodes, Rows, Sampler
from neorl_core import DataStatistics, Spec, Transition, as_arrays
from neorl_core.distributions import gaussian_mixture_log_prob, tanh_gaussian_log_prob
from neorl_core.losses import masked_mean

LOG_STD_RANGE = (-5.0, 2.0)
Variant = Literal["deterministic", "gaussian", "mixture"]


class BCState(eqx.Module):
    """The training state of :class:`BC`."""

    actor: Network
    optimiser: optax.OptState
    scaling: Scaling


class BC(eqx.Module):
    """Behaviour cloning: the regression of logged actions on observations.

    The policy ``pi`` is a tanh network on standardised observations, and the loss, in [-1, 1]
    units, the mean over the batch and the action channels of ``(pi(s) - a)^2``. A tanh never
    reaches its bound, so logged actions are clipped to ``1 - 1e-5`` of their range.

    Variants: ``"gaussian"`` fits a tanh-Gaussian with a deviation that depends on the observation,
    by ``-mean log pi(a|s)``, and acts by ``tanh`` of its mean; it tells a careless action from a
    certain one, and is drawn to bounds where many logged actions lie on them. ``"mixture"`` fits
    ``n_components`` Gaussians, not squashed, with means behind a tanh, by the same loss, and acts
    by the mean of the heaviest: a log of several controllers is not cloned as their mean, which
    none of them would do. ``fraction`` below 1 clones only the episodes with the largest returns
    ("10 % BC").

    Attributes:
        learning_rate: Learning rate of the actor.
        variant: ``"deterministic"``, ``"gaussian"`` or ``"mixture"``; static.
        n_components: Gaussians of the mixture; static.
        fraction: Share of the episodes that is cloned, those with the largest returns, in (0, 1];
            static.
        hidden: Widths of the hidden layers; static.
        batch_size: Rows of one gradient step; static.
        optimiser: Name of the optimiser in ``neorl_agents.optimisers.OPTIMISERS``; static.
        encoder: ``"none"``, ``"history"`` or ``"gru"``: whether networks see the last steps too,
            side by side or through a recurrent unit each; static.
        history_steps: Number of steps that they see then, with the present one; static.

    Source: as in CORL's ``any_percent_bc.py``, whose defaults these are (there episodes are ranked
    by their return too); the Gaussian as in the baselines of NeoRL-2; the mixture of Bishop,
    Mixture density networks, 1994.
    """

    learning_rate: float = 3e-4
    variant: Variant = eqx.field(static=True, default="deterministic")
    n_components: int = eqx.field(static=True, default=5)
    fraction: float = eqx.field(static=True, default=1.0)
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256), converter=as_widths)
    batch_size: int = eqx.field(static=True, default=256)
    optimiser: str = eqx.field(static=True, default="adam")
    encoder: Encoder = eqx.field(static=True, default="none")
    history_steps: int = eqx.field(static=True, default=8)

    @property
    def fields(self) -> tuple[str, ...]:
        """The returns are read only where they decide which episodes are cloned."""
        plain = ("obs", "action", "mask")
        ranked = ("reward", "terminated", "truncated")
        return fields_read(self, *plain, *(() if self.fraction == 1 else ranked))

    @property
    def sampler(self) -> Sampler:
        """All rows, or those of the best episodes; with memory as windows."""
        rows = Rows() if self.fraction == 1 else BestEpisodes(self.fraction)
        return with_history(self, rows)

    @property
    def batches_per_update(self) -> int:
        """One."""
        return 1

    def validate(self) -> None:
        """Raises a ``ValueError`` that names the first field with a bad value."""
        require_encoder(self)
        require_number(self, "learning_rate", low=0, open_low=True)
        require_number(self, "fraction", low=0, high=1, open_low=True)
        require_choice(self, "variant", get_args(Variant))
        require_count(self, "n_components")
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
        rows = only(scaled(state.scaling, batch))
        actor, optimiser, loss, _ = minimise(
            self.optimiser,
            LOSSES[self.variant],
            state.actor,
            state.optimiser,
            self.learning_rate,
            rows,
        )
        return replace(state, actor=actor, optimiser=optimiser), {"actor_loss": loss}

    def policy(self, state: BCState) -> NetworkPolicy | HistoryPolicy:
        """The trained policy, in physical units."""
        network = state.actor
        if self.variant == "gaussian":
            network = squashed_mean(network)
        if self.variant == "mixture":
            network = heaviest_component(network, state.scaling.low.shape[-1])
        return network_policy(state.scaling, network)


@partial(jax.jit, static_argnums=3)
def _init(algorithm: BC, statistics: DataStatistics, key: PRNGKeyArray, spec: Spec) -> BCState:
    encoding, act = encoding_of(algorithm, spec), spec.n_action
    outputs, last = {
        "deterministic": (act, tanh),
        "gaussian": (2 * act, identity),
        "mixture": (mixture_outputs(algorithm.n_components, act), identity),
    }[algorithm.variant]
    actor = init_network(
        (encoding.width, *algorithm.hidden, outputs), key, output=last, encoding=encoding
    )
    optimiser = init_optimiser(algorithm.optimiser, actor, algorithm.learning_rate)
    return BCState(actor, optimiser, init_scaling(spec, statistics, "none", window=encoding.window))


def _squared_error(actor: Network, rows: Transition) -> tuple[Float[Array, ""], None]:
    distance = jnp.mean(jnp.square(actor(rows.obs) - rows.action), axis=-1)
    return masked_mean(distance, rows.mask), None


def _negative_log_prob(actor: Network, rows: Transition) -> tuple[Float[Array, ""], None]:
    mean, log_std = squashed_parameters(actor, rows.obs, LOG_STD_RANGE)
    return -masked_mean(tanh_gaussian_log_prob(rows.action, mean, log_std), rows.mask), None


def _mixture_negative_log_prob(actor: Network, rows: Transition) -> tuple[Float[Array, ""], None]:
    parameters = mixture_parameters(actor, rows.obs, rows.action.shape[-1], LOG_STD_RANGE)
    return -masked_mean(gaussian_mixture_log_prob(rows.action, *parameters), rows.mask), None


LOSSES = {
    "deterministic": _squared_error,
    "gaussian": _negative_log_prob,
    "mixture": _mixture_negative_log_prob,
}
