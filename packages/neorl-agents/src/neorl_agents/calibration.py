"""Maps that calibrate predictions, errors near visited rows, and intervals over episodes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from neorl_core import InputError
from neorl_core.statistics import DEFAULT_LEVEL

if TYPE_CHECKING:
    from scipy.spatial import KDTree

__all__ = [
    "MonotoneMap",
    "NeighbourCalibration",
    "episode_interval",
    "identity_map",
    "isotonic_map",
    "neighbour_calibration",
]

# Intervals of a statistic over rows if only whole episodes are independent.


def episode_interval(
    statistic: Callable[..., float],
    episode: Int[np.ndarray, " row"],
    *columns: np.ndarray,
    replicates: int = 500,
    level: float = DEFAULT_LEVEL,
    seed: int = 0,
) -> tuple[float, float]:
    """The percentile interval of a bootstrap of whole episodes.

    Every replicate samples as many episodes as there are, with replacement; all rows of an episode
    are weighted by how often it was sampled. Replicates for which the statistic is NaN are ignored.

    Args:
        statistic: ``statistic(*columns, weight)``, such as
            ``neorl_core.statistics.area_under_roc``.
        episode: Index of the episode of every row.
        *columns: Inputs of the statistic, one entry per row.
        replicates: Number of bootstrap samples of episodes.
        level: Coverage, in (0, 1).
        seed: Seed of the samples.

    Returns:
        Lower and upper limit; NaN if the statistic is NaN in every replicate.

    Raises:
        InputError: If there are fewer than two episodes.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> episode, x = np.repeat(np.arange(50), 4), rng.normal(size=200)
        >>> low, high = episode_interval(lambda x, w: x @ w / w.sum(), episode, x)
        >>> low < 0 < high
        True

    Source: Field and Welsh, Bootstrapping clustered data, 2007.
    """
    _, index = np.unique(np.asarray(episode), return_inverse=True)
    count = int(index.max(initial=-1)) + 1
    if count < 2:
        raise InputError(f"an interval needs at least two episodes, got {count}; record more")
    rng = np.random.default_rng(seed)
    resamples = rng.multinomial(count, np.full(count, 1 / count), size=replicates).astype(
        np.float64
    )
    values = np.array([statistic(*columns, weight[index]) for weight in resamples])
    values = values[~np.isnan(values)]
    if not len(values):
        return float("nan"), float("nan")
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


# An increasing map from a model's predictions to observed outcomes.


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


# Errors of predictions near the rows that a policy visits, from the nearest rows of a log.


COMPARED_ROWS = 2_000
"""Largest number of logged rows whose distance from other episodes is measured."""
USUAL_DISTANCE = 0.99
"""Quantile of that distance, beyond which a visited row counts as far from the log."""
LOOKED_UP = 4
"""Rows that are looked up for each that is averaged, to find enough of other episodes."""


class NeighbourCalibration(NamedTuple):
    """The error of a prediction, transferred from a log to the rows that a policy visits.

    Attributes:
        bias: Weighted sum over the visited rows of the mean error near them, shape ``(signal,)``.
            Added to a prediction whose error is such a sum, it corrects it.
        standard_error: Standard error of ``bias`` between the logged episodes, shape ``(signal,)``;
            infinite if visited rows are not finite, or all neighbours are of one episode.
        local: Mean error of the logged rows that are nearest to each visited row, shape ``(visited,
            signal)``.
        deviation: Standard deviation of one logged error around ``local``, shape ``(signal,)``.
        far: Fraction of the weight on visited rows that are farther from every logged row than 99 %
            of the logged rows are from other episodes. There the errors are extrapolated.
        neighbours: Number of logged rows behind every entry of ``local``.
        episodes: Number of logged episodes that they are from.
    """

    bias: Float[np.ndarray, " signal"]
    standard_error: Float[np.ndarray, " signal"]
    local: Float[np.ndarray, "visited signal"]
    deviation: Float[np.ndarray, " signal"]
    far: float
    neighbours: int
    episodes: int


def neighbour_calibration(
    visited: Float[np.ndarray, "visited channel"],
    weight: Float[np.ndarray, " visited"],
    logged: Float[np.ndarray, "row channel"],
    error: Float[np.ndarray, "row signal"],
    episode: Int[np.ndarray, " row"],
    *,
    neighbours: int | None = None,
) -> NeighbourCalibration:
    """Estimates the error of a prediction where a policy goes, by nearest neighbours.

    ``bias = sum_v weight_v mean_{j near v} error_j``

    The errors of the ``neighbours`` nearest logged rows are averaged for every visited row.
    Distances are Euclidean, every channel in its standard deviation in the log. The rows of one
    episode are not independent, so the standard error is that between episodes: each error is
    compared with the mean of the nearest rows of other episodes, and these differences are summed
    over every episode.

    Taking only the nearest row of each episode would be wrong: where a plant settles, that row is
    often the last one before the next disturbance, and its error is not that of a usual row.

    With the temporal-difference errors ``x + discount Q(s', pi(s')) - Q(s, a)`` of held-out rows
    and the weights ``discount^t`` along episodes of ``pi``, ``bias`` estimates the difference
    between the value of ``pi`` and ``Q(s_0, pi(s_0))``: errors of ``Q`` at later steps cancel.

    Args:
        visited: Observations and actions that the policy visits, side by side.
        weight: Weight of each of them, not negative.
        logged: Observations and actions of logged rows to which the prediction was not fitted.
        error: True minus predicted value of every logged row, one column for each signal.
        episode: Number of the episode of every logged row.
        neighbours: Number of logged rows that are averaged; by default the cube root of their
            number, and at least 2.

    Returns:
        The transferred error with its standard error.

    Raises:
        InputError: If the log has fewer than two episodes, or a logged number is not finite.
        ValueError: If the shapes disagree, or ``neighbours`` is below 1.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> episode, x = np.repeat(np.arange(20), 10), rng.uniform(-1, 1, (200, 1))
        >>> error = np.where(x > 0, 3.0, 0.0)  # the prediction is wrong in one half only
        >>> visited = np.array([[-0.5], [0.5], [0.6], [0.7]])
        >>> neighbour_calibration(visited, np.full(4, 0.25), x, error, episode).bias.tolist()
        [2.25]

    Source: Stone, Consistent nonparametric regression, 1977, for the local mean; Liang and Zeger,
    Longitudinal data analysis using generalized linear models, 1986, for the standard error
    between clusters.
    """
    visited, weight, logged, error = (
        np.asarray(x, np.float64) for x in (visited, weight, logged, error)
    )
    _require_shapes(visited, weight, logged, error, np.asarray(episode))
    names, number = np.unique(np.asarray(episode), return_inverse=True)
    if len(names) < 2:
        raise InputError(
            f"a calibration by neighbours needs at least two logged episodes, got {len(names)}; "
            "hold out more"
        )
    if not (np.isfinite(logged).all() and np.isfinite(error).all()):
        raise InputError(
            "logged observations, actions and errors must be finite for a calibration by "
            "neighbours, but one is not; repair it or leave its row out"
        )
    count = max(2, round(len(logged) ** (1 / 3))) if neighbours is None else neighbours
    if count < 1:
        raise ValueError(f"neighbours must be at least 1, got {neighbours}")
    count = min(count, len(logged))
    if not np.isfinite(visited).all():
        zeros, infinite = np.zeros(error.shape[1]), np.full(error.shape[1], np.inf)
        local = np.full((len(visited), error.shape[1]), np.nan)
        return NeighbourCalibration(zeros, infinite, local, infinite, 1.0, count, len(names))
    scale = _scales(logged, visited)
    from scipy.spatial import KDTree  # Imported here: slow, and only needed for this.

    tree, looked_up = KDTree(logged / scale), min(LOOKED_UP * count, len(logged))
    distance, nearest = (
        x.reshape(len(visited), -1) for x in tree.query(visited / scale, looked_up)
    )
    used = nearest[:, :count]
    local = error[used].mean(axis=1)
    differences = error[used] - _error_of_others(error, number, nearest, count)
    of_episode = np.zeros((len(names), error.shape[1]))
    np.add.at(of_episode, number[used], weight[:, None, None] / count * differences)
    episodes = len(np.unique(number[used]))
    variance = np.sum(of_episode**2, axis=0) * len(names) / (len(names) - 1)
    variance = variance if episodes > 1 else np.full_like(variance, np.inf)
    # A difference of an error from a mean of ``count`` others.
    spread = np.average(np.mean(differences**2, axis=1), axis=0, weights=weight)
    usual = _usual_distance(tree, logged / scale, number, looked_up)
    return NeighbourCalibration(
        bias=weight @ local,
        standard_error=np.sqrt(variance),
        local=local,
        deviation=np.sqrt(spread / (1 + 1 / count)),
        far=float(np.average(distance[:, 0] > usual, weights=weight)),
        neighbours=count,
        episodes=episodes,
    )


def _error_of_others(
    error: np.ndarray, number: np.ndarray, nearest: np.ndarray, count: int
) -> Float[np.ndarray, "visited neighbour signal"]:
    """Mean error, for each of the first ``count`` rows, of the nearest rows of other episodes."""
    episode = number[nearest]
    other = episode[:, :count, None] != episode[:, None]
    other = other & (np.cumsum(other, axis=-1) <= count)
    total = other.sum(axis=-1, keepdims=True)
    mean = np.einsum("vnk,vks->vns", other.astype(np.float64), error[nearest])
    # Where all rows that were looked up are of one episode, nothing nearer than the log is known.
    return np.where(total > 0, mean / np.maximum(total, 1), error.mean(axis=0))


def _scales(logged: np.ndarray, visited: np.ndarray) -> np.ndarray:
    """Standard deviation of every channel in the log; of both if it is constant in the log."""
    scale = logged.std(axis=0)
    both = np.concatenate([logged, visited]).std(axis=0)
    # A mean of equal numbers need not be exactly that number.
    still = scale <= 1e-9 * np.abs(logged).max(axis=0)
    scale = np.where(still, both, scale)
    return np.where(scale > 0, scale, 1)


def _usual_distance(
    tree: "KDTree", points: np.ndarray, number: np.ndarray, looked_up: int
) -> float:
    """A high quantile of the distance of a logged row from the nearest one of another episode."""
    some = np.arange(0, len(points), -(-len(points) // COMPARED_ROWS))
    distance, nearest = (x.reshape(len(some), -1) for x in tree.query(points[some], looked_up))
    other = number[nearest] != number[some][:, None]
    # Where all rows that were looked up are of the same episode, the others are farther than these.
    first = np.where(other.any(axis=1), np.argmax(other, axis=1), looked_up - 1)
    return float(np.quantile(distance[np.arange(len(some)), first], USUAL_DISTANCE))


def _require_shapes(
    visited: np.ndarray,
    weight: np.ndarray,
    logged: np.ndarray,
    error: np.ndarray,
    episode: np.ndarray,
) -> None:
    same = (
        visited.ndim == logged.ndim == error.ndim == 2
        and visited.shape[1] == logged.shape[1]
        and weight.shape == visited.shape[:1]
        and episode.shape == logged.shape[:1] == error.shape[:1]
    )
    if not same:
        raise ValueError(
            "expected visited (visited, channel), weight (visited,), logged (row, channel), error "
            f"(row, signal) and episode (row,), got {visited.shape}, {weight.shape}, "
            f"{logged.shape}, {error.shape} and {episode.shape}"
        )
    if not (np.all(weight >= 0) and weight.sum() > 0 and np.isfinite(weight.sum())):
        raise ValueError("weight must be finite and not negative, with a positive sum")
