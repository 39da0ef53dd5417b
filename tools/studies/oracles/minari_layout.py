"""Minari's own files through our reader, and ours through Minari's: both ways, number by number.

Usage, in an environment with `minari[hdf5]==0.5.4` and a checkout of neorl-envs:

    python tools/studies/oracles/minari_layout.py write FOLDER     with Minari: a dataset of its own
    python tools/studies/oracles/minari_layout.py check FOLDER     with Minari: reads what we wrote

It prints JSON: every array of every episode, so that two environments can be compared.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np


def write(folder: Path) -> None:
    """A dataset with two episodes and costs in the information, made by Minari."""
    import gymnasium
    from minari.data_collector.episode_buffer import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    box = gymnasium.spaces.Box
    folder.mkdir(parents=True, exist_ok=True)
    storage = MinariStorage.new(
        folder, box(-2, 2, (2,), np.float32), box(-1, 1, (1,), np.float32), data_format="hdf5"
    )
    episodes = []
    for index, n in enumerate((3, 4)):
        rows = np.arange(n + 1, dtype=np.float32) + 10 * index
        episodes.append(
            EpisodeBuffer(
                id=None,
                seed=7,
                observations=np.stack([rows / 100, -rows / 100], axis=1),
                actions=(rows[:-1, None] / 20).astype(np.float32),
                rewards=list(map(float, rows[:-1])),
                terminations=[False] * (n - 1) + [index == 0],
                truncations=[False] * n if index == 0 else [False] * (n - 1) + [True],
                infos={"cost": rows / 8},
            )
        )
    storage.update_episodes(episodes)
    print(json.dumps(seen(folder), indent=1))


def seen(folder: Path) -> list[dict]:
    """Every array as Minari reads it."""
    from minari.dataset.minari_storage import MinariStorage

    storage = MinariStorage.read(folder)
    return [
        {
            name: np.asarray(episode[name]).astype(float).tolist()
            for name in ("observations", "actions", "rewards", "terminations", "truncations")
        }
        | {"cost": np.asarray((episode["infos"] or {}).get("cost", [])).tolist()}
        for episode in storage.get_episodes(range(storage.total_episodes))
    ]


if __name__ == "__main__":
    what, folder = sys.argv[1:]
    os.environ.setdefault("MINARI_DATASETS_PATH", folder)
    write(Path(folder)) if what == "write" else print(json.dumps(seen(Path(folder)), indent=1))
