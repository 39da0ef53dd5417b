"""``neorl-train report RUN``: write the report of a run again."""

from neorl_train._command.arguments import flags, print_results, run_argument
from neorl_train._pipeline.stages import write_run_report
from neorl_train._process.progress import Reporter
from neorl_train._process.timings import Timings


def command(arguments: list[str]) -> None:
    """``neorl-train report RUN``."""
    words, quiet, _ = flags(arguments)
    run = run_argument("report", words, "Writes the report of an evaluated run again.")
    run.record()
    timings = Timings()
    write_run_report(run, Reporter(quiet=quiet), timings)
    print_results(run, timings, table=False)
