"""``neorl-train resume RUN``: continue a run that was interrupted, to the same bits."""

import importlib.util
import shlex
from pathlib import Path

from neorl_envs.command_line import command_prefix
from neorl_train._command.arguments import flags, print_results, run_argument
from neorl_train._pipeline.job import resume_job
from neorl_train._process.progress import Reporter
from neorl_train._process.timings import Timings
from neorl_train.configuration._configure import configure


def command(arguments: list[str]) -> None:
    """``neorl-train resume RUN``."""
    timings = Timings.since_start("start of Python, imports")
    words, quiet, table = flags(arguments)
    run = run_argument("resume", words, "Continues an interrupted run to the same bits.")
    run.record()
    config = configure(run.config)
    resume_job(run, config, Reporter(quiet=quiet), timings)
    print_results(run, timings, table=table)
    if importlib.util.find_spec("neorl_deploy") is not None:
        deploy = command_prefix("neorl-deploy")
        print(f"Next: {deploy} export {shlex.quote(words[0])}")
        print(f"      {deploy} replay {shlex.quote(str(Path(words[0]) / 'policy.bundle'))}")
