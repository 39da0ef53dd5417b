"""The loop with everything on keeps nine tenths of the rate of a bare scan of the same update.

CPU time is compared, not the clock: other work on the machine does not count. The figure that is
reported comes from ``tools/benchmarks/training_loop.py``, on a quiet machine.
"""

import time
from functools import partial

import jax
import numpy as np
import pytest

from neorl_agents import BC
from neorl_core import Transition, as_arrays
from neorl_envs import data_statistics
from neorl_train import Checkpoints, Plan, Records, Reporter, Timings, TrainingData, train
from neorl_train._probe import PolicyProbe
from neorl_train._tracking import NoTracker
from neorl_train._watch import RunWatcher

UPDATES, BLOCK = 160_000, 1000
LEARNER = BC(hidden=(64, 64), batch_size=64)


def _bare(algorithm, state, rows, key, *, shape):
    """Rows drawn and gathered once a block, then a scan; the metrics are computed and dropped."""
    index_key, update_key = jax.random.split(key)
    index = jax.random.randint(index_key, shape, 0, rows.obs.shape[0])
    batches = jax.tree.map(lambda column: column[index], rows)
    keys = jax.random.split(update_key, shape[0])
    return jax.lax.scan(partial(_updated, algorithm), state, (batches, keys))


def _updated(algorithm, state, batch_and_key):
    return algorithm.update(state, *batch_and_key)


def _bare_seconds(data):
    wanted = {name: getattr(data.rows, name) for name in LEARNER.fields}
    rows = jax.device_put(Transition(*(wanted.get(name) for name in Transition._fields)))
    state = LEARNER.init(data.spec, data.statistics, jax.random.key(0))
    block = jax.jit(partial(_bare, shape=(BLOCK, 1, LEARNER.batch_size)), donate_argnums=1)
    algorithm = as_arrays(LEARNER)
    state, _ = jax.block_until_ready(block(algorithm, state, rows, jax.random.key(1)))
    begun = time.process_time()
    for number in range(UPDATES // BLOCK):
        state, _ = block(algorithm, state, rows, jax.random.key(number))
    jax.block_until_ready(state)
    return time.process_time() - begun


class _Clock(RunWatcher):
    begun = 0.0

    def running(self):
        self.begun = time.process_time()


def _library_seconds(data, held_out, folder):
    folder.mkdir()
    records = Records(folder / "metrics.jsonl")
    saved = Checkpoints(folder / "c", identity={}, interval=UPDATES // 2, keep=2, say=print)
    watcher = _Clock(
        "bc",
        (0,),
        UPDATES,
        records=records,
        reporter=Reporter(quiet=True),
        tracker=NoTracker(),
        timings=Timings(),
    )
    train(
        LEARNER,
        data,
        (0,),
        Plan(UPDATES, BLOCK, UPDATES // 2),
        watcher=watcher,
        checkpoints=saved,
        probe=PolicyProbe(held_out, None, key=jax.random.key(2), starts=0),
    )
    records.close()
    return time.process_time() - watcher.begun


@pytest.mark.slow
def test_the_loop_costs_at_most_a_ninth_more_than_a_bare_scan(make_log, tmp_path):
    log = make_log(episodes=200, length=50)
    data = TrainingData(log.transitions._replace(mask=None), data_statistics(log), log.spec)
    held_out = make_log(episodes=4)
    _library_seconds(data, held_out, tmp_path / "warm")
    bare = [_bare_seconds(data)]
    library = []
    for number in range(2):
        library.append(_library_seconds(data, held_out, tmp_path / str(number)))
        bare.append(_bare_seconds(data))
    assert np.median(bare) / np.median(library) >= 0.9, (bare, library)
