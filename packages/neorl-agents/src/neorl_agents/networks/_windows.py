"""The recent past of a row, as a log holds it and as networks see it."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

FLAGS = 2
"""Length of a step beyond its channels: flags for whether observation and action are known."""


class Window(NamedTuple):
    """The last steps up to an observation, oldest first, each with the action before it.

    A step is unknown if the episode had not begun, its row is masked, or its observation is not
    finite; the action after an unknown step is unknown too. Unknown values are zero.

    Attributes:
        obs: Shape ``(*batch, step, obs)``.
        action: The action applied before each observation, shape ``(*batch, step, act)``.
        obs_known: Shape ``(*batch, step)``.
        action_known: Shape ``(*batch, step)``.
    """

    obs: Float[Array, "*batch step obs"]
    action: Float[Array, "*batch step act"]
    obs_known: Bool[Array, "*batch step"]
    action_known: Bool[Array, "*batch step"]


def step_features(
    obs: Float[Array, "*batch obs"],
    action: Float[Array, "*batch act"],
    obs_known: Bool[Array, "*batch"],
    action_known: Bool[Array, "*batch"],
) -> Float[Array, "*batch feature"]:
    """Network inputs of one step: ``[obs, action, obs_known, action_known]``.

    Args:
        obs: Observation in scaled units; its value is ignored if it is unknown.
        action: Action in [-1, 1]; its value is ignored if it is unknown.
        obs_known: Whether the observation is known; if not, it becomes zero, the mean of the log.
        action_known: Whether the action is known; if not, it becomes zero, the middle of its range.

    Returns:
        ``obs + act + 2`` numbers for each step.
    """
    obs_flag, action_flag = obs_known[..., None], action_known[..., None]
    flags = jnp.concatenate([obs_flag, action_flag], axis=-1).astype(obs.dtype)
    return jnp.concatenate(
        [jnp.where(obs_flag, obs, 0), jnp.where(action_flag, action, 0), flags], axis=-1
    )
