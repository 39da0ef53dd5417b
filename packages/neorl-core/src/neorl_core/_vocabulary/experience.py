"""Containers of experience and its summary, whose fields are all arrays."""

from typing import Any, NamedTuple, TypeAlias

from jaxtyping import Array, Bool, Float

# Containers of experience, whose fields are all arrays.


class Transition(NamedTuple):
    """One step of experience, or many along leading axes. Physical units throughout.

    Bootstrapping multiplies by ``1 - terminated`` only: a truncated step bootstraps from its own
    ``next_obs``. The last row of every contiguous piece of a log is marked truncated. A field that
    a learner does not need may be ``None``, which adds no leaf to the tree; every field but the
    first three defaults to ``None``.

    Attributes:
        obs: Observation before the action, shape ``(..., obs)``.
        action: The action that the plant received, shape ``(..., act)``.
        reward: Shape ``(...,)``.
        cost: Cost vector, shape ``(..., cost)``; the last axis may have length zero.
        next_obs: Observation after the action, shape ``(..., obs)``; never that of a reset.
        next_action: The following action of the same episode; zero and unused where
            ``terminated | truncated``.
        terminated: The plant ended the episode (trip or success); nothing follows.
        truncated: The record ended here, although the plant went on.
        mask: Row mask; a row where it is false enters no loss and no statistic. ``None`` masks
            nothing.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> row = Transition(jnp.ones(2), jnp.ones(1), jnp.ones(()), next_obs=jnp.ones(2))
        >>> len(jax.tree.leaves(row)), row.mask
        (4, None)
    """

    obs: Float[Array, "*batch obs"]
    action: Float[Array, "*batch act"]
    reward: Float[Array, " *batch"]
    cost: Float[Array, "*batch cost"] | None = None
    next_obs: Float[Array, "*batch obs"] | None = None
    next_action: Float[Array, "*batch act"] | None = None
    terminated: Bool[Array, " *batch"] | None = None
    truncated: Bool[Array, " *batch"] | None = None
    mask: Bool[Array, " *batch"] | None = None


Trajectory: TypeAlias = Transition
"""A :class:`Transition` that holds one episode, with time as the first axis."""


class Step(NamedTuple):
    """The result of one environment step.

    Attributes:
        obs: The observation to act on next, shape ``(obs,)``.
        final_obs: The observation of this transition; differs from ``obs`` only after an
            automatic reset.
        reward: Scalar.
        cost: Shape ``(cost,)``.
        applied: The action after the plant's own limits, shape ``(act,)``; a collector
            records it, and ``Policy.sent`` receives it.
        terminated: The plant ended the episode.
        truncated: The time limit ended the episode.
        info: A NamedTuple of arrays that the environment defines, or ``()``.
    """

    obs: Float[Array, " obs"]
    final_obs: Float[Array, " obs"]
    reward: Float[Array, ""]
    cost: Float[Array, " cost"]
    applied: Float[Array, " act"]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    info: Any


# Summary of a training split, computed in one pass; every learner is initialised with it.


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
        kept_return: ``episode_return`` of the episodes that kept every cost limit, with a count of
            zero if none did; ``None`` if that is not known.
    """

    obs: FieldStatistics
    action: FieldStatistics
    reward: FieldStatistics
    cost: FieldStatistics
    episode_return: FieldStatistics
    episode_length: FieldStatistics
    terminated: FieldStatistics | None = None
    kept_return: FieldStatistics | None = None
