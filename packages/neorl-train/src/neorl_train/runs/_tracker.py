"""Trackers follow the records of a run, which are authoritative, and the load of the machine."""

import contextlib
import importlib.util
import re
import threading
import time
from typing import Any, Protocol

from neorl_core import InputError
from neorl_core.infrastructure import install_line
from neorl_core.infrastructure.command_line import one_line
from neorl_train.runs._directory import METRICS, MLFLOW_DATABASE, RunDirectory

SAMPLE_SECONDS = 10.0


class SystemMetrics:
    """Processor, memory, disk and network from MLflow's own monitors; empty without ``psutil``."""

    def __init__(self) -> None:
        self._monitors: list[Any] = []
        if importlib.util.find_spec("psutil") is None:
            return
        from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
        from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
        from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

        self._monitors = [CPUMonitor(), DiskMonitor(), NetworkMonitor()]
        with contextlib.suppress(Exception):  # a machine without such a device or its driver
            from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

            self._monitors.append(GPUMonitor())

    def sample(self) -> dict[str, float]:
        """The present values, by name without ``system/``; unreadable ones are left out."""
        metrics: dict[str, float] = {}
        for monitor in self._monitors:
            with contextlib.suppress(Exception):  # a failure here must not end a run
                monitor.collect_metrics()
                metrics |= {name: float(v) for name, v in monitor.aggregate_metrics().items()}
                monitor.clear_metrics()
        return metrics


MISSING = (
    f"MLflow is not installed, so metrics are only in {METRICS}; "
    f"{install_line('neorl-train[mlflow]')}, and neorl-train inspect RUN --track writes them later"
)
DAMAGED = ("already exists", "duplicate column", "malformed", "not a database")
"""SQLite's messages about a database that was left incomplete, or that is not one."""
CLOSING_SECONDS = 30.0
"""Longest time in seconds that the end of a run waits for a database or a server."""


class Tracker(Protocol):
    """Copies what a checkpoint has made permanent to another system, in the background."""

    def follow(self) -> None:
        """Signals that there may be more to copy."""

    def finish(self, status: str = "FINISHED") -> str:
        """Copies the rest and ends; returns a message for the user, or an empty one.

        Args:
            status: How the run ended: ``"FINISHED"``, ``"FAILED"`` or ``"KILLED"``.
        """
        ...


class NoTracker:
    """Copies nothing."""

    def follow(self) -> None:
        """Does nothing."""

    def finish(self, status: str = "FINISHED") -> str:
        """Does nothing."""
        del status
        return ""


class MlflowTracker:
    """Copies a run to MLflow from its own thread: to a server, or to the database of its folder.

    A failure is retried when there is more to copy, reported at the end, and harmless: the records
    stay complete, and the run waits only at its very end, for a limited time.

    Args:
        run: The run to follow.
        closing_seconds: Longest time in seconds that :meth:`finish` waits.
    """

    def __init__(self, run: RunDirectory, *, closing_seconds: float = CLOSING_SECONDS) -> None:
        self._run, self._closing_seconds = run, closing_seconds
        self._wake, self._closing = threading.Event(), threading.Event()
        self._error, self._status = "", "FINISHED"
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
        self._thread.start()

    def follow(self) -> None:
        """Wakes the thread."""
        self._wake.set()

    def finish(self, status: str = "FINISHED") -> str:
        """Waits for the thread for a limited time; returns any failure in one line."""
        self._status = status
        self._closing.set()
        self._wake.set()
        self._thread.join(self._closing_seconds)
        if self._thread.is_alive() and not self._error:
            return self._message(f"no answer within {self._closing_seconds:g} s")
        return self._message(self._error) if self._error else ""

    def _message(self, reason: str) -> str:
        return (
            f"tracking stopped ({reason}); the records are complete: {_repair(self._run, reason)}"
            f"`neorl-train inspect {self._run.path} --track` writes them later"
        )

    def _work(self) -> None:
        self._wake.wait()
        copy: Any = None
        sampled, monitors = 0.0, None
        while True:
            self._wake.clear()
            last = self._closing.is_set()
            try:
                from neorl_train.runs._mlflow import MlflowCopy

                copy = MlflowCopy(self._run) if copy is None else copy
                monitors = SystemMetrics() if monitors is None else monitors
                copy.update()
                if last or time.monotonic() - sampled > SAMPLE_SECONDS:
                    copy.measure(monitors.sample(), time.time())
                    sampled = time.monotonic()
                if last:
                    copy.end(self._status)
                self._error = ""
            except Exception as error:
                # The next copy recognises partial writes by their tags.
                self._error, copy = failure(error), None
            if last:
                return
            self._wake.wait(SAMPLE_SECONDS)


def failure(error: Exception) -> str:
    """The message of the database, without its statement and the address of its manual."""
    message = re.sub(r"\s*\(Background on this error at: \S+\)", "", one_line(error))
    return message.partition(" [SQL:")[0][:200]


def copy_once(run: RunDirectory) -> None:
    """Copies the records of a run to MLflow now.

    Raises:
        InputError: If they cannot be copied; one line gives the reason, and what to do if the
            database is damaged.
    """
    from neorl_train.runs._mlflow import copy_to_mlflow

    try:
        copy_to_mlflow(run)
    except InputError:
        raise
    except Exception as error:  # MLflow and its database raise errors of many classes.
        reason = failure(error)
        raise InputError(
            f"the records of {run.path} cannot be copied to MLflow ({reason}); "
            f"{_repair(run, reason)}run the same command again"
        ) from error


def _repair(run: RunDirectory, reason: str) -> str:
    """What to do first if the database is damaged; else nothing."""
    if any(text in reason for text in DAMAGED):
        return f"move {run.path.parent / MLFLOW_DATABASE} away, which is damaged, and "
    return ""


def mlflow_installed() -> bool:
    """Whether MLflow and the packages for its SQLite store can be imported."""
    needed = ("mlflow", "sqlalchemy", "alembic")
    return all(importlib.util.find_spec(name) is not None for name in needed)
