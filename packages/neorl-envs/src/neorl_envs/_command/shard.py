"""``neorl-envs shard LOG ... --out LOG.shards.json``: one log in several files."""

import dataclasses
from pathlib import Path

import tyro

from neorl_core import InputError
from neorl_core.infrastructure.command_line import parse_options
from neorl_envs._command.convert import check_destination
from neorl_envs.datasets._manifest import SUFFIX, read_manifest
from neorl_envs.datasets._shards import (
    require_content_hash,
    stored_bytes,
    write_manifest,
    write_shards,
)
from neorl_envs.ingest._read import read_dataset, reader_name


@dataclasses.dataclass(frozen=True)
class Shard:
    """Makes one log of several dataset files by a manifest, or splits one log into such files.

    example: neorl-envs shard may.h5 june.h5 july.h5 --out summer.shards.json
             neorl-envs shard log.h5 --rows 1000000 --out log.shards.json
    """

    logs: tyro.conf.Positional[tuple[Path, ...]]
    """Dataset files of one specification, in the order of their rows, which stay where they are.
    With --rows, one log."""
    out: Path
    """The manifest; its name ends with .shards.json."""
    rows: int = 0
    """Split the log: a new file begins with the episode after so many rows."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace an existing manifest, and files of its shards."""


def command(words: list[str]) -> None:
    """``neorl-envs shard``."""
    options = parse_options(Shard, words, program="neorl-envs shard")
    check_manifest_name(options.out)
    check_destination(options.out, options.overwrite)
    if options.rows < 0:
        raise InputError(f"--rows must be 1 or more, got {options.rows}")
    if not options.rows:
        write_manifest(options.out, options.logs)
    elif len(options.logs) != 1:
        raise InputError(f"--rows splits one log, got {len(options.logs)}; leave --rows out")
    else:
        _split(options)
    manifest = read_manifest(options.out)
    print(
        f"{options.out}: {manifest.rows} rows in {len(manifest.shards)} files, "
        f"{stored_bytes(options.out) / 1e6:.1f} MB, {manifest.content_hash}"
    )
    print(f"Next: neorl-envs inspect {options.out}")


def check_manifest_name(path: Path) -> None:
    """Refuses a manifest under a name that the commands would not take for one.

    Raises:
        InputError: Naming the ending.
    """
    if not path.name.endswith(SUFFIX):
        raise InputError(f"{path}: the name of a manifest ends with {SUFFIX}; give it that ending")


def _split(options: Shard) -> None:
    (log,) = options.logs
    mapped = reader_name(log) in ("neorl", "shards")
    dataset = read_dataset(log, memory_map=mapped)
    if mapped:
        require_content_hash(dataset, str(log))
    write_shards(options.out, dataset, rows=options.rows)
