"""Conversion of a historian's export to a dataset."""

import contextlib
import importlib.metadata
import math
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from neorl_core import Channel, CostChannel, InputError, Spec
from neorl_envs.datasets._checks import DatasetError
from neorl_envs.datasets._dataset import Dataset, dataset_from_columns
from neorl_envs.datasets._file import write_pieces
from neorl_envs.plant_logs._configuration import OBSERVED, PlantLog, Tag
from neorl_envs.plant_logs._configuration_file import plain
from neorl_envs.plant_logs._rows import Rows, rules
from neorl_envs.plant_logs._tables import OUTSIDE, Tally, Words, blocks
from neorl_envs.plant_logs._timeline import Samples, Timeline


def _silent(line: str) -> None:
    """Ignores a progress line."""


MEMORY = 10**9
"""Default memory budget of a conversion for samples and rows, bytes."""
VALUE_BYTES, SAMPLE_BYTES = 640, 640
"""Peak bytes for one value of a piece, and for one thinned sample in memory."""


def convert_log(
    config: PlantLog,
    *,
    folder: str | os.PathLike[str] = ".",
    files: Sequence[str | os.PathLike[str]] = (),
    source: str = "plant.toml",
    memory: float = MEMORY,
    say: Callable[[str], None] = _silent,
) -> Dataset:
    """Reads a plant log, resamples it on a time grid and cuts it into episodes.

    No gap longer than the largest allowed gap is filled. A row with an unknown value contains NaN
    and is masked. The dataset must fit into memory; :func:`convert_file` writes larger ones.

    Args:
        config: The configuration, as returned by :func:`read_plant_log`.
        folder: Folder to which the paths of the configuration are relative.
        files: Paths or patterns that replace those of the configuration.
        source: Name of the configuration in error messages.
        memory: Memory for samples, bytes; further samples are written to temporary files.
        say: Called with one line of progress per file.

    Returns:
        The dataset. Its attributes are ``provenance`` (versions, files with their SHA-256,
        configuration), ``ingestion`` (counts of rows and values), ``setpoints``, ``interlocks``
        and ``time_origin``, and ``behaviours`` if a tag says who ran the plant.

    Raises:
        DatasetError: If a file cannot be read (the message names file, row and tag), or if no row
            results.
        InputError: If the configuration is invalid or does not match the log.
    """
    paths = _paths(files or config.log.files, Path(folder), source)
    with _opened_log(config, paths, source, memory, say) as (rows, labels, attributes):
        parts = list(rows.columns())
        columns: dict[str, np.ndarray] = {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0]
        }
        columns |= {name: rows.flag(name) for name in ("terminated", "truncated", "mask")}
        spec = spec_of(config, columns["terminated"] | columns["truncated"], source)
        return dataset_from_columns(
            spec, **columns, behaviour=labels, attributes=attributes, source=source
        )


def convert_file(
    config: PlantLog,
    out: str | os.PathLike[str],
    *,
    folder: str | os.PathLike[str] = ".",
    files: Sequence[str | os.PathLike[str]] = (),
    source: str = "plant.toml",
    memory: float = MEMORY,
    say: Callable[[str], None] = _silent,
) -> Path:
    """Converts a plant log to a dataset file in bounded memory.

    The content is identical to the result of :func:`convert_log`, bit for bit. Samples that do not
    fit into memory are written to temporary files, one per part of the time axis, and rows are
    computed piece by piece. In addition to ``memory``, about 20 bytes per row are held for flags
    (60 in the longest stretch without a gap), and one row group of Parquet is decoded at a time.

    Args:
        config: See :func:`convert_log`.
        out: Path of the dataset file, which is written completely or not at all.
        folder: See :func:`convert_log`.
        files: See :func:`convert_log`.
        source: See :func:`convert_log`.
        memory: Memory for samples and rows, bytes.
        say: See :func:`convert_log`.

    Returns:
        The path of the file.

    Raises:
        DatasetError: See :func:`convert_log`; nothing is written.
        InputError: See :func:`convert_log`.
        OSError: If the file cannot be written; no partial file remains.
    """
    paths = _paths(files or config.log.files, Path(folder), source)
    with _opened_log(config, paths, source, memory, say) as (rows, labels, attributes):
        flags = {name: rows.flag(name) for name in ("terminated", "truncated", "mask")}
        spec = spec_of(config, flags["terminated"] | flags["truncated"], source)
        return write_pieces(
            Path(out), spec, attributes, flags, rows.columns(), source=source, behaviour=labels
        )


@contextlib.contextmanager
def _opened_log(
    config: PlantLog,
    paths: Sequence[Path],
    source: str,
    memory: float,
    say: Callable[[str], None],
) -> Iterator[tuple[Rows, np.ndarray | None, dict[str, Any]]]:
    """Context with a log's rows, behaviour per episode and attributes; deletes temporary files."""
    rule = rules(config, source)
    spec_of(config, np.ones(1, np.bool_), source)  # rejects bad channels before reading
    n_tags = len(config.tags)
    piece = max(8, int(memory / (VALUE_BYTES * n_tags * config.history.steps)))
    with tempfile.TemporaryDirectory(prefix="neorl-log-") as temporary:
        tally: Tally = Tally()
        words: dict[str, Words] = {}
        samples = Samples(
            period=round(config.sampling.period_s * 1e9),
            folder=Path(temporary),
            most_rows=max(64, int(memory / SAMPLE_BYTES)),
            part_periods=piece,
        )
        for block in blocks(config, paths, tally, words, memory):
            samples.add(block)
        _require_names(config, tally, source)
        for entry in tally.files:
            size, unit = (1e6, "MB") if entry["bytes"] >= 1e5 else (1e3, "kB")
            say(f"{entry['name']}: {entry['bytes'] / size:.1f} {unit}")
        required = [i for i, t in enumerate(config.tags) if t.role in (*OBSERVED, "manipulated")]
        gap = config.episodes.gap_s / config.sampling.period_s
        timeline = Timeline(samples, n_tags, required, gap=gap)
        for tag, conflicts in zip(config.tags, timeline.conflicts, strict=True):
            tally.count(tag.name, "contradicting", int(conflicts))
        rows = Rows(
            config, rule, timeline, words, period=samples.period, at_once=piece, source=source
        )
        if not rows.n_rows:
            why = _why(config, timeline.valid, rows.counts, tally)
            raise DatasetError(f"{source}: no row of the log can be used: {why}")
        labels, names = _behaviour(config, rows, words)
        attributes = _attributes(config, tally, rows, samples, timeline)
        yield rows, labels, {**attributes, **({"behaviours": names} if names else {})}


def _require_names(config: PlantLog, tally: Tally, source: str) -> None:
    """Raises if values that say who ran the plant are missing and the file does not say why.

    An empty cell may mean that a name is logged only when it changes, or that nobody is known.
    Filled in by default, the moves of one crew would be taken for those of another.
    """
    for tag in config.of_role("behaviour"):
        counts = tally.tags.get(tag.name, Counter())
        missing = counts["missing"] + counts["bad quality"]
        if missing and math.isnan(tag.largest_gap_s):
            raise DatasetError(
                f"{source}: tag {tag.name!r} ({tag.logged_as}) says who ran the plant, and "
                f"{missing} of its values are missing; set its largest_gap_s: inf if a name holds "
                "until the next one, otherwise the seconds for which it holds (rows in which "
                "nobody is known are left out)"
            )


def _behaviour(
    config: PlantLog, rows: Rows, words: Mapping[str, Words]
) -> tuple[np.ndarray | None, list[str]]:
    """Who ran the plant in every episode, as an index into names in the order of the log."""
    tags = config.of_role("behaviour")
    if not tags:
        return None, []
    ends = np.flatnonzero(rows.flag("terminated") | rows.flag("truncated"))
    codes = rows.flag("behaviour")[np.append(0, ends[:-1] + 1)]
    used, first, index = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    known = list(words[tags[0].name].known)
    return np.argsort(order)[index].astype(np.int32), [known[used[place]] for place in order]


def _paths(patterns: Sequence[str | os.PathLike[str]], folder: Path, source: str) -> list[Path]:
    paths: list[Path] = []
    for pattern in map(str, patterns):
        plain_path = folder / pattern
        matches = [plain_path] if plain_path.exists() else sorted(_glob(folder, pattern))
        if not matches:
            raise InputError(f"{source}: log.files: no file {pattern!r} in {folder}")
        paths += matches
    return list(dict.fromkeys(paths))


def _glob(folder: Path, pattern: str) -> list[Path]:
    if os.path.isabs(pattern):
        return list(Path(pattern).parent.glob(Path(pattern).name))
    return list(folder.glob(pattern))


def _why(config: PlantLog, valid: np.ndarray, counts: Counter[str], tally: Tally) -> str:
    empty = [tag for tag, known in zip(config.tags, valid, strict=True) if not known]
    if empty:
        return f"no valid sample of {', '.join(_losses(tag, tally) for tag in empty)}"
    most = counts.most_common(1)
    return f"{most[0][1]} times '{most[0][0]}'" if most and most[0][1] else "fewer than two samples"


def _losses(tag: Tag, tally: Tally) -> str:
    """A tag with the number of its values lost, by reason."""
    counts = tally.tags.get(tag.name, Counter())
    parts = [f"{number} {reason}" for reason, number in counts.items() if reason != OUTSIDE]
    if counts[OUTSIDE]:
        least, most = tally.extent[tag.name]
        parts.append(
            f"{counts[OUTSIDE]} outside the range {tag.low:g} to {tag.high:g} {tag.unit}, from "
            f"{least:g} to {most:g}: check low and high, or factor and offset"
        )
    return f"{tag.name!r}" + (f" ({'; '.join(parts)})" if parts else "")


def spec_of(config: PlantLog, ended: np.ndarray, source: str) -> Spec:
    """The specification of the dataset: channels, period and longest episode.

    Raises an ``InputError`` if a channel is invalid, for example because it has no name.
    """
    try:
        return _spec_of(config, ended)
    except ValueError as error:
        raise InputError(f"{source}: {error}") from error


def _spec_of(config: PlantLog, ended: np.ndarray) -> Spec:
    observed = [Channel(t.name, t.unit, t.low, t.high) for t in config.of_role(*OBSERVED)]
    actions = [Channel(t.name, t.unit, t.low, t.high) for t in config.of_role("manipulated")]
    obs = list(observed)
    for lag in range(1, config.history.steps):
        for channel in [*observed, *(actions if config.history.actions else ())]:
            obs.append(Channel(f"{channel.name}[-{lag}]", channel.unit, channel.low, channel.high))
    ends = np.flatnonzero(ended)
    longest = int(np.diff(np.append(-1, ends)).max())
    return Spec(
        obs=tuple(obs),
        action=tuple(actions),
        cost=tuple(CostChannel(c.name, c.unit, c.limit, c.per) for c in config.costs),
        dt=config.sampling.period_s,
        horizon=max(longest, config.episodes.length),
    )


def _finite(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Drops infinite limits, which JSON cannot represent; a missing limit means no limit."""
    return [
        {k: v for k, v in one.items() if not (isinstance(v, float) and math.isinf(v))}
        for one in records
    ]


def _excluded_periods(config: PlantLog, rows: Rows) -> list[dict[str, Any]]:
    return [
        {"from": one.begin, "to": one.end, "reason": one.reason, "rows": int(number)}
        for one, number in zip(config.excludes, rows.excluded, strict=True)
    ]


def _attributes(
    config: PlantLog, tally: Tally, rows: Rows, samples: Samples, timeline: Timeline
) -> dict[str, Any]:
    setpoints = [{"name": t.name, "unit": t.unit} for t in config.of_role("setpoint")]
    terms = [{"name": t.name, "unit": t.unit, "worth": t.worth} for t in config.terms]
    return {
        "name": config.name,
        "time_origin": "1970-01-01T00:00:00Z",
        **({"setpoints": setpoints} if setpoints else {}),
        **({"constraints": _finite(config.constraints)} if config.constraints else {}),
        **({"terms": terms} if terms else {}),
        **({"interlocks": plain(config)["interlock"]} if config.interlocks else {}),
        "reward": {"expression": config.reward.expression, "unit": config.reward.unit},
        "ingestion": {
            "rows_read": tally.rows,
            "samples": samples.count,
            "repeated": samples.repeated,
            "out_of_order": tally.out_of_order,
            "in_a_repeated_hour": tally.ambiguous,
            **({"unreadable_stamps": tally.unreadable} if tally.unreadable else {}),
            **({"repeated_hours": tally.lost} if tally.lost else {}),
            "offsets_from_utc": sorted(tally.offsets),
            "tags": {name: dict(counter) for name, counter in sorted(tally.tags.items())},
            "unknown_tags": sorted(tally.unknown)[:50],
            "rows": {name: number for name, number in rows.counts.items() if number},
            **({"empty_periods": timeline.empty} if timeline.empty else {}),
            **({"excluded": _excluded_periods(config, rows)} if config.excludes else {}),
            "unknown": {
                tag.name: {
                    "rows": rows.unknown[tag.name],
                    "alone": rows.alone[tag.name],
                    "mean_spacing_s": float(spacing),
                }
                for tag, spacing in zip(config.tags, timeline.spacing_s, strict=True)
                if rows.unknown[tag.name]
            },
        },
        "provenance": {
            "generator": "neorl_envs.plant_logs.convert_log",
            "neorl-envs": importlib.metadata.version("neorl-envs"),
            "polars": pl.__version__,
            "files": tally.files,
            "configuration": plain(config),
        },
    }
