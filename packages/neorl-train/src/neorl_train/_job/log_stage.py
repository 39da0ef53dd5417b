"""The stage that provides the log of a run: collected, copied or read, checked and split."""

import dataclasses
from pathlib import Path

import numpy as np

from neorl_core import InputError, Spec
from neorl_envs import Dataset
from neorl_envs.inspection import contradiction_sentences, contradictions, signal_warnings
from neorl_train._job.resolved_run import ResolvedRun, Session
from neorl_train.configuration._sections import batch_sizes
from neorl_train.data._data_warnings import constant_fallback_warnings, data_warnings, zero_limits
from neorl_train.data._experience import Experience, training_experience
from neorl_train.data._source import (
    PlantSource,
    collected_log,
    complete_log,
    is_streamed,
    more_rows,
)
from neorl_train.data._training_data import StreamedData, streamed_sentence
from neorl_train.training._memory import machine_memory, memory_text

BYTES_OF_VALUE = 4


def read_experience(run: ResolvedRun, session: Session) -> Experience | None:
    """Reads the data on which a run is trained and judged, and reports warnings about the log.

    It is ``None`` for a run on a plant that records no log.

    Raises:
        InputError: If the log is gone, damaged beyond repair, or not the one the run began with.
    """
    config, directory, reporter = run.config, session.directory, session.reporter
    path = run.source.log_file(directory.dataset)
    if isinstance(run.source, PlantSource) and not config.data.steps:
        return None
    _collect(run, session)
    reporter.stage(f"reading {path.name}")
    with session.timings.stage("read the log"):
        dataset = run.dataset or complete_log(config.data, path, reporter.print_line)
    _record(run, session, dataset, path)
    if isinstance(run.source, PlantSource) and dataset.n_rows > config.data.steps:
        reporter.note(f"{path.name}: {more_rows(config.data.steps, dataset.n_rows)}")
    if not np.asarray(dataset.transitions.terminated).any():
        reporter.print_line(f"{path.name}: no row is terminated; every episode was truncated")
    signal_sentences: list[str] = []
    if not isinstance(run.source, PlantSource):
        with session.timings.stage("check the log for contradictions"):
            counts = contradictions(dataset)
            signal_sentences = signal_warnings(dataset)
            is_constant = run.config.fallback.kind == "constant"
            of_fallback = constant_fallback_warnings(dataset) if is_constant else []
            warnings = [*signal_sentences, *of_fallback]
        for sentence in contradiction_sentences(counts):
            reporter.print_line(
                f"{path.name}: {sentence}; neorl-envs inspect {path.name} shows more"
            )
        for sentence in warnings:
            reporter.print_line(f"warning: {path.name}: {sentence}")
        for sentence in zero_limits(dataset, run.spec):
            reporter.print_line(f"{path.name}: {sentence}")
    with session.timings.stage("split and statistics"):
        experience = training_experience(
            config.data,
            dataset,
            run.spec,
            penalty=config.penalty,
            batch_sizes=batch_sizes(config),
            path=path,
        )
        experience = dataclasses.replace(experience, signal_warnings=tuple(signal_sentences))
    training = experience.training
    for sentence in data_warnings(
        training.penalised_statistics or training.statistics, training.spec
    ):
        reporter.print_line(f"{path.name}: {sentence}")
    if isinstance(training, StreamedData):
        reporter.print_line(streamed_sentence(path, config.data.memory, training))
    reporter.end(f"{dataset.n_rows} rows, {dataset.n_episodes} episodes")
    return experience


def store_log(run: ResolvedRun, session: Session, dataset: Dataset) -> None:
    """Gives a log that was already read to a run that learns from the same one.

    Raises:
        InputError: If the run began with another log.
    """
    _collect(run, session)
    _record(run, session, dataset, run.source.log_file(session.directory.dataset))


def _collect(run: ResolvedRun, session: Session) -> None:
    """Writes the log of a plant into the run directory."""
    if not isinstance(run.source, PlantSource):
        return
    config, directory, reporter = run.config, session.directory, session.reporter
    require_memory_for_log(run.source.name, run.spec, config.data.steps)
    reporter.stage(f"collecting {config.data.steps} steps of {run.source.name}")
    run.kind.take_log(run, directory)
    with session.timings.stage("collect or copy the log"):
        collected_log(config.data, directory.dataset, reporter.note)


def require_memory_for_log(plant: str, spec: Spec, steps: int) -> None:
    """Refuses a log that would not fit into memory, before its first step is simulated."""
    values = 2 * spec.n_obs + spec.n_action + spec.n_cost + 1
    needed, available = float(BYTES_OF_VALUE * values * steps), machine_memory()
    if needed > available:
        raise InputError(
            f"{steps} steps of {plant} take {memory_text(needed)} of memory, and this machine has "
            f"{memory_text(available)}; set a smaller data.steps, or record several files with "
            f"`neorl-envs collect {plant} --steps {steps} --shard-rows 1000000 --out "
            "log.shards.json` and run on log.shards.json"
        )


def _record(run: ResolvedRun, session: Session, dataset: Dataset, path: Path) -> None:
    """Records the identity of the log, and refuses one with which the run did not begin."""
    directory = session.directory
    expected = directory.record().get("dataset", {}).get("content_hash", dataset.content_hash)
    if expected != dataset.content_hash:
        raise InputError(
            f"{path} is not the log that this run was started with "
            f"({dataset.content_hash[:20]}..., expected {expected[:20]}...); restore it, or start "
            "a new run"
        )
    directory.update_record(
        dataset={
            "file": path.name if path == directory.dataset else str(path),
            "content_hash": dataset.content_hash,
            "rows": dataset.n_rows,
            "episodes": dataset.n_episodes,
            "streamed": is_streamed(run.config.data, path),
        }
    )
