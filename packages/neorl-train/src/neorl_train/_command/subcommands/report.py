"""``neorl-train report RUN``: rewrites the report of a run."""

from neorl_train._command.results import print_results
from neorl_train._command.run_argument import read_run_argument


def command(arguments: list[str]) -> None:
    """``neorl-train report RUN``."""
    summary = "Writes the report of an evaluated run again."
    run, flags = read_run_argument(
        "report", arguments, summary, accepted=["--quiet", "--timings", "--json"]
    )
    from neorl_train._pipeline.stages import write_run_report
    from neorl_train._process.progress import Reporter
    from neorl_train._process.timings import IMPORTS, Timings

    timings = Timings.since_start(IMPORTS)
    run.record()
    write_run_report(run, Reporter(quiet=flags.quiet), timings)
    print_results(run, timings, flags)
