"""Gradients are not only finite but right: central differences of the float64 oracle."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from neorl_core.testing._compare import is_float, to_numpy
from neorl_core.testing._transforms import as_rows, finite_grad, row_count, take, weights_of

WIDTH = 1e-6
AGREE = 1e-3
DIRECTIONS = 2


def slopes_agree(
    fn: Callable[..., Any], reference: Callable[..., Any], *rows: Any, **options: Any
) -> None:
    """The gradient of ``fn`` is the slope of the reference, along random directions.

    Where the slopes before and after a point differ, nothing is compared: there is a kink.

    Args:
        fn: A function of one sample, differentiable by its contract.
        reference: The same mathematics in NumPy, in float64.
        *rows: As for :func:`everywhere`.
        **options: As for :func:`everywhere`.

    Raises:
        AssertionError: If one differs by more than a thousandth of what its parts add up to.
    """
    gradients = [to_numpy(leaf) for leaf in finite_grad(fn, *rows, **options)]
    exact = to_numpy(as_rows(rows))
    for index in range(row_count(exact)):
        of_row = [leaf[index] for leaf in gradients]
        for seed in range(DIRECTIONS):
            _compare_along(seed, of_row, reference, take(exact, index), options)


def _compare_along(
    seed: int, gradients: list, reference: Callable[..., Any], row: tuple, options: dict[str, Any]
) -> None:
    leaves, structure = jax.tree.flatten(row)
    places = [place for place, leaf in enumerate(leaves) if is_float(leaf)]
    rng = np.random.default_rng(seed)
    steps = [rng.normal(size=leaves[p].shape) * (1 + np.abs(leaves[p])) for p in places]

    def value(width: float) -> float:
        moved = list(leaves)
        for place, step in zip(places, steps, strict=True):
            moved[place] = leaves[place] + width * step
        return _weighted(reference(*jax.tree.unflatten(structure, moved), **options))

    back, here, ahead = value(-WIDTH), value(0.0), value(WIDTH)
    before, after = (here - back) / WIDTH, (ahead - here) / WIDTH
    parts = [
        float(np.sum(gradient * step)) for gradient, step in zip(gradients, steps, strict=True)
    ]
    room = AGREE * (sum(map(abs, parts)) + abs(before) + abs(after)) + 1e-6
    if abs(after - before) <= room:
        slope = (before + after) / 2
        assert abs(sum(parts) - slope) <= room, (
            f"the gradient says {sum(parts)}, the oracle's slope is {slope}"
        )


def _weighted(outputs: Any) -> float:
    leaves = [leaf for leaf in jax.tree.leaves(to_numpy(outputs)) if is_float(leaf)]
    return float(sum(np.sum(np.asarray(weights_of(leaf)) * leaf.ravel()) for leaf in leaves))
