"""Multilayer perceptrons whose every leaf is an array."""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

Activation = Callable[[Array], Array]
Initialiser = Literal["uniform", "orthogonal"]


def relu(x: Array) -> Array:
    """``max(x, 0)``, with gradient 0 at 0."""
    return jax.nn.relu(x)


def tanh(x: Array) -> Array:
    """The hyperbolic tangent."""
    return jnp.tanh(x)


def identity(x: Array) -> Array:
    """``x`` itself."""
    return x


ACTIVATIONS: dict[str, Activation] = {"relu": relu, "tanh": tanh, "identity": identity}
"""The activations by the name that an artefact stores. All are named at module level: a lambda
per instance would retrace every compiled function that sees it."""


class MLP(eqx.Module):
    """Affine layers with an activation between them and another behind the last.

    An ensemble is the same module with a leading axis on every leaf; see :func:`ensemble`. Inputs
    with one batch axis are differentiable in reverse mode only; others in both modes.

    Attributes:
        weights: One matrix per layer, shape ``(in, out)``.
        biases: One vector per layer, shape ``(out,)``.
        activation: Behind every layer but the last; static.
        output: Behind the last layer; static.
    """

    weights: tuple[Float[Array, "..."], ...]
    biases: tuple[Float[Array, "..."], ...]
    activation: Activation = eqx.field(static=True, default=relu)
    output: Activation = eqx.field(static=True, default=identity)

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        """The output for inputs along the last axis; leading axes are a batch."""
        *inner, last = zip(self.weights, self.biases, strict=True)
        for weight, bias in inner:
            x = self.activation(_affine(x, weight, bias))
        return self.output(_affine(x, *last))


def _affine(x: Array, weight: Array, bias: Array) -> Array:
    if x.ndim == 2:
        return _batch_affine(x, weight, bias)
    return x @ weight + jnp.reshape(bias, (1,) * (x.ndim - 1) + bias.shape)


@jax.custom_vjp
def _batch_affine(x: Array, weight: Array, bias: Array) -> Array:
    """``x @ weight + bias`` in a form that a CPU computes fast, forwards and backwards.

    The mathematics is that of the plain expression; only the order of sums differs. For small
    matrices XLA's own choice on a CPU is slow in three places: (a) it folds the transposition of
    the weights' gradient into a product; here the narrower factor is transposed in memory first;
    (b) it sums the bias' gradient in a reduction; here that is a product with ones; (c) it is
    slow at a product with few columns, a policy's last layer; here those go column by
    column. Reverse mode only.
    """
    return _product(x, weight) + bias[None, :]


def _batch_affine_forward(
    x: Array, weight: Array, bias: Array
) -> tuple[Array, tuple[Array, Array]]:
    return _batch_affine(x, weight, bias), (x, weight)


def _batch_affine_backward(
    operands: tuple[Array, Array], cotangent: Array
) -> tuple[Array, Array, Array]:
    x, weight = operands
    in_memory = jax.lax.optimization_barrier
    if x.shape[-1] > cotangent.shape[-1]:
        slope = in_memory(in_memory(cotangent.T) @ x).T
    else:
        slope = in_memory(x.T) @ cotangent
    ones = jnp.ones((1, x.shape[0]), cotangent.dtype)
    return _product_with_transposed(cotangent, weight), slope, (ones @ cotangent)[0]


_batch_affine.defvjp(_batch_affine_forward, _batch_affine_backward)

FEW_COLUMNS = 4
"""Products with at most so many columns are computed one column at a time."""


def _product(x: Array, weight: Array) -> Array:
    columns = weight.shape[1]
    if columns > FEW_COLUMNS:
        return x @ weight
    return jnp.concatenate([x @ weight[:, j : j + 1] for j in range(columns)], axis=1)


def _product_with_transposed(cotangent: Array, weight: Array) -> Array:
    columns = weight.shape[1]
    if columns > FEW_COLUMNS:
        return cotangent @ weight.T
    outer = [cotangent[:, j : j + 1] * weight[:, j][None, :] for j in range(columns)]
    return reduce(jnp.add, outer)


def init_mlp(
    widths: Sequence[int],
    key: PRNGKeyArray,
    *,
    initialiser: Initialiser = "uniform",
    activation: Activation = relu,
    output: Activation = identity,
) -> MLP:
    """A perceptron with fresh weights.

    ``"uniform"`` draws weights and biases from ``U(-1, 1) / sqrt(in)``, the default of the code
    that TD3+BC was published with; ``"orthogonal"`` draws orthogonal matrices times ``sqrt(2)``
    and zero biases, as implicit Q-learning was. All numbers of a network come from one draw, so
    that initialisation compiles to a small program.

    Args:
        widths: Lengths of the input, of every hidden layer and of the output.
        key: Consumed.
        initialiser: Which distribution.
        activation: Behind every layer but the last.
        output: Behind the last layer.

    Returns:
        The network, float32.

    Raises:
        ValueError: If there are fewer than two widths, one is below one, or the initialiser is
            unknown.
    """
    if len(widths) < 2 or min(widths) < 1:
        raise ValueError(f"widths must be two or more positive lengths, got {tuple(widths)}")
    if initialiser == "uniform":
        weights, biases = _uniform(widths, key)
    elif initialiser == "orthogonal":
        weights, biases = _orthogonal(widths, key)
    else:
        raise ValueError(f"initialiser must be uniform or orthogonal, got {initialiser!r}")
    return MLP(weights, biases, activation=activation, output=output)


def ensemble(members: int, network: Callable[[PRNGKeyArray], MLP], key: PRNGKeyArray) -> MLP:
    """``members`` networks stacked along a leading axis of every leaf.

    Args:
        members: How many.
        network: Draws one from a key.
        key: Consumed.

    Returns:
        The stacked networks; call them through ``jax.vmap``.
    """
    return jax.vmap(network)(jax.random.split(key, members))


def _uniform(widths: Sequence[int], key: PRNGKeyArray) -> tuple[tuple, tuple]:
    sizes = [(rows + 1) * columns for rows, columns in pairwise(widths)]
    numbers = jax.random.uniform(key, (sum(sizes),), jnp.float32, -1.0, 1.0)
    weights, biases, start = [], [], 0
    for (rows, columns), size in zip(pairwise(widths), sizes, strict=True):
        layer = numbers[start : start + size].reshape(rows + 1, columns) / math.sqrt(rows)
        weights.append(layer[:-1])
        biases.append(layer[-1])
        start += size
    return tuple(weights), tuple(biases)


def _orthogonal(widths: Sequence[int], key: PRNGKeyArray) -> tuple[tuple, tuple]:
    shapes = list(pairwise(widths))
    numbers = jax.random.normal(key, (sum(rows * columns for rows, columns in shapes),))
    weights, start = [], 0
    for rows, columns in shapes:
        draw = numbers[start : start + rows * columns].astype(jnp.float32)
        tall = draw.reshape(max(rows, columns), min(rows, columns))
        q, r = jnp.linalg.qr(tall)
        q = q * jnp.where(jnp.diagonal(r) < 0, -1.0, 1.0)[None, :]
        weights.append(math.sqrt(2) * (q if rows >= columns else q.T))
        start += rows * columns
    return tuple(weights), tuple(jnp.zeros(columns, jnp.float32) for _, columns in shapes)
