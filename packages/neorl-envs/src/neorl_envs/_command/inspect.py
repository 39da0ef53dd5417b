"""``neorl-envs inspect FILE``: what a log holds and what is doubtful in it."""

import dataclasses
import json
from pathlib import Path

import tyro

from neorl_core.boundary import head
from neorl_envs.command_line import parse_options
from neorl_envs.ingest._read import read_dataset
from neorl_envs.inspection._report import dataset_report
from neorl_envs.inspection._text import report_text

VERSION = 1
"""Version of the JSON document."""


@dataclasses.dataclass(frozen=True)
class Inspect:
    """Says what a log holds: rows, episodes, returns, costs, coverage, excitation, doubts.

    example: neorl-envs inspect log.h5
    """

    file: tyro.conf.Positional[Path]
    """A dataset file, a NeoRL-2 .npz, a D4RL HDF5 file, or what an installed reader knows."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print JSON instead of text."""


def command(words: list[str]) -> None:
    """``neorl-envs inspect``."""
    options = parse_options(Inspect, words, program="neorl-envs inspect")
    report = dataset_report(read_dataset(options.file))
    document = {**head("dataset-report", VERSION), **report}
    print(json.dumps(document, indent=2) if options.json else report_text(report))
