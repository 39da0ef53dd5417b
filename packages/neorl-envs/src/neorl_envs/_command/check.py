"""``neorl-envs check MODULE:CLASS``: whether an environment keeps the laws of the contract."""

import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Any

import tyro

from neorl_core import InputError
from neorl_envs.command_line import one_line, parse_options
from neorl_envs.plants._table import make
from neorl_envs.testing import check_environment


@dataclasses.dataclass(frozen=True)
class Check:
    """Checks an environment: purity, jit, vmap, finite numbers, spec, rates, endings, clock, seeds.

    example: neorl-envs check my_package.tank:QuadrupleTank
    """

    environment: tyro.conf.Positional[str]
    """A class or function that makes a plant, as MODULE:NAME, or one of `neorl-envs list`."""
    seed: int = 0
    """Decides the worlds that are tried."""


def command(words: list[str]) -> None:
    """``neorl-envs check``."""
    options = parse_options(Check, words, program="neorl-envs check")
    findings = check_environment(_made(options.environment), seed=options.seed)
    for finding in findings:
        said = finding.law.replace("_", " ")
        fault = one_line(ValueError(finding.fault)) if finding.fault else ""
        print(f"FAILED  {said}: {fault}" if fault else f"ok      {said}")
    broken = [finding.law.replace("_", " ") for finding in findings if finding.fault]
    if broken:
        raise InputError(
            f"{options.environment} breaks {len(broken)} of {len(findings)} laws: "
            f"{', '.join(broken)}; see the lines marked FAILED"
        )


def _made(name: str) -> Any:
    if ":" not in name:
        try:
            return make(name)
        except InputError as error:
            hint = "one of your own is MODULE:CLASS, such as my_package.tank:QuadrupleTank"
            raise InputError(f"{error}; {hint}") from None
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())  # a script in the folder, as `python -m` finds it
    sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), attribute)()
    except Exception as error:
        raise InputError(f"{name} cannot be made: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(here)
