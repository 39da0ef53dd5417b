"""Message about a diverged training: which tensors, since when, and the last good checkpoint."""

import math
from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from neorl_core import InputError
from neorl_train.runs._checkpoints import Checkpoints
from neorl_train.training._processes import LeaderCheckpoints

AnyCheckpoints: TypeAlias = Checkpoints | LeaderCheckpoints | None
MAX_NAMED = 3
"""Number of tensors that are named; the others are counted."""


def require_finite_metrics(
    name: str,
    seeds: Sequence[int],
    step: int,
    metrics: Sequence[dict[str, float]],
    snapshot: Any,
    checkpoints: AnyCheckpoints,
) -> None:
    """Refuses a metric that is not finite.

    Args:
        name: Name of the learner.
        seeds: Seeds of the training runs.
        step: Number of updates.
        metrics: Metrics of every seed.
        snapshot: Function that returns all states, stacked by seed; called only if needed.
        checkpoints: Checkpoints of the training, if it has any.

    Raises:
        InputError: Names the metric, the non-finite tensors and the last checkpoint.
    """
    for i, (seed, metrics_of_seed) in enumerate(zip(seeds, metrics, strict=True)):
        for metric, value in metrics_of_seed.items():
            if not math.isfinite(value):
                tensors = _listed(_not_finite(snapshot(), i))
                _raise_diverged(
                    name, f"{metric} of seed {seed} is {value}{tensors}", step, checkpoints
                )


def require_finite_states(
    name: str,
    seeds: Sequence[int],
    step: int,
    snapshot: Any,
    checkpoints: AnyCheckpoints,
) -> None:
    """Refuses states that are not finite, even if every metric so far was.

    Metrics are computed before a step, so none of them shows the effect of the very last step.

    Raises:
        InputError: As in :func:`require_finite_metrics`.
    """
    for i, seed in enumerate(seeds):
        if nonfinite := _not_finite(snapshot, i):
            first, *others = nonfinite
            _raise_diverged(
                name, f"{first} of seed {seed}{_listed(others)} is not finite", step, checkpoints
            )


def _not_finite(snapshot: Any, i: int) -> list[str]:
    """The tensors of a learner's state that contain a non-finite number."""
    learner = snapshot["state"].learner
    return [
        jax.tree_util.keystr(path, simple=True, separator=".")
        for path, leaf in jax.tree.leaves_with_path(learner)
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not np.isfinite(leaf[i]).all()
    ]


def _listed(tensors: list[str]) -> str:
    if not tensors:
        return ""
    more = len(tensors) - MAX_NAMED
    return f" (and so {', '.join(tensors[:MAX_NAMED])}{f' and {more} more' if more > 0 else ''})"


def _raise_diverged(name: str, fault: str, step: int, checkpoints: AnyCheckpoints) -> NoReturn:
    checkpoint = "no checkpoint was saved"
    if checkpoints is not None:
        checkpoints.wait()
        steps = checkpoints.steps()
        checkpoint = (
            f"the last good checkpoint is that of update {steps[-1]}" if steps else checkpoint
        )
    raise InputError(
        f"{name} diverged: {fault} at update {step}; {checkpoint}; lower its learning rates, or "
        "scale the reward"
    )
