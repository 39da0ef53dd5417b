"""A simulated plant with other constants: the same equipment at another site."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from neorl_core import InputError
from neorl_core.infrastructure import unknown_name
from neorl_envs import make
from neorl_envs.blocks import Constant
from neorl_envs.plants import Plant, SimulatedPlant


def changed_plant(name: str, factors: Mapping[str, float]) -> Plant:
    """The named plant with some of its declared constants multiplied by factors.

    Its controllers are those of the plant as declared, as if a design had been copied. The same
    factors give the same object, so that its compiled programs are reused.

    Raises:
        InputError: If the plant declares no constants, or none of that name, or a value is
            physically impossible.
    """
    return _change(name, tuple(sorted(factors.items())))


@functools.cache
def _change(name: str, factors: tuple[tuple[str, float], ...]) -> Plant:
    plant = make(name)
    if not factors:
        return plant
    declared = getattr(type(plant), "constants", None)
    if not isinstance(plant, SimulatedPlant) or not hasattr(declared, "_replace"):
        raise InputError(
            f"data.constants is given, but the constants of {name} cannot be changed individually; "
            "leave data.constants out"
        )
    fields: Any = declared
    changed = {}
    for constant, factor in factors:
        original = getattr(fields, constant, None)
        if not isinstance(original, Constant):
            known = [name for name in fields._fields if isinstance(getattr(fields, name), Constant)]
            raise unknown_name(f"constant of {name} in data.constants", constant, known)
        if not math.isfinite(factor):
            raise InputError(f"data.constants.{constant} must be a finite factor, got {factor}")
        scaled = jax.tree.map(lambda value, by=factor: value * by, original.value)
        changed[constant] = dataclasses.replace(original, value=scaled)
    kind: Any = type(type(plant).__name__, (type(plant),), {
        "constants": fields._replace(**changed),
        "__module__": type(plant).__module__,
        "__doc__": f"{name} with other constants.",
    })  # fmt: skip
    other = kind(**{field.name: getattr(plant, field.name) for field in dataclasses.fields(plant)})
    try:
        other.check_params(other.default_params())
    except ValueError as error:
        raise InputError(f"data.constants: {error}") from error
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(other.default_params())):
        raise InputError(
            f"data.constants lead to parameters of {name} that are not finite; choose "
            "smaller factors"
        )
    return other
