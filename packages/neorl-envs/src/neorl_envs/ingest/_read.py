"""One entry for every format of recorded data that is known."""

import os
from pathlib import Path

from neorl_envs.datasets._checks import DatasetError
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.datasets._file import DTYPES, FORMAT, opened, read_neorl_hdf5
from neorl_envs.ingest._benchmarks import is_d4rl, read_d4rl, read_neorl2

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
ZIP_MAGIC = b"PK\x03\x04"


def read_dataset(path: str | os.PathLike[str], *, memory_map: bool = False) -> Dataset:
    """Reads a log from a file and checks it.

    The format is recognised by content, not by name: the dataset file of this project (HDF5),
    the ``.npz`` files of NeoRL-2, and D4RL-style HDF5. The rules by which the last two are read
    are on the page of the dataset file; their specification is inferred from the data.

    Args:
        path: The file.
        memory_map: Leave the columns on the disk and map them read-only, for logs larger than
            memory; for the dataset file only. The content hash is then taken from the file
            without being checked.

    Returns:
        The dataset. A log without a single terminated row is valid.

    Raises:
        DatasetError: If the file is missing, of no known format, truncated, or a column is
            missing, of another shape or dtype, not finite, or inconsistent; one line that names
            file, column, row, expected and actual.
    """
    path = Path(path)
    magic = _first_bytes(path)
    if magic.startswith(ZIP_MAGIC):
        _refuse_map(path, memory_map)
        return read_neorl2(path)
    if magic.startswith(HDF5_MAGIC):
        with opened(path) as file:
            if file.attrs.get("format") == FORMAT or set(file) & set(DTYPES):
                return read_neorl_hdf5(file, str(path), memory_map=memory_map)
            if is_d4rl(file):
                _refuse_map(path, memory_map)
                return read_d4rl(file, str(path))
            raise DatasetError(
                f"{path}: expected the columns of a dataset file ({', '.join(DTYPES)}) or of "
                f"D4RL, got {sorted(file)}"
            )
    raise DatasetError(
        f"{path}: expected an HDF5 dataset file or a NeoRL-2 .npz, got a file that starts with "
        f"{magic!r}; a table (CSV, Parquet, text) is converted once with "
        "neorl_envs.datasets.dataset_from_columns and write_dataset"
    )


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            magic = file.read(8)
    except FileNotFoundError as error:
        raise DatasetError(
            f"{path}: no such file; give the path of a dataset, or make one with "
            "`neorl-envs generate`"
        ) from error
    except OSError as error:
        raise DatasetError(f"{path}: cannot read it: {error.strerror}") from error
    if not magic:
        raise DatasetError(f"{path}: the file is empty (0 bytes); copy or generate it again")
    return magic


def _refuse_map(path: Path, memory_map: bool) -> None:
    if memory_map:
        raise DatasetError(
            f"{path}: only the dataset file can be mapped; convert it once: "
            "write_dataset(new, read_dataset(old))"
        )
