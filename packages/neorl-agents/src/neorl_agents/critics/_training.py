"""The training of one critic on the rows of a log, by the common compiled loop."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from neorl_agents.learning import (
    Learner,
    LearnerState,
    Log,
    for_run,
    log_tables,
    rows_for,
    train_chunk,
)
from neorl_agents.learning import Training as LoopState
from neorl_core import DataStatistics, InputError, Spec, Transition, as_arrays

CHUNK = 500
"""Number of updates in one call of the compiled program, which samples all their batches."""


class Trainer(Protocol):
    """Trains a critic to the end; ``neorl_train`` has a trainer with checkpoints and records."""

    def __call__(
        self,
        learner: Learner,
        spec: Spec,
        rows: Transition,
        statistics: DataStatistics,
        updates: int,
        key: PRNGKeyArray,
    ) -> tuple[LearnerState, dict[str, float]]:
        """The final state, and the mean metrics of the last chunk.

        Args:
            learner: Learner with plain numbers as fields.
            spec: Channels and limits.
            rows: A log in order, host arrays; masked rows are ignored.
            statistics: Statistics of the unmasked rows.
            updates: Number of calls of ``update``.
            key: Random key of the initial weights and the batches.
        """
        ...


def trained_in_memory(
    learner: Learner,
    spec: Spec,
    rows: Transition,
    statistics: DataStatistics,
    updates: int,
    key: PRNGKeyArray,
) -> tuple[LearnerState, dict[str, float]]:
    """Trains one seed from beginning to end; see :class:`Trainer`.

    Raises an ``InputError`` if the loss of the last chunk is not finite.
    """
    initial, chunks = jax.random.split(key)
    learner = for_run(learner, updates)
    state = learner.init(spec, statistics, initial)
    tables = jax.device_put(log_tables(learner, spec, rows_for(learner, rows, ())))
    # A chunk is given the buffers of its training, so no two leaves may share one.
    training = LoopState(jax.tree.map(jnp.copy, state), ())
    arrays, metrics = as_arrays(learner), {}
    for first in range(0, updates, CHUNK):
        length = min(CHUNK, updates - first)
        training, metrics = train_chunk(
            arrays, Log(), training, tables, np.int32(first), chunks, n_updates=length
        )
    losses = {name: float(value) for name, value in metrics.items()}
    require_finite_loss(learner, losses)
    return training.learner, losses


def require_finite_loss(learner: Any, metrics: dict[str, float]) -> None:
    """Refuses a training whose last loss is not finite."""
    if not np.isfinite(metrics["loss"]):
        raise InputError(
            f"training ended with a loss of {metrics['loss']}; reduce learning_rate, which is "
            f"{learner.learning_rate:g}"
        )


def require_fit(function: str, updates: int, calibration_share: float) -> None:
    """Refuses a training length or a calibration share that is out of range."""
    if isinstance(updates, bool) or not isinstance(updates, int) or updates < 1:
        raise ValueError(f"{function}: updates must be an integer of at least 1, got {updates!r}")
    if not 0 <= calibration_share < 1:
        raise ValueError(
            f"{function}: calibration_share must be in [0, 1), got {calibration_share!r}"
        )
