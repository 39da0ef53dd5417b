"""``neorl-envs check PLANT``: checks whether an environment satisfies all laws."""

import dataclasses
import json
import sys

from neorl_core import InputError
from neorl_core.infrastructure import head
from neorl_core.infrastructure.command_line import Positional, one_line, parse_options
from neorl_envs._command.plants import named_plant
from neorl_envs.testing import LAWS, Finding, check_environment

VERSION = 1
"""Version of the JSON document."""


@dataclasses.dataclass(frozen=True)
class Check:
    """Checks an environment: purity, jit, vmap, spec, rates, ends of episodes, randomness, time.

    A line "open" names a law that cannot be checked on this plant, and how to make it checkable.

    example: neorl-envs check my_package.tank:QuadrupleTank

    Attributes:
        environment: One of `neorl-envs list`, or a class or function that makes a plant, as
            MODULE:NAME.
        seed: Seed of parameters, noise and actions.
        json: Print JSON instead of text, at the end.
    """

    environment: Positional[str]
    seed: int = 0
    json: bool = False


def command(words: list[str]) -> None:
    """``neorl-envs check``."""
    options = parse_options(Check, words, program="neorl-envs check")
    plant = named_plant(options.environment)
    print(
        f"check, episodes of {options.environment} are run, then {len(LAWS)} laws are checked; "
        "the comparison with uncompiled steps takes longest",
        file=sys.stderr,
        flush=True,
    )
    report = (lambda finding: None) if options.json else _print
    findings = check_environment(plant, seed=options.seed, report=report)
    if options.json:
        document = {"findings": [finding._asdict() for finding in findings]}
        print(json.dumps({**head("environment-check", VERSION), **document}, indent=2))
    broken = [finding.law.replace("_", " ") for finding in findings if finding.fault]
    if broken:
        raise InputError(
            f"{options.environment} breaks {len(broken)} of {len(findings)} laws: "
            f"{', '.join(broken)}{'' if options.json else '; see the lines marked FAILED'}"
        )


def _print(finding: Finding) -> None:
    law = finding.law.replace("_", " ")
    fault = one_line(ValueError(finding.fault)) if finding.fault else ""
    if fault:
        line = f"FAILED  {law}: {fault}"
    elif finding.unchecked:
        line = f"open    {law}: not checked; {finding.unchecked}"
    else:
        line = f"ok      {law}"
    print(line, flush=True)
