"""Implicit quantile networks with noisy and duelling layers."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.networks._mlp import plain_affine


class NoisyAffine(eqx.Module):
    """``x (W + S * e) + b + s * f`` with independent Gaussian ``e`` and ``f``, or its mean.

    Attributes:
        weight: Means of the weights.
        bias: Means of the biases.
        weight_scale: Standard deviations of the weights; ``None`` for a layer that is never noisy.
        bias_scale: Standard deviations of the biases; ``None`` likewise.

    Source: Fortunato et al., Noisy networks for exploration, arXiv 1706.10295, equation 9.
    """

    weight: Float[Array, "in out"]
    bias: Float[Array, " out"]
    weight_scale: Float[Array, "in out"] | None = None
    bias_scale: Float[Array, " out"] | None = None

    def __call__(
        self, x: Float[Array, "batch in"], noise: Float[Array, "in_and_one out"] | None = None
    ) -> Float[Array, "batch out"]:
        """The output; the last row of the noise belongs to the biases."""
        weight, bias = self.weight, self.bias
        if noise is not None and self.weight_scale is not None and self.bias_scale is not None:
            weight = weight + self.weight_scale * noise[:-1]
            bias = bias + self.bias_scale * noise[-1]
        return plain_affine(x, weight, bias)


class QuantileNetwork(eqx.Module):
    """Quantiles of the return of every action, at levels that are inputs.

    For the level ``tau``, with ``h = relu(W x)``, ``c = relu(C cos(pi i tau))`` and ``i = 1 ..
    n_cosines``: ``z = relu(N (h * c))``. One noisy layer then gives the advantage ``A`` of every
    action and the value ``V``; the quantile is ``V + A - mean A``. Without duelling it gives the
    quantiles themselves.

    Attributes:
        obs_layer: ``W``, never noisy.
        level_layer: ``C``, never noisy.
        hidden_layer: ``N``.
        head: Advantages of all actions, then the value; without duelling one column per action.
        dueling: Whether the head ends in a value; static.

    Source: Dabney et al., Implicit quantile networks for distributional reinforcement learning,
    arXiv 1806.06923; Wang et al., Dueling network architectures, arXiv 1511.06581.
    """

    obs_layer: NoisyAffine
    level_layer: NoisyAffine
    hidden_layer: NoisyAffine
    head: NoisyAffine
    dueling: bool = eqx.field(static=True, default=True)

    def __call__(
        self,
        x: Float[Array, "batch in"],
        levels: Float[Array, "batch quantile"],
        noise: Float[Array, " number"] | None = None,
    ) -> Float[Array, "batch quantile action"]:
        """The quantiles at the levels; the whole batch shares one noise sample, or has none."""
        batch, count = levels.shape
        cosines = self.level_layer.weight.shape[0]
        angles = np.float32(np.pi) * np.arange(1, cosines + 1, dtype=np.float32)
        cosine_features = jnp.cos(levels.reshape(-1, 1) * angles[None, :])
        h = jax.nn.relu(self.obs_layer(x))
        c = jax.nn.relu(self.level_layer(cosine_features)).reshape(batch, count, -1)
        hidden_noise, head_noise = self._split(noise)
        z = (h[:, None, :] * c).reshape(batch * count, -1)
        z = jax.nn.relu(self.hidden_layer(z, hidden_noise))
        out = self.head(z, head_noise)
        if self.dueling:
            advantage = out[:, :-1]
            out = out[:, -1:] + advantage - jnp.mean(advantage, axis=1, keepdims=True)
        return out.reshape(batch, count, -1)

    @property
    def noise_size(self) -> int:
        """Size of one sample of Gaussian noise; 0 for a network without noise."""
        layers = (self.hidden_layer, self.head)
        if self.head.weight_scale is None:
            return 0
        return sum((x.weight.shape[-2] + 1) * x.weight.shape[-1] for x in layers)

    def without_noise(self) -> "QuantileNetwork":
        """The network with only the means of its weights."""
        hidden, head = (NoisyAffine(x.weight, x.bias) for x in (self.hidden_layer, self.head))
        return QuantileNetwork(self.obs_layer, self.level_layer, hidden, head, self.dueling)

    def _split(self, noise: Array | None) -> tuple[Array | None, Array | None]:
        if noise is None or self.noise_size == 0:
            return None, None
        rows, columns = self.hidden_layer.weight.shape
        first = (rows + 1) * columns
        head = noise[first:].reshape(self.head.weight.shape[0] + 1, -1)
        return noise[:first].reshape(rows + 1, columns), head


def init_quantile_network(
    n_inputs: int,
    n_actions: int,
    key: PRNGKeyArray,
    *,
    hidden: int = 250,
    cosines: int = 64,
    noisy: bool = True,
    dueling: bool = True,
    scale: float = 0.017,
) -> QuantileNetwork:
    """A network with fresh weights.

    Layers without noise are initialised from ``U(-1, 1) / sqrt(in)``, the means of noisy ones from
    ``sqrt(3 / in) U(-1, 1)``; all standard deviations begin at ``scale``.

    Args:
        n_inputs: Length of the input.
        n_actions: Number of actions.
        key: Random key; consumed.
        hidden: Width of the hidden layers.
        cosines: Number of cosines that encode a level.
        noisy: Whether the last two layers have noise.
        dueling: Whether advantages and value are separate outputs.
        scale: Initial standard deviation of the noise.

    Returns:
        The network, float32.
    """
    keys = jax.random.split(key, 4)

    def layer(key: PRNGKeyArray, rows: int, columns: int, is_noisy: bool) -> NoisyAffine:
        bound = math.sqrt(3 / rows) if is_noisy else 1 / math.sqrt(rows)
        draw = jax.random.uniform(key, (rows + 1, columns), jnp.float32, -bound, bound)
        if not is_noisy:
            return NoisyAffine(draw[:-1], draw[-1])
        scales = jnp.full_like(draw, scale)
        return NoisyAffine(draw[:-1], draw[-1], scales[:-1], scales[-1])

    return QuantileNetwork(
        layer(keys[0], n_inputs, hidden, False),
        layer(keys[1], cosines, hidden, False),
        layer(keys[2], hidden, hidden, noisy),
        layer(keys[3], hidden, n_actions + dueling, noisy),
        dueling,
    )
