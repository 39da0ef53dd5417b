"""The ``.npz`` files of NeoRL-2."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from neorl_envs.datasets._checks import DatasetError
from neorl_envs.datasets._dataset import Dataset
from neorl_envs.ingest._inferred import inferred_dataset, read_flag

ZIP_MAGIC = b"PK\x03\x04"
KEYS = ("obs", "action", "next_obs", "reward", "done", "truncated")
ATTRIBUTION = (
    "NeoRL-2 (polixir/NeoRL2), data licensed CC-BY-4.0; converted from the published .npz file"
)


class NeoRL2Reader:
    """Reads an ``.npz`` file of NeoRL-2.

    Rules: ``done`` is the terminal flag and nothing else; ``truncated`` is the time limit; both
    end an episode, and so does the end of the file. ``next_obs`` is kept as stored. There is no
    cost channel. ``index``, where present, is ignored: the flags say the same.
    """

    suffixes = (".npz",)

    def recognises(self, path: Path, first_bytes: bytes) -> bool:
        """Whether it is an archive with the keys of NeoRL-2."""
        if not first_bytes.startswith(ZIP_MAGIC):
            return False
        try:
            with zipfile.ZipFile(path) as archive:
                return {f"{key}.npy" for key in KEYS} <= set(archive.namelist())
        except (OSError, zipfile.BadZipFile):
            return False

    def read(self, path: Path) -> Dataset:
        """The dataset of a file.

        Args:
            path: The file.

        Returns:
            The dataset; names, units, ranges, period and horizon are inferred.

        Raises:
            DatasetError: If the file is damaged, a key is missing or a column does not fit.
        """
        arrays = _load_npz(path)
        missing = [key for key in KEYS if key not in arrays]
        if missing:
            raise DatasetError(
                f"{path}: expected the keys of NeoRL-2 {list(KEYS)}, got {sorted(arrays)}; "
                f"'{missing[0]}' is missing"
            )
        terminated = read_flag(path, "done", arrays["done"], arrays["reward"])
        truncated = read_flag(path, "truncated", arrays["truncated"], arrays["reward"])
        return inferred_dataset(
            str(path),
            {key: arrays[key] for key in ("obs", "action", "next_obs", "reward")},
            terminated,
            truncated,
            attributes={
                "name": path.stem,
                "attribution": ATTRIBUTION,
                "provenance": {"format": "NeoRL-2 npz", "file": path.name},
            },
        )


def _load_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        pickled = "allow_pickle" in reason
        advice = "save numbers" if pickled else "the file is truncated or damaged, copy it again"
        reason = "it holds Python objects" if pickled else f"cannot read it: {reason}"
        raise DatasetError(
            f"{path}: expected a complete .npz of plain arrays, {reason}; {advice}"
        ) from error
