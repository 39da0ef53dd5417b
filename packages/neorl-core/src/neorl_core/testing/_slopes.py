"""Checks gradients for correctness, by central differences of the float64 oracle."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from neorl_core.testing._compare import is_float, to_numpy
from neorl_core.testing._laws import stops_gradients
from neorl_core.testing._transforms import as_rows, finite_grad, row_count, take, weights_of

WIDTH = 1e-6
AGREE = 1e-3
DIRECTIONS = 2


def slopes_agree(
    fn: Callable[..., Any], reference: Callable[..., Any], *rows: Any, **options: Any
) -> None:
    """Checks that the gradient of ``fn`` is the slope of the reference along random directions.

    Points are skipped if the slopes on both sides differ, which is a kink, or if the reference is
    undefined there. A function that stops a gradient by design is not compared.

    Raises:
        AssertionError: If one differs by more than a thousandth of the sum of its parts.
    """
    gradients = [to_numpy(leaf) for leaf in finite_grad(fn, *rows, **options)]
    exact = to_numpy(as_rows(rows))
    for index in range(row_count(exact)):
        of_row = [leaf[index] for leaf in gradients]
        for seed in range(DIRECTIONS):
            wrong = _difference_along(seed, of_row, reference, take(exact, index), options)
            # Asked only now, since the answer takes another trace.
            assert not wrong or stops_gradients(fn, *rows, **options), wrong


def _difference_along(
    seed: int, gradients: list, reference: Callable[..., Any], row: tuple, options: dict[str, Any]
) -> str:
    """What differs along one direction; nothing where the two agree or cannot be compared."""
    leaves, structure = jax.tree.flatten(row)
    indices = [index for index, leaf in enumerate(leaves) if is_float(leaf)]
    rng = np.random.default_rng(seed)
    steps = [_step(rng, leaves[p]) for p in indices]

    def value(width: float, steps: list) -> float:
        shifted = list(leaves)
        for index, step in zip(indices, steps, strict=True):
            shifted[index] = leaves[index] + width * step
        return _weighted_sum(reference(*jax.tree.unflatten(structure, shifted), **options))

    def slope_along(steps: list) -> float:
        return (value(WIDTH, steps) - value(-WIDTH, steps)) / (2 * WIDTH)

    try:
        with np.errstate(all="ignore"):
            back, here, ahead = (value(width, steps) for width in (-WIDTH, 0.0, WIDTH))
    except Exception:  # the reference rejects points near the sample
        return ""
    before, after = (here - back) / WIDTH, (ahead - here) / WIDTH
    parts = [
        float(np.sum(gradient * step)) for gradient, step in zip(gradients, steps, strict=True)
    ]
    room = AGREE * (sum(map(abs, parts)) + abs(before) + abs(after)) + 1e-6
    slope = (before + after) / 2
    if not abs(after - before) <= room or abs(sum(parts) - slope) <= room:
        return ""
    # Some kinks are odd, like that of a mean without the extremes where all are equal: both sides
    # agree, but the slope along a sum of steps is not the sum of their slopes.
    some = [step * rng.integers(0, 2, step.shape) for step in steps]
    others = [step - part for step, part in zip(steps, some, strict=True)]
    if abs(slope_along(some) + slope_along(others) - slope) > room:
        return ""
    return f"the gradient says {sum(parts)}, the oracle's slope is {slope}"


def _step(rng: np.random.Generator, leaf: np.ndarray) -> np.ndarray:
    """A random direction; symmetric matrices stay symmetric, and infinities stay.

    It is as large as the numbers themselves: beside weights of 1e-9, a step of 1e-6 is no slope.
    """
    sizes = np.where(np.isfinite(leaf), np.abs(leaf), 0)
    largest = sizes.max(initial=0)
    step = rng.normal(size=leaf.shape) * (sizes + min(1, largest or 1)) * np.isfinite(leaf)
    square = leaf.ndim > 1 and leaf.shape[-1] == leaf.shape[-2]
    if square and np.array_equal(leaf, np.swapaxes(leaf, -1, -2)):
        return (step + np.swapaxes(step, -1, -2)) / 2
    return step


def _weighted_sum(outputs: Any) -> float:
    leaves = [leaf for leaf in jax.tree.leaves(to_numpy(outputs)) if is_float(leaf)]
    return float(sum(np.sum(np.asarray(weights_of(leaf)) * leaf.ravel()) for leaf in leaves))
