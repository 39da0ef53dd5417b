"""The part of the main job that process 0 takes in step with the others; alone, it just works."""

from collections.abc import Iterator
from contextlib import contextmanager

from neorl_train._errors import InterruptedRunError
from neorl_train._pipeline.log_stage import read_experience
from neorl_train._pipeline.resolved_run import ResolvedRun, Session
from neorl_train._process.signals import SIGNALS
from neorl_train.experience._experience import Experience
from neorl_train.runs._checkpoints import Checkpoints
from neorl_train.training._loop import Trained
from neorl_train.training._processes import (
    LeaderCheckpoints,
    all_or_none,
    lost_in_one_line,
    require_equal,
    several,
)


def read_same_log(run: ResolvedRun, session: Session) -> Experience | None:
    """As :func:`read_experience`, first here, so that the others can take a log that is collected.

    Raises:
        InputError: As there; also if another process cannot read the log, or reads another one.
    """
    with all_or_none("read the log"):
        experience = read_experience(run, session)
    with all_or_none("read its copy of the log"):
        pass  # the other processes do
    require_equal("" if experience is None else experience.dataset.content_hash, "log")
    return experience


@contextmanager
def resumable(session: Session) -> Iterator[None]:
    """A training, of which a lost process leaves a run that can be resumed."""
    line = session.directory.resume_line()
    with lost_in_one_line(f"continue from the last checkpoint, in all processes, with\n{line}"):
        yield


def checkpoints_for_all(checkpoints: Checkpoints) -> Checkpoints | LeaderCheckpoints:
    """Checkpoints whose values the other processes are sent, where there are others."""
    return LeaderCheckpoints(checkpoints) if several() else checkpoints


def require_finished(trained: Trained) -> None:
    """Stops where another process was asked to stop.

    Raises:
        InterruptedRunError: If the training is not finished.
    """
    if several() and not trained.finished:
        raise InterruptedRunError(SIGNALS[-1])
