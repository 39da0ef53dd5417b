"""An increasing map from a model's predictions to observed outcomes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_core import InputError

KNOTS = 64
"""Largest number of knots of a fitted map."""

TIE_BREAK = 1e-3
"""Fraction of the argument itself in the result, so that no two different scores become equal."""


class MonotoneMap(eqx.Module):
    """Increasing maps of several outputs, each piecewise linear between its knots.

    ``(1 - 1e-3) interpolated(x) + 1e-3 x``: strictly increasing, so the map preserves every order.

    Attributes:
        x: Arguments of the knots, increasing, shape ``(output, knot)``.
        y: Values at the knots, not decreasing, shape ``(output, knot)``.

    Without any knot the map is the identity.
    """

    x: Float[Array, "output knot"]
    y: Float[Array, "output knot"]

    def __call__(self, x: Float[Array, " output"]) -> Float[Array, " output"]:
        """The mapped outputs; beyond the knots only the term ``1e-3 x`` varies."""
        if self.x.shape[1] == 0:
            return x
        mapped = jax.vmap(jnp.interp)(x, self.x, self.y)
        return (1 - TIE_BREAK) * mapped + TIE_BREAK * x


def identity_map(outputs: int) -> MonotoneMap:
    """The identity map, which has no knots.

    Args:
        outputs: Number of outputs.
    """
    empty = jnp.zeros((outputs, 0), jnp.float32)
    return MonotoneMap(empty, empty)


def isotonic_map(
    predicted: Float[np.ndarray, "row output"], observed: Float[np.ndarray, "row output"]
) -> MonotoneMap:
    """The increasing maps with the least squared error, by SciPy's isotonic regression.

    Each pool of rows becomes one knot: its mean prediction and its mean outcome. Between knots
    the map is linear (centred isotonic regression), so it has no steps.

    Args:
        predicted: Predictions of the model, finite.
        observed: Outcomes: 0 or 1 for an event, else a quantity.

    Returns:
        The maps, with at most 64 knots each.

    Raises:
        InputError: If the shapes differ, there is no row, or a number is not finite.

    Example:
        >>> import jax.numpy as jnp, numpy as np
        >>> predicted = np.array([[0.1], [0.2], [0.8], [0.9]])
        >>> happened = np.array([[0], [0], [0], [1]])
        >>> round(float(isotonic_map(predicted, happened)(jnp.array([0.9]))[0]), 3)
        1.0

    Source: Zadrozny and Elkan, Transforming classifier scores into accurate multiclass probability
    estimates, 2002; Oron and Flournoy, Centered isotonic regression, arXiv 1701.05964.
    """
    predicted = np.asarray(predicted, np.float64)
    observed = np.asarray(observed, np.float64)
    if predicted.shape != observed.shape or predicted.ndim != 2 or not len(predicted):
        raise InputError(
            "predictions and observations must have the same shape (row, output) with at least one "
            f"row, got {predicted.shape} and {observed.shape}"
        )
    if not (np.isfinite(predicted).all() and np.isfinite(observed).all()):
        raise InputError("predictions and observations must be finite; leave out rows that are not")
    knots = [_thin(*_pools(p, o)) for p, o in zip(predicted.T, observed.T, strict=True)]
    longest = max(len(x) for x, _ in knots)
    x = np.stack([_pad(x, longest, np.maximum(1.0, np.abs(x[-1]))) for x, _ in knots])
    y = np.stack([_pad(y, longest, 0.0) for _, y in knots])
    return MonotoneMap(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32))


def _pools(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean argument and mean value of every pool, both strictly increasing."""
    from scipy.optimize import isotonic_regression  # Imported here: slow, only needed for fits.

    values, index = np.unique(x, return_inverse=True)
    sizes = np.bincount(index).astype(np.float64)
    fitted = isotonic_regression(np.bincount(index, y) / sizes, weights=sizes).x
    starts = np.append(0, np.flatnonzero(np.diff(fitted)) + 1)
    arguments = np.add.reduceat(values * sizes, starts) / np.add.reduceat(sizes, starts)
    return arguments, fitted[starts]


def _thin(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    indices = np.unique(np.linspace(0, len(x) - 1, KNOTS).round().astype(int))
    return x[indices], y[indices]


def _pad(values: np.ndarray, length: int, step: float) -> np.ndarray:
    extension = values[-1] + step * np.arange(1, length - len(values) + 1)
    return np.concatenate([values, extension])
