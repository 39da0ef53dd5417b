"""A mixture of Gaussian action distributions on top of a perceptron."""

from typing import TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_agents.networks._budgeted_choice import BudgetedChoice
from neorl_agents.networks._kinds import Network
from neorl_agents.networks._perturbed_decoder import PerturbedDecoder


def mixture_outputs(n_components: int, n_action: int) -> int:
    """Number of outputs for such a head: a weight, means and log stds per component."""
    return n_components * (1 + 2 * n_action)


def mixture_parameters(
    network: Network,
    obs: Float[Array, "batch obs"],
    n_action: int,
    log_std_range: tuple[float, float],
) -> tuple[
    Float[Array, "batch component"],
    Float[Array, "batch component act"],
    Float[Array, "batch component act"],
]:
    """Log-weights, means in (-1, 1) and log standard deviations of the components.

    Args:
        network: Network with :func:`mixture_outputs` outputs and no output activation.
        obs: One batch in scaled units.
        n_action: Number of action channels.
        log_std_range: Range to which the log standard deviation is clipped.

    Returns:
        Parameters of ``neorl_core.distributions.gaussian_mixture_log_prob`` and related functions.
    """
    outputs = network(obs)
    n_components = outputs.shape[-1] // (1 + 2 * n_action)
    shape = (obs.shape[0], n_components, n_action)
    first, second = n_components, n_components * (1 + n_action)
    mean = jnp.tanh(outputs[:, first:second].reshape(shape))
    log_std = jnp.clip(outputs[:, second:].reshape(shape), *log_std_range)
    return outputs[:, :first], mean, log_std


class HeaviestComponent(eqx.Module):
    """The mean of the heaviest component, which is near logged actions and not between modes.

    ``tanh(mean_k(x))``, ``k = argmax_k w_k(x)``.

    Attributes:
        components: Network of the components' log-weights and then, component by component, of
            their means before the tanh.
        n_action: Number of action channels; static.
    """

    components: Network
    n_action: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch act"]:
        """The action in (-1, 1) for inputs along the last axis."""
        outputs = self.components(x)
        n_components = outputs.shape[-1] // (1 + self.n_action)
        shape = (*outputs.shape[:-1], n_components, self.n_action)
        means = outputs[..., n_components:].reshape(shape)
        heaviest = jnp.argmax(outputs[..., :n_components], axis=-1)[..., None, None]
        return jnp.tanh(jnp.take_along_axis(means, heaviest, axis=-2)[..., 0, :])


ActingNetwork: TypeAlias = Network | HeaviestComponent | BudgetedChoice | PerturbedDecoder
"""Networks that a policy can act with."""


def heaviest_component(network: Network, n_action: int) -> HeaviestComponent:
    """The action of the policy: the mean of the heaviest component.

    Args:
        network: One of :func:`mixture_parameters`.
        n_action: Number of action channels.

    Returns:
        The network without the outputs for standard deviations.
    """
    components = network.n_outputs // (1 + 2 * n_action)
    return HeaviestComponent(network.first_outputs(components * (1 + n_action)), n_action)
