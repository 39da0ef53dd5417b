"""``neorl-envs convert plant.toml``: converts a historian's export to a dataset file."""

import dataclasses
import json
import math
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from neorl_core import InputError
from neorl_core.infrastructure import head, install_line
from neorl_core.infrastructure.command_line import Positional, parse_options
from neorl_envs.ingest._readers import read_dataset, reader_name
from neorl_envs.inspection._contradictions import (
    interlock_report,
    interlock_warnings,
    reward_is_constant,
    time_report,
)
from neorl_envs.inspection._report import FEWEST
from neorl_envs.inspection._wording import durations, excluded_text

VERSION = 1
"""Version of the JSON document."""
OFTEN = 0.01
"""If a larger fraction of a tag's values is outside its range, the range is questionable."""
FRACTION = 1.1
"""Values in percent up to this one may be fractions of 1, of which some are a little over."""
MASKING = 0.1
"""A tag that is unknown in a larger fraction of the rows is reported."""


@dataclasses.dataclass(frozen=True)
class Convert:
    """Converts a plant log to a dataset file, as described in plant.toml.

    example: neorl-envs convert plant.toml --out log.h5

    Attributes:
        configuration: The plant.toml, or a log whose plant.toml is in the same folder.
        logs: Log files to use instead of those listed in plant.toml.
        out: The dataset file; by default in the folder of plant.toml, with the name of the plant.
        memory: Memory for samples and rows in gigabytes; the rest is stored in temporary files.
        overwrite: Replace an existing file.
        json: Print JSON instead of text; progress is on standard error.
    """

    configuration: Positional[Path]
    logs: Positional[tuple[Path, ...]] = ()
    out: Path | None = None
    memory: float = 1.0
    overwrite: bool = False
    json: bool = False


def command(words: list[str]) -> None:
    """``neorl-envs convert``."""
    options = parse_options(Convert, words, program="neorl-envs convert")
    plant_logs = plant_log_tools()
    path, logs = _configuration(options)
    config = plant_logs.read_plant_log(path)
    out = options.out or path.parent / f"{config.name}.h5"
    check_destination(out, options.overwrite)
    plant_logs.convert_file(
        config,
        out,
        folder=Path.cwd() if logs else path.parent,
        files=logs,
        source=str(path),
        memory=options.memory * 1e9,
        say=partial(print, file=sys.stderr) if options.json else print,
    )
    dataset = read_dataset(out, memory_map=True)
    columns: Any = dataset.transitions
    warnings = [*_draft_warnings(path, config, columns), *_empty(path, config, dataset)]
    warnings += [*_masking_tags(path, config, dataset), *_unusable(path, config, dataset)]
    warnings += interlock_warnings(interlock_report(dataset)["entries"], time_report(dataset))
    counts = {
        "rows": dataset.n_rows,
        "masked": dataset.n_rows - int(columns.mask.sum()),
        "episodes": dataset.n_episodes,
        "terminated": int(columns.terminated.sum()),
    }
    if options.json:
        document = {"file": str(out), **counts, "ingestion": dataset.attributes["ingestion"]}
        print(json.dumps({**head("conversion", VERSION), **document, "warnings": warnings}))
        return
    _print(out, counts, dataset)
    for line in warnings:
        print(f"warning: {line}")
    print(f"Next: neorl-envs inspect {out}")


def _print(out: Path, counts: dict[str, int], dataset: Any) -> None:
    """Prints what became of the rows of a log."""
    episodes = f"{counts['episodes']} episode{'s' * (counts['episodes'] != 1)}"
    print(
        f"{out}: {counts['rows']} rows ({counts['masked']} masked) in {episodes}, "
        f"{counts['terminated']} terminated"
    )
    counted = dataset.attributes["ingestion"]["rows"]
    print(
        f"from {counted.get('of the running plant', 0)} rows of the running "
        f"plant{_masked_reasons(counted)}"
    )
    for name, word in (("excluded", "excluded"), ("repeated_hours", "left out")):
        for one in dataset.attributes["ingestion"].get(name, ()):
            print(f"{word}: {excluded_text(one)}")
    if dataset.behaviour is not None:
        names = dataset.attributes["behaviours"]
        numbers = np.bincount(np.asarray(dataset.behaviour), minlength=len(names))
        shares = [f"{name} {number}" for name, number in zip(names, numbers, strict=True)]
        print(f"episodes by who ran the plant: {', '.join(shares)}")


def _draft_warnings(path: Path, config: Any, columns: Any) -> list[str]:
    """Lines on what a configuration leaves open, so that nobody trains on a draft."""
    unfinished = []
    if reward_is_constant(columns):
        unfinished.append(
            f"the reward is constant ({config.reward.expression}): nothing can be learned from it; "
            f"write reward.expression in {path}"
        )
    unknown = [tag.name for tag in config.tags if tag.unit == "?"]
    if unknown:
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        names = ", ".join(unknown[:5]) + more
        unfinished.append(f'the unit of {names} is still "?"; complete it in {path}')
    to_complete = lines_to_complete(path.read_text(encoding="utf-8"))
    if to_complete:
        unfinished.append(f"{to_complete} lines of {path} are still marked TODO; complete them")
    return unfinished


def _masked_reasons(counts: dict[str, int]) -> str:
    """Reasons why rows are masked or left out, most frequent first."""
    reasons = {
        reason: number
        for reason, number in counts.items()
        if reason.startswith(("masked", "left out"))
    }
    order = sorted(reasons, key=lambda reason: -reasons[reason])
    return "".join(f"; {reasons[reason]} {reason}" for reason in order)


def _empty(path: Path, config: Any, dataset: Any) -> list[str]:
    """A line on periods without any sample, if there are many; their rows repeat earlier values."""
    empty = dataset.attributes["ingestion"].get("empty_periods", 0)
    if empty <= MASKING * (dataset.n_rows + empty):
        return []
    period, hold_s = config.sampling.period_s, config.sampling.largest_gap_s
    one, held = durations([period, hold_s])
    return [
        f"no observed or manipulated tag has a sample in {empty} periods of {one}, so "
        f"the rows there repeat earlier values (for up to {held}) or are masked; if "
        "the export lost rows, export it again; if the log is slower, set sampling.period_s in "
        f"{path}; if its tags are logged on change, this is normal"
    ]


def _masking_tags(path: Path, config: Any, dataset: Any) -> list[str]:
    """Lines on the tags that mask the most rows, with advice on each."""
    counts = dataset.attributes["ingestion"]
    rows = counts["rows"].get("of the running plant", 0)
    tags = sorted(counts["unknown"].items(), key=lambda item: -item[1]["rows"])
    default_gap = config.sampling.largest_gap_s
    hold_s = {
        t.name: default_gap if math.isnan(t.largest_gap_s) else t.largest_gap_s for t in config.tags
    }
    lines = []
    for name, unknown in tags:
        if unknown["rows"] <= MASKING * rows:
            continue
        spacing = unknown["mean_spacing_s"]
        apart, hold = durations([spacing, hold_s[name]])
        every = f"its values are {apart} apart on average; " if spacing else ""
        advice = (
            f"set its largest_gap_s in {path} to how long a value holds (inf if it is logged on "
            "change), or remove the tag"
        )
        if spacing and hold_s[name] >= spacing:  # a longer gap would not help
            advice = (
                f"its largest_gap_s, {hold}, bridges that, so these rows are "
                "before its first value or in a longer gap; accept that, or remove the tag"
            )
        lines.append(
            f"{name} is unknown in {unknown['rows']} of {rows} rows, in {unknown['alone']} of them "
            f"alone; {every}{advice}"
        )
    return lines


def _unusable(path: Path, config: Any, dataset: Any) -> list[str]:
    """Lines on the parts of the log that cannot be used with this configuration."""
    lines = []
    counts = dataset.attributes["ingestion"]
    per_tag = counts["rows_read"] / (1 if config.log.layout == "wide" else len(config.tags))
    for tag in config.tags:
        outside = counts["tags"].get(tag.name, {}).get("outside the range", 0)
        if outside > OFTEN * per_tag:
            lines.append(
                f"{outside} values of {tag.name} lie outside its range, "
                f"{tag.low:g} to {tag.high:g} {tag.unit}, and count as missing; check low and "
                f"high, or factor and offset, in {path}"
            )
    lines += [*_fractions(path, dataset), *_contradictory(path, counts)]
    columns: Any = dataset.transitions
    used = np.asarray(columns.mask, bool)
    for i, channel in enumerate(dataset.spec.action):
        moved = np.asarray(columns.action[:, i])[used]
        if len(moved) and (moved == moved[0]).all():
            lines.append(
                f"{channel.name} never moves: it is {moved[0]:g} {channel.unit} in every row, so "
                f"its effect cannot be learned; record it moving, or remove it from {path}"
            )
    if dataset.n_episodes < FEWEST:
        lines.append(
            f"training holds out whole episodes and needs at least {FEWEST}, but this log has "
            f"{dataset.n_episodes}; set length in [episodes] of {path} to cut it into episodes of "
            "that many rows"
        )
    return lines


def _fractions(path: Path, dataset: Any) -> list[str]:
    """Lines on channels of 0 to 100 % whose values look as a fraction of 1 does."""
    columns: Any = dataset.transitions
    used = np.asarray(columns.mask, bool)
    lines = []
    for channels, values in (
        (dataset.spec.obs, columns.obs),
        (dataset.spec.action, columns.action),
    ):
        for i, channel in enumerate(channels):
            column = np.asarray(values[:, i])[used]
            if (channel.unit, channel.low, channel.high) != ("%", 0, 100) or not len(column):
                continue
            low, high = column.min(), column.max()
            if 0 <= low < high <= FRACTION:
                lines.append(
                    f"{channel.name} lies between {low:.3g} and {high:.3g} % in every row, as a "
                    f"fraction of 1 would; if it is one, write factor = 100 for it in {path}"
                )
    return lines


def _contradictory(path: Path, counts: dict[str, Any]) -> list[str]:
    """Lines on stamps with two values of one tag, often from the end of daylight saving time."""
    tags = {
        name: counts_of_tag.get("contradicting", 0)
        for name, counts_of_tag in counts["tags"].items()
    }
    worst = max(tags, key=lambda name: tags[name], default="")
    if not tags.get(worst):
        return []
    out_of_order, clock = counts["out_of_order"], ""
    if out_of_order and not counts.get("repeated_hours"):  # which say the same and more
        rows = "a row is" if out_of_order == 1 else f"{out_of_order} rows are"
        clock = (
            f"; {rows} earlier than the row above: if the clocks were set back there, set "
            f"log.time_zone in {path} to the time zone of the log, and set log.ambiguous"
        )
    others = sum(number > 0 for number in tags.values()) - 1
    return [
        f"{tags[worst]} values of {worst}{f', and some of {others} other tags,' * bool(others)} "
        f"differ from another value with the same timestamp, and count as missing{clock}"
    ]


def lines_to_complete(text: str) -> int:
    """Number of lines of a ``plant.toml`` with a comment that begins with TODO."""
    return sum("# TODO" in line for line in text.splitlines())


def plant_log_tools() -> Any:
    """Imports the namespace of plant logs.

    Raises an ``InputError`` if the required extra is not installed.
    """
    try:
        from neorl_envs import plant_logs
    except ModuleNotFoundError as error:
        if error.name != "polars":
            raise
        raise InputError(
            f"plant logs need the extra etl: {install_line('neorl-envs[etl]')}"
        ) from error
    return plant_logs


def check_destination(path: Path, overwrite: bool) -> None:
    """Raises an ``InputError`` if a file cannot be written, or would replace an existing one."""
    if not path.parent.is_dir():
        raise InputError(f"{path}: no folder {path.parent}; create it first")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file, such as {path}/log.h5")
    if os.path.lexists(path) and not overwrite:
        raise InputError(f"{path} exists; choose another --out, or pass --overwrite")


def _configuration(options: Convert) -> tuple[Path, tuple[Path, ...]]:
    """The configuration, or that in the folder of the log if a log is given instead."""
    path = options.configuration
    if path.suffix == ".toml":
        return path, options.logs
    named = path.parent / f"{path.name.split('.')[0]}.toml"
    configuration = named if named.is_file() else path.parent / "plant.toml"
    if not configuration.is_file():
        if path.is_file() and (reader := reader_name(path)):
            raise InputError(
                f"{path} needs no conversion: the reader {reader!r} reads it; "
                f"go on with: neorl-envs inspect {path}"
            )
        raise InputError(f"{path} has no plant.toml beside it; draft one: neorl-envs init {path}")
    return configuration, (path, *options.logs)
