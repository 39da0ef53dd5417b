"""The optimisers by name: those of the package, registered ones, and those from entry points."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from neorl_core import as_arrays
from neorl_core.infrastructure import Registry

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
