"""The files of a bundle: allowed names, largest sizes, checksums, and the seal of its programs."""

import hashlib
import io
import os
import shlex
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from neorl_deploy._errors import BundleError
from neorl_deploy.bundle._strict_json import dump_canonical, head, parse_strict

# The seal: a digest in the names of a bundle's programs that ties them to the manifest.


SEALED_FIELDS = ("spec", "carry", "flags", "limits", "constraints", "constraint_words", "guard")
"""Fields of the manifest that describe what the programs do."""
CONTROLLERS = ("policy", "fallback")
"""Entries of the provenance that describe the controllers inside the programs."""


def seal(document: Mapping[str, Any]) -> str:
    """The SHA-256 of everything that a manifest states about its programs, in hexadecimal digits.

    The export writes it into the names of the programs, and the loader compares it with the
    manifest. This detects later changes of limits, channels, period, flags, monitors or
    descriptions. It does not detect a forger who creates new programs; only a required signing key
    does. Fields that name the programs are ignored.
    """
    described = {name: document[name] for name in SEALED_FIELDS}
    described |= {name: document["provenance"][name] for name in CONTROLLERS}
    return hashlib.sha256(dump_canonical(described)).hexdigest()


def program_names(document: Mapping[str, Any]) -> tuple[str, str]:
    """The names of the step program and of the fresh-carry program."""
    digest = seal(document)
    return f"step_{digest}", f"initial_carry_{digest}"


# The files of a bundle: allowed names, largest sizes, and checksums.


MIB = 2**20
MANIFEST, STEP, INITIAL_CARRY = "manifest.json", "policy.stablehlo", "initial_carry.stablehlo"
TEST_VECTORS, CONSTRAINTS, VERDICT = "test_vectors.npz", "constraints.json", "verdict.json"
EVALUATION, CHECKSUMS, SIGNATURE = "evaluation.json", "checksums.json", "signature.json"
GUARD = "guard.json"
OPERATIONS, WEIGHTS, ONNX = "operations.json", "weights.npz", "policy.onnx"

LARGEST: Mapping[str, int] = {
    MANIFEST: 4 * MIB,
    STEP: 256 * MIB,
    INITIAL_CARRY: 64 * MIB,
    TEST_VECTORS: 64 * MIB,
    CONSTRAINTS: 4 * MIB,
    GUARD: 64 * MIB,
    VERDICT: 4 * MIB,
    EVALUATION: 256 * MIB,
    OPERATIONS: 16 * MIB,
    WEIGHTS: 256 * MIB,
    ONNX: 256 * MIB,
    CHECKSUMS: MIB,
    SIGNATURE: MIB,
}
"""Every file name that a bundle may contain, with the largest size accepted in bytes."""

FORMS: Mapping[str, tuple[str, ...]] = {"numpy": (OPERATIONS, WEIGHTS), "onnx": (ONNX,)}
"""Files of every additional form of the step; a bundle has all files of a named form or none."""

FURTHER = tuple(name for names in FORMS.values() for name in names)
SEALED = tuple(name for name in LARGEST if name not in (CHECKSUMS, SIGNATURE, *FURTHER))
"""Files that every bundle has and that the checksums cover."""


def read_files(path: Path) -> dict[str, bytes]:
    """Reads every file of a bundle once, by name; later verification uses the bytes read here.

    Raises:
        BundleError: If it is not a directory, or a file is missing, unknown, a link, not a regular
            file, or larger than allowed.
    """
    _require_no_run(path)
    names = _names(path)
    unknown = sorted(names - set(LARGEST))
    if unknown:
        raise BundleError(
            f"{path} holds {unknown[0]!r}, which is not part of a bundle; move it elsewhere if a "
            "file browser left it there, or fetch the bundle again"
        )
    missing = sorted({*SEALED, CHECKSUMS} - names)
    if missing:
        raise BundleError(f"{path} has no {missing[0]}; the bundle is incomplete, fetch it again")
    return {name: _read_plain(path / name, LARGEST[name]) for name in sorted(names)}


def read_arrays(files: Mapping[str, bytes], name: str, source: str) -> dict[str, np.ndarray]:
    """The arrays of one file, read without pickle after a check of their declared sizes.

    Raises:
        BundleError: If it is no archive of plain arrays, or unpacks to more than allowed.
    """
    data, largest = files[name], LARGEST[name]
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > largest:
                raise BundleError(f"{source} would unpack to more than {largest} bytes")
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return {array: archive[array] for array in archive.files}
    except BundleError:
        raise
    except Exception as error:  # zipfile, zlib and the parser of array headers raise many kinds
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BundleError(f"{source} is not an archive of plain arrays: {reason:.200}") from error


def checksums(files: Mapping[str, bytes]) -> bytes:
    """The canonical list of the names, sizes and SHA-256 digests of these files."""
    entries = [
        {"path": name, "size": len(files[name]), "sha256": hashlib.sha256(files[name]).hexdigest()}
        for name in (*SEALED, *FURTHER)
        if name in files
    ]
    return dump_canonical({**head("bundle-checksums", 1), "files": entries})


def require_checksums(path: Path, files: Mapping[str, bytes]) -> None:
    """Raises unless the stored list equals, byte for byte, the list recomputed from the files.

    Raises:
        BundleError: Names the first file that differs.
    """
    if files[CHECKSUMS] == checksums(files):
        return
    stored = _entries(files[CHECKSUMS])
    absent = [name for name in FURTHER if name in stored and name not in files]
    if absent:
        raise BundleError(f"{path} has no {absent[0]}; the bundle is incomplete, fetch it again")
    for name in (*SEALED, *(further for further in FURTHER if further in files)):
        data, entry = files[name], stored.get(name, {})
        size, digest = entry.get("size"), entry.get("sha256")
        if size != len(data) or digest != hashlib.sha256(data).hexdigest():
            raise BundleError(
                f"{path}: {name} ({len(data)} bytes) does not match {CHECKSUMS}; the bundle was "
                "changed or damaged after the export, fetch it again"
            )
    raise BundleError(
        f"{path}: {CHECKSUMS} was changed or damaged after the export; fetch the bundle again"
    )


def bundle_digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 of the checksum list: the identity of the bundle."""
    return hashlib.sha256(files[CHECKSUMS]).hexdigest()


def is_in_bundle(path: Path) -> bool:
    """Whether a path lies inside a bundle, complete or not."""
    return any(
        folder.suffix == ".bundle" or (folder / CHECKSUMS).exists()
        for folder in path.resolve().parents
    )


def _entries(data: bytes) -> dict[str, Any]:
    try:
        files = parse_strict(data, CHECKSUMS)["files"]
        return {entry["path"]: dict(entry) for entry in files}
    except (BundleError, KeyError, TypeError, ValueError):
        return {}


def _require_no_run(path: Path) -> None:
    """Refuses a run directory (its bundle is meant) and a loop's folder, which contains none."""
    try:
        if (path / "audit").is_dir() and (path / "orders").is_dir():
            raise BundleError(
                f"{path} is the folder of a loop and no bundle; `neorl-deploy verify "
                f"{shlex.quote(str(path))}` checks its audit log"
            )
        if not (path / "run.json").is_file() or (path / CHECKSUMS).exists():
            return
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror}") from error
    bundles = sorted(path.glob("*.bundle"))
    if bundles:
        raise BundleError(f"{path} is a run; name its bundle, {bundles[0]}")
    raise BundleError(
        f"{path} is a run without a bundle; make one with `neorl-deploy export "
        f"{shlex.quote(str(path))}`"
    )


def _names(path: Path) -> set[str]:
    try:
        with os.scandir(path) as entries:
            names = set()
            for entry in entries:
                if entry.is_symlink() or not entry.is_file(follow_symlinks=False):
                    raise BundleError(
                        f"{path}: {entry.name!r} is a link or no plain file; a bundle holds plain "
                        "files only"
                    )
                names.add(entry.name)
            return names
    except FileNotFoundError as error:
        raise BundleError(f"{path} does not exist; give the directory of a bundle") from error
    except NotADirectoryError as error:
        raise BundleError(
            f"{path} is a file; a bundle is a directory, so unpack an archive and name its folder"
        ) from error
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:  # a null byte in the name
        raise BundleError(f"cannot read {str(path)!r}: {error}") from error


def _read_plain(path: Path, largest: int) -> bytes:
    try:
        # Without O_NONBLOCK, opening a pipe substituted after the listing would block.
        handle = os.open(
            path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        )
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise BundleError(f"{path} is not a plain file")
        if status.st_size > largest:
            raise BundleError(
                f"{path} has {status.st_size} bytes; a file of this kind has at most {largest}"
            )
        data = file.read(largest + 1)
    if len(data) > largest:
        raise BundleError(f"{path} grew beyond {largest} bytes while it was read")
    return data
