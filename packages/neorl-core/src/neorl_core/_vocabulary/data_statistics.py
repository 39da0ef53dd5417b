"""Summary of a training split, computed in one pass; every learner is initialised with it."""

from typing import NamedTuple

from jaxtyping import Array, Float


class FieldStatistics(NamedTuple):
    """Count, mean, standard deviation and range of one field, channel by channel.

    Attributes:
        count: Number of rows included, scalar float.
        mean: Shape ``(channel,)``, or ``()`` for a scalar field; physical units.
        std: Population standard deviation, same shape.
        min: Minimum, same shape.
        max: Maximum, same shape.
    """

    count: Float[Array, ""]
    mean: Float[Array, " *channel"]
    std: Float[Array, " *channel"]
    min: Float[Array, " *channel"]
    max: Float[Array, " *channel"]


class DataStatistics(NamedTuple):
    """Statistics of every field of a training split.

    Attributes:
        obs: Statistics of ``obs``, shapes ``(obs,)``.
        action: Statistics of ``action``, shapes ``(act,)``.
        reward: Statistics of ``reward``, scalars.
        cost: Statistics of ``cost``, shapes ``(cost,)``; may be of length zero.
        episode_return: Statistics of the undiscounted returns of the episodes, scalars.
        episode_length: Statistics of the lengths of the episodes in steps, scalars.
        terminated: Statistics of whether the plant ended the episode at a row, as 0 and 1, scalars;
            ``None`` if that is not known.
    """

    obs: FieldStatistics
    action: FieldStatistics
    reward: FieldStatistics
    cost: FieldStatistics
    episode_return: FieldStatistics
    episode_length: FieldStatistics
    terminated: FieldStatistics | None = None
