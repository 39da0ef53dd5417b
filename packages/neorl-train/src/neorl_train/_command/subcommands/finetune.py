"""``neorl-train finetune``: continues the learners of a finished run on a simulated plant."""

from neorl_agents import ALGORITHMS
from neorl_train._command.options import read_fine_tuning_options
from neorl_train._command.results import print_results
from neorl_train._process.progress import Reporter
from neorl_train._process.timings import IMPORTS, REST_OF_IMPORTS, Timings


def command(arguments: list[str]) -> None:
    """``neorl-train finetune RUN [CONFIG.toml] [--OPTION VALUE ...]``."""
    timings = Timings.since_start(IMPORTS)
    with timings.stage("configuration"):
        config, flags = read_fine_tuning_options(arguments, ALGORITHMS)
    with timings.stage(REST_OF_IMPORTS):  # not needed for help or a misspelt option
        from neorl_train._pipeline.job import run_job
    run = run_job(config, Reporter(quiet=flags.quiet), timings, profile=flags.profile)
    print_results(run, timings, flags)
