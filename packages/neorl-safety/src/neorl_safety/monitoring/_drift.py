"""Slow drift of the inputs: their exponentially weighted means leave those of the log."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_core import InputError
from neorl_safety.monitoring._monitor import MonitorInput, Score, score_of
from neorl_safety.monitoring._novelty import _array, _log_rows


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
        The monitor, for :func:`calibrated`.

    Raises:
        InputError: If the weight is out of range, or there are too few rows.

    Source: Roberts, Control chart tests based on geometric moving averages, 1959.
    """
    if not 0 < weight <= 1:
        raise InputError(f"weight must lie in (0, 1], got {weight}")
    rows = _log_rows(obs, 2)
    scale = rows.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    no_threshold = jnp.asarray(jnp.inf, jnp.float32)
    return DriftMonitor(_array(rows.mean(axis=0)), _array(scale), jnp.float32(weight), no_threshold)
