"""Batches from the disk: every row once an epoch, the same from any start, apart on every host."""

import itertools
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neorl_core import Channel, Spec
from neorl_envs import DatasetError, write_dataset
from neorl_envs.datasets import batch_stream, dataset_from_columns

ROWS, MASKED = 3000, 171


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log whose reward is the number of its row; some rows are masked and hold NaN."""
    number = np.arange(ROWS, dtype=np.float64)
    mask = np.ones(ROWS, np.bool_)
    mask[np.random.default_rng(0).choice(ROWS, MASKED, replace=False)] = False
    log = dataset_from_columns(
        Spec((Channel("y", "m", 0, 1e4),), (Channel("u", "%", 0, 1e4),), (), 1, ROWS),
        obs=np.where(mask, number, np.nan)[:, None],
        action=number[:, None],
        reward=np.where(mask, number, np.nan),
        next_obs=number[:, None] + 1,
        terminated=number % 100 == 99,
        truncated=np.zeros(ROWS),
        mask=mask,
    )
    return write_dataset(tmp_path_factory.mktemp("stream") / "log.h5", log)


FIELDS = ("obs", "reward", "terminated", "cost")
SMALL: dict[str, Any] = {"batch_size": 32, "block_rows": 64, "buffer_blocks": 5}


def taken(path: Path, n: int, first: int = 0, **options: Any) -> np.ndarray:
    """Row numbers of some batches."""
    stream = batch_stream(path, FIELDS, **{"seed": 1, **SMALL, **options})
    source = stream.batches(first)
    batches = list(itertools.islice(source, n))
    source.close()
    return np.stack([batch.reward for batch in batches])


def test_an_epoch_sees_every_unmasked_row_once(path: Path) -> None:
    stream = batch_stream(path, FIELDS, seed=1, **SMALL)
    n = stream.batches_per_epoch
    assert n == (ROWS - MASKED) // 32
    first, second = np.split(taken(path, 2 * n), 2)
    for epoch in (first, second):
        assert len(np.unique(epoch)) == epoch.size == n * 32
        assert np.isfinite(epoch).all()
    assert (first != second).mean() > 0.9
    assert not np.array_equal(first, taken(path, n, seed=2))


def test_fields_belong_together(path: Path) -> None:
    stream = batch_stream(path, FIELDS, seed=1, **SMALL)
    source = stream.batches()
    batch: Any = next(source)
    source.close()
    np.testing.assert_array_equal(batch.obs[:, 0], batch.reward)
    np.testing.assert_array_equal(batch.terminated, batch.reward % 100 == 99)
    assert batch.cost.shape == (32, 0)
    assert batch.action is None
    assert batch.terminated.dtype == np.bool_


@pytest.mark.parametrize("first", [0, 1, 9, 10, 87, 88, 89, 200])
def test_reading_resumes_at_any_batch(path: Path, first: int) -> None:
    """Row N09: a log that stays in its file is read batch by batch."""
    whole = taken(path, 210)
    np.testing.assert_array_equal(taken(path, 10, first), whole[first : first + 10])


def test_chunks_are_the_batches_stacked(path: Path) -> None:
    stream = batch_stream(path, ["reward"], seed=1, **SMALL)
    source = stream.chunks(7, first=3)
    chunk = next(source)
    source.close()
    np.testing.assert_array_equal(chunk.reward, taken(path, 10)[3:])


def test_hosts_share_the_rows_out(path: Path) -> None:
    seen = []
    for index in range(3):
        stream = batch_stream(
            path, ["reward"], seed=1, shard=(index, 3), **{**SMALL, "batch_size": 1}
        )
        source = stream.batches()
        seen.append([float(next(source).reward[0]) for _ in range(stream.batches_per_epoch)])
        source.close()
    together = np.concatenate(seen)
    assert len(together) == len(np.unique(together)) == ROWS - MASKED
    assert min(map(len, seen)) > 0.8 * max(map(len, seen))


HOST = """
import sys
from neorl_envs.datasets import batch_stream
shard = int(sys.argv[2]), int(sys.argv[3])
stream = batch_stream(
    sys.argv[1], ["reward"], batch_size=1, block_rows=64, buffer_blocks=5, seed=1, shard=shard
)
source = stream.batches()
print(*(int(next(source).reward[0]) for _ in range(stream.batches_per_epoch)))
source.close()
"""


def test_two_processes_read_every_row_once(path: Path) -> None:
    """Each its own rows, together all of them."""
    hosts = [
        subprocess.Popen(
            [sys.executable, "-c", HOST, str(path), str(i), "2"], stdout=subprocess.PIPE, text=True
        )
        for i in range(2)
    ]
    first, second = (set(map(int, host.communicate()[0].split())) for host in hosts)
    assert not first & second
    assert len(first | second) == len(first) + len(second) == ROWS - MASKED


def test_rows_that_are_held_out_do_not_come(path: Path) -> None:
    keep = np.arange(ROWS) < 1000
    stream = batch_stream(path, ["reward"], seed=1, keep=keep, **SMALL)
    source = stream.batches()
    rows = np.concatenate([next(source).reward for _ in range(stream.batches_per_epoch)])
    source.close()
    assert rows.max() < 1000


def test_the_reader_ends_with_its_user(path: Path) -> None:
    taken(path, 3)
    assert not any(thread.name == "batch stream" for thread in threading.enumerate())


def test_a_file_that_shrinks_is_noticed(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "log.h5"
    copy.write_bytes(path.read_bytes())
    stream = batch_stream(copy, FIELDS, seed=1, **SMALL)
    copy.write_bytes(copy.read_bytes()[:2000])
    source = stream.batches()
    with pytest.raises(DatasetError, match="ends early; the file was changed"):
        list(itertools.islice(source, 100))


BAD = {
    "no rows in a batch": ({"batch_size": 0}, "batch_size must be 1 or more, got 0"),
    "a batch too large": ({"batch_size": 2900}, r"a batch has 2900 rows, and reader 0 of 1 only"),
    "a shard of none": ({"shard": (1, 1)}, r"shard must be \(number, of how many\)"),
    "another field": ({"fields": ["rewrd"]}, "unknown field 'rewrd'"),
    "flags of another log": ({"keep": np.ones(5, bool)}, "keep: expected a flag for each of 3000"),
    "nothing kept": ({"keep": np.zeros(ROWS, bool)}, "only 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_streamed_is_refused(path: Path, case: str) -> None:
    options, message = BAD[case]
    given: dict[str, Any] = {"fields": FIELDS, "seed": 1, **SMALL, **options}
    with pytest.raises(DatasetError, match=message):
        batch_stream(path, **given)


def test_the_cost_of_shuffling_by_blocks(tmp_path: Path) -> None:
    """Batch means of a slow log vary little more than those of uniform sampling.

    Of a log that is constant within a block and free between blocks, the worst case, the variance
    of a mean of b rows from k blocks of m rows is about 1 + (b - 1) / k times that of b free rows.
    """
    random = np.random.default_rng(7)
    level = np.repeat(random.normal(size=400), 50)
    n = len(level)
    column = level[:, None]
    log = dataset_from_columns(
        Spec((Channel("y", "m", -9, 9),), (Channel("u", "%", 0, 1),), (), 1, n),
        obs=column,
        action=0 * column,
        reward=level,
        next_obs=column,
        terminated=np.zeros(n),
        truncated=np.zeros(n),
    )
    path = write_dataset(tmp_path / "slow.h5", log)
    ratios = []
    for blocks in (8, 100):
        batches = taken(path, 600, block_rows=50, buffer_blocks=blocks)
        ratios.append(batches.mean(axis=1).var() / (level.var() / 32))
    few, many = ratios
    assert few == pytest.approx(1 + 31 / 8, rel=0.4)
    assert many == pytest.approx(1 + 31 / 100, rel=0.3)


RESIDENT = """
import resource, sys
from pathlib import Path
from neorl_envs.datasets._file import map_checked
from neorl_envs.datasets import batch_stream, data_statistics
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
path = Path(sys.argv[1])
data_statistics(map_checked(path))
source = batch_stream(path, ["obs", "next_obs"], batch_size=256, seed=0).batches()
for _ in range(2000):
    next(source)
source.close()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.nightly
def test_a_file_four_times_the_memory_is_checked_hashed_and_streamed(tmp_path: Path) -> None:
    """The process grows by less than a quarter of the file.

    Row N09: a file four times the memory is read within the memory.
    """
    n, width = 2_000_000, 128
    column = np.broadcast_to(np.arange(n, dtype=np.float32)[:, None] / n, (n, width))
    log = dataset_from_columns(
        Spec(
            tuple(Channel(f"y{i}", "m", 0, 1) for i in range(width)),
            (Channel("u", "%", 0, 1),),
            (),
            1,
            n,
        ),
        obs=column,
        action=column[:, :1],
        reward=column[:, 0],
        next_obs=column,
        terminated=np.zeros(n),
        truncated=np.zeros(n),
    )
    path = write_dataset(tmp_path / "large.h5", log)
    assert path.stat().st_size > 2e9
    command = [sys.executable, "-c", RESIDENT, str(path)]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(completed.stdout) * 1000 < path.stat().st_size / 4
