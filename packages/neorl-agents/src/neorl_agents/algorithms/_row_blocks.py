"""A loss that is a sum over rows, with its gradient, one block of rows after another."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

BLOCK_INPUTS = 512
"""Inputs of the networks in a block; of 240, 480, 960 and 1,920 at a width of 256, and 480, 960 at
64, 480 was the fastest."""

Loss = Callable[[Any, Any], tuple[Float[Array, ""], Any]]


def sum_by_blocks(
    loss: Loss, parameters: Any, rows: Any, *, inputs: int
) -> tuple[Float[Array, ""], Any]:
    """``loss(parameters, rows)``; on a CPU, its gradient is summed over blocks of rows.

    A row that makes many inputs, such as thirty sampled actions, makes activations that are larger
    than a cache, so whatever lies between two products of matrices waits for memory
    (``tools/studies/benchmarks/row_blocks.py`` measures it). In blocks, the gradient of one is
    finished before the next begins, so that nothing of it is kept. Other platforms take all rows at
    once.

    Args:
        loss: Function of the parameters and some of the rows. Returns its sum over them, and
            further results of every row, which have no gradient.
        parameters: A PyTree of arrays; the loss is differentiable in them alone.
        rows: A PyTree of arrays whose first axis is the row.
        inputs: Inputs of the networks that one row makes.

    Returns:
        The sum over all rows, and the further results in the order of the rows.
    """
    n_blocks = blocks_of(jax.tree.leaves(rows)[0].shape[0], inputs)
    if n_blocks == 1:
        return loss(parameters, rows)
    with_gradient = jax.value_and_grad(loss, has_aux=True)
    summed = jax.custom_vjp(loss)

    def forward(parameters: Any, rows: Any) -> tuple[Any, Any]:
        return jax.lax.platform_dependent(
            parameters,
            rows,
            cpu=partial(_sum_of_blocks, with_gradient, n_blocks),
            default=with_gradient,
        )

    def backward(gradient: Any, cotangents: tuple[Array, Any]) -> tuple[Any, None]:
        return jax.tree.map(lambda slope: cotangents[0] * slope, gradient), None

    summed.defvjp(forward, backward)
    return summed(parameters, rows)


def blocks_of(batch: int, inputs: int) -> int:
    """The number of equal blocks; one if all fits into two, or if no fit divides the batch."""
    if batch * inputs <= 2 * BLOCK_INPUTS:
        return 1
    fitting = range(max(1, BLOCK_INPUTS // inputs), 0, -1)
    size = next(one for one in fitting if batch % one == 0)
    return batch // size if 4 * size * inputs >= BLOCK_INPUTS else 1


def row_shares(mask: Bool[Array, " batch"] | None, batch: int) -> Float[Array, " batch"]:
    """The share of every row in a mean over the unmasked ones; all zero if there are none."""
    if mask is None:
        return jnp.full(batch, 1 / batch)
    return mask / jnp.maximum(jnp.sum(mask), 1)


def _sum_of_blocks(with_gradient: Any, n_blocks: int, parameters: Any, rows: Any) -> Any:
    """The value, the results of every row and the gradient, in the order of ``value_and_grad``."""

    # Neighbours go to different blocks, so that rows that are spread over devices stay there.
    def cut(x: Array) -> Array:
        return jnp.moveaxis(x.reshape(-1, n_blocks, *x.shape[1:]), 1, 0)

    def joined(x: Array) -> Array:
        return jnp.moveaxis(x, 0, 1).reshape(-1, *x.shape[2:])

    def step(total: Any, block: Any) -> tuple[Any, Any]:
        (value, results), gradient = with_gradient(parameters, block)
        return jax.tree.map(jnp.add, total, (value, gradient)), results

    (form, _), _ = jax.eval_shape(
        with_gradient, parameters, jax.tree.map(lambda x: cut(x)[0], rows)
    )
    start = jnp.zeros(form.shape, form.dtype), jax.tree.map(jnp.zeros_like, parameters)
    (value, gradient), results = jax.lax.scan(step, start, jax.tree.map(cut, rows))
    return (value, jax.tree.map(joined, results)), gradient
