"""Multilayer perceptrons whose leaves are all arrays, and the affine layer of all networks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from typing import Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.networks._activations import Activation, identity, relu

FEW_COLUMNS = 4
"""On a CPU, products with at most this many columns are computed one column at a time."""
MOST_ROWS = 1024
"""With more rows the plain expression is faster on a CPU too, because a transposition in memory
then costs more than it saves. Nothing between 256 and 1,920 rows was measured."""


def affine(
    x: Float[Array, "*batch in"], weight: Float[Array, "in out"], bias: Float[Array, " out"]
) -> Float[Array, "*batch out"]:
    """``x @ weight + bias`` along the last axis.

    With one batch axis of at most ``MOST_ROWS`` rows, a CPU uses hand-written forward and backward
    passes (``tools/studies/benchmarks/affine.py`` compares them with the plain expression). All
    other cases use the plain expression: other platforms, more rows, and inputs with no batch axis
    or several. With one batch axis only reverse-mode differentiation works, to any order;
    ``jax.vmap`` over rows supports both modes.
    """
    if x.ndim != 2 or x.shape[0] > MOST_ROWS:
        return plain_affine(x, weight, bias)
    return jax.lax.platform_dependent(x, weight, bias, cpu=cpu_affine, default=plain_affine)


def plain_affine(x: Array, weight: Array, bias: Array) -> Array:
    """``x @ weight + bias``, as it stands."""
    return x @ weight + jnp.reshape(bias, (1,) * (x.ndim - 1) + bias.shape)


@jax.custom_vjp
def cpu_affine(x: Array, weight: Array, bias: Array) -> Array:
    """``x @ weight + bias`` for one batch axis, for a CPU.

    The result is that of the plain expression up to the order of sums. For small matrices XLA's own
    choice on a CPU is slow in three places: (a) it folds the transposition of the weights' gradient
    into a product, so here the narrower factor is transposed in memory first; (b) it sums the bias'
    gradient in a reduction, so here that is a product with ones; (c) it is slow for a product with
    few columns, such as a policy's last layer, so here those are computed column by column.
    """
    return _product(x, weight) + bias[None, :]


def _forward(x: Array, weight: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    return cpu_affine(x, weight, bias), (x, weight)


def _backward(operands: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array, Array]:
    x, weight = operands
    in_memory = jax.lax.optimization_barrier
    if x.shape[-1] > cotangent.shape[-1]:
        slope = in_memory(in_memory(cotangent.T) @ x).T
    else:
        slope = in_memory(x.T) @ cotangent
    ones = jnp.ones((1, x.shape[0]), cotangent.dtype)
    return _product_with_transposed(cotangent, weight), slope, (ones @ cotangent)[0]


cpu_affine.defvjp(_forward, _backward)


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


Initialiser = Literal["uniform", "orthogonal"]
"""Initialiser of the weights; see :func:`init_mlp`."""

NetworkT = TypeVar("NetworkT")


class MLP(eqx.Module):
    """Affine layers with an activation between them and another one after the last.

    An ensemble is the same module with a leading axis on every leaf; see :func:`ensemble`.
    Inputs with one batch axis are differentiable in reverse mode only; for forward mode
    (``jax.jvp``, ``jax.jacfwd``, ``jax.hessian``) map over the rows: ``jax.vmap(network)(x)``.

    Attributes:
        weights: One matrix per layer, shape ``(in, out)``.
        biases: One vector per layer, shape ``(out,)``.
        activation: Function after every layer but the last; static.
        output: Function after the last layer; static.
        gains: Factors of layer normalisation, one vector per hidden layer; empty without it.
        shifts: Summands of layer normalisation, likewise.
    """

    weights: tuple[Float[Array, "..."], ...]
    biases: tuple[Float[Array, "..."], ...]
    activation: Activation = eqx.field(static=True, default=relu)
    output: Activation = eqx.field(static=True, default=identity)
    gains: tuple[Float[Array, "..."], ...] = ()
    shifts: tuple[Float[Array, "..."], ...] = ()

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        """The output for inputs along the last axis; leading axes are a batch."""
        *inner, last = zip(self.weights, self.biases, strict=True)
        for i, (weight, bias) in enumerate(inner):
            x = self.activation(affine(x, weight, bias))
            if self.gains:
                x = layer_norm(x, self.gains[i], self.shifts[i])
        return self.output(affine(x, *last))

    @property
    def n_outputs(self) -> int:
        """Length of the last axis of the result."""
        return self.biases[-1].shape[-1]

    def first_outputs(self, count: int, *, output: Activation | None = None) -> "MLP":
        """The network with only its first outputs.

        Args:
            count: Number of outputs to keep.
            output: Function applied to them; the current one by default.
        """
        weights = (*self.weights[:-1], self.weights[-1][..., :count])
        biases = (*self.biases[:-1], self.biases[-1][..., :count])
        output_activation = self.output if output is None else output
        return replace(self, weights=weights, biases=biases, output=output_activation)


def layer_norm(
    x: Float[Array, "*batch channel"],
    gain: Float[Array, " channel"],
    shift: Float[Array, " channel"],
) -> Float[Array, "*batch channel"]:
    """Each row minus its mean, over its std: ``gain (x - mean) / sqrt(var + 1e-6) + shift``.

    Args:
        x: Rows along the last axis.
        gain: Factor of every channel.
        shift: Summand of every channel.

    Returns:
        The normalised rows, same shape.

    Source: Ba, Kiros and Hinton, Layer normalization, arXiv 1607.06450.
    """
    shape = (1,) * (x.ndim - 1) + gain.shape
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + 1e-6) * gain.reshape(shape) + shift.reshape(shape)


def init_mlp(
    widths: Sequence[int],
    key: PRNGKeyArray,
    *,
    initialiser: Initialiser = "uniform",
    activation: Activation = relu,
    output: Activation = identity,
    hidden_bias: float | None = None,
    last_bound: float | None = None,
    normalised: bool = False,
) -> MLP:
    """A perceptron with fresh weights.

    ``"uniform"`` samples weights and biases from ``U(-1, 1) / sqrt(in)``, the default of the code
    that TD3+BC was published with; ``"orthogonal"`` uses orthogonal matrices times ``sqrt(2)`` and
    zero biases, as in implicit Q-learning. All numbers of a network come from one sample, so that
    initialisation compiles to a small program.

    Args:
        widths: Lengths of the input, of every hidden layer and of the output.
        key: Random key; consumed.
        initialiser: Distribution of the weights.
        activation: Function after every layer but the last.
        output: Function after the last layer.
        hidden_bias: Bias of every hidden layer, instead of a random one.
        last_bound: Weights and biases of the last layer are sampled from ``U(-1, 1)`` times this.
        normalised: Whether every hidden layer is followed by layer normalisation.

    Returns:
        The network, float32.

    Raises:
        ValueError: If there are fewer than two widths, one is below one, or the initialiser is
            unknown.
    """
    if len(widths) < 2 or min(widths) < 1:
        raise ValueError(f"widths must be two or more positive integers, got {tuple(widths)}")
    if initialiser == "uniform":
        weights, biases = _uniform(widths, key)
    elif initialiser == "orthogonal":
        weights, biases = _orthogonal(widths, key)
    else:
        raise ValueError(f"initialiser must be uniform or orthogonal, got {initialiser!r}")
    if hidden_bias is not None:
        biases = (*(jnp.full_like(bias, hidden_bias) for bias in biases[:-1]), biases[-1])
    if last_bound is not None:
        last = jax.random.uniform(
            jax.random.fold_in(key, 1), (widths[-2] + 1, widths[-1]), jnp.float32, -1.0, 1.0
        )
        weights = (*weights[:-1], last_bound * last[:-1])
        biases = (*biases[:-1], last_bound * last[-1])
    hidden = tuple(widths[1:-1]) if normalised else ()
    return MLP(
        weights,
        biases,
        activation=activation,
        output=output,
        gains=tuple(jnp.ones(width, jnp.float32) for width in hidden),
        shifts=tuple(jnp.zeros(width, jnp.float32) for width in hidden),
    )


def ensemble(
    members: int, network: Callable[[PRNGKeyArray], NetworkT], key: PRNGKeyArray
) -> NetworkT:
    """``members`` networks stacked along a leading axis of every leaf.

    Args:
        members: Number of networks.
        network: Function that makes one network from a key.
        key: Random key; consumed.

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


@jax.custom_batching.sequential_vmap
def _qr(matrix: Float[Array, "row column"]) -> tuple[Array, Array]:
    """QR factorisation, one matrix after another even under ``jax.vmap``.

    jaxlib 0.10.2 spreads the factorisations of a batch over the threads of XLA's CPU pool, and
    waits for them in a thread of the same pool. A program that factorises as many batches
    simultaneously as the machine has cores therefore never ends.
    """
    return jnp.linalg.qr(matrix)


def _orthogonal(widths: Sequence[int], key: PRNGKeyArray) -> tuple[tuple, tuple]:
    shapes = list(pairwise(widths))
    numbers = jax.random.normal(key, (sum(rows * columns for rows, columns in shapes),))
    weights, start = [], 0
    for rows, columns in shapes:
        draw = numbers[start : start + rows * columns].astype(jnp.float32)
        matrix = draw.reshape(max(rows, columns), min(rows, columns))
        q, r = _qr(matrix)
        q = q * jnp.where(jnp.diagonal(r) < 0, -1.0, 1.0)[None, :]
        weights.append(math.sqrt(2) * (q if rows >= columns else q.T))
        start += rows * columns
    return tuple(weights), tuple(jnp.zeros(columns, jnp.float32) for _, columns in shapes)
