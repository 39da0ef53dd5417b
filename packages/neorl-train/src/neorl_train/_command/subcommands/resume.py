"""``neorl-train resume RUN``: continue a run that was interrupted, to the same bits."""

import importlib.util
import shlex
from pathlib import Path

from neorl_core.infrastructure.command_line import command_prefix
from neorl_train._command.results import print_results
from neorl_train._command.run_argument import FLAGS, read_run_argument


def command(arguments: list[str]) -> None:
    """``neorl-train resume RUN``."""
    summary = "Continues an interrupted run to the same bits."
    run, flags = read_run_argument("resume", arguments, summary, takes=FLAGS)
    from neorl_train._pipeline.job import resume_job
    from neorl_train._process.progress import Reporter
    from neorl_train._process.timings import Timings
    from neorl_train.configuration._configure import configure

    timings = Timings.since_start("start of Python, imports")
    run.record()
    config = configure(run.config)
    resume_job(run, config, Reporter(quiet=flags.quiet), timings)
    print_results(run, timings, flags)
    if importlib.util.find_spec("neorl_deploy") is not None and not flags.json:
        deploy = command_prefix("neorl-deploy")
        (typed,) = (word for word in arguments if word not in FLAGS)
        print(f"Next: {deploy} export {shlex.quote(typed)}")
        print(f"      {deploy} replay {shlex.quote(str(Path(typed) / 'policy.bundle'))}")
