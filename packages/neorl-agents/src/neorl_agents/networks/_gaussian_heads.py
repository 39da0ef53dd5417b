"""Gaussian action distributions on top of perceptrons."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_agents.networks._activations import tanh
from neorl_agents.networks._kinds import Network
from neorl_core.distributions import diagonal_gaussian_log_prob


class GaussianActor(eqx.Module):
    """A tanh network for the mean of an unsquashed Gaussian, and a log std for each channel."""

    mean: Network
    log_std: Float[Array, " act"]


def gaussian_log_prob(
    actor: GaussianActor,
    obs: Float[Array, "batch obs"],
    action: Float[Array, "batch act"],
    log_std_range: tuple[float, float],
) -> Float[Array, " batch"]:
    """Log-density of logged actions under the actor, its log std clipped to the range."""
    log_std = jnp.clip(actor.log_std, *log_std_range)[None, :]
    return diagonal_gaussian_log_prob(action, actor.mean(obs), log_std)


def squashed_parameters(
    network: Network, obs: Float[Array, "batch obs"], log_std_range: tuple[float, float]
) -> tuple[Float[Array, "batch act"], Float[Array, "batch act"]]:
    """Mean and log std of a tanh-Gaussian: the two halves of a network's outputs.

    Args:
        network: Network with two outputs for every action channel and no output activation.
        obs: One batch in scaled units.
        log_std_range: Range to which the log standard deviation is clipped.

    Returns:
        Parameters of ``neorl_core.distributions.tanh_gaussian_sample`` and related functions.
    """
    mean, log_std = jnp.split(network(obs), 2, axis=-1)
    return mean, jnp.clip(log_std, *log_std_range)


def squashed_mean(network: Network) -> Network:
    """The network of only the deterministic action ``tanh(mean)``.

    Args:
        network: One of :func:`squashed_parameters`.

    Returns:
        The first half of its outputs, passed through a tanh.
    """
    return network.first_outputs(network.n_outputs // 2, output=tanh)
