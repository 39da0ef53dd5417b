"""``neorl-envs shard LOG ... --out LOG.shards.json``: combines files into one log or splits one."""

import dataclasses
from pathlib import Path

from neorl_core import InputError
from neorl_core.infrastructure import setting
from neorl_core.infrastructure.command_line import Positional, parse_options
from neorl_envs._command.convert import check_destination
from neorl_envs.datasets._shards import (
    SUFFIX,
    read_manifest,
    require_content_hash,
    stored_bytes,
    write_manifest,
    write_shards,
)
from neorl_envs.ingest._readers import read_dataset, reader_name


@dataclasses.dataclass(frozen=True)
class Shard:
    """Combines several dataset files into one log with a manifest, or splits a log into files.

    example: neorl-envs shard may.h5 june.h5 july.h5 --out summer.shards.json
             neorl-envs shard log.h5 --rows 1000000 --out log.shards.json

    Attributes:
        logs: Dataset files with the same specification, in the order of their rows; they are not
            copied. With --rows, a single log.
        out: The manifest; its name ends with .shards.json.
        rows: Split the log: a file ends with the episode in which it reaches this many rows.
        overwrite: Replace an existing manifest and its files.
    """

    logs: Positional[tuple[Path, ...]]
    out: Path
    rows: int = setting(0, low=0)
    overwrite: bool = False


def command(words: list[str]) -> None:
    """``neorl-envs shard``."""
    options = parse_options(Shard, words, program="neorl-envs shard")
    check_manifest_name(options.out)
    check_destination(options.out, options.overwrite)
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
    """Raises an ``InputError`` for a file name that commands do not recognise as a manifest's."""
    if not path.name.endswith(SUFFIX):
        raise InputError(f"{path}: the name of a manifest ends with {SUFFIX}; give it that ending")


def _split(options: Shard) -> None:
    (log,) = options.logs
    mapped = reader_name(log) in ("neorl", "shards")
    dataset = read_dataset(log, memory_map=mapped)
    if mapped:
        require_content_hash(dataset, str(log))
    write_shards(options.out, dataset, rows=options.rows)
