"""The files of a bundle's NumPy-only form: operations and constants, written and read."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from neorl_deploy._errors import BundleError
from neorl_deploy.bundle import _files as bundle_files
from neorl_deploy.bundle._document_heads import head, require_head
from neorl_deploy.bundle._manifest import ArrayEntry
from neorl_deploy.bundle._strict_json import dump_compact, parse_strict
from neorl_deploy.runtime._operations import Operation, Operations

KIND, VERSION = "operations", 1
INITIAL, CONSTANT = "initial", "constant"
ENTRY_FIELDS = frozenset({"op", "in", "shape", "dtype"})


def operation_files(listed: Operations, initial: Sequence[np.ndarray]) -> dict[str, bytes]:
    """The files of a step, its operations and their constants; equal steps give equal bytes."""
    arrays = {f"{CONSTANT}_{i}": array for i, array in enumerate(listed.constants)}
    arrays |= {f"{INITIAL}_{i}": np.asarray(array) for i, array in enumerate(initial)}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    document = {
        **head(KIND, VERSION),
        "constants": len(listed.constants),
        "operations": [
            {
                "op": operation.name,
                "in": list(operation.inputs),
                "shape": list(operation.shape),
                "dtype": operation.dtype,
                **operation.settings,
            }
            for operation in listed.operations
        ],
        "outputs": list(listed.outputs),
    }
    return {
        bundle_files.OPERATIONS: dump_compact(document),
        bundle_files.WEIGHTS: buffer.getvalue(),
    }


def read_operations(
    files: Mapping[str, bytes], inputs: Sequence[ArrayEntry], source: str
) -> tuple[Operations, list[np.ndarray]]:
    """Inverse of :func:`operation_files`; the inputs of the step name the carry first.

    Raises:
        BundleError: If the files are missing, damaged or inconsistent.
    """
    if bundle_files.OPERATIONS not in files or bundle_files.WEIGHTS not in files:
        raise BundleError(
            f"{source} has no form for NumPy alone; `neorl-deploy inspect` says why; to run it, "
            "install the extra jax"
        )
    where = f"{source}: {bundle_files.OPERATIONS}"
    document = parse_strict(files[bundle_files.OPERATIONS], where)
    require_head(document, KIND, VERSION, where, BundleError)
    arrays = _read_arrays(files[bundle_files.WEIGHTS], f"{source}: {bundle_files.WEIGHTS}")
    try:
        count = document["constants"]
        names = {f"{CONSTANT}_{i}" for i in range(count)}
        names |= {f"{INITIAL}_{i}" for i in range(len(inputs) - 2)}
        if names != set(arrays):
            raise ValueError("weights and operations are of different steps")
        listed = Operations(
            inputs=tuple(inputs),
            constants=tuple(arrays[f"{CONSTANT}_{i}"] for i in range(count)),
            operations=tuple(_operation(entry) for entry in document["operations"]),
            outputs=tuple(int(number) for number in document["outputs"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BundleError(f"{where} is malformed: {error!r}; fetch the bundle again") from error
    initial = [arrays[f"{INITIAL}_{i}"] for i in range(len(inputs) - 2)]
    for entry, array in zip(inputs, initial, strict=False):
        if (array.shape, array.dtype.name) != (entry.shape, entry.dtype):
            raise BundleError(f"{where}: its initial carry is not that of the manifest")
    return listed, initial


def _operation(entry: Mapping[str, Any]) -> Operation:
    settings = {name: value for name, value in entry.items() if name not in ENTRY_FIELDS}
    shape = tuple(int(width) for width in entry["shape"])
    if min(shape, default=0) < 0:
        raise ValueError(f"a shape of {shape}")
    inputs = tuple(int(number) for number in entry["in"])
    return Operation(str(entry["op"]), inputs, shape, str(entry["dtype"]), settings)


def _read_arrays(data: bytes, source: str) -> dict[str, np.ndarray]:
    largest = bundle_files.LARGEST[bundle_files.WEIGHTS]
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > largest:
                raise BundleError(f"{source} would unpack to more than {largest} bytes")
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except BundleError:
        raise
    except Exception as error:  # zipfile, zlib and the parser of array headers raise many kinds
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BundleError(f"{source} is not an archive of plain arrays: {reason:.200}") from error
