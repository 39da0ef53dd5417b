"""A step of a named optimiser, with the learning rate as an argument."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from neorl_agents.optimisers._table import OPTIMISERS
from neorl_core import as_arrays

Parameters = TypeVar("Parameters")


def init_optimiser(
    name: str, parameters: Any, learning_rate: float | Float[Array, ""]
) -> optax.OptState:
    """The state of an optimiser before its first step; every leaf is an array.

    Args:
        name: Name of an entry of :data:`OPTIMISERS`.
        parameters: A PyTree of arrays.
        learning_rate: Learning rate; positive.

    Returns:
        A PyTree of arrays of strong dtype.

    Raises:
        InputError: If there is no such optimiser; the message suggests the nearest name.
    """
    return as_arrays(OPTIMISERS.find(name)(jnp.asarray(learning_rate)).init(parameters))


def descend(
    name: str,
    parameters: Parameters,
    state: optax.OptState,
    gradient: Parameters,
    learning_rate: float | Float[Array, ""],
) -> tuple[Parameters, optax.OptState]:
    """Takes one step of ``parameters`` down ``gradient``.

    The rate is an argument of the step, not of an optimiser: it may be traced, scheduled or swept
    by ``vmap`` without another compilation.

    Args:
        name: Name of an entry of :data:`OPTIMISERS`; static.
        parameters: A PyTree of arrays.
        state: State from :func:`init_optimiser` or the last step.
        gradient: Same structure as ``parameters``.
        learning_rate: Learning rate; positive.

    Returns:
        New parameters, and a state of the same form as ``state``.

    Raises:
        InputError: If there is no such optimiser; the message suggests the nearest name.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from neorl_agents.optimisers import descend, init_optimiser
        >>> x = jnp.asarray([1.0, -2.0])
        >>> state = init_optimiser("adam", x, 0.1)
        >>> x, state = descend("adam", x, state, gradient=2 * x, learning_rate=0.1)
        >>> print(jax.device_get(x).round(3))
        [ 0.9 -1.9]
    """
    transformation = OPTIMISERS.find(name)(jnp.asarray(learning_rate))
    tree: Any = parameters
    updates, new_state = transformation.update(gradient, state, tree)  # pyright: ignore[reportArgumentType]
    new_parameters: Any = optax.apply_updates(tree, updates)
    return new_parameters, jax.tree.map(_as_dtype_of, new_state, state)


def minimise(
    name: str,
    loss: Callable[..., tuple[Float[Array, ""], Any]],
    parameters: Parameters,
    state: optax.OptState,
    learning_rate: float | Float[Array, ""],
    *data: Any,
) -> tuple[Parameters, optax.OptState, Float[Array, ""], Any]:
    """Takes one step down the gradient of ``loss(parameters, *data)`` in its parameters.

    Args:
        name: Name of an entry of :data:`OPTIMISERS`; static.
        loss: Function that returns a scalar, and any further result that is needed, or ``None``.
        parameters: A PyTree of arrays.
        state: State from :func:`init_optimiser` or the last step.
        learning_rate: Learning rate; positive.
        *data: Further arguments of the loss.

    Returns:
        New parameters and state, the loss before the step, and the further result of the loss.

    Raises:
        TypeError: If the loss does not return two results, the first of which is a scalar.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from neorl_agents.optimisers import init_optimiser, minimise
        >>> def square(x, middle):
        ...     return jnp.sum((x - middle) ** 2), x
        >>> x = jnp.asarray([1.0, -2.0])
        >>> state = init_optimiser("adam", x, 0.1)
        >>> x, state, loss, before = minimise("adam", square, x, state, 0.1, 0.0)
        >>> print(jax.device_get(x).round(3), float(loss))
        [ 0.9 -1.9] 5.0
    """
    of_two = partial(_two_results, loss)
    (value, aux), gradient = jax.value_and_grad(of_two, has_aux=True)(parameters, *data)
    new_parameters, new_state = descend(name, parameters, state, gradient, learning_rate)
    return new_parameters, new_state, value, aux


def _two_results(
    loss: Callable[..., tuple[Float[Array, ""], Any]], parameters: Any, *data: Any
) -> tuple[Float[Array, ""], Any]:
    """What the loss returns, if that is a scalar and a further result."""
    answer = loss(parameters, *data)
    if not isinstance(answer, tuple) or len(answer) != 2:
        parts = f"{len(answer)} results" if isinstance(answer, tuple) else "one result"
        raise TypeError(
            "a loss must return two results, the loss and whatever else is needed "
            f"(`return loss, None` if nothing is), got {parts}"
        )
    if jnp.shape(answer[0]) != ():
        raise TypeError(
            "a loss must be one number, such as masked_mean(losses, rows.mask), "
            f"got shape {jnp.shape(answer[0])}"
        )
    return answer


def _as_dtype_of(new_state: Array, old: Array) -> Array:
    # A transformation may return weak dtypes; keeping strong ones avoids another compilation.
    return jnp.asarray(new_state, old.dtype)
