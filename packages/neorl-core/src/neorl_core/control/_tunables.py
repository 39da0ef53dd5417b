"""The numbers of a controller that an engineer would turn, and the controller with others."""

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
        power: The change enters to this power, where it is a factor, or times this number.
    """

    leaf: str
    entries: tuple[int, ...]
    power: float = 1.0


class Tunable(NamedTuple):
    """One number of a controller that may be changed, and how far a first attempt goes.

    Attributes:
        name: What it is, as an engineer would say it.
        unit: Unit of its value; empty where that depends on the channels.
        moves: The numbers that change with it.
        value: The numbers whose product, each to its power, is its value; those with several
            entries count with their first.
        kind: ``"factor"`` multiplies the numbers, ``"shift"`` adds to them.
        step: Size of a first change: the logarithm of a factor; of a shift an amount in the unit of
            the numbers, or where ``channel`` names one, a part of that channel's standard deviation
            in a log.
        channel: Observation whose standard deviation ``step`` is a part of; -1 for none.
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
    """A controller that says which of its numbers may be changed."""

    def tunables(self, spec: Spec) -> tuple[Tunable, ...]:
        """The numbers, named by the channels of ``spec``; static."""
        ...


def tunables(controller: Any, spec: Spec) -> tuple[Tunable, ...]:
    """The numbers of a controller that may be changed.

    Args:
        controller: Controller with a method ``tunables(spec)``.
        spec: Channels, for the names.

    Raises:
        InputError: If the controller declares none.
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
    """The controller with changed numbers.

    A factor multiplies its numbers by ``exp(power * step * change)``, a shift adds
    ``power * step * change`` to them, so that changes of zero leave everything as it is.

    Args:
        controller: A tree of arrays.
        declared: Parameters as declared by :func:`tunables`; static.
        changes: One number for each, in steps; may be traced.
        spread: Standard deviation of every observation in a log, for shifts by a part of it.

    Returns:
        The same tree with other numbers.

    Raises:
        InputError: If a shift needs ``spread`` and there is none.

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
            controller = _moved(controller, number.kind, move, amount)
    return controller


def tunable_values(controller: Any, declared: Sequence[Tunable]) -> tuple[float, ...]:
    """The present value of every tunable number, on the host."""
    values = []
    for number in declared:
        value = 1.0
        for entry in number.value:
            leaf = np.asarray(_leaf(controller, entry.leaf), np.float64).ravel()
            value *= float(leaf[entry.entries[0]]) ** entry.power
        values.append(value)
    return tuple(values)


def inside(declared: Sequence[Tunable], attribute: str) -> tuple[Tunable, ...]:
    """The tunables of a part, as those of the controller that has it as ``attribute``."""

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


def _moved(controller: Controller, kind: str, move: Entry, amount: Array) -> Controller:
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
