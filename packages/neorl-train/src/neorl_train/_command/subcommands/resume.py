"""``neorl-train resume RUN``: continues an interrupted run with bit-identical results."""

import dataclasses

from neorl_core.infrastructure.command_line import parse_options
from neorl_train._command.results import print_results
from neorl_train._command.run_argument import RunArgument, TrainingFlags


@dataclasses.dataclass(frozen=True)
class Devices:
    """Devices used for training.

    Attributes:
        batch: Another number of devices that share each batch, which rounds differently; that of
            the run by default.
    """

    batch: int | None = None


@dataclasses.dataclass(frozen=True)
class ResumeOptions(TrainingFlags, RunArgument):
    """Continues an interrupted run with bit-identical results.

    Several processes continue it together if NEORL_COORDINATOR and the other variables that
    `neorl-train run --help` shows are set.

    example: neorl-train resume runs/0001
    """

    devices: Devices = Devices()


def command(arguments: list[str]) -> None:
    """``neorl-train resume RUN``."""
    flags = parse_options(ResumeOptions, arguments, program="neorl-train resume")
    run = flags.directory("resume")
    from neorl_train._job.follower import follow
    from neorl_train._job.job import resume_job
    from neorl_train._process.distributed import join_processes
    from neorl_train._process.progress import Reporter
    from neorl_train._process.timings import IMPORTS, Timings
    from neorl_train.configuration._sections import DevicesConfig, config_hash
    from neorl_train.configuration._validation import configure, validate
    from neorl_train.training._processes import all_or_none, leads, require_equal

    timings = Timings.since_start(IMPORTS)
    join_processes()
    with all_or_none("read the run directory"):
        run.record()
        config = configure(run.config)
        validate(config)
    require_equal(config_hash(config), "configuration")
    if not leads():
        follow()
        return
    if flags.devices.batch is not None:
        config = dataclasses.replace(config, devices=DevicesConfig(batch=flags.devices.batch))
        validate(config)
    resume_job(run, config, Reporter(quiet=flags.quiet), timings, profile=flags.profile)
    print_results(run, timings, flags)
