"""Collects a plant log larger than memory in several files, and resumes after an interruption."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from neorl_core import Policy
from neorl_envs.datasets._checks import DatasetError, blocks
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.datasets._file import map_unchecked, require_file_hash
from neorl_envs.datasets._shards import (
    Manifest,
    Shard,
    finish_manifest,
    is_manifest,
    read_manifest,
    save_manifest,
    spec_digest,
    write_shard,
)
from neorl_envs.recording._behaviour import OperatorPlan, Recordable
from neorl_envs.recording._collect import Collection, provenance_attributes

Say = Callable[[str], None]


def collect_shards(
    path: Path,
    env: Recordable,
    controllers: Mapping[str, Policy] | None = None,
    *,
    n_steps: int,
    rows: int = 1_000_000,
    key: PRNGKeyArray,
    plan: OperatorPlan | None = None,
    spread: float = 0.15,
    log_prob: bool = False,
    say: Say = lambda line: None,
) -> Path:
    """Collects the log of :func:`neorl_envs.collect_log` in several files with a manifest.

    Only one file is in memory at a time. The rows and the content hash are the same as for a log
    collected in memory. The manifest is updated after every file. After an interruption, the same
    call keeps the complete files and continues after them.

    Args:
        path: Path of the manifest; its name ends with ``.shards.json``. The files are written to
            the same folder.
        env: See ``collect_log``.
        controllers: See ``collect_log``.
        n_steps: See ``collect_log``.
        rows: A file ends with the block of episodes in which it reaches this many rows.
        key: See ``collect_log``.
        plan: See ``collect_log``.
        spread: See ``collect_log``.
        log_prob: See ``collect_log``.
        say: Called with one line for every file.

    Returns:
        The path of the manifest.

    Raises:
        DatasetError: If the manifest belongs to another collection, or one of its files was
            changed.
        ValueError: See ``collect_log``; also if ``rows`` is below one.
        OSError: If a file cannot be written; the complete files remain.

    Example:
        >>> import neorl_envs
        >>> env = neorl_envs.make("ChemicalReactor-v0")
        >>> collect_shards(  # doctest: +SKIP
        ...     Path("big.shards.json"), env, n_steps=50_000_000, key=jax.random.key(0)
        ... )
        PosixPath('big.shards.json')
    """
    if rows < 1:
        raise ValueError(f"rows of a file must be at least 1, got {rows}")
    collection = Collection.of(
        env, controllers, n_steps=n_steps, key=key, plan=plan, spread=spread, log_prob=log_prob
    )
    request = _request(collection, rows)
    shards, lengths = _completed_files(path, request)
    if shards is None:
        return path
    if shards:
        say(f"{path}: continues after {lengths.sum()} rows in {len(shards)} files")
    parts: list[Any] = []
    pending_lengths: list[np.ndarray] = []
    first = lengths.size
    for block_lengths, block in collection.blocks(lengths):
        parts.append(block)
        pending_lengths.append(block_lengths)
        lengths = np.append(lengths, block_lengths)
        complete = int(lengths.sum()) >= n_steps
        if sum(map(np.sum, pending_lengths)) < rows and not complete:
            continue
        whole = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        part = collection.dataset(whole, first=first, n_episodes=sum(map(len, pending_lengths)))
        shards.append(write_shard(path, len(shards), part))
        save_manifest(path, Manifest(spec_digest(env.spec), "", tuple(shards), {}, request))
        say(f"{shards[-1].file}: {part.n_rows} rows, {lengths.sum()} of at least {n_steps}")
        first, parts, pending_lengths = lengths.size, [], []
    return finish_manifest(path, shards, _attributes(path, shards, collection))


def _request(collection: Collection, rows: int) -> dict[str, Any]:
    """Everything that determines the rows of the files, as JSON values."""
    numbers = hashlib.sha256()
    for leaf in jax.tree.leaves((dict(collection.policies), collection.plan)):
        numbers.update(np.asarray(leaf).tobytes())
    return json.loads(
        json.dumps(
            {
                **provenance_attributes(collection.key, collection.spread, collection.n_steps),
                "environment": repr(collection.env),
                "controllers": list(collection.policies),
                "numbers of controllers and operators": numbers.hexdigest(),
                "log_prob": collection.log_prob,
                "rows of a file": rows,
            }
        )
    )


def _completed_files(
    path: Path, request: Mapping[str, Any]
) -> tuple[list[Shard] | None, np.ndarray]:
    """The files of an earlier call (``None`` if the log is complete), and their episode lengths.

    Raises a ``DatasetError`` if the files belong to another collection, or were changed.
    """
    nothing = np.zeros(0, np.int64)
    if not path.exists():
        return [], nothing
    if not is_manifest(path):
        raise DatasetError(f"{path}: this file is not a manifest; choose another path")
    manifest = read_manifest(path, complete=False)
    if not manifest.request:
        raise DatasetError(f"{path}: a complete log exists there; choose another path")
    for name in {**request, **manifest.request}:
        requested, started = request.get(name), manifest.request.get(name)
        if requested != started:
            raise DatasetError(
                f"{path}: a log was started there with {name} = {started}, but this call asks for "
                f"{requested}; use the same settings to continue it, or choose another path"
            )
    lengths = [nothing]
    for shard, file in zip(manifest.shards, manifest.paths(path), strict=True):
        part = map_unchecked(file)
        if part.content_hash != shard.content_hash:
            raise DatasetError(f"{file}: it is not the file that {path} lists; remove both")
        require_file_hash(part, str(file))
        lengths.append(np.asarray(part.episode_lengths))
    return list(manifest.shards), np.concatenate(lengths)


def _attributes(path: Path, shards: list[Shard], collection: Collection) -> dict[str, Any]:
    """The attributes of the whole log, combined from those of its files."""
    parts = [map_unchecked(path.parent / shard.file) for shard in shards]
    first = dict(parts[0].attributes)
    weights = np.array([part.n_rows for part in parts], np.float64)
    weights /= weights.sum()
    excitations = [part.attributes["excitation"] for part in parts]
    deviations = _deviations(parts)
    channels = []
    for i, channel in enumerate(excitations[0]["channels"]):
        channels_of_parts = [excitation["channels"][i] for excitation in excitations]
        fractions = {
            name: float(weights @ [one[name] for one in channels_of_parts])
            for name in ("prbs_fraction_of_steps", "manual_fraction_of_steps")
        }
        channels.append({**channel, **fractions, "action_std": float(deviations[i])})
    stepped = "setpoint_fraction_of_steps"
    excitation = {
        **excitations[0],
        "channels": channels,
        stepped: float(weights @ [one[stepped] for one in excitations]),
    }
    episodes = sum(part.n_episodes for part in parts)
    provenance = {**first["provenance"], "episodes": episodes}
    return {**first, "excitation": excitation, "provenance": provenance}


def _deviations(parts: list[Dataset]) -> np.ndarray:
    """Standard deviation of every action over all rows, in two passes."""
    n_rows = sum(part.n_rows for part in parts)

    def total(of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        columns: list[Any] = [part.transitions.action for part in parts]
        sums = [
            of(np.asarray(column[rows], np.float64)).sum(axis=0)
            for column in columns
            for rows in blocks(len(column), column)
        ]
        return np.sum(sums, axis=0) / n_rows

    mean = total(lambda actions: actions)
    return np.sqrt(total(lambda actions: (actions - mean) ** 2))
