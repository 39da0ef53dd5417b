"""``neorl-train run``: train, evaluate, decide and report."""

from neorl_agents import ALGORITHMS
from neorl_train._command.options import read_run_options
from neorl_train._command.results import print_results
from neorl_train._pipeline.job import run_job
from neorl_train._pipeline.processes.follower import follow
from neorl_train._process.distributed import join_processes
from neorl_train._process.progress import Reporter
from neorl_train._process.timings import Timings
from neorl_train.configuration._sections import config_hash
from neorl_train.configuration._validation import validate
from neorl_train.training._processes import all_or_none, leads, require_equal


def command(arguments: list[str]) -> None:
    """``neorl-train run [CONFIG.toml] [--OPTION VALUE ...]``."""
    timings = Timings.since_start("start of Python, imports")
    with timings.stage("configuration"):
        config, flags = read_run_options(arguments, ALGORITHMS)
    join_processes()
    with all_or_none("check its configuration"):
        validate(config)
    require_equal(config_hash(config), "configuration")
    if not leads():
        follow()
        return
    run = run_job(config, Reporter(quiet=flags.quiet), timings, profile=flags.profile)
    print_results(run, timings, flags)
