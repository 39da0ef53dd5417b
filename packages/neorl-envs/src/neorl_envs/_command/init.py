"""``neorl-envs init LOG.csv``: a first plant.toml from a look at a log."""

import dataclasses
from pathlib import Path

import tyro

from neorl_core.boundary import write_text
from neorl_envs._command.convert import check_destination, lines_to_complete, plant_log_tools
from neorl_envs.command_line import parse_options


@dataclasses.dataclass(frozen=True)
class Init:
    """Drafts a plant.toml by looking at a log: columns, stamps, period, ranges, roles.

    example: neorl-envs init export.csv
    """

    log: tyro.conf.Positional[Path]
    """CSV, compressed CSV or Parquet."""
    out: Path | None = None
    """The file; plant.toml beside the log by default."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace an existing file."""


def command(words: list[str]) -> None:
    """``neorl-envs init``."""
    options = parse_options(Init, words, program="neorl-envs init")
    out = options.out or options.log.parent / "plant.toml"
    check_destination(out, options.overwrite)
    text = plant_log_tools().draft_plant_log(options.log)
    write_text(out, text)
    tags = text.count("[[tag]]")
    print(
        f"{out}: {tags} tags, {lines_to_complete(text)} lines to complete (marked TODO)\n"
        f"Next: neorl-envs convert {out}"
    )
