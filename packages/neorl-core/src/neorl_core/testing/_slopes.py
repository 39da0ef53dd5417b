"""Gradients are not only finite but right: central differences of the float64 oracle."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from neorl_core.testing._compare import is_float, to_numpy
from neorl_core.testing._transforms import as_rows, finite_grad, row_count, take, weights_of

STEP = 1e-5
AGREE = 1e-3
DIRECTIONS = 2


def slopes_agree(
    fn: Callable[..., Any], reference: Callable[..., Any], *rows: Any, **options: Any
) -> None:
    """The gradient of ``fn`` is the slope of the reference, along random directions.

    Where the reference has a kink nearby, two step widths tell, nothing is compared.

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
        row = take(exact, index)
        leaves, structure = jax.tree.flatten(row)
        places = [place for place, leaf in enumerate(leaves) if is_float(leaf)]
        for seed in range(DIRECTIONS):
            rng = np.random.default_rng(seed)
            steps = [rng.normal(size=leaves[p].shape) * (1 + np.abs(leaves[p])) for p in places]

            def value(width: float, steps: list = steps, leaves: list = leaves) -> float:
                moved = list(leaves)
                for place, step in zip(places, steps, strict=True):
                    moved[place] = leaves[place] + width * step
                return _weighted(reference(*jax.tree.unflatten(structure, moved), **options))

            wide, near = (_slope(value, width) for width in (STEP, STEP / 2))
            parts = [np.sum(g[index] * s) for g, s in zip(gradients, steps, strict=True)]
            room = AGREE * (sum(map(abs, parts)) + abs(near)) + 1e-6
            smooth = abs(wide - near) <= room / 4
            assert not smooth or abs(sum(parts) - near) <= room, (
                f"row {index}: the gradient says {sum(parts)}, the oracle's slope is {near}"
            )


def _slope(value: Callable[[float], float], width: float) -> float:
    return (value(width) - value(-width)) / (2 * width)


def _weighted(outputs: Any) -> float:
    leaves = [leaf for leaf in jax.tree.leaves(to_numpy(outputs)) if is_float(leaf)]
    return float(sum(np.sum(np.asarray(weights_of(leaf)) * leaf.ravel()) for leaf in leaves))
