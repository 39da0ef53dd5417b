"""Imports objects given as MODULE:NAME: plants and policies from a user's own modules."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_envs.plants._protocol import check_plant
from neorl_envs.plants._table import make


def import_named(name: str, convert: Callable[[Any], Any]) -> Any:
    """Imports an object given as MODULE:NAME and applies a function to it.

    As with ``python -m``, modules in the current folder can be imported.
    """
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        return convert(getattr(importlib.import_module(module), attribute))
    finally:
        sys.path.remove(here)


def named_plant(name: str) -> Any:
    """The plant of that name, or the one that a class or function MODULE:NAME returns.

    Raises an ``InputError`` if the name is unknown, or the plant cannot be created.
    """
    if ":" not in name:
        try:
            return make(name)
        except InputError as error:
            hint = "one of your own is MODULE:CLASS, such as my_package.tank:QuadrupleTank"
            raise InputError(f"{error}; {hint}") from None
    try:
        return import_named(name, lambda factory: factory())
    except Exception as error:
        raise InputError(f"{name} cannot be made: {type(error).__name__}: {error}") from error


def complete_plant(name: str) -> Any:
    """The plant of that name, checked to have all members that a command may use.

    Raises an ``InputError`` if the plant cannot be created, or lacks a member, which is named.
    """
    env = named_plant(name)
    if ":" not in name:
        return env  # checked when it was registered
    try:
        return check_plant(getattr(env, "name", ""), env)
    except Exception as error:  # a third-party plant may raise anything
        raise InputError(f"{name} is not a plant: {type(error).__name__}: {error}") from error
