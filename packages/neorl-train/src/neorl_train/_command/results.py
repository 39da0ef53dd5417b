"""What a command prints at its end: the results of a run."""

from neorl_train._command.options import Flags
from neorl_train._process.timings import Timings
from neorl_train.runs._directory import RunDirectory


def print_results(run: RunDirectory, timings: Timings, flags: Flags) -> None:
    """Prints the results of a run, and before them where the time went if that is asked for."""
    from neorl_train.report._terminal import print_summary

    if flags.timings:
        print(timings.table())
    print_summary(run.path)
