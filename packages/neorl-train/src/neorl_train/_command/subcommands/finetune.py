"""``neorl-train finetune``: continues the learners of a finished run on a simulated plant."""

from neorl_agents import ALGORITHMS
from neorl_train._command.options import read_fine_tuning_options
from neorl_train._command.results import print_results
from neorl_train._process.progress import Reporter
from neorl_train._process.timings import IMPORTS, REST_OF_IMPORTS, Timings

USAGE = """neorl-train finetune RUN [CONFIG.toml] [--OPTION VALUE ...]

Trains the learners of a finished run further on its SIMULATED plant: it collects data with the
exploring policy behind the declared guard and updates on batches of which half comes from the log.
Never explore on a real plant. The result is a new run, with the policies before and after, the
regret, and the number of limit violations during training. Options keep the values of RUN; its
log, penalties and networks cannot be changed. training.updates counts online critic steps;
training.chunk is that of RUN, or a divisor of it that fits the updates, and a multiple of
finetune.environments.

examples:
  neorl-train finetune runs/0001
  neorl-train finetune runs/0001 --training.algorithms iql --training.updates 10000
  neorl-train finetune runs/0001 --finetune.share 0.25 --finetune.environments 20
  neorl-train finetune runs/0002 --finetune.environment CSTR-v0    (RUN was trained on a file)
"""


def command(arguments: list[str]) -> None:
    """``neorl-train finetune RUN [CONFIG.toml] [--OPTION VALUE ...]``."""
    timings = Timings.since_start(IMPORTS)
    with timings.stage("configuration"):
        config, flags = read_fine_tuning_options(arguments, ALGORITHMS)
    with timings.stage(REST_OF_IMPORTS):  # not needed for a misspelt option
        from neorl_train._job.job import run_job
    run = run_job(config, Reporter(quiet=flags.quiet), timings, profile=flags.profile)
    print_results(run, timings, flags)
