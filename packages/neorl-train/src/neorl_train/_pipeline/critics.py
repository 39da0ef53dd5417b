"""The critics of a run: fitted on what training saw, tried on what it held out."""

import dataclasses
from collections.abc import Callable

import numpy as np

from neorl_agents.critics import save_critic
from neorl_core import InputError
from neorl_core.infrastructure import head, write_json
from neorl_envs import Dataset, read_dataset
from neorl_envs.datasets import data_statistics
from neorl_train._pipeline.artefacts import spread_rows
from neorl_train._pipeline.resolution import reopened
from neorl_train.configuration._configure import configure
from neorl_train.critics import CriticOptions, Critics, fit_critics
from neorl_train.experience._hindrances import still_actions
from neorl_train.experience._split import both_parts, check_split, sample_of
from neorl_train.runs._directory import RunDirectory
from neorl_train.runs._names import CRITICS, critic_file

VERSION = 1
"""Version of ``critics.json``."""


def fit_run_critics(
    run: RunDirectory, options: CriticOptions, *, say: Callable[[str], None] = print
) -> Critics:
    """Fits the critics of a run and leaves them beside its policies.

    Training fits on the episodes that the run trained on, with the run's own cost limits; of a log
    that is too large for memory, on as many of them as there is room for.

    Args:
        run: A run that has its log.
        options: Sizes and promises.
        say: Called before the fit with what a person should read.

    Returns:
        The critics; their files are ``critics/*.safetensors`` and ``critics.json``.

    Raises:
        InputError: If the log is gone or changed, or there are too few episodes.
    """
    config, record = configure(run.config), run.record()
    resolved = reopened(config)
    path = resolved.source.log_file(run.dataset)
    if not path.exists():
        raise InputError(f"{run.path} has no log yet; continue it: {run.resume_line()}")
    dataset = resolved.dataset or read_dataset(path)
    expected = record.get("dataset", {}).get("content_hash", dataset.content_hash)
    if expected != dataset.content_hash:
        raise InputError(f"{path} is not the log that this run began with; restore it")
    check_split(config, dataset)
    spec = resolved.spec
    parts = [
        dataclasses.replace(
            dataset.select_episodes(sample_of(config, dataset, episodes)), spec=spec
        )
        for episodes in both_parts(config, dataset)
    ]
    training, held_out = parts
    for sentence in still_actions(data_statistics(training), spec):
        say(f"{path.name}: {sentence}")
    critics = fit_critics(training, held_out, options=options)
    _write(run, critics, held_out)
    return critics


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
    chosen = used[spread_rows(len(used))]
    return obs[chosen], action[chosen]
