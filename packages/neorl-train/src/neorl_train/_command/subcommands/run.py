"""``neorl-train run``: train, evaluate, decide and report."""

from neorl_agents import ALGORITHMS
from neorl_train._command.arguments import flags, print_results
from neorl_train._command.options import read_config
from neorl_train._pipeline.job import run_job
from neorl_train._process.progress import Reporter
from neorl_train._process.timings import Timings


def command(arguments: list[str]) -> None:
    """``neorl-train run [CONFIG.toml] [--OPTION VALUE ...]``."""
    timings = Timings.since_start("start of Python, imports")
    words, quiet, table = flags(arguments)
    with timings.stage("configuration"):
        config = read_config(words, ALGORITHMS)
    run = run_job(config, Reporter(quiet=quiet), timings)
    print_results(run, timings, table=table)
