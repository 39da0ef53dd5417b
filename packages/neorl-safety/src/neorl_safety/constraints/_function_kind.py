"""Functions of observation and action, as a kind of constraint."""

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core import InputError
from neorl_safety.constraints._linear import malformed_rows
from neorl_safety.constraints._protocol import Channels, Record, Rows, Situation

Function = Callable[[Any, Array, Array], Array]


class Tier(enum.StrEnum):
    """How binding a requirement is."""

    HARD = "hard"
    """The filter enforces it; if it is violated with the filter on, a safety report fails."""
    SOFT = "soft"
    """Counted and penalised, but may be violated."""
    PREFERENCE = "preference"
    """Only counted."""


class Requirement(eqx.Module):
    """``function(parameters, obs, action) <= 0``; built by :func:`requirement`.

    Attributes:
        parameters: A PyTree of arrays.
        weight: Penalty per unit of excess, scalar; zero for a preference.
        function: Module-level function; static.
        name: Its name in reports; static.
        unit: Unit of the excess; static.
        tier: How binding it is; static.
    """

    parameters: Any
    weight: Float[Array, ""]
    function: Function = eqx.field(static=True)
    name: str = eqx.field(static=True)
    unit: str = eqx.field(static=True)
    tier: Tier = eqx.field(static=True)


class FunctionKind:
    """Hard requirements as rows; they have no records, because code cannot be stored as data."""

    def to_records(
        self, channels: Channels, constraint: Sequence[Requirement]
    ) -> Sequence[Mapping[str, Any]]:
        """Not supported: always an :class:`InputError`."""
        names = ", ".join(repr(requirement.name) for requirement in constraint)
        raise InputError(
            f"the requirements {names} are Python functions and cannot be written to a file: "
            "declare them as linear or barrier records, or install a kind of constraint by an "
            "entry point"
        )

    def from_records(self, channels: Channels, records: Sequence[Record]) -> NoReturn:
        """Not supported: always an :class:`InputError`."""
        raise InputError(
            f"{records[0].where if records else 'function'}: a Python function cannot be read from "
            "a file; declare a linear or barrier record"
        )

    def describe(self, channels: Channels, constraint: Sequence[Requirement]) -> list[str]:
        """For example ``"dose at most 0 kg over its limit"``."""
        return [f"requirement {one.name} satisfied, in {one.unit}" for one in constraint]

    def lower(self, constraint: Sequence[Requirement], situation: Situation) -> Rows:
        """``grad g(start) u <= grad g(start) start - g(start)``, exact if ``g`` is affine."""
        rows, bounds = [], []
        for requirement in constraint:
            value, gradient = jax.value_and_grad(requirement.function, argnums=2)(
                requirement.parameters, situation.obs, situation.start
            )
            rows.append(gradient)
            bounds.append(jnp.sum(gradient * situation.start) - value)
        coefficients, limits = jnp.stack(rows), jnp.stack(bounds)
        return Rows(coefficients, limits, malformed_rows(coefficients, limits))
