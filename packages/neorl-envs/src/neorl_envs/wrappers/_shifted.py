"""A plant of the same kind whose constants differ from those behind the training data."""

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from neorl_core import Environment, InputError
from neorl_core.infrastructure import unknown_name
from neorl_envs.blocks._constants import named_constants
from neorl_envs.wrappers._base import Wrapper, check_params


class Shifted(Wrapper):
    """A plant whose constants are multiplied by given factors.

    Attributes:
        env: The wrapped plant.
        factors: Pairs of a constant's name and its factor.
    """

    factors: tuple[tuple[str, float], ...] = eqx.field(static=True, default=())

    def default_params(self, preset: str = "plant") -> Any:
        """Parameters without randomisation, shifted."""
        return self._moved(self.env.default_params(preset))

    def sample_params(
        self, key: PRNGKeyArray, *, preset: str = "plant", spread: float = 0.15
    ) -> Any:
        """Samples the parameters of one episode, shifted."""
        return self._moved(self.env.sample_params(key, preset=preset, spread=spread))

    def _moved(self, params: Any) -> Any:
        factors = dict(self.factors)
        names = iter([name for name, _, _ in named_constants(self.env.constants)])

        def moved(value: Array) -> Array:
            return value * jnp.asarray(factors.get(next(names), 1.0), value.dtype)

        return self.env.with_constants(params, jax.tree.map(moved, params.constants))


def shifted(env: Environment, factors: Mapping[str, float]) -> Shifted:
    """Changes the constants of a plant, so that it differs from the one a policy was trained on.

    Args:
        env: A :class:`neorl_envs.plants.SimulatedPlant`; apply other wrappers to the result.
        factors: Factor of each constant to change, by name.

    Returns:
        A plant with the same interface.

    Raises:
        InputError: If a constant is unknown (the message suggests the nearest name), a factor is
            not finite, or the plant declares no constants.
        ValueError: If a shifted constant is physically impossible; its name and unit are given.
    """
    declared = getattr(env, "constants", None)
    if declared is None:
        raise InputError("only a plant that declares its constants can be shifted")
    known = [name for name, _, _ in named_constants(declared)]
    for name, factor in factors.items():
        if name not in known:
            raise unknown_name("constant", name, known)
        if not math.isfinite(factor):
            raise InputError(f"the factor of {name!r} must be finite, got {factor}")
    new = Shifted(env, tuple((name, float(factor)) for name, factor in factors.items()))
    check_params(env, new.default_params())
    return new
