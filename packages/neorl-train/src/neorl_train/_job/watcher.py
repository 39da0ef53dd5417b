"""Relays training events to the record, the progress bar and MLflow."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from neorl_core.infrastructure import publish_compiled_programs
from neorl_core.infrastructure.command_line import StoppedError
from neorl_train._job.resolved_run import Session
from neorl_train._process.progress import Profile, Reporter, Timings
from neorl_train.runs._checkpoints import import_ahead
from neorl_train.runs._records import Records, read_records
from neorl_train.runs._tracker import MlflowTracker, NoTracker, Tracker, mlflow_installed
from neorl_train.training._memory import TrainingMemory, memory_text

READY, COMPILED, FIRST_CHUNK = "states ready", "compiled", "end of the first chunk"


class RunWatcher:
    """Writes the records of one algorithm, shows its progress and notifies the tracker.

    Args:
        algorithm: Name of the learner.
        seeds: Seeds of the training runs, in the order of the metrics.
        updates: Number of critic gradient steps for each seed.
        records: Records to which every line is added.
        reporter: Progress reporter.
        tracker: Tracker that follows the records.
        timings: Record of when the first chunk ended.
        profile: Traces of the first chunks; none by default.
    """

    def __init__(
        self,
        algorithm: str,
        seeds: tuple[int, ...],
        updates: int,
        *,
        records: Records,
        reporter: Reporter,
        tracker: Tracker,
        timings: Timings,
        profile: Profile | None = None,
    ) -> None:
        self._algorithm, self._seeds, self._updates = algorithm, seeds, updates
        self._records, self._reporter = records, reporter
        self._tracker, self._timings = tracker, timings
        self._profile = profile or Profile()
        self._start_step, self._bar_shown = 0, False

    def begin(self, step: int) -> bool:
        """Drops records later than ``step``; returns whether ``step`` itself was validated."""
        self._records.sync()
        validations = sum(
            line["algorithm"] == self._algorithm and line["step"] == step
            for line in read_records(self._records.path)
            if line["kind"] == "validation"
        )
        validated = validations == len(self._seeds)
        self._records.keep(partial(_is_before, self._algorithm, step, validated))
        self._start_step = step
        if 0 < step < self._updates:
            self._reporter.print_line(f"{self._algorithm} continues after update {step}")
        return validated

    def compiling(self) -> None:
        """Shows that compilation has started."""
        self._timings.mark(READY)
        self._reporter.stage(f"compiling {self._algorithm}")

    def takes(self, memory: TrainingMemory) -> None:
        """Reports the memory needed, before it is allocated."""
        has = f"; {memory.place} {memory_text(memory.available)}" if memory.is_known else ""
        self._reporter.note(f"training {self._algorithm} needs {memory}{has}")

    def running(self) -> None:
        """Notes the time."""
        self._timings.mark(COMPILED)
        self._profile.begin(self._algorithm)

    def chunk(self, step: int, metrics: list[dict[str, float]]) -> None:
        """Records a chunk and shows its alphabetically first loss."""
        self._timings.mark(FIRST_CHUNK)
        self._profile.chunk()
        self._write("chunk", step, metrics)
        if not self._bar_shown:
            self._bar_shown = True
            import_ahead()
            # A run that is killed later leaves its compiled programs to the next one.
            publish_compiled_programs()
            seeds = len(self._seeds)
            name = f"training {self._algorithm}, {seeds} seed{'s' if seeds > 1 else ''}"
            rate_unit = f"updates/s over {seeds} seeds" if seeds > 1 else "updates/s"
            self._reporter.stage(
                name, total=self._updates * seeds, done=self._start_step * seeds, unit=rate_unit
            )
        name = next(iter(sorted(metrics[0])))
        mean = sum(metrics_of_seed[name] for metrics_of_seed in metrics) / len(metrics)
        self._reporter.update(step * len(self._seeds), f"{name} {mean:.4g}")

    def validated(self, step: int, metrics: list[dict[str, float]]) -> None:
        """Records a validation."""
        self._write("validation", step, metrics)

    def saving(self, step: int) -> None:
        """Makes the records durable before the checkpoint that refers to them."""
        del step
        self._records.sync()
        self._tracker.follow()

    def _write(self, kind: str, step: int, metrics: list[dict[str, float]]) -> None:
        now = round(time.time(), 3)
        for seed, metrics_of_seed in zip(self._seeds, metrics, strict=True):
            line = {"kind": kind, "algorithm": self._algorithm, "seed": seed, "step": step}
            self._records.write({**line, "time": now, "metrics": metrics_of_seed})


def _is_before(algorithm: str, step: int, validated: bool, line: dict[str, Any]) -> bool:
    if line["algorithm"] != algorithm or line["step"] < step:
        return True
    return line["step"] == step and (validated or line["kind"] == "chunk")


@contextmanager
def tracked(session: Session, *, to_mlflow: bool) -> Iterator[Tracker]:
    """A tracker that records how the run ended; its own failures are only reported.

    Without MLflow the records are still in the run; `inspect --track` says what is missing.
    """
    copies = to_mlflow and mlflow_installed()
    tracker = MlflowTracker(session.directory) if copies else NoTracker()
    status = "FAILED"
    try:
        yield tracker
        status = "FINISHED"
    except StoppedError:
        status = "KILLED"
        raise
    finally:
        with session.timings.stage("tracking"):
            failure = tracker.finish(status)
        if failure:
            session.reporter.print_line(failure)
