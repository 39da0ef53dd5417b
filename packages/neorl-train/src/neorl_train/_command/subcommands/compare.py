"""``neorl-train compare RUN ...``: compares runs, or the learners of one, in one table."""

import dataclasses
import json
from pathlib import Path

from neorl_core import InputError
from neorl_core.infrastructure.command_line import parse_options
from neorl_train._command.shared import named_run

USAGE = """neorl-train compare RUN ... [--OPTION VALUE ...]

Puts the results of finished runs into one table: every learner behind its guard with all
its seeds, every controller, what differs between the configurations, the paired gain over
today's controller, limits, trips and verdicts. A run on a log without a simulator shows the
predicted gain of its candidate instead. Learners that ran on two plants or more are also compared
over these, by interquartile means. With --against, gains and p values are those over a learner or
a controller of your choice. The ending of --output decides the format; columns that would be
empty are left out, except in CSV and JSON.

examples:
  neorl-train compare runs/0001 runs/0002
  neorl-train compare runs/0001 --against iql
  neorl-train compare runs/* --output table.md
  neorl-train compare runs/0001 runs/0002 --output table.tex
  neorl-train compare runs/* --output page.html
  neorl-train compare runs/0001 --json
"""


@dataclasses.dataclass(frozen=True)
class CompareOptions:
    """File and format of the table.

    Attributes:
        against: Learner or controller that the others are compared with; empty for today's
            controller.
        output: File to write: .txt, .md, .tex, .csv, .json, or .html and .png for figures; empty
            writes none.
        json: Print JSON instead of the table.
    """

    against: str = ""
    output: str = ""
    json: bool = False


def command(arguments: list[str]) -> None:
    """``neorl-train compare RUN ... [--OPTION VALUE ...]``."""
    count = next((i for i, w in enumerate(arguments) if w.startswith("-")), len(arguments))
    runs, words = arguments[:count], arguments[count:]
    options = parse_options(CompareOptions, words, program="neorl-train compare RUN ...")
    if not runs:
        raise InputError(
            "compare takes the directories of finished runs; for example "
            "`neorl-train compare runs/0001 runs/0002`"
        )
    from neorl_train.studies import (
        aggregate,
        compare_runs,
        comparison_text,
        comparison_to_json,
        write_comparison,
    )
    from neorl_train.studies._tables import SUFFIXES, check_output

    if options.output:
        check_output(Path(options.output), SUFFIXES)
    comparison = compare_runs([named_run(run) for run in runs], against=options.against)
    aggregates = aggregate(comparison)
    if options.json:
        print(json.dumps(comparison_to_json(comparison, aggregates), indent=1))
    else:
        print(comparison_text(comparison, aggregates))
    if options.output:
        write_comparison(Path(options.output), comparison, aggregates)
