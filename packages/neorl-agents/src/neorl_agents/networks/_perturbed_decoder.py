"""Actions decoded by an autoencoder of logged actions, with a small perturbation."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_agents.networks._kinds import Network


class PerturbedDecoder(eqx.Module):
    """The action decoded from the middle of a latent, moved by at most ``phi``.

    ``a = decoder([x, 0])``, then ``clip(a + phi perturbation([x, a]), -1, 1)``.

    Attributes:
        decoder: Network from an input and a latent of two numbers per action channel to an action
            in [-1, 1].
        perturbation: Network from an input and an action to a direction in [-1, 1].
        phi: Largest move of the action, as a fraction of half a channel's range.
    """

    decoder: Network
    perturbation: Network
    phi: Float[Array, ""]

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch act"]:
        """The action for inputs along the last axis."""
        latents = jnp.zeros((*x.shape[:-1], 2 * self.n_outputs), x.dtype)
        action = self.decoder(jnp.concatenate([x, latents], axis=-1))
        change = self.phi * self.perturbation(jnp.concatenate([x, action], axis=-1))
        return jnp.clip(action + change, -1, 1)

    @property
    def n_outputs(self) -> int:
        """Length of the last axis of the result."""
        return self.decoder.n_outputs
