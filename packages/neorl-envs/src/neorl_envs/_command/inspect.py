"""``neorl-envs inspect FILE``: reports on the content of a log and its possible problems."""

import dataclasses
import json
import shlex
from pathlib import Path

from neorl_core import InputError
from neorl_core.infrastructure import head, write_text
from neorl_core.infrastructure.command_line import Positional, parse_options
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.datasets._file import map_checked
from neorl_envs.datasets._shards import require_content_hash
from neorl_envs.ingest._readers import read_dataset, reader_name
from neorl_envs.inspection._html import report_html, trends
from neorl_envs.inspection._report import dataset_report, report_text

VERSION = 3
"""Version of the JSON document."""


@dataclasses.dataclass(frozen=True)
class Inspect:
    """Reports on a log: time, rows, returns, costs, coverage, excitation, delays, warnings.

    example: neorl-envs inspect log.h5 --html log.html

    Attributes:
        file: A dataset file, the manifest of several, a NeoRL-2 .npz, a D4RL HDF5 file, or a file
            of a format for which a reader is installed.
        json: Print JSON instead of text.
        html: Also write a self-contained HTML page with the trends of all channels.
    """

    file: Positional[Path]
    json: bool = False
    html: Path | None = None


def command(words: list[str]) -> None:
    """``neorl-envs inspect``."""
    options = parse_options(Inspect, words, program="neorl-envs inspect")
    if options.html is not None and not options.html.parent.is_dir():
        raise InputError(f"{options.html}: no folder {options.html.parent}; create it first")
    dataset = _open(options.file)
    report = dataset_report(dataset)
    if options.html is not None:
        write_text(options.html, report_html(report, trends(dataset)))
    document = {**head("dataset-report", VERSION), **report}
    if options.json:
        print(json.dumps(document, indent=2))
        return
    print(report_text(report))
    costs = [word for cost in report["costs"] for word in (cost["name"], "NUMBER")]
    penalty = ["--penalty", *costs] if costs else []
    print("Next:", shlex.join(["neorl-train", "run", str(options.file), *penalty]))
    if penalty:
        print("      NUMBER: what one unit of that cost subtracts from the reward in training")


def _open(path: Path) -> Dataset:
    """Opens a log; dataset files are mapped and their hashes checked, other formats are read."""
    name = reader_name(path)
    if name == "neorl":
        return map_checked(path)
    if name != "shards":
        return read_dataset(path)
    dataset = read_dataset(path, memory_map=True)
    require_content_hash(dataset, str(path))
    return dataset
