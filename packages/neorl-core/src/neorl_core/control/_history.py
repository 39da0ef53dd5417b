"""Memory of the recent past as pure steps that never cross an episode boundary."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Int, Shaped

from neorl_core._internal.checks import checked_integer


class HistoryWindow(NamedTuple):
    """The last values of the current episode.

    Attributes:
        values: Oldest first, shape ``(window, *shape)``; zeros before the first value.
        n_valid: How many of them belong to the current episode, scalar int32.
    """

    values: Shaped[Array, "window *shape"]
    n_valid: Int[Array, ""]


def history_window(example: Shaped[ArrayLike, "*shape"], *, length: int) -> HistoryWindow:
    """An empty window.

    Args:
        example: One value, which gives the shape and the dtype.
        length: Number of values to remember.

    Returns:
        The window before the first step.

    Raises:
        ValueError: If ``length`` is not a positive integer.

    Example:
        >>> history_window(0.0, length=2).values.shape
        (2,)
    """
    length = checked_integer("length", length, 1, "give the number of values that it holds")
    example = jnp.asarray(example)
    values = jnp.zeros((length, *example.shape), example.dtype)
    return HistoryWindow(values, jnp.zeros((), jnp.int32))


def history_step(
    window: HistoryWindow, value: Shaped[ArrayLike, "*shape"], *, first: Bool[ArrayLike, ""]
) -> tuple[HistoryWindow, tuple[Shaped[Array, "window *shape"], Bool[Array, " window"]]]:
    """Adds one value to the window: a step for ``scan``.

    Args:
        window: The window so far.
        value: Value of this step.
        first: Whether this step is the first of an episode; everything before it is then forgotten.

    Returns:
        The new window, and ``(values, mask)``: the values with the newest last. They are zero where
        the mask is false because the episode does not have that many steps yet.

    Raises:
        ValueError: If the shape of the value differs from that of the example, or its dtype does
            not convert to that of the example without loss.

    Example:
        >>> window = history_window(0.0, length=3)
        >>> window, _ = history_step(window, 5.0, first=True)
        >>> _, (values, mask) = history_step(window, 6.0, first=False)
        >>> values.tolist(), mask.tolist()
        ([0.0, 5.0, 6.0], [False, True, True])
    """
    value, length = _fitting(value, window.values), window.values.shape[0]
    previous = jnp.where(jnp.asarray(first, bool), jnp.zeros_like(window.values), window.values)
    values = jnp.concatenate([previous[1:], value[None]])
    n_valid = jnp.where(jnp.asarray(first, bool), 1, jnp.minimum(window.n_valid + 1, length))
    mask = jnp.arange(length - 1, -1, -1, dtype=jnp.int32) < n_valid
    return HistoryWindow(values, n_valid), (values, mask)


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
    value = _fitting(value, line.fill[None])
    previous = jnp.where(jnp.asarray(first, bool), line.fill[None], line.values)
    flow = jnp.concatenate([previous, value[None]])
    return line._replace(values=flow[1:]), flow[0]


def _fitting(value: ArrayLike, stack: Array) -> Array:
    value = jnp.asarray(value)
    if not _holds(stack, value):
        raise ValueError(
            f"a value must fit into {stack.dtype} without loss, got {value.dtype}; "
            f"start the window or line with {value.dtype}, or cast the value"
        )
    if value.shape != stack.shape[1:]:
        raise ValueError(
            f"a value must have shape {stack.shape[1:]}, got {value.shape}; "
            "start another window or line for it"
        )
    return value.astype(stack.dtype)


def _holds(stack: Array, value: Array) -> bool:
    """Whether converting the dtype loses nothing; a plain number may take any dtype of its kind."""
    if getattr(value, "weak_type", False):
        is_integer = jnp.issubdtype(value.dtype, jnp.integer)
        return jnp.issubdtype(stack.dtype, jnp.number if is_integer else jnp.inexact)
    return bool(np.can_cast(value.dtype, stack.dtype))
