"""Values in transit, as pure steps that never cross an episode boundary."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Shaped

from neorl_core._internal.checks import checked_integer


class DelayLine(NamedTuple):
    """Values in transit: each value comes out a fixed number of steps after it went in.

    Attributes:
        values: Oldest first, shape ``(delay, *shape)``.
        fill: Value that comes out before the first one of an episode arrives, shape ``(*shape)``.
    """

    values: Shaped[Array, "delay *shape"]
    fill: Shaped[Array, "*shape"]


def delay_line(fill: Shaped[ArrayLike, "*shape"], *, delay: int) -> DelayLine:
    """A line filled with one value.

    Args:
        fill: Value that comes out in the first ``delay`` steps of every episode.
        delay: Number of steps; 0 passes every value through in the same step.

    Returns:
        The line before the first step.

    Raises:
        ValueError: If ``delay`` is not an integer >= 0.

    Example:
        >>> delay_line(0.5, delay=2).values.tolist()
        [0.5, 0.5]
    """
    delay = checked_integer("delay", delay, 0, "give 0 for no delay")
    fill = jnp.asarray(fill)
    return DelayLine(jnp.broadcast_to(fill[None], (delay, *fill.shape)), fill)


def delay_step(
    line: DelayLine, value: Shaped[ArrayLike, "*shape"], *, first: Bool[ArrayLike, ""]
) -> tuple[DelayLine, Shaped[Array, "*shape"]]:
    """Puts one value in and takes one out: a step for ``scan``.

    Args:
        line: The delay line so far.
        value: Value of this step.
        first: Whether this step is the first of an episode; the line is then refilled with
            ``fill``.

    Returns:
        The new line, and the value put in ``delay`` steps ago in this episode, or the fill.

    Raises:
        ValueError: If the shape of the value differs from that of the fill, or its dtype does not
            convert to that of the fill without loss.

    Example:
        >>> line = delay_line(0.0, delay=1)
        >>> line, out = delay_step(line, 5.0, first=True)
        >>> line, later = delay_step(line, 6.0, first=False)
        >>> float(out), float(later)
        (0.0, 5.0)
    """
    value = _fitting(value, line.fill)
    previous = jnp.where(jnp.asarray(first, bool), line.fill[None], line.values)
    flow = jnp.concatenate([previous, value[None]])
    return line._replace(values=flow[1:]), flow[0]


def _fitting(value: ArrayLike, fill: Array) -> Array:
    value = jnp.asarray(value)
    if not _holds(fill, value):
        raise ValueError(
            f"a value must fit into {fill.dtype} without loss, got {value.dtype}; "
            f"start the line with {value.dtype}, or cast the value"
        )
    if value.shape != fill.shape:
        raise ValueError(
            f"a value must have shape {fill.shape}, got {value.shape}; start another line for it"
        )
    return value.astype(fill.dtype)


def _holds(fill: Array, value: Array) -> bool:
    """Whether converting the dtype loses nothing; a plain number may take any dtype of its kind."""
    if getattr(value, "weak_type", False):
        is_integer = jnp.issubdtype(value.dtype, jnp.integer)
        return jnp.issubdtype(fill.dtype, jnp.number if is_integer else jnp.inexact)
    return bool(np.can_cast(value.dtype, fill.dtype))
