"""Observations unlike the log on which a policy was trained: at once, or by slow drift."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_core import InputError
from neorl_safety.monitoring._monitor import MonitorInput, Score, score_of

# Distance of an observation from the log on which a policy was trained.


LEAST_VARIANCE = 1e-6
"""Smallest variance in any direction, as a fraction of the largest."""


class MahalanobisMonitor(eqx.Module):
    """``|L^-1 (x - mean)|^2`` with ``L L' = covariance`` (Hotelling's T2).

    Attributes:
        mean: Mean of the log, shape ``(obs,)``.
        whitening: ``L^-1``, shape ``(obs, obs)``.
        threshold: Value above which it alarms, scalar.
    """

    mean: Float[Array, " obs"]
    whitening: Float[Array, "obs obs"]
    threshold: Float[Array, ""]

    def initial_carry(self) -> tuple[()]:
        """An empty carry: the monitor has no memory."""
        return ()

    def __call__(self, carry: tuple[()], inputs: MonitorInput) -> tuple[tuple[()], Score]:
        """The squared distance from the mean, scaled by the covariance of the log."""
        deviation = inputs.obs.astype(self.mean.dtype) - self.mean
        # A product of matrices would be computed in fewer bits on some accelerators.
        whitened = jnp.sum(self.whitening * deviation[None], axis=1)
        return carry, score_of(jnp.sum(whitened * whitened), self.threshold)


def mahalanobis_monitor(obs: Float[np.ndarray, "row obs"]) -> MahalanobisMonitor:
    """Fits mean and covariance of a log; the threshold is infinite until it is calibrated.

    Args:
        obs: Observations of the log, more rows than channels.

    Returns:
        The monitor, for :func:`calibrate`.

    Raises:
        InputError: If there are too few rows or one is not finite.
    """
    rows, mean, scale = _log_rows(obs, obs.shape[1] + 1)
    correlation = np.cov((rows - mean) / scale, rowvar=False, bias=True).reshape(len(mean), -1)
    # Channels that determine one another leave a direction without variance, and no inverse.
    correlation += LEAST_VARIANCE * max(1.0, float(np.trace(correlation))) * np.eye(len(mean))
    whitening = np.linalg.inv(np.linalg.cholesky(correlation)) / scale
    return MahalanobisMonitor(_array(mean), _array(whitening), jnp.asarray(jnp.inf, jnp.float32))


class NeighbourMonitor(eqx.Module):
    """Distance to the k-th nearest of a few rows that represent the log.

    Attributes:
        rows: Standardised rows, shape ``(kept, obs)``.
        mean: Mean of the log, shape ``(obs,)``.
        scale: Standard deviations in the log, shape ``(obs,)``.
        threshold: Value above which it alarms, scalar.
        neighbours: Number ``k`` of the neighbour whose distance is used; static.
    """

    rows: Float[Array, "row obs"]
    mean: Float[Array, " obs"]
    scale: Float[Array, " obs"]
    threshold: Float[Array, ""]
    neighbours: int = eqx.field(static=True)

    def initial_carry(self) -> tuple[()]:
        """An empty carry: the monitor has no memory."""
        return ()

    def __call__(self, carry: tuple[()], inputs: MonitorInput) -> tuple[tuple[()], Score]:
        """The distance in standard deviations."""
        point = (inputs.obs.astype(self.mean.dtype) - self.mean) / self.scale
        squared = jnp.sum((self.rows - point[None]) ** 2, axis=1)
        nearest = -jax.lax.top_k(-squared, self.neighbours)[0][-1]
        return carry, score_of(jnp.sqrt(nearest), self.threshold)


def neighbour_monitor(
    obs: Float[np.ndarray, "row obs"], *, neighbours: int = 5, keep: int = 1000
) -> NeighbourMonitor:
    """Keeps a few rows that cover the log, each the farthest from those kept before.

    Args:
        obs: Observations of the log.
        neighbours: Number ``k`` of the nearest neighbour whose distance is the score.
        keep: Number of rows to keep.

    Returns:
        The monitor, for :func:`calibrate`.

    Raises:
        InputError: If there are fewer rows than neighbours, or one is not finite.

    Source: Gonzalez, Clustering to minimize the maximum intercluster distance, 1985.
    """
    if not 1 <= neighbours <= keep:
        raise InputError(f"neighbours must lie between 1 and keep, {keep}, got {neighbours}")
    rows, mean, scale = _log_rows(obs, neighbours)
    standardised = (rows - mean) / scale
    stored = standardised[_farthest_first(standardised, min(keep, len(standardised)))]
    no_threshold = jnp.asarray(jnp.inf, jnp.float32)
    return NeighbourMonitor(_array(stored), _array(mean), _array(scale), no_threshold, neighbours)


def _farthest_first(rows: np.ndarray, count: int) -> np.ndarray:
    chosen = [int(np.argmin((rows**2).sum(axis=1)))]
    distance = np.full(len(rows), np.inf)
    for _ in range(count - 1):
        distance = np.minimum(distance, ((rows - rows[chosen[-1]]) ** 2).sum(axis=1))
        chosen.append(int(distance.argmax()))
    return np.asarray(chosen)


def _log_rows(obs: np.ndarray, least: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows of a log in float64, and mean and standard deviation of every channel."""
    rows = np.asarray(obs, np.float64)
    if rows.ndim != 2 or len(rows) < least or not np.isfinite(rows).all():
        raise InputError(
            f"a log needs at least {least} finite rows of shape (row, obs), got shape {rows.shape}"
        )
    scale = rows.std(axis=0)
    return rows, rows.mean(axis=0), np.where(scale > 0, scale, 1.0)  # one if it never moved


def _array(values: np.ndarray) -> Array:
    return jnp.asarray(np.asarray(values, np.float32))


# Slow drift of the inputs: their exponentially weighted means leave those of the log.


class DriftMonitor(eqx.Module):
    """The EWMA control chart of every channel; see :func:`drift_monitor`.

    Attributes:
        mean: Mean of the log, shape ``(obs,)``.
        scale: Standard deviations in the log, shape ``(obs,)``.
        weight: Weight of the latest observation, scalar.
        threshold: Value above which it alarms, scalar.
    """

    mean: Float[Array, " obs"]
    scale: Float[Array, " obs"]
    weight: Float[Array, ""]
    threshold: Float[Array, ""]

    def initial_carry(self) -> Float[Array, " obs"]:
        """An initial carry without drift."""
        return jnp.zeros_like(self.mean)

    def __call__(
        self, carry: Float[Array, " obs"], inputs: MonitorInput
    ) -> tuple[Float[Array, " obs"], Score]:
        """The largest ``|z|`` over its standard deviation; lost readings are ignored."""
        standardised = (inputs.obs.astype(self.mean.dtype) - self.mean) / self.scale
        average = carry + self.weight * (standardised - carry)
        # A lost reading leaves the average as it was; taken in, NaN would stay in it for ever.
        z = jnp.where(jnp.isfinite(standardised), average, carry)
        stationary_std = jnp.sqrt(self.weight / (2 - self.weight))
        return z, score_of(jnp.max(jnp.abs(z)) / stationary_std, self.threshold)


def drift_monitor(obs: Float[np.ndarray, "row obs"], *, weight: float = 0.05) -> DriftMonitor:
    """Fits mean and spread of a log: ``z = z + weight ((x - mean) / std - z)``.

    The score is in units of ``sqrt(weight / (2 - weight))``, the standard deviation of ``z`` for
    independent readings. Plant signals are not independent, so the threshold must be calibrated.

    Args:
        obs: Observations of the log.
        weight: Weight of the latest observation, in (0, 1].

    Returns:
        The monitor, for :func:`calibrate`.

    Raises:
        InputError: If the weight is out of range, or there are too few rows.

    Source: Roberts, Control chart tests based on geometric moving averages, 1959.
    """
    if not 0 < weight <= 1:
        raise InputError(f"weight must lie in (0, 1], got {weight}")
    _, mean, scale = _log_rows(obs, 2)
    no_threshold = jnp.asarray(jnp.inf, jnp.float32)
    return DriftMonitor(_array(mean), _array(scale), jnp.float32(weight), no_threshold)
