"""``neorl-envs check PLANT``: checks whether an environment satisfies all laws."""

import dataclasses

import tyro

from neorl_core import InputError
from neorl_core.infrastructure.command_line import one_line, parse_options
from neorl_envs._command.imports import named_plant
from neorl_envs.testing import check_environment


@dataclasses.dataclass(frozen=True)
class Check:
    """Checks an environment: purity, jit, vmap, spec, rates, ends of episodes, randomness, time.

    A line "open" names a law that cannot be checked on this plant, and how to make it checkable.

    example: neorl-envs check my_package.tank:QuadrupleTank
    """

    environment: tyro.conf.Positional[str]
    """One of `neorl-envs list`, or a class or function that makes a plant, as MODULE:NAME."""
    seed: int = 0
    """Seed of parameters, noise and actions."""


def command(words: list[str]) -> None:
    """``neorl-envs check``."""
    options = parse_options(Check, words, program="neorl-envs check")
    findings = check_environment(named_plant(options.environment), seed=options.seed)
    for finding in findings:
        law = finding.law.replace("_", " ")
        fault = one_line(ValueError(finding.fault)) if finding.fault else ""
        if fault:
            print(f"FAILED  {law}: {fault}")
        elif finding.unchecked:
            print(f"open    {law}: not checked; {finding.unchecked}")
        else:
            print(f"ok      {law}")
    broken = [finding.law.replace("_", " ") for finding in findings if finding.fault]
    if broken:
        raise InputError(
            f"{options.environment} breaks {len(broken)} of {len(findings)} laws: "
            f"{', '.join(broken)}; see the lines marked FAILED"
        )
