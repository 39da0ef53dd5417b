"""The part of the main job that process 0 does in step with the others, or alone."""

from collections.abc import Iterator
from contextlib import contextmanager

from neorl_train._errors import InterruptedRunError
from neorl_train._job.log_stage import read_experience
from neorl_train._job.resolved_run import ResolvedRun, Session
from neorl_train._process.signals import SIGNALS
from neorl_train.data._experience import Experience
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
    """As :func:`read_experience`, but before the others, so that they can copy a collected log.

    Raises:
        InputError: As in that function; also if another process cannot read the log or reads a
            different one.
    """
    with all_or_none("read the log"):
        experience = read_experience(run, session)
    with all_or_none("read its copy of the log"):
        pass  # only the other processes do something here
    require_equal("" if experience is None else experience.dataset.content_hash, "log")
    return experience


@contextmanager
def resumable(session: Session) -> Iterator[None]:
    """Context of a training that can be resumed if another process is lost."""
    line = session.directory.resume_line()
    with lost_in_one_line(f"continue from the last checkpoint, in all processes, with\n{line}"):
        yield


def checkpoints_for_all(checkpoints: Checkpoints) -> Checkpoints | LeaderCheckpoints:
    """Checkpoints whose values are sent to the other processes, if there are any."""
    return LeaderCheckpoints(checkpoints) if several() else checkpoints


def require_finished(trained: Trained) -> None:
    """Raises if another process was asked to stop."""
    if several() and not trained.finished:
        raise InterruptedRunError(SIGNALS[-1])
