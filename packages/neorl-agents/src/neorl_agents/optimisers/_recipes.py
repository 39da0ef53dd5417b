"""Published recipes of optimisers: rate, clip, epsilon and schedule of every part, by name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import optax

from neorl_core import InputError
from neorl_core.infrastructure import unknown_name

WHOLE = ""
"""The name of the only part if one optimiser moves all parameters."""


class Part(NamedTuple):
    """Optimiser of one part of the parameters: Adam after a clip of the global norm.

    Attributes:
        learning_rate: Learning rate at the start.
        clip: Largest global norm of the part's gradient; 0 for no clip.
        eps: Adam's epsilon.
    """

    learning_rate: float
    clip: float = 0.0
    eps: float = 1e-8


class Recipe(NamedTuple):
    """Optimisers of a learner's parameters.

    Attributes:
        parts: Optimiser of each parameter, by its name; the name ``""`` stands for one optimiser of
            all parameters, with one norm.
        decays: Whether the rates fall linearly to zero over all updates; if not, they are constant.
    """

    parts: Mapping[str, Part]
    decays: bool = False


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "ppo": Recipe({WHOLE: Part(2.5e-4, clip=0.5, eps=1e-5)}, decays=True),
        "sac": Recipe(
            {
                "actor": Part(3e-4, clip=1.0),
                "critics": Part(3e-4, clip=1.0),
                "log_temperature": Part(3e-4),
            }
        ),
        "td3": Recipe({"actor": Part(3e-4), "critics": Part(3e-4)}),
        "dqn": Recipe({WHOLE: Part(6.25e-5, clip=10.0, eps=1.5e-4)}),
    }
)
"""The recipes by name.

PPO's is that of Huang et al., The 37 implementation details of PPO (2022); SAC's and TD3's have the
rates of their authors, SAC's with a clip; DQN's is Rainbow's (arXiv 1710.02298) with a clip.
"""


def recipe_chain(
    name: str, *, updates: int, accumulate: int = 1
) -> optax.GradientTransformationExtraArgs:
    """One optax transformation of a dictionary of parameters, according to a recipe.

    If a recipe has several parts, ``optax.multi_transform`` gives each parameter its own chain, so
    that each has its own norm. The learners of this package instead use one optimiser for every
    parameter, from :data:`OPTIMISERS`.

    Args:
        name: Name of an entry of :data:`RECIPES`.
        updates: Updates over which the rates fall, if they do; positive.
        accumulate: Number of gradients averaged for one step (``optax.MultiSteps``); positive.

    Returns:
        A transformation of the whole dictionary. With ``accumulate`` above one the updates between
        two steps are zero, and ``updates`` counts steps.

    Raises:
        InputError: If there is no such recipe, or a number is not a positive integer.

    Example:
        >>> import jax.numpy as jnp
        >>> chain = recipe_chain("td3", updates=1000)
        >>> weights = {"actor": jnp.ones(2), "critics": jnp.ones(3)}
        >>> moves, _ = chain.update(weights, chain.init(weights), weights)
        >>> round(float(moves["actor"][0]), 6)
        -0.0003
    """
    if name not in RECIPES:
        raise unknown_name("recipe of an optimiser", name, RECIPES)
    for field, value in (("updates", updates), ("accumulate", accumulate)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{field} must be an integer of at least 1, got {value!r}")
    recipe = RECIPES[name]
    chains: dict[Any, Any] = {
        key: _chain(part, recipe.decays, updates) for key, part in recipe.parts.items()
    }
    whole = chains[WHOLE] if WHOLE in chains else optax.multi_transform(chains, _labels)
    if accumulate > 1:
        whole = optax.MultiSteps(whole, accumulate).gradient_transformation()
    return optax.with_extra_args_support(whole)


def _chain(part: Part, decays: bool, updates: int) -> optax.GradientTransformation:
    rate: Any = part.learning_rate
    if decays:
        rate = optax.linear_schedule(rate, 0.0, updates)
    adam = optax.adam(rate, eps=part.eps)
    return optax.chain(optax.clip_by_global_norm(part.clip), adam) if part.clip else adam


def _labels(parameters: Mapping[str, Any]) -> dict[str, str]:
    return {name: name for name in parameters}
