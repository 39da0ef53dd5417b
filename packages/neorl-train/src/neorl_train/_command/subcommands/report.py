"""``neorl-train report RUN``: rewrites the report of a run."""

import dataclasses

from neorl_core.infrastructure.command_line import parse_options
from neorl_train._command.results import print_results
from neorl_train._command.run_argument import Flags, RunArgument


@dataclasses.dataclass(frozen=True)
class ReportOptions(Flags, RunArgument):
    """Writes the report of an evaluated run again.

    example: neorl-train report runs/0001
    """


def command(arguments: list[str]) -> None:
    """``neorl-train report RUN``."""
    flags = parse_options(ReportOptions, arguments, program="neorl-train report")
    run = flags.directory("report")
    from neorl_train._job.stages import write_run_report
    from neorl_train._process.progress import Reporter
    from neorl_train._process.timings import IMPORTS, Timings

    timings = Timings.since_start(IMPORTS)
    run.record()
    write_run_report(run, Reporter(quiet=flags.quiet), timings)
    print_results(run, timings, flags)
