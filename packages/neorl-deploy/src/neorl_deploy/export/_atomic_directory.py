"""Writes a directory completely or not at all."""

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from neorl_deploy._errors import DeployError


def write_directory(
    path: Path,
    files: Mapping[str, bytes],
    *,
    replaces: bool = False,
    shown_path: Path | None = None,
) -> None:
    """Writes files into a new directory that appears under its name once it is complete.

    Everything is written into a hidden sibling, flushed to disk and renamed. With ``replaces``, an
    old directory is moved aside first and restored if the rename fails. An error names
    ``shown_path``, if given, and leaves nothing new behind.
    """
    if path.is_symlink() or (path.exists() and not replaces):
        raise DeployError(f"{path} exists; choose another place with --out, or pass --overwrite")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.mkdir()
        for name, data in files.items():
            _write_flushed(temporary / name, data)
        _flush_directory(temporary)
        _put_in_place(temporary, path)
    except OSError as error:
        raise DeployError(
            f"cannot write {shown_path or path}: {error.strerror}; nothing was left behind, check "
            "free space and permissions"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _flush_directory(path.parent)


def _put_in_place(temporary: Path, path: Path) -> None:
    if not path.exists():
        os.rename(temporary, path)
        return
    # A directory cannot be renamed over one that holds files.
    backup = path.with_name(f".{path.name}.{secrets.token_hex(4)}.old")
    os.rename(path, backup)
    try:
        os.rename(temporary, path)
    except OSError:
        os.rename(backup, path)
        raise
    shutil.rmtree(backup, ignore_errors=True)


def _write_flushed(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush_directory(path: Path) -> None:
    if os.name == "nt":  # Windows cannot open directories, and makes names durable itself
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
