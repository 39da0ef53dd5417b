"""Trackers follow the records of a run; the records themselves are the truth."""

import importlib.util
import re
import threading
from typing import Protocol

from neorl_core.infrastructure.command_line import one_line
from neorl_train.runs._directory import RunDirectory
from neorl_train.runs._names import METRICS

MISSING = (
    f"MLflow is not installed, so metrics are in {METRICS} alone; "
    "`pip install 'neorl-train[mlflow]'` and `neorl-train track RUN` write them later"
)


class Tracker(Protocol):
    """Copies what a checkpoint has made permanent to somewhere else, in the background."""

    def follow(self) -> None:
        """There may be more to copy."""

    def finish(self) -> str:
        """Copies the rest and ends; what there is to say about it, or nothing."""
        ...


class NoTracker:
    """Copies nothing."""

    def follow(self) -> None:
        """Nothing."""

    def finish(self) -> str:
        """Nothing."""
        return ""


class MlflowTracker:
    """Follows a run into the MLflow database of its folder from a thread of its own.

    Whatever goes wrong there is said at the end and harms nothing: the records stay complete.

    Args:
        run: The run to follow.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._more, self._last = threading.Event(), threading.Event()
        self._error = ""
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
        self._thread.start()

    def follow(self) -> None:
        """Wakes the thread."""
        self._more.set()

    def finish(self) -> str:
        """Waits for the thread; what went wrong, in one line."""
        self._last.set()
        self._more.set()
        self._thread.join()
        return self._error

    def _work(self) -> None:
        try:
            self._more.wait()
            from neorl_train.runs._mlflow import MlflowCopy

            copy = MlflowCopy(self._run)
            while not self._last.is_set():
                self._more.wait()
                self._more.clear()
                copy.update()
            copy.update()
        except Exception as error:
            self._error = (
                f"tracking stopped ({_reason(error)}); the records are complete: "
                f"`neorl-train track {self._run.path}` writes them later"
            )


def _reason(error: Exception) -> str:
    """What the database said, without its statement and the address of its manual."""
    message = re.sub(r"\s*\(Background on this error at: \S+\)", "", one_line(error))
    return message.partition(" [SQL:")[0][:200]


def mlflow_installed() -> bool:
    """Whether MLflow and what its SQLite store needs can be imported."""
    needed = ("mlflow", "sqlalchemy", "alembic")
    return all(importlib.util.find_spec(name) is not None for name in needed)
