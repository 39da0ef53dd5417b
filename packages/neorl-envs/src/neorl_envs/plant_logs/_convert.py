"""A historian's export into a dataset."""

import importlib.metadata
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from neorl_core import Channel, CostChannel, InputError, Spec
from neorl_envs.datasets._checks import DatasetError
from neorl_envs.datasets._dataset import Dataset, dataset_from_columns
from neorl_envs.plant_logs._configuration import OBSERVED, PlantLog
from neorl_envs.plant_logs._episodes import Rules, piece_rows, rules
from neorl_envs.plant_logs._grid import TagSamples, piece, stretches
from neorl_envs.plant_logs._plain import plain
from neorl_envs.plant_logs._samples import Samples
from neorl_envs.plant_logs._tables import Tally, Words, blocks

MOST_ROWS = 200_000_000


def convert_log(
    config: PlantLog,
    *,
    folder: str | os.PathLike[str] = ".",
    files: Sequence[str | os.PathLike[str]] = (),
    source: str = "plant.toml",
    say: Callable[[str], None] = lambda line: None,
) -> Dataset:
    """Reads a plant log, brings it on a grid of times and cuts it into episodes.

    The files are read in blocks and may be larger than memory; what must fit is the table on the
    grid. Nothing is filled beyond the largest gap, and a row of which anything is unknown is
    masked, with NaN in it.

    Args:
        config: The configuration, as :func:`read_plant_log` gives it.
        folder: Where its files are looked for.
        files: Paths or patterns in place of those of the configuration.
        source: Name of the configuration in messages.
        say: Called with a line for every file.

    Returns:
        The dataset. Attributes: ``provenance`` (versions, files with their SHA-256,
        configuration), ``ingestion`` (what was counted), ``setpoints`` and ``time_origin``.

    Raises:
        DatasetError: If a file cannot be read; file, row and tag are named. If there is no row.
        InputError: If the configuration does not fit.
    """
    rule = rules(config, source)
    paths = _paths(files or config.log.files, Path(folder), source)
    tally, words = Tally(), {}
    samples = Samples(round(config.sampling.period_s * 1e9))
    for block in blocks(config, paths, tally, words):
        samples.add(block)
    for entry in tally.files:
        say(f"{entry['name']}: {entry['bytes'] / 1e6:.1f} MB")
    by_tag = _by_tag(config, samples, tally, words)
    columns, counts = _rows(config, rule, samples, by_tag, source)
    return dataset_from_columns(
        spec_of(config, columns),
        **columns,
        attributes=_attributes(config, tally, counts, samples),
        source=source,
    )


def _paths(patterns: Sequence[str | os.PathLike[str]], folder: Path, source: str) -> list[Path]:
    paths: list[Path] = []
    for pattern in map(str, patterns):
        plain_path = folder / pattern
        found = [plain_path] if plain_path.exists() else sorted(_glob(folder, pattern))
        if not found:
            raise InputError(f"{source}: log.files: no file {pattern!r} in {folder}")
        paths += found
    return list(dict.fromkeys(paths))


def _glob(folder: Path, pattern: str) -> list[Path]:
    if os.path.isabs(pattern):
        return list(Path(pattern).parent.glob(Path(pattern).name))
    return list(folder.glob(pattern))


def _by_tag(
    config: PlantLog, samples: Samples, tally: Tally, words: dict[str, Words]
) -> dict[str, TagSamples]:
    by_tag = {}
    for index, tag in enumerate(config.tags):
        at, value, conflicts = samples.of_tag(index)
        tally.count(tag.name, "contradicting", conflicts)
        by_tag[tag.name] = TagSamples(at, value)
        if tag.role == "mode":
            known = words.get(tag.name, Words()).known
            automatic = [code for word, code in known.items() if word in tag.automatic]
            by_tag[f"{tag.name} is automatic"] = TagSamples(at, np.isin(value, automatic) * 1.0)
    return by_tag


def _rows(
    config: PlantLog,
    rule: Rules,
    samples: Samples,
    by_tag: dict[str, TagSamples],
    source: str,
) -> tuple[dict[str, np.ndarray], Counter[str]]:
    """The columns of all stretches of the log."""
    counted = [i for i, tag in enumerate(config.tags) if tag.role in (*OBSERVED, "manipulated")]
    bins = samples.bins(counted)
    counts: Counter[str] = Counter()
    parts = []
    found_stretches = stretches(bins, config)
    n_rows = sum(map(len, found_stretches))
    if n_rows > MOST_ROWS:
        raise DatasetError(
            f"{source}: {n_rows} rows of {config.sampling.period_s:g} s; look for "
            "a stamp far from the others, or choose a longer sampling.period_s"
        )
    for periods in found_stretches:
        times = np.arange(periods.start, periods.stop) * samples.period
        part = piece(times, by_tag, config)
        for tag in config.of_role("mode"):
            name = f"{tag.name} is automatic"
            part.values[name] = piece_mode(part.at, by_tag[name])
        found = piece_rows(part, config, rule, counts)
        if found is not None:
            parts.append(found)
    counts["stretches without a gap"] = len(found_stretches)
    if not parts:
        raise DatasetError(f"{source}: the log gives no row: {_why(config, by_tag, counts)}")
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, counts


def piece_mode(times: np.ndarray, samples: TagSamples) -> np.ndarray:
    """Whether a mode was automatic; NaN before its first word."""
    before = np.searchsorted(samples.at, times, side="right") - 1
    if not len(samples.at):
        return np.full(len(times), np.nan)
    return np.where(before >= 0, samples.value[np.maximum(before, 0)], np.nan)


def _why(config: PlantLog, by_tag: dict[str, TagSamples], counts: Counter[str]) -> str:
    empty = [tag.name for tag in config.tags if not np.isfinite(by_tag[tag.name].value).any()]
    if empty:
        return f"no valid sample of {', '.join(map(repr, empty))}"
    most = counts.most_common(1)
    return f"{most[0][1]} times '{most[0][0]}'" if most and most[0][1] else "it has no two samples"


def spec_of(config: PlantLog, columns: dict[str, np.ndarray]) -> Spec:
    """Channels, period and the longest episode."""
    observed = [Channel(t.name, t.unit, t.low, t.high) for t in config.of_role(*OBSERVED)]
    actions = [Channel(t.name, t.unit, t.low, t.high) for t in config.of_role("manipulated")]
    obs = list(observed)
    for back in range(1, config.history.steps):
        for channel in [*observed, *(actions if config.history.actions else ())]:
            obs.append(Channel(f"{channel.name}[-{back}]", channel.unit, channel.low, channel.high))
    ends = np.flatnonzero(columns["terminated"] | columns["truncated"])
    longest = int(np.diff(np.append(-1, ends)).max())
    return Spec(
        obs=tuple(obs),
        action=tuple(actions),
        cost=tuple(CostChannel(c.name, c.unit, c.limit, c.per) for c in config.costs),
        dt=config.sampling.period_s,
        horizon=max(longest, config.episodes.length),
    )


def _attributes(
    config: PlantLog, tally: Tally, counts: Counter[str], samples: Samples
) -> dict[str, Any]:
    setpoints = [{"name": t.name, "unit": t.unit} for t in config.of_role("setpoint")]
    return {
        "name": config.name,
        "time_origin": "1970-01-01T00:00:00Z",
        **({"setpoints": setpoints} if setpoints else {}),
        "reward": {"expression": config.reward.expression, "unit": config.reward.unit},
        "ingestion": {
            "rows_read": tally.rows,
            "samples": samples.count,
            "repeated": samples.repeated,
            "out_of_order": tally.out_of_order,
            "in_a_repeated_hour": tally.ambiguous,
            "offsets_from_utc": sorted(tally.offsets),
            "tags": {name: dict(counter) for name, counter in sorted(tally.tags.items())},
            "unknown_tags": sorted(tally.unknown)[:50],
            "rows": {name: number for name, number in counts.items() if number},
        },
        "provenance": {
            "generator": "neorl_envs.plant_logs.convert_log",
            "neorl-envs": importlib.metadata.version("neorl-envs"),
            "polars": pl.__version__,
            "files": tally.files,
            "configuration": plain(config),
        },
    }
