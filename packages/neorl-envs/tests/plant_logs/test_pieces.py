"""A log that does not fit into memory gives the dataset that it gives where it fits."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from neorl_core import InputError
from neorl_envs import DatasetError, read_dataset
from neorl_envs.plant_logs import convert_file, convert_log, plant_log_from_dict

from .conftest import PERIOD, START

N = 260


def log_of(seed: int, folder: Path) -> dict[str, Any]:
    """A long export with everything that looks beyond a row, and a configuration of it."""
    random = np.random.default_rng(seed)
    at = START + PERIOD * np.cumsum(random.choice([1] * 12 + [2, 2, 3, 30], N))
    lines = ["time,tag,value"]
    mode, batch = "AUTO", 0
    for t in at:
        mode = "MAN" if random.random() < 0.1 else "AUTO"
        batch += random.random() < 0.02
        for tag, value, often in (
            ("level", round(float(random.random()), 3), 0.9),
            ("quality", round(float(random.random()), 3), 0.5),
            ("valve", round(float(100 * random.random()), 2), 0.95),
            ("power", int(random.random() < 0.97), 0.9),
            ("mode", mode, 0.1),
            ("batch", f"B{batch}", 0.05),
        ):
            if random.random() < often:
                lines.append(f"{t + int(random.integers(0, 50))},{tag},{value}")
                if random.random() < 0.01:  # another value at the same time
                    lines.append(lines[-1].rsplit(",", 1)[0] + ",0.5") if tag != "mode" else None
    body = lines[1:]
    random.shuffle(body)
    (folder / "log.csv").write_text("\n".join([lines[0], *body]) + "\n")
    number: dict[str, Any] = {"role": "observation", "low": 0, "high": 100}
    tags: list[dict[str, Any]] = [
        {"name": "level", **number, "fill": "interpolate", "delay_s": PERIOD * (seed % 3)},
        {"name": "quality", **number, "fill": "interpolate", "largest_gap_s": 1e4},
        {"name": "valve", "role": "manipulated", "low": 0, "high": 100},
        {"name": "power", "role": "auxiliary", "largest_gap_s": float("inf")},
        {"name": "mode", "role": "mode", "automatic": ["AUTO"]},
        {"name": "batch", "role": "batch"},
    ]
    return {
        "name": "tank",
        "log": {
            "files": ["log.csv"],
            "timestamp": "time",
            "timestamp_format": "epoch_s",
            "layout": "long",
        },
        "sampling": {"period_s": PERIOD, "largest_gap_s": 2 * PERIOD},
        "episodes": {
            "gap_s": 5 * PERIOD if seed % 2 else 1e5,
            "length": 37 * (seed % 2),
            "mode_change": seed == 3,
            "running": "power > 0.5",
            "trip": "level > 0.97 and before_level < 0.9",
            "manual": "mask" if seed % 2 else "keep",
        },
        "reward": {"expression": "level - before_quality - 0.01 * abs(valve - before_valve)"},
        "cost": [{"name": "c", "expression": "greatest(level - 0.5, 0)", "unit": "m", "limit": 1}],
        "history": {"steps": 1 + 2 * (seed % 2), "actions": True},
        "tag": tags if seed != 2 else tags[:-1],
    }


@pytest.mark.parametrize("seed", range(4))
def test_memory_is_no_part_of_the_result(tmp_path: Path, seed: int) -> None:
    """Pieces of eight rows, samples on the disk: the same columns, counts and attributes."""
    config = plant_log_from_dict(log_of(seed, tmp_path), "plant.toml")
    whole = convert_log(config, folder=tmp_path)
    before = sorted(tmp_path.iterdir())
    pieces = convert_log(config, folder=tmp_path, memory=1)
    out = convert_file(config, tmp_path / "log.h5", folder=tmp_path, memory=1)
    written = read_dataset(out)
    assert whole.n_rows > 60
    assert whole.n_episodes > 3
    assert 20 < np.asarray(whole.transitions.mask).sum() < whole.n_rows
    assert pieces.content_hash == whole.content_hash == written.content_hash
    for attributes in (pieces.attributes, written.attributes):
        counted = dict(attributes["ingestion"]), dict(whole.attributes["ingestion"])
        for one in counted:
            del one["repeated"]  # as far as noticed within a block
        assert counted[0] == counted[1]
        assert attributes["provenance"] == whole.attributes["provenance"]
    assert sorted(tmp_path.iterdir()) == [*before, out]


def test_nothing_is_left_where_a_row_cannot_be_stored(tmp_path: Path) -> None:
    """Found while the file is written: a cost beyond float32."""
    values = copy.deepcopy(log_of(0, tmp_path))
    values["cost"][0]["expression"] = "1e39 * level"
    config = plant_log_from_dict(values, "plant.toml")
    (tmp_path / "old.h5").write_bytes(b"before")
    for out in ("new.h5", "old.h5"):
        with pytest.raises(DatasetError, match=r"plant\.toml: column 'cost', row \d+.*got inf"):
            convert_file(config, tmp_path / out, folder=tmp_path, memory=1)
    values["tag"][3]["name"] = "other"
    with pytest.raises(InputError):
        convert_file(
            plant_log_from_dict(values, "plant.toml"), tmp_path / "new.h5", folder=tmp_path
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv", "old.h5"]
    assert (tmp_path / "old.h5").read_bytes() == b"before"


LARGE = """
import sys, threading
from neorl_envs.plant_logs import convert_file, read_plant_log
def held():  # pages of files are not counted
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))
config = read_plant_log("plant.toml")
before, done, peak = held(), threading.Event(), [0]
def watch():
    while not done.wait(0.005):
        peak[0] = max(peak[0], held() - before)
watcher = threading.Thread(target=watch)
watcher.start()
try:
    convert_file(config, "log.h5", memory=float(sys.argv[1]))
finally:
    done.set()
watcher.join()
print(peak[0])
"""


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_log_larger_than_memory_is_converted(tmp_path: Path) -> None:
    """A CSV of 300 MB with 50 MB for samples and rows, and 75 bytes a row beside them."""
    n, wide = 400_000, 40
    names = [f"t{i}" for i in range(wide)]
    random = np.random.default_rng(0)
    with (tmp_path / "log.csv").open("wb") as file:
        for start in range(0, n, 50_000):
            block = pl.DataFrame(random.random((50_000, wide)), schema=names)
            at = pl.Series("time", START + start + np.arange(50_000))
            block.insert_column(0, at).write_csv(file, include_header=not start)
    assert (tmp_path / "log.csv").stat().st_size > 290e6
    tags = [
        f'[[tag]]\nname = "{name}"\nlow = 0\nhigh = 1\nrole = "'
        + ("manipulated" if i < 4 else "observation")
        + '"\n'
        for i, name in enumerate(names)
    ]
    (tmp_path / "plant.toml").write_text(
        'name = "large"\n[log]\nfiles = ["log.csv"]\ntimestamp = "time"\n'
        'timestamp_format = "epoch_s"\n[sampling]\nperiod_s = 1\n[episodes]\ngap_s = 60\n'
        'length = 3600\n[reward]\nexpression = "t9"\n' + "".join(tags)
    )
    completed = subprocess.run(
        [sys.executable, "-c", LARGE, "50e6"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    # A scan of polars took 440 MB for 300 MB of CSV: it reads ahead of who converts it.
    assert 30e6 < int(completed.stdout) < 130e6
    assert read_dataset(tmp_path / "log.h5", memory_map=True).n_rows > n - 10
