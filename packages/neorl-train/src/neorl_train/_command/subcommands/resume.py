"""``neorl-train resume RUN``: continues an interrupted run with bit-identical results."""

import dataclasses

from neorl_core import InputError
from neorl_train._command.results import print_results
from neorl_train._command.run_argument import FLAGS, read_run_argument

DEVICES = "--devices.batch"


def command(arguments: list[str]) -> None:
    """``neorl-train resume RUN``."""
    summary = (
        "Continues an interrupted run with bit-identical results; with --devices.batch N on "
        "another\nnumber of devices that share each batch, which rounds differently. Several "
        "processes continue\nit together if NEORL_COORDINATOR and the other variables that `run "
        "--help` shows are set."
    )
    arguments, devices = _without_devices(arguments)
    run, flags = read_run_argument("resume", arguments, summary, accepted=FLAGS)
    from neorl_train._pipeline.job import resume_job
    from neorl_train._pipeline.processes.follower import follow
    from neorl_train._process.distributed import join_processes
    from neorl_train._process.progress import Reporter
    from neorl_train._process.timings import IMPORTS, Timings
    from neorl_train.configuration._configure import configure
    from neorl_train.configuration._sections import DevicesConfig, config_hash
    from neorl_train.configuration._validation import validate
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
    if devices is not None:
        config = dataclasses.replace(config, devices=DevicesConfig(batch=devices))
    resume_job(run, config, Reporter(quiet=flags.quiet), timings, profile=flags.profile)
    print_results(run, timings, flags)


def _without_devices(words: list[str]) -> tuple[list[str], int | None]:
    """The arguments without ``--devices.batch N``, and that number."""
    left, value = [], None
    given = iter(words)
    for word in given:
        name, equals, text = word.partition("=")
        if name != DEVICES:
            left.append(word)
            continue
        text = text if equals else next(given, "")
        if not text.isdecimal():
            raise InputError(f"{DEVICES} must be an integer (the number of devices), got {text!r}")
        value = int(text)
    return left, value
