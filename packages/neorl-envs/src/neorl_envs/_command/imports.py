"""Import of objects named as MODULE:NAME: plants and policies of a user's own modules."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_envs.plants._protocol import check_plant
from neorl_envs.plants._table import make


def imported(name: str, made: Callable[[Any], Any]) -> Any:
    """Applies a function to an object that is named as MODULE:NAME.

    Modules in the current folder are found, as ``python -m`` finds them.
    """
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        return made(getattr(importlib.import_module(module), attribute))
    finally:
        sys.path.remove(here)


def named_plant(name: str) -> Any:
    """The plant of ``neorl-envs list``, or what a class or function of MODULE:NAME makes.

    Raises:
        InputError: If there is none of that name, or it cannot be made.
    """
    if ":" not in name:
        try:
            return make(name)
        except InputError as error:
            hint = "one of your own is MODULE:CLASS, such as my_package.tank:QuadrupleTank"
            raise InputError(f"{error}; {hint}") from None
    try:
        return imported(name, lambda factory: factory())
    except Exception as error:
        raise InputError(f"{name} cannot be made: {type(error).__name__}: {error}") from error


def complete_plant(name: str) -> Any:
    """The plant of that name, with all members that a command may ask for.

    Raises:
        InputError: If it cannot be had, or lacks a member, which is named.
    """
    env = named_plant(name)
    if ":" not in name:
        return env  # checked where it was registered
    try:
        return check_plant(getattr(env, "name", ""), env)
    except Exception as error:  # whatever a plant of someone else raises
        raise InputError(f"{name} is not a plant: {type(error).__name__}: {error}") from error
