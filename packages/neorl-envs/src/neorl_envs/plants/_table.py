"""Environments by name."""

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from neorl_envs.plants.chemical_reactor._env import ChemicalReactor

ENVIRONMENTS: Mapping[str, Callable[[], Any]] = {
    ChemicalReactor.name: ChemicalReactor,
}
"""Every environment; an entry here is made, listed, registered with Gymnasium and tested."""


def environment_names() -> tuple[str, ...]:
    """The names that :func:`make` knows.

    Example:
        >>> environment_names()
        ('ChemicalReactor-v0',)
    """
    return tuple(ENVIRONMENTS)


def make(name: str) -> Any:
    """The environment of that name.

    Args:
        name: For example ``"ChemicalReactor-v0"``.

    Returns:
        A frozen environment without array fields: hashable, so it may be a static argument.

    Raises:
        ValueError: If the name is unknown; the nearest known one is given.

    Example:
        >>> make("ChemicalReactor-v0").spec.n_obs
        12
    """
    if name in ENVIRONMENTS:
        return ENVIRONMENTS[name]()
    by_lower = {known.lower(): known for known in ENVIRONMENTS}
    near = difflib.get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.0)
    hint = f"did you mean {by_lower[near[0]]!r}? " if near else ""
    raise ValueError(f"unknown environment {name!r}; {hint}known: {', '.join(ENVIRONMENTS)}")
