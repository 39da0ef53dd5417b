"""The ``.npz`` files of NeoRL-2."""

from pathlib import Path

from neorl_envs.datasets._dataset import Dataset
from neorl_envs.ingest._inferred import inferred_dataset, read_flag
from neorl_envs.ingest._npz import ZIP_MAGIC, load_npz, npz_names

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
        return first_bytes.startswith(ZIP_MAGIC) and set(KEYS) <= npz_names(path)

    def read(self, path: Path) -> Dataset:
        """The dataset of a file.

        Args:
            path: The file.

        Returns:
            The dataset; names, units, ranges, period and horizon are inferred.

        Raises:
            DatasetError: If the file is damaged, a key is missing or a column does not fit.
        """
        arrays = load_npz(path, KEYS, "the keys of NeoRL-2")
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
