"""``neorl-train run``: train, evaluate, decide and report."""

from neorl_agents import ALGORITHMS
from neorl_train._command.options import read_run_options
from neorl_train._command.results import print_results
from neorl_train._pipeline.job import run_job
from neorl_train._process.distributed import require_devices
from neorl_train._process.progress import Reporter
from neorl_train._process.timings import Timings


def command(arguments: list[str]) -> None:
    """``neorl-train run [CONFIG.toml] [--OPTION VALUE ...]``."""
    timings = Timings.since_start("start of Python, imports")
    with timings.stage("configuration"):
        config, flags = read_run_options(arguments, ALGORITHMS)
    require_devices()
    run = run_job(config, Reporter(quiet=flags.quiet), timings)
    print_results(run, timings, flags)
