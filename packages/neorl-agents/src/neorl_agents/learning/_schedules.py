"""Learning rates and weights that decay along a run, whose length the training loop sets."""

from dataclasses import replace
from typing import Any, TypeVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

WHOLE_RUN = -1
"""Length of a schedule that stands for the length of the run."""

Learner = TypeVar("Learner")


def cosine(step: Int[Array, ""], updates: int | Int[Array, ""]) -> Float[Array, ""]:
    """The factor ``(1 + cos(pi min(step / updates, 1))) / 2``, or 1 if ``updates`` is 0.

    Args:
        step: Number of updates made so far.
        updates: Updates over which the factor falls from 1 to 0; 0 for no schedule.

    Returns:
        A factor of a learning rate, in [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> [round(float(cosine(jnp.asarray(step), 10)), 2) for step in (0, 5, 10, 20)]
        [1.0, 0.5, 0.0, 0.0]
    """
    length = jnp.asarray(updates)
    progress = jnp.minimum(step / jnp.maximum(length, 1), 1.0)
    return jnp.where(length > 0, 0.5 * (1 + jnp.cos(jnp.pi * progress)), 1.0)


def linear(
    step: Int[Array, ""], updates: int | Int[Array, ""], final: float | Float[Array, ""]
) -> Float[Array, ""]:
    """The factor ``1 + (final - 1) min(step / updates, 1)``, or 1 if ``updates`` is 0.

    Args:
        step: Number of updates made so far.
        updates: Updates over which the factor falls from 1 to ``final``; 0 for no schedule.
        final: Factor at the end.

    Returns:
        A factor of a weight, between 1 and ``final``.

    Example:
        >>> import jax.numpy as jnp
        >>> [round(float(linear(jnp.asarray(step), 10, 0.5)), 2) for step in (0, 5, 10, 20)]
        [1.0, 0.75, 0.5, 0.5]
    """
    length = jnp.asarray(updates)
    progress = jnp.minimum(step / jnp.maximum(length, 1), 1.0)
    return jnp.where(length > 0, 1 + (jnp.asarray(final) - 1) * progress, 1.0)


def for_run(algorithm: Learner, updates: int) -> Learner:
    """The learner with every schedule that spans the run set to the run's length.

    A learner lists in its attribute ``schedules`` the fields that are lengths of schedules, in
    calls of ``update``. A field that is ``WHOLE_RUN`` (-1) becomes the length of the run. Training
    loops call this before anything else.

    Args:
        algorithm: Learner with plain numbers as fields.
        updates: Critic gradient steps of the run.

    Returns:
        The learner; the same object if no schedule spans the run.

    Example:
        >>> from neorl_agents import IQL
        >>> for_run(IQL(decay_updates=-1), 5_000).decay_updates
        5000
    """
    names = [name for name in _schedules(algorithm) if _is_whole_run(getattr(algorithm, name))]
    if not names:
        return algorithm
    calls = updates // algorithm.batches_per_update  # pyright: ignore[reportAttributeAccessIssue]
    return replace(algorithm, **dict.fromkeys(names, calls))  # pyright: ignore[reportArgumentType]


def require_planned(algorithm: Any) -> None:
    """Refuses a schedule that spans the run if the run's length was never set.

    Raises:
        ValueError: If there is one; the message names the field and says what to do.
    """
    for name in _schedules(algorithm):
        if _is_whole_run(getattr(algorithm, name)):
            field = f"{type(algorithm).__name__}.{name}"
            raise ValueError(
                f"{field} is {WHOLE_RUN}, which stands for the length of the run, but that length "
                "is not known here; give a number, or call "
                "neorl_agents.learning.for_run(algorithm, updates) first"
            )


def unfinished_schedules(algorithm: Any, updates: int) -> list[str]:
    """The schedules that end before the run does, so that their network would stop changing.

    Args:
        algorithm: Learner with plain numbers as fields.
        updates: Critic gradient steps of the run.

    Returns:
        Names of the fields.
    """
    calls = updates // algorithm.batches_per_update
    return [name for name in _schedules(algorithm) if 0 < getattr(algorithm, name) < calls]


def _schedules(algorithm: Any) -> tuple[str, ...]:
    return algorithm.schedules


def _is_whole_run(value: Any) -> bool:
    return isinstance(value, int) and value == WHOLE_RUN
