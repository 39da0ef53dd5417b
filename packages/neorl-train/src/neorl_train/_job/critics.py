"""The critics of a run: fitted on its training episodes, tested on its held-out episodes."""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from neorl_agents.critics import save_critic
from neorl_core import InputError
from neorl_core.infrastructure import head, write_json
from neorl_envs import Dataset, read_dataset
from neorl_envs.datasets import data_statistics
from neorl_train._job.artefacts import evenly_spaced_rows
from neorl_train._job.resolution import reopen
from neorl_train._job.watcher import RunWatcher
from neorl_train._process.progress import Reporter
from neorl_train._process.timings import Timings
from neorl_train.choosing import CriticOptions, Critics, TrainingHooks, fit_critics
from neorl_train.configuration._validation import configure
from neorl_train.data._data_warnings import still_actions
from neorl_train.data._split import check_split, sample_of, training_and_held_out
from neorl_train.runs._checkpoints import Checkpoints
from neorl_train.runs._directory import RunDirectory
from neorl_train.runs._names import CRITIC_METRICS, CRITICS, critic_file
from neorl_train.runs._records import Records, read_records
from neorl_train.runs._tracker import NoTracker
from neorl_train.training._plan import plan_in_chunks

VERSION = 1
"""Version of ``critics.json``."""


def fit_run_critics(
    run: RunDirectory, options: CriticOptions, *, print_line: Callable[[str], None] = print
) -> Critics:
    """Fits the critics of a run and writes them beside its policies.

    They are fitted on the episodes that the run trained on, with the run's own cost limits; if the
    log is too large for memory, on as many of its episodes as fit.

    The training loop is that of the learners: an interrupted fit continues from its last checkpoint
    if it is started again with the same options, and its metrics are in ``critics/metrics.jsonl``.

    Returns:
        The critics; their files are ``critics/*.safetensors`` and ``critics.json``.

    Raises:
        InputError: If the log is gone or changed, or there are too few episodes.
    """
    config, record = configure(run.config), run.record()
    resolved = reopen(config)
    path = resolved.source.log_file(run.dataset)
    if not path.exists():
        raise InputError(f"{run.path} has no log yet; continue it: {run.resume_line()}")
    dataset = resolved.dataset or read_dataset(path)
    expected = record.get("dataset", {}).get("content_hash", dataset.content_hash)
    if expected != dataset.content_hash:
        raise InputError(
            f"{path} is not the log that this run was started with; restore the original file"
        )
    check_split(config.data, dataset)
    spec = resolved.spec
    datasets = [
        dataclasses.replace(
            dataset.select_episodes(sample_of(config.data, dataset, episodes)), spec=spec
        )
        for episodes in training_and_held_out(config.data, dataset)
    ]
    training, held_out = datasets
    for sentence in still_actions(data_statistics(training), spec):
        print_line(f"{path.name}: {sentence}")
    trainings = _CriticTrainings(run, options, expected, print_line)
    try:
        hooks = TrainingHooks(trainings.checkpoints, trainings.watcher, trainings.last_metrics)
        critics = fit_critics(training, held_out, options=options, hooks=hooks)
    finally:
        trainings.close()
    _write(run, critics, held_out)
    shutil.rmtree(trainings.folder, ignore_errors=True)
    return critics


class _CriticTrainings:
    """Checkpoints, records and progress of a run's critics, by the name of the critic."""

    def __init__(
        self, run: RunDirectory, options: CriticOptions, log: str, print_line: Callable[[str], None]
    ) -> None:
        self.folder: Path = run.checkpoints("critics")
        self._metrics = run.path / CRITIC_METRICS
        self._options, self._print_line = options, print_line
        self._identity = {"run": run.record()["id"], "dataset_hash": log}
        self._reporter = Reporter()
        self._records: Records | None = None

    def checkpoints(self, name: str) -> Checkpoints:
        """Checkpoints of a critic with these options; other options have their own folder."""
        options_text = json.dumps(dataclasses.asdict(self._options), sort_keys=True)
        folder = f"{name}-{hashlib.sha256(options_text.encode()).hexdigest()[:8]}"
        interval = plan_in_chunks(self._updates(name)).chunk
        return Checkpoints(
            self.folder / folder,
            identity={**self._identity, "critic": name},
            interval=interval,
            keep=1,
            print_line=self._print_line,
        )

    def watcher(self, name: str) -> RunWatcher:
        """Records and progress of a critic."""
        if self._records is None:
            self._metrics.parent.mkdir(exist_ok=True)
            self._records = Records(self._metrics)
        return RunWatcher(
            name,
            (self._options.seed,),
            self._updates(name),
            records=self._records,
            reporter=self._reporter,
            tracker=NoTracker(),
            timings=Timings(),
        )

    def last_metrics(self, name: str) -> dict[str, float]:
        """The metrics of a critic's last recorded chunk."""
        lines = [line for line in read_records(self._metrics) if line["algorithm"] == name]
        return lines[-1]["metrics"]

    def close(self) -> None:
        """Ends the progress display and closes the records."""
        self._reporter.end()
        if self._records is not None:
            self._records.close()

    def _updates(self, name: str) -> int:
        options = self._options
        return options.updates if name == "safety_critic" else options.ensemble_updates


def _write(run: RunDirectory, critics: Critics, held_out: Dataset) -> None:
    obs, action = _parity_rows(held_out)
    for name, critic in (("safety_critic", critics.safety_critic), ("ensemble", critics.ensemble)):
        path = run.path / critic_file(name)
        if critic is None:
            path.unlink(missing_ok=True)
            continue
        path.parent.mkdir(exist_ok=True)
        report = critics.report[name]
        save_critic(path, critic, held_out.spec, obs, action, {"report": report})
    write_json(run.path / CRITICS, {**head("critics", VERSION), **critics.report})


def _parity_rows(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    rows = dataset.transitions
    obs, action = np.asarray(rows.obs), np.asarray(rows.action)
    finite = np.isfinite(obs).all(axis=1) & np.isfinite(action).all(axis=1)
    used = np.flatnonzero(finite & np.asarray(rows.mask, bool))
    chosen = used[evenly_spaced_rows(len(used))]
    return obs[chosen], action[chosen]
