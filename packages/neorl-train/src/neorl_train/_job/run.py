"""A run as a Python object: started, resumed or opened."""

import os
from pathlib import Path
from typing import Any, Literal

import jax

from neorl_agents import load_policy
from neorl_core import Policy
from neorl_core.infrastructure import replacing, unknown_name
from neorl_train._job.job import resume_job, run_job
from neorl_train._process.control import cores, prepare_process
from neorl_train._process.progress import Reporter, Timings
from neorl_train.configuration._sections import Config
from neorl_train.configuration._validation import configure
from neorl_train.judging._results import Evaluation, read_evaluation
from neorl_train.judging._verdict import Verdict, read_verdict
from neorl_train.pages.sections._learning import plot_learning
from neorl_train.pages.sections._trends import plot_episode
from neorl_train.runs._directory import REPORT, VERDICT, RunDirectory, policy_file


class Run:
    """A run directory and its contents, read afresh at every access.

    Args:
        path: The directory, such as ``"runs/0001"``.

    Attributes:
        path: Its absolute path.

    Raises:
        InputError: If it is not a run directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._directory = RunDirectory(self.path)
        self._directory.record()

    @property
    def record(self) -> dict[str, Any]:
        """Content of ``run.json``: status, versions, hashes, limits as text."""
        return self._directory.record()

    @property
    def config(self) -> Config:
        """The fully resolved configuration in ``config.toml``."""
        return configure(self._directory.config)

    @property
    def verdict(self) -> Verdict:
        """The decision about the candidate, and its reasons.

        Raises:
            InputError: If the run has not been evaluated yet.
        """
        return read_verdict(self.path)

    @property
    def evaluation(self) -> Evaluation:
        """The results: tables, episodes, traces.

        Raises:
            InputError: If the run has not been evaluated yet.
        """
        return read_evaluation(self.path)

    @property
    def report(self) -> Path:
        """The HTML report, once the run is finished."""
        return self.path / REPORT

    def policy(self, name: str = "") -> Policy:
        """A trained policy, without its guard.

        Args:
            name: For example ``"iql-0"``; the judged candidate by default.

        Returns:
            The policy; ``carry, action = policy(carry, obs, None)`` acts in physical units.

        Raises:
            ArtefactError: If there is no policy of that name, or its file is damaged.
        """
        return load_policy(self.path / policy_file(name or self.verdict.candidate)).policy

    def plot(
        self,
        file: str | os.PathLike[str] | None = None,
        *,
        what: Literal["", "episode", "learning"] = "",
    ) -> Any:
        """Draws one figure of the run; the report contains all of them.

        Args:
            file: File to which the figure is also written, atomically; the suffix determines the
                format, ``.png`` if there is none.
            what: ``"episode"`` shows a typical episode of the guarded candidate, with the reference
                in the background; ``"learning"`` shows the learning curves of every seed. The
                default is the episode if there was a simulator, else the curves.

        Returns:
            A ``matplotlib.figure.Figure``.

        Raises:
            InputError: If there is no such figure, the run has no such data, or matplotlib is
                missing.
        """
        if what not in ("", "episode", "learning"):
            raise unknown_name("figure", what, ("episode", "learning"))
        evaluation = self.evaluation
        what = what or ("episode" if evaluation.tables.environment else "learning")
        figure = plot_learning(self.path) if what == "learning" else plot_episode(evaluation)
        if file is not None:
            path = Path(file) if Path(file).suffix else Path(f"{file}.png")
            with replacing(path) as temporary:
                figure.savefig(temporary, format=path.suffix.removeprefix("."))
        return figure

    def __repr__(self) -> str:
        """One line with path, progress and verdict."""
        record = self.record
        seeds = ", ".join(map(str, record["seeds"]))
        learners = ", ".join(record["algorithms"])
        trained = f"{learners}, seeds {seeds}, " if learners else ""
        answer = f", {self.verdict.answer}" if (self.path / VERDICT).exists() else ""
        return f"Run({self.path}: {trained}{record['status']}{answer})"


def start(config: Config, *, quiet: bool = False, brief: bool = False) -> Run:
    """Trains, evaluates, judges and reports, as ``neorl-train run`` does.

    If nothing has run on a device yet, this makes every core a device, so that seeds train in
    parallel; otherwise it reports in one line what that costs. The results are bit-identical.

    Args:
        config: Result of :func:`configure`.
        quiet: Whether to show no progress.
        brief: Whether to show one line for each stage, when it ends.

    Returns:
        The finished run, in the next numbered folder of ``config.output.directory``.

    Raises:
        InputError: In one line; if a run directory exists by then, it can be resumed.
        InterruptedRunError: After a signal; the run can be resumed.
    """
    reporter = _prepare(config, Reporter(quiet=quiet, brief=brief))
    return Run(run_job(config, reporter, Timings()).path)


def resume(run: str | os.PathLike[str] | Run, *, quiet: bool = False) -> Run:
    """Continues a run from its last checkpoints, with bit-identical results.

    Args:
        run: The run or its directory; a finished and complete one is left unchanged.
        quiet: Whether to show no progress.

    Returns:
        The finished run.

    Raises:
        InputError: As in :func:`start`; also if its configuration was changed.
        InterruptedRunError: After a signal; the run can be resumed.
    """
    existing = run if isinstance(run, Run) else Run(run)
    config = existing.config
    reporter = _prepare(config, Reporter(quiet=quiet))
    return Run(resume_job(RunDirectory(existing.path), config, reporter, Timings()).path)


def _prepare(config: Config, reporter: Reporter) -> Reporter:
    prepare_process()
    usable_cores, devices = min(cores(), len(config.training.seeds)), len(jax.local_devices())
    if devices < usable_cores and jax.default_backend() == "cpu":
        reporter.print_line(
            f"JAX was used before start() with {devices} device{'s' * (devices > 1)}, so the seeds "
            "take turns; call start() first, or set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={cores()}"
        )
    return reporter
