"""Gradient steps by optax, and the extensible table of optimisers by name."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from neorl_core import as_arrays
from neorl_core.infrastructure import Registry

__all__ = ["OPTIMISERS", "Optimiser", "descend", "init_optimiser", "minimise"]

# The optimisers by name: those of the package, registered ones, and those from entry points.


Optimiser = Callable[[Float[Array, ""]], optax.GradientTransformation]
"""Function from a learning rate, which may be traced, to a transformation of gradients."""

_ADVICE = (
    "the learning rate is traced, so that several rates can run side by side, and no `if` may "
    "depend on it; for a schedule, multiply the rate by a schedule of height 1: "
    "optax.chain(optax.adam(rate), optax.scale_by_schedule(shape))"
)


def _check_optimiser(name: str, entry: Any) -> None:
    """Takes one abstract step with ``entry``; nothing is computed.

    Raises a ``TypeError`` if it is not a function from a rate to an optax transformation whose
    state keeps its form.
    """
    if not callable(entry):
        raise TypeError(
            "expected a function from a learning rate to an optax.GradientTransformation, got a "
            f"{type(entry).__name__}"
        )
    number, vector = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((), (3,)))
    parameters = {"weight": vector, "scale": number}

    def step(rate: Array, gradient: Any) -> tuple[Any, Any, Any]:
        transformation = entry(rate)
        if not isinstance(transformation, optax.GradientTransformation):
            raise TypeError(
                "expected it to return an optax.GradientTransformation, got a "
                f"{type(transformation).__name__}"
            )
        state = as_arrays(transformation.init(gradient))
        updates, new = transformation.update(gradient, state, gradient)
        return updates, state, new

    try:
        updates, state, new = jax.eval_shape(step, number, parameters)
    except jax.errors.ConcretizationTypeError:
        raise TypeError(_ADVICE) from None
    if jax.tree.structure(updates) != jax.tree.structure(parameters):
        raise TypeError("its updates must have the structure of the parameters")
    if _form(state) != _form(new):
        raise TypeError("its state must keep structure and shapes from step to step")


def _form(tree: Any) -> tuple[Any, list[tuple[int, ...]]]:
    return jax.tree.structure(tree), [leaf.shape for leaf in jax.tree.leaves(tree)]


def _ppo(rate: Float[Array, ""]) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(0.5), optax.adam(rate, eps=1e-5))


def _sac(rate: Float[Array, ""]) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))


def _dqn(rate: Float[Array, ""]) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(10.0), optax.adam(rate, eps=1.5e-4))


def _dt(rate: Float[Array, ""]) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(0.25), optax.adamw(rate, weight_decay=1e-4))


OPTIMISERS: Registry[Optimiser] = Registry(
    "neorl.optimisers",
    "optimiser",
    {"adam": optax.adam, "ppo": _ppo, "sac": _sac, "iqn": _sac, "dqn": _dqn, "dt": _dt},
    _check_optimiser,
)
"""Every optimiser by the name that configurations use; other packages can add to this mapping.

``"adam"`` is that of Kingma and Ba (arXiv 1412.6980) with ``b1 = 0.9``, ``b2 = 0.999`` and
``e = 1e-8``. The others clip the global norm of the gradient before it: ``"ppo"`` at 0.5, with
``e = 1e-5``; ``"sac"`` and ``"iqn"`` at 1; ``"dqn"`` at 10, with ``e = 1.5e-4``; ``"dt"`` at 0.25,
with a weight decay of 1e-4. PPO's is that of Huang et al., The 37 implementation details of PPO
(2022), DQN's is Rainbow's (arXiv 1710.02298) with a clip. A distribution adds its own through the
entry points ``neorl.optimisers``, a script through ``OPTIMISERS.register``. An entry may be
anything that optax can chain: clipping, weight decay, schedules.
"""


# A step of a named optimiser, with the learning rate as an argument.


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
