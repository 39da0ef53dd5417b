"""Declaring the parameters of a controller that an engineer would tune, and changing them."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from neorl_core._internal.checks import require_each
from neorl_core._vocabulary.channels import Spec
from neorl_core._vocabulary.errors import InputError

Controller = TypeVar("Controller")


class Entry(NamedTuple):
    """Some numbers of one array of a controller.

    Attributes:
        leaf: Path of attributes to the array, such as ``"feedback.kp"``.
        entries: Indices into the array laid flat.
        power: Exponent of the change if it is a factor, multiplier of the change if it is a shift.
    """

    leaf: str
    entries: tuple[int, ...]
    power: float = 1.0


class Tunable(NamedTuple):
    """One parameter of a controller that may be tuned, and the size of a first change.

    Attributes:
        name: Name of the parameter, in an engineer's words.
        unit: Unit of its value; empty if that depends on the channels.
        moves: The numbers that change with the parameter.
        value: The numbers whose product, each raised to its power, is the value of the parameter;
            only the first index of each entry is used.
        kind: ``"factor"`` multiplies the numbers, ``"shift"`` adds to them.
        step: Size of a first change. For a factor it is the logarithm of the factor. For a shift it
            is an amount in the unit of the numbers or, if ``channel`` names an observation, a
            fraction of its standard deviation in a log.
        channel: Observation whose standard deviation scales ``step``; -1 for none.
    """

    name: str
    unit: str
    moves: tuple[Entry, ...]
    value: tuple[Entry, ...]
    kind: Literal["factor", "shift"]
    step: float
    channel: int = -1


@runtime_checkable
class TunableController(Protocol):
    """A controller that declares which of its parameters may be tuned."""

    def tunables(self, spec: Spec) -> tuple[Tunable, ...]:
        """The tunable parameters, named by the channels of ``spec``; static."""
        ...


def tunables(controller: Any, spec: Spec) -> tuple[Tunable, ...]:
    """The tunable parameters of a controller.

    Args:
        controller: Controller with a method ``tunables(spec)``.
        spec: Channels, which provide the names.

    Raises:
        InputError: If the controller declares no tunable parameters.
    """
    declared = controller.tunables(spec) if isinstance(controller, TunableController) else ()
    if not declared:
        raise InputError(
            f"{type(controller).__name__} declares no number that may be tuned; give it a method "
            "tunables(spec) that returns neorl_core.control.Tunable entries"
        )
    return declared


def tuned(
    controller: Controller,
    declared: Sequence[Tunable],
    changes: Float[Array, " tunable"],
    *,
    spread: Float[ArrayLike, " obs"] | None = None,
) -> Controller:
    """The controller with changed parameters.

    A factor multiplies its numbers by ``exp(power * step * change)``, a shift adds
    ``power * step * change`` to them, so that changes of zero leave everything as it is.

    Args:
        controller: A controller that is a PyTree of arrays.
        declared: Parameters as declared by :func:`tunables`; static.
        changes: One change for each parameter, in units of its ``step``; may be traced.
        spread: Standard deviation of every observation in a log, needed if a shift is a fraction of
            one.

    Returns:
        The same tree with changed numbers.

    Raises:
        InputError: If a shift needs ``spread`` and it is missing.

    Example:
        >>> import jax.numpy as jnp
        >>> from neorl_core.control import BaseStock
        >>> law = BaseStock(jnp.ones(1) * 50, jnp.ones((1, 1)), jnp.zeros(1), jnp.ones(1) * 99)
        >>> level = Tunable("level", "", (Entry("level", (0,)),), (), "shift", 5.0)
        >>> tuned(law, (level,), jnp.asarray([2.0])).level.tolist()
        [60.0]
    """
    require_each("changes", changes, len(declared), "tunables")
    for number, change in zip(declared, jnp.asarray(changes), strict=True):
        if number.channel >= 0:
            if spread is None:
                raise InputError(f"{number.name} is shifted by a part of a spread; give spread")
            change = change * jnp.asarray(spread)[number.channel]
        for move in number.moves:
            amount = change * number.step * move.power
            controller = _move(controller, number.kind, move, amount)
    return controller


def tunable_values(controller: Any, declared: Sequence[Tunable]) -> tuple[float, ...]:
    """The current value of every tunable parameter, computed on the host."""
    values = []
    for number in declared:
        value = 1.0
        for entry in number.value:
            leaf = np.asarray(_leaf(controller, entry.leaf), np.float64).ravel()
            value *= float(leaf[entry.entries[0]]) ** entry.power
        values.append(value)
    return tuple(values)


def inside(declared: Sequence[Tunable], attribute: str) -> tuple[Tunable, ...]:
    """The tunables of a part, renamed for a controller that holds the part as ``attribute``."""

    def of_whole(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        return tuple(entry._replace(leaf=f"{attribute}.{entry.leaf}") for entry in entries)

    return tuple(
        number._replace(moves=of_whole(number.moves), value=of_whole(number.value))
        for number in declared
    )


def _leaf(controller: Any, path: str) -> Any:
    for name in path.split("."):
        controller = getattr(controller, name)
    return controller


def _move(controller: Controller, kind: str, move: Entry, amount: Array) -> Controller:
    leaf = jnp.asarray(_leaf(controller, move.leaf))
    chosen = np.zeros(leaf.size, bool)
    chosen[list(move.entries)] = True
    amount = amount.astype(leaf.dtype)
    flat = leaf.ravel()
    changed = flat * jnp.exp(amount) if kind == "factor" else flat + amount
    flat = jnp.where(chosen, changed, flat)
    return _with_leaf(controller, move.leaf, flat.reshape(leaf.shape))


def _with_leaf(tree: Any, path: str, leaf: Array) -> Any:
    name, _, rest = path.partition(".")
    new = _with_leaf(getattr(tree, name), rest, leaf) if rest else leaf
    if isinstance(tree, tuple):
        return tree._replace(**{name: new})  # pyright: ignore[reportAttributeAccessIssue]
    return dataclasses.replace(tree, **{name: new})
