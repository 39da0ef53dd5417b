"""A process that takes part in the trainings of a run of process 0."""

import io
import tempfile
from pathlib import Path

from neorl_core import InputError
from neorl_train._job.resolution import reopen
from neorl_train._job.resolved_run import Session
from neorl_train._job.stages import read_experience
from neorl_train._process.control import SIGNALS, InterruptedRunError, StopSignal
from neorl_train._process.progress import Reporter, Timings
from neorl_train.configuration._sections import Config, hyperparameters
from neorl_train.configuration._validation import configure
from neorl_train.data._experience import Experience
from neorl_train.runs._directory import RUNNING, fill_run
from neorl_train.training._loop import train
from neorl_train.training._plan import DivergedError, plan_of
from neorl_train.training._processes import (
    LeaderCheckpoints,
    all_or_none,
    end_together,
    lost_in_one_line,
    require_equal,
    stop_of_all,
    text_of_leader,
)


def follow() -> None:
    """Takes part in the trainings of the run that process 0 starts or resumes, until they end.

    The configuration comes from process 0. The log is read here: a file of the same name, or the
    log of a simulated plant, which is taken from the common folder of the runs or collected.

    Raises:
        InputError: If any of the processes failed or was lost.
        InterruptedRunError: After a signal to any of them.
    """
    with all_or_none("begin the run"):
        pass
    text = text_of_leader("")
    if not text:
        return  # there was nothing left to do
    with tempfile.TemporaryDirectory(prefix="neorl-follower-") as folder:
        path = Path(folder) / "0001"
        path.mkdir()
        run = fill_run(path, text, {"status": RUNNING})
        config, quiet = configure(run.config), Reporter(io.StringIO(), quiet=True)
        with StopSignal(quiet.print_line) as stop:
            with all_or_none("read the log"):
                pass  # a log that process 0 collects can be copied from it
            with all_or_none("read its copy of the log"):
                session = Session(run, quiet, stop, Timings())
                experience = read_experience(reopen(config), session)
                if experience is None:
                    raise InputError(
                        "several processes can train together only on a log, and this run has none"
                    )
            require_equal(experience.dataset.content_hash, "log")
            with all_or_none("prepare the training"):
                pass
            _train(config, experience, stop)
    end_together()


def _train(config: Config, experience: Experience, stop: StopSignal) -> None:
    training = config.training
    plan = plan_of(config)
    diverged = text_of_leader("").split()
    for name in training.algorithms:
        if name in diverged:
            continue
        try:
            with (
                stop.later(),
                lost_in_one_line("start all of them again with `neorl-train resume`"),
            ):
                trained = train(
                    hyperparameters(config, name),
                    experience.training,
                    training.seeds,
                    plan,
                    checkpoints=LeaderCheckpoints(None),
                    stop=stop_of_all(stop.requested),
                    batch_devices=config.devices.batch,
                )
        except DivergedError:  # process 0 says so
            stop.check()
            continue
        stop.check()
        if not trained.finished:
            raise InterruptedRunError(SIGNALS[-1])
