"""The conditional variational autoencoder of logged actions that several learners train."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.learning import LearnerState, Networks, UnitRows
from neorl_agents.networks import Network, tanh
from neorl_core import Spec
from neorl_core.losses import masked_mean

LOG_STD_RANGE = (-4.0, 15.0)

RATES = dict.fromkeys(("encoder", "decoder"), "model_learning_rate")
"""The fields that hold the learning rates of both networks."""


def fresh_autoencoder(
    networks: Networks, spec: Spec, encoder_key: PRNGKeyArray, decoder_key: PRNGKeyArray
) -> dict[str, Network]:
    """Encoder and decoder; the latent has twice as many numbers as there are action channels."""
    act = spec.n_action
    return {
        "encoder": networks.obs_network(spec, 4 * act, encoder_key, extra_inputs=act),
        "decoder": networks.obs_network(spec, act, decoder_key, extra_inputs=2 * act, output=tanh),
    }


def latent(
    encoder: Network, obs: Float[Array, "batch obs"], action: Float[Array, "batch act"]
) -> tuple[Float[Array, "batch latent"], Float[Array, "batch latent"]]:
    """Mean and log standard deviation of the latent of each row."""
    mean, log_std = jnp.split(encoder(jnp.concatenate([obs, action], axis=-1)), 2, axis=-1)
    return mean, jnp.clip(log_std, *LOG_STD_RANGE)


def divergence(
    mean: Float[Array, "batch latent"], log_std: Float[Array, "batch latent"]
) -> Float[Array, " batch"]:
    """``KL(N(mean, std) || N(0, 1))`` divided by the number of latent channels."""
    terms = jnp.square(mean) + jnp.exp(2 * log_std) - 1 - 2 * log_std
    return jnp.mean(terms, axis=-1) / 2


def autoencoder_step(
    learner: Any, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
) -> tuple[LearnerState, Float[Array, ""]]:
    """Takes one gradient step of encoder and decoder, both on the loss from before the step.

    ``mean (decoded - a)^2 + kl_weight KL(q(z|s, a) || N(0, 1)) / latent``
    """
    encoder, decoder = state.parameters["encoder"], state.parameters["decoder"]
    shape = (len(rows.action), 2 * rows.action.shape[-1])
    noise = jax.random.normal(key, shape, rows.action.dtype)
    loss = partial(_loss, rows=rows, noise=noise, kl_weight=learner.kl_weight)
    state, value, _ = learner.descend(state, "encoder", lambda e: (loss(e, decoder), None))
    state, _, _ = learner.descend(state, "decoder", lambda d: (loss(encoder, d), None))
    return state, value


def _loss(
    encoder: Network,
    decoder: Network,
    rows: UnitRows,
    noise: Float[Array, "batch latent"],
    kl_weight: Any,
) -> Float[Array, ""]:
    mean, log_std = latent(encoder, rows.obs, rows.action)
    z = mean + jnp.exp(log_std) * noise
    decoded = decoder(jnp.concatenate([rows.obs, z], axis=-1))
    reconstruction_error = jnp.mean(jnp.square(decoded - rows.action), axis=-1)
    return masked_mean(reconstruction_error + kl_weight * divergence(mean, log_std), rows.mask)
