"""Controllers that a configuration declares, with the numbers that the control system shows."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from neorl_agents.classical import CLASSICAL, DeclaredLoop, declared_bank
from neorl_core import InputError, Policy, Spec, Transition
from neorl_core.infrastructure import Binder

Records = Sequence[Mapping[str, Any]]
"""The loops of one controller as a file states them."""


def declared_loops(name: str, records: Records) -> tuple[DeclaredLoop, ...]:
    """The loops of a declared controller.

    Args:
        name: Name of the controller.
        records: The tables ``[[classical.declared.NAME]]``.

    Raises:
        InputError: If there is no loop, a key is missing or unknown, or a value is invalid.
    """
    where = f"classical.declared.{name}"
    if not records:
        raise InputError(f"{where} has no loop; write each as a table [[{where}]]")
    several = tuple[DeclaredLoop, ...]
    return _in(where, lambda: Binder().bound(several, list(records), where))


def declared_controller(
    name: str, records: Records, spec: Spec, log: Transition | None = None
) -> Policy:
    """A declared controller as a policy for the channels of a run.

    Args:
        name: Name of the controller.
        records: The tables ``[[classical.declared.NAME]]``.
        spec: Channels.
        log: Training episodes, from which loops that declare no bias take it; ``None`` for none.

    Raises:
        InputError: If the loops do not fit the channels.
    """
    loops = declared_loops(name, records)
    return _in(f"classical.declared.{name}", lambda: declared_bank(loops, spec, log))


def check_declared(declared: Mapping[str, Records]) -> None:
    """Refuses declared controllers that are invalid without regard to any channels.

    Args:
        declared: The section ``classical.declared``.

    Raises:
        InputError: If a name belongs to something else, or a loop is invalid.
    """
    for name, records in declared.items():
        if not re.fullmatch(r"[\w. +()-]+", name):  # it also names a file
            raise InputError(
                f"classical.declared has the name {name!r}, which also names a file; use letters, "
                "digits, spaces and the characters _ . + ( ) -"
            )
        if name in CLASSICAL:
            raise InputError(
                f"classical.declared has {name}, which is the name of a controller that is fitted "
                "on a log; give the declared one another name"
            )
        declared_loops(name, records)


def _in(where: str, build: Callable[[], Any]) -> Any:
    """What a function returns; its error names the place in the configuration."""
    try:
        return build()
    except InputError as error:
        text = str(error)
        raise InputError(text if where in text else f"{where}: {text}") from None
