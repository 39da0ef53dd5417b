"""``neorl-envs init LOG.csv``: drafts a plant.toml from a log, or the file beside a unit."""

import dataclasses
import shlex
import tomllib
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure import write_text
from neorl_core.infrastructure.command_line import Positional, parse_options
from neorl_envs._command.convert import check_destination, lines_to_complete, plant_log_tools
from neorl_envs.plants._table import fmi_tools, is_unit


@dataclasses.dataclass(frozen=True)
class Init:
    """Drafts a plant.toml from a log: columns, stamps, period, units, ranges, roles.

    For a co-simulation unit, PLANT.fmu, it drafts PLANT.toml from the unit's description.

    example: neorl-envs init export.csv
             neorl-envs init tank.fmu

    Attributes:
        logs: CSV, compressed CSV or Parquet; several files of one log share one plant.toml.
        out: The file to write; by default plant.toml in the folder of the log, or LOG.toml if
            plant.toml belongs to another log.
        overwrite: Replace an existing file.
    """

    logs: Positional[tuple[Path, ...]] = ()
    out: Path | None = None
    overwrite: bool = False


def command(words: list[str]) -> None:
    """``neorl-envs init``."""
    options = parse_options(Init, words, program="neorl-envs init")
    if not options.logs:
        raise InputError("name the log to look at: neorl-envs init export.csv")
    if is_unit(str(options.logs[0])):
        _draft_of_unit(options.logs[0], options)
        return
    out = options.out or _default_path(options.logs[0])
    check_destination(out, options.overwrite)
    text = plant_log_tools().draft_plant_log(*options.logs, folder=out.parent)
    _write(out, text, ["neorl-envs", "convert", str(out)])


def _draft_of_unit(unit: Path, options: Init) -> None:
    fmi: Any = fmi_tools(str(unit))
    out = unit.with_suffix(".toml")
    if len(options.logs) > 1 or options.out not in (None, out):
        raise InputError(f"the declaration of {unit} is {out}, one for each unit; leave --out out")
    check_destination(out, options.overwrite)
    text = fmi.draft_declaration(fmi.read_description(str(unit)))
    _write(out, text, ["neorl-envs", "check", str(unit)])


def _write(out: Path, text: str, following: list[str]) -> None:
    """Writes a draft, and says what is left to do and which command follows."""
    write_text(out, text)
    print(
        f"{out}: {text.count('[[tag]]')} tags, {lines_to_complete(text)} lines to complete (marked "
        f"TODO)\nNext: {shlex.join(following)}"
    )


def _default_path(log: Path) -> Path:
    """Path of the configuration of a log: plant.toml, unless that belongs to another log."""
    default = log.parent / "plant.toml"
    try:
        files = tomllib.loads(default.read_text(encoding="utf-8"))["log"]["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return default
    return default if log.name in files else log.parent / f"{log.name.split('.')[0]}.toml"
