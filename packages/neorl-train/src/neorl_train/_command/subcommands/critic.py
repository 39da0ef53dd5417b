"""``neorl-train critic RUN``: fits a safety critic and an ensemble to the log of a run."""

import sys
from functools import partial

from neorl_core import InputError
from neorl_core.infrastructure.command_line import parse_options
from neorl_train._command.results import print_json
from neorl_train._command.run_argument import named_run, take_flag
from neorl_train._job.critics import fit_run_critics
from neorl_train.choosing import CriticOptions, critics_text
from neorl_train.runs._directory import RunDirectory

USAGE = """neorl-train critic RUN [--OPTION VALUE ...]

Fits a safety critic (risk of a violation within the next steps, one number per limit) and an
ensemble of the plant's dynamics on the training episodes of a run, calibrates both, and checks them
on the held-out episodes. Results are written to RUN/critics and critics.json.

examples:
  neorl-train critic runs/0001
  neorl-train critic runs/0001 --horizon 30 --false-alarms 0.05
  neorl-train critic runs/0001 --json        (print JSON in place of text)
"""


def command(arguments: list[str]) -> None:
    """``neorl-train critic RUN [--OPTION VALUE ...]``."""
    words, as_json = take_flag("--json", arguments)
    name = words.pop(0) if words and not words[0].startswith("-") else ""
    options = parse_options(CriticOptions, words, program="neorl-train critic RUN")
    if not name:
        raise InputError(
            "critic takes one run directory; for example `neorl-train critic runs/0001`"
        )
    run = RunDirectory(named_run(name).absolute())
    run.record()
    critics = fit_run_critics(run, options, print_line=partial(print, file=sys.stderr, flush=True))
    if as_json:
        print_json("critics", {**critics.report, "folder": str(run.path / "critics")})
        return
    print(critics_text(critics.report))
    print(f"written to {run.path / 'critics'}")
