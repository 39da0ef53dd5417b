"""Readers meet files that nobody wrote on purpose: a dataset, or one line; never a crash.

Daily a few examples; by hand, with NEORL_FUZZ_EXAMPLES=10000, ten minutes of them.
"""

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from neorl_core import Channel, CostChannel, InputError, Spec
from neorl_envs import read_dataset, write_dataset
from neorl_envs.datasets import dataset_from_columns
from neorl_envs.ingest import write_d4rl, write_minari, write_neorl2

EXAMPLES = int(os.environ.get("NEORL_FUZZ_EXAMPLES", "30"))
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES <= 100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
KINDS = ("neorl", "d4rl", "minari", "npz")


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small valid file of each format."""
    folder = tmp_path_factory.mktemp("seeds")
    n = 6
    rows = np.arange(n, dtype=np.float64)[:, None]
    log = dataset_from_columns(
        Spec(
            (Channel("y", "m", 0, 9),),
            (Channel("u", "%", 0, 9),),
            (CostChannel("c", "m", 1, "step"),),
            1,
            n,
        ),
        obs=rows,
        action=rows,
        reward=rows[:, 0],
        next_obs=rows + 1,
        cost=rows,
        terminated=np.zeros(n),
        truncated=np.arange(n) % 3 == 2,
        time=rows[:, 0],
    )
    write_dataset(folder / "log.h5", log)
    write_d4rl(folder / "log.hdf5", log)
    write_neorl2(folder / "log.npz", log)
    write_minari(folder / "log", log)
    places = ("log.h5", "log.hdf5", "log/data/main_data.hdf5", "log.npz")
    return {kind: folder / place for kind, place in zip(KINDS, places, strict=True)}


def answered(path: Path) -> None:
    """Reads a file; whatever is refused is one line that names it."""
    message = ""
    try:
        read_dataset(path)
    except InputError as error:
        message = str(error)
    assert not message or (str(path) in message and "\n" not in message), message


@FUZZ
@given(
    kind=st.sampled_from(KINDS),
    edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6),
    cut=st.one_of(st.none(), st.floats(0, 1)),
)
@example(kind="neorl", edits=[(0.1, 16)], cut=None)
def test_changed_bytes(
    seeds: dict[str, Path], tmp_path: Path, kind: str, edits: list, cut: float | None
) -> None:
    content = bytearray(seeds[kind].read_bytes())
    for place, value in edits:
        content[int(place * len(content))] = value
    path = tmp_path / "log.bin"
    path.write_bytes(content if cut is None else content[: int(cut * len(content))])
    answered(path)


NUMBERS = st.one_of(
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.text(max_size=3),
    st.none(),
    st.booleans(),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)


@FUZZ
@given(
    key=st.sampled_from(["obs", "action", "cost", "dt", "horizon", "low", "limit", "name", "x"]),
    value=NUMBERS,
    attributes=st.one_of(NUMBERS, st.dictionaries(st.just("behaviours"), NUMBERS)),
)
def test_changed_descriptions(
    seeds: dict[str, Path], tmp_path: Path, key: str, value: Any, attributes: Any
) -> None:
    path = tmp_path / "log.h5"
    path.write_bytes(seeds["neorl"].read_bytes())
    with h5py.File(path, "r+") as file:
        spec = json.loads(file.attrs["spec"])
        place = spec["obs"][0] if key in ("low", "name") else spec
        (spec["cost"][0] if key == "limit" else place)[key] = value
        for name, text in (("spec", json.dumps(spec)), ("attributes", json.dumps(attributes))):
            file.attrs[name] = np.bytes_(text.encode())
    answered(path)


SHAPES = st.lists(st.integers(0, 7), max_size=3)
DTYPES = st.sampled_from(["<f4", "<f8", "|u1", "|b1", "<i8", "<c8", "|S3", "<M8[s]", "<u2", "<f2"])


@FUZZ
@given(
    kind=st.sampled_from(KINDS),
    number=st.integers(0, 30),
    shape=SHAPES,
    dtype=DTYPES,
    fill=st.sampled_from([0, 1, 7]),
)
def test_changed_arrays(
    seeds: dict[str, Path],
    tmp_path: Path,
    kind: str,
    number: int,
    shape: list[int],
    dtype: str,
    fill: int,
) -> None:
    array = np.full(shape, fill).astype(dtype)
    path = tmp_path / ("log.npz" if kind == "npz" else "log.h5")
    path.write_bytes(seeds[kind].read_bytes())
    if kind == "npz":
        with zipfile.ZipFile(seeds[kind]) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        content = io.BytesIO()
        np.save(content, array)
        members[sorted(members)[number % len(members)]] = content.getvalue()
        with zipfile.ZipFile(path, "w") as archive:
            for name, member in members.items():
                archive.writestr(name, member)
    elif array.dtype.kind != "M":  # HDF5 has no dates
        with h5py.File(path, "r+") as file:
            names: list[str] = []
            file.visititems(
                lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None
            )
            name = sorted(names)[number % len(names)]
            del file[name]
            file[name] = array
    answered(path)
