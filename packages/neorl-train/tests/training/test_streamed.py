"""Training from a file: the update of the learner on the batches of the stream, and no more."""

import itertools
from pathlib import Path

import jax
import numpy as np
import pytest

from neorl_agents import BC, TD3BC
from neorl_core import Channel, InputError, Spec, as_arrays
from neorl_envs import read_dataset, write_dataset
from neorl_envs.datasets import batch_stream, data_statistics, dataset_from_columns
from neorl_train.runs import tree_digest
from neorl_train.training import run_keys, train_streamed

SMALL = {"hidden": (8, 8), "batch_size": 16}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    obs = random.normal(size=(400, 2))
    mask = random.random(400) > 0.1
    log = dataset_from_columns(
        Spec(
            (Channel("a", "m", -4, 4), Channel("b", "m", -4, 4)),
            (Channel("u", "%", -1, 1),),
            (),
            1,
            40,
        ),
        obs=np.where(mask[:, None], obs, np.nan),
        action=np.tanh(obs[:, :1]),
        reward=random.normal(size=400),
        next_obs=random.normal(size=(400, 2)),
        terminated=np.zeros(400),
        truncated=np.arange(400) % 40 == 39,
        mask=mask,
    )
    return write_dataset(tmp_path_factory.mktemp("log") / "log.h5", log)


def test_it_is_the_update_on_the_batches_of_the_stream(path: Path) -> None:
    algorithm = BC(**SMALL)
    streamed = train_streamed(algorithm, path, updates=30, chunk=10, seed=3)
    log = read_dataset(path)
    initial, chunks = run_keys(3)
    _, keys = jax.random.split(chunks)
    state = algorithm.init(log.spec, data_statistics(log), initial)
    fields = sorted(algorithm.fields)
    source = batch_stream(path, fields, batch_size=16, seed=3).batches()
    update = jax.jit(type(algorithm).update)
    for number, batch in enumerate(itertools.islice(source, 30)):
        one = jax.tree.map(lambda column: column[None], batch)
        state, _ = update(as_arrays(algorithm), state, one, jax.random.fold_in(keys, number))
    source.close()
    for ours, theirs in zip(jax.tree.leaves(streamed.state), jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_it_resumes_to_the_same_bits_and_learns(path: Path) -> None:
    algorithm = TD3BC(**SMALL)
    losses = []
    whole = train_streamed(
        algorithm, path, updates=80, chunk=20, told=lambda s: losses.append(s.metrics)
    )
    half = []
    train_streamed(algorithm, path, updates=80, chunk=20, told=half.append)
    assert half[1].done * algorithm.batches_per_update == 40
    resumed = train_streamed(algorithm, path, updates=80, chunk=20, resume=half[1])
    assert tree_digest(resumed.state) == tree_digest(whole.state)
    assert len(losses) == 4
    assert whole.policy() is not None


def test_what_cannot_be_streamed_is_refused(path: Path) -> None:
    with pytest.raises(InputError, match="updates must be a multiple of chunk"):
        train_streamed(BC(**SMALL), path, updates=30, chunk=20)
    with pytest.raises(InputError, match="a batch has 500 rows"):
        train_streamed(BC(hidden=(8,), batch_size=500), path, updates=10, chunk=10)
    with pytest.raises(InputError, match="batch_size"):
        train_streamed(BC(hidden=(8,), batch_size=0), path, updates=10, chunk=10)
