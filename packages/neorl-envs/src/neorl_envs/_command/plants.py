"""Plants and policies that options name, from modules of a user too, and harder plants."""

import dataclasses
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure.command_line import one_line
from neorl_envs.plants._protocol import check_plant
from neorl_envs.plants._table import make
from neorl_envs.wrappers import constrained, delayed, disturbed

# Imports objects given as MODULE:NAME: plants and policies from a user's own modules.


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


# Options that make a plant harder, shared by all commands that run one.


@dataclasses.dataclass(frozen=True)
class Challenges:
    """Difficulties that can be added to any plant; all are off by default.

    Attributes:
        delay: Control periods between a command and its effect, in addition to the plant's own.
        reading_delay: Control periods between a measurement and its reading, in addition to the
            plant's own.
        disturbance: Standard deviation of an unmeasured load on every actuator, as a fraction of
            its range.
        limit: Additional limits of measured channels, which become costs: NAME LOW HIGH; inf for
            none.
    """

    delay: int = 0
    reading_delay: int = 0
    disturbance: float = 0.0
    limit: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)

    @property
    def any(self) -> bool:
        """Whether any difficulty is on."""
        return self != Challenges()


def challenge_plant(env: Any, chosen: Challenges) -> Any:
    """The plant with the chosen wrappers; an ``InputError`` if a number or a channel is invalid."""
    try:
        if chosen.delay or chosen.reading_delay:
            env = delayed(env, action=chosen.delay, obs=chosen.reading_delay)
        if chosen.disturbance:
            env = disturbed(env, sd=chosen.disturbance)
        return constrained(env, chosen.limit) if chosen.limit else env
    except InputError:
        raise
    except ValueError as error:
        raise InputError(one_line(error)) from error
