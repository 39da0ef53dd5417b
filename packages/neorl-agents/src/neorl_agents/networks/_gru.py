"""A gated recurrent unit that skips the steps before an episode."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray


class GRU(eqx.Module):
    """A gated recurrent unit.

    ``r = sigmoid(W_r x + U_r h + b_r)``, ``z = sigmoid(W_z x + U_z h + b_z)``,
    ``n = tanh(W_n x + b_n + r (U_n h + c_n))``, ``h' = (1 - z) n + z h``.

    Attributes:
        weight: ``W_r, W_z, W_n`` concatenated, shape ``(in, 3 hidden)``.
        recurrent: ``U_r, U_z, U_n`` concatenated, shape ``(hidden, 3 hidden)``.
        bias: ``b_r, b_z, b_n``, shape ``(3 hidden,)``.
        recurrent_bias: ``c_n``, shape ``(hidden,)``.

    Source: Cho et al., Learning phrase representations using RNN encoder-decoder, arXiv 1406.1078,
    in the form that applies the reset after the product.
    """

    weight: Float[Array, "..."]
    recurrent: Float[Array, "..."]
    bias: Float[Array, "..."]
    recurrent_bias: Float[Array, "..."]

    def __call__(
        self, hidden: Float[Array, "*batch hidden"], x: Float[Array, "*batch in"]
    ) -> Float[Array, "*batch hidden"]:
        """The next hidden state."""
        return self._gated(hidden, x @ self.weight)

    def last(
        self, x: Float[Array, "*batch step in"], known: Bool[Array, "*batch step"]
    ) -> Float[Array, "*batch hidden"]:
        """The hidden state after the last step, starting from zero; unknown steps are skipped.

        Args:
            x: Inputs, oldest first.
            known: Whether the step is known; if not, the hidden state stays as it is.
        """
        inputs = jnp.moveaxis(x @ self.weight, -2, 0)
        start = jnp.zeros((*x.shape[:-2], self.recurrent.shape[0]), x.dtype)

        def step(hidden: Array, step_inputs: tuple[Array, Array]) -> tuple[Array, None]:
            gates, is_known = step_inputs
            return jnp.where(is_known[..., None], self._gated(hidden, gates), hidden), None

        return jax.lax.scan(step, start, (inputs, jnp.moveaxis(known, -1, 0)))[0]

    def _gated(self, hidden: Array, inputs: Array) -> Array:
        from_input = jnp.split(inputs + _broadcast(self.bias, inputs), 3, axis=-1)
        from_hidden = jnp.split(hidden @ self.recurrent, 3, axis=-1)
        reset = jax.nn.sigmoid(from_input[0] + from_hidden[0])
        keep = jax.nn.sigmoid(from_input[1] + from_hidden[1])
        hidden_term = from_hidden[2] + _broadcast(self.recurrent_bias, hidden)
        new = jnp.tanh(from_input[2] + reset * hidden_term)
        return (1 - keep) * new + keep * hidden


def init_gru(inputs: int, hidden: int, key: PRNGKeyArray) -> GRU:
    """A gated recurrent unit with fresh weights, all from ``U(-1, 1) / sqrt(hidden)``.

    Args:
        inputs: Length of the input.
        hidden: Length of the hidden state.
        key: Random key; consumed.

    Returns:
        The unit, float32.
    """
    draws = jax.random.uniform(key, (inputs + hidden + 2, 3 * hidden), jnp.float32, -1.0, 1.0)
    draws = draws / math.sqrt(hidden)
    return GRU(
        weight=draws[:inputs],
        recurrent=draws[inputs : inputs + hidden],
        bias=draws[-2],
        recurrent_bias=draws[-1, :hidden],
    )


def _broadcast(vector: Array, batch: Array) -> Array:
    return vector.reshape((1,) * (batch.ndim - 1) + vector.shape)
