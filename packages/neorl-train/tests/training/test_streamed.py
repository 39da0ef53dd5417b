"""Training from a file: the update of the learner on the batches of the stream, and no more."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from neorl_agents import BC, FQL, TD3BC, BCSafe, CalQL
from neorl_agents.learning import training_keys
from neorl_agents.testing import sized
from neorl_core import Channel, CostChannel, InputError, Spec, as_arrays
from neorl_envs import read_dataset, write_dataset
from neorl_envs.datasets import (
    batch_stream,
    data_statistics,
    dataset_from_columns,
    write_shards,
)
from neorl_train import train
from neorl_train.data import streamed_data, training_data
from neorl_train.runs import Checkpoints, tree_digest
from neorl_train.training import Plan, check_logs, run_keys

SMALL: dict[str, Any] = {"hidden": (8, 8), "batch_size": 16}
WEIGHTS = (0.5,)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    obs = random.normal(size=(400, 2))
    mask = random.random(400) > 0.1
    log = dataset_from_columns(
        Spec(
            (Channel("a", "m", -4, 4), Channel("b", "m", -4, 4)),
            (Channel("u", "%", -1, 1),),
            (CostChannel("c", "m", 1, "step"),),
            1,
            40,
        ),
        obs=np.where(mask[:, None], obs, np.nan),
        action=np.tanh(obs[:, :1]),
        reward=random.normal(size=400),
        cost=random.random((400, 1)),
        next_obs=random.normal(size=(400, 2)),
        terminated=np.zeros(400),
        truncated=np.arange(400) % 40 == 39,
        mask=mask,
    )
    return write_dataset(tmp_path_factory.mktemp("log") / "log.h5", log)


def test_it_is_the_update_on_the_batches_of_the_stream(path: Path) -> None:
    algorithm = sized(BC(), **SMALL)
    trained = train(algorithm, streamed_data(path), (3,), Plan(30, 10, 10))
    log = read_dataset(path)
    initial, chunks = run_keys(3)
    keys = training_keys(chunks).updates
    state = algorithm.init(log.spec, data_statistics(log), initial)
    fields = sorted(set(algorithm.fields) - {"mask"})
    source = batch_stream(path, fields, batch_size=16, seed=3).batches()
    update = jax.jit(type(algorithm).update)
    for number, batch in enumerate(itertools.islice(source, 30)):
        one = jax.tree.map(lambda column: column[None], batch)
        state, _ = update(as_arrays(algorithm), state, one, jax.random.fold_in(keys, number))
    source.close()
    ours = jax.tree.map(lambda leaf: leaf[0], trained.snapshot["state"].learner)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_it_stops_and_continues_at_any_chunk_to_the_same_bits(path: Path, tmp_path: Path) -> None:
    """Seeds side by side, each as if alone; the penalty is taken off the reward of batches."""
    algorithm = sized(TD3BC(), **SMALL)
    data = streamed_data(path, penalty_weights=WEIGHTS)
    plan = Plan(80, 20, 20)
    whole = train(algorithm, data, (0, 7), plan)
    alone = train(algorithm, data, (7,), plan)
    for leaf, single in zip(
        jax.tree.leaves(whole.snapshot), jax.tree.leaves(alone.snapshot), strict=True
    ):
        np.testing.assert_array_equal(leaf[1], single[0])

    def stored() -> Checkpoints:
        return Checkpoints(tmp_path, identity={}, interval=20, keep=4, print_line=print)

    calls = iter(range(9))
    stopped = train(
        algorithm, data, (0, 7), plan, checkpoints=stored(), stop=lambda: next(calls) == 2
    )
    assert (stopped.step, stopped.finished) == (40, False)
    resumed = train(algorithm, data, (0, 7), plan, checkpoints=stored())
    assert tree_digest(resumed.snapshot) == tree_digest(whole.snapshot)
    unpenalised = train(algorithm, streamed_data(path), (7,), plan)
    assert tree_digest(unpenalised.snapshot) != tree_digest(alone.snapshot)


def test_shards_train_to_the_bits_of_one_file(path: Path, tmp_path: Path) -> None:
    """In memory, and streamed with the rows of a block in two files."""
    log = read_dataset(path)
    shards = write_shards(tmp_path / "log.shards.json", log, rows=90)
    assert len(list(tmp_path.glob("log-*.h5"))) == 4
    algorithm, plan = sized(BC(), **SMALL), Plan(40, 20, 20)
    for one, several in (
        (streamed_data(path), streamed_data(shards)),
        (training_data(log), training_data(read_dataset(shards))),
    ):
        snapshots = [train(algorithm, data, (3,), plan).snapshot for data in (one, several)]
        assert tree_digest(snapshots[0]) == tree_digest(snapshots[1])


def test_a_part_of_every_batch_needs_its_own_stretch_alone(path: Path, tmp_path: Path) -> None:
    """Four readers: what two processes read is what one reads, and comes from other files."""
    shards = write_shards(tmp_path / "log.shards.json", read_dataset(path), rows=90)
    learner = sized(BC(), **SMALL)
    data = streamed_data(shards, readers=4)

    def obs(**options: Any) -> np.ndarray:
        source = data.chunks(learner, seed=1, n_batches=30, first=7, **options)
        chunk = next(source)
        source.close()
        return np.asarray(chunk.obs)

    whole = obs()
    assert whole.shape == (30, 16, 2)
    parts = [obs(part=(number, 2)) for number in (0, 1)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)
    for wrong in ("log-00002.h5", "log-00003.h5"):  # the first half does not look into these
        (tmp_path / wrong).unlink()
    np.testing.assert_array_equal(obs(part=(0, 2)), parts[0])
    with pytest.raises(FileNotFoundError):
        obs(part=(1, 2))
    with pytest.raises(InputError, match=r"which is not a multiple of data.readers = 3; set"):
        train(learner, streamed_data(path, readers=3), plan=Plan(10, 10, 10))


def test_batches_hold_the_penalised_reward_of_the_chosen_episodes(path: Path) -> None:
    log: Any = read_dataset(path).transitions
    episodes = np.array([1, 4, 5, 9])
    data = streamed_data(path, episodes=episodes, penalty_weights=WEIGHTS)
    expected = (log.reward - np.float32(0.5) * log.cost[:, 0])[
        log.mask & np.isin(np.arange(400) // 40, episodes)
    ]
    assert data.n_rows == len(expected)
    n = data.n_rows // 8
    learner = sized(TD3BC(), batch_size=8)
    source = data.chunks(learner, seed=0, n_batches=n, first=0)
    chunk: Any = next(source)
    source.close()
    assert chunk.cost is None
    seen = chunk.reward.reshape(-1)
    assert len(np.unique(seen)) == 8 * n
    assert np.isin(seen, expected).all()
    obs, action = (np.concatenate(parts) for parts in zip(*data.actions(), strict=True))
    used = log.mask & np.isin(np.arange(400) // 40, episodes)
    np.testing.assert_array_equal(obs, log.obs[used])
    np.testing.assert_array_equal(action, log.action[used])


def test_what_cannot_be_streamed_is_refused(path: Path) -> None:
    data = streamed_data(path)
    with pytest.raises(InputError, match="batches of 500 rows, and there are"):
        train(sized(BC(), hidden=(8,), batch_size=500), data, plan=Plan(10, 10, 10))
    with pytest.raises(InputError, match="needs more than single rows"):
        train(sized(CalQL(), **SMALL), data, plan=Plan(10, 10, 10))


@pytest.mark.parametrize("block", [7, 40, 1000])
def test_limits_are_checked_against_every_episode_of_the_file(
    path: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neorl_envs.datasets._checks.BLOCK", block)
    declared = streamed_data(path, episodes=np.array([1, 4, 8])).spec
    for per in ("step", "episode"):
        spec = replace(declared, cost=(replace(declared.cost[0], per=per),))
        data = streamed_data(path, episodes=np.array([1, 4, 8]), spec=spec)
        log = read_dataset(path)
        episodes = [log.episode(number) for number in (1, 4, 8)]
        costs = [np.where(rows.mask[:, None], rows.cost, 0) for rows in episodes]
        reduction = np.sum if per == "episode" else np.max
        expected = np.stack([reduction(cost, axis=0) for cost in costs])
        np.testing.assert_allclose(data.limited_costs(), expected, rtol=1e-6)
        kept = replace(spec.cost[0], limit=float(expected.min()) * 1.01)
        check_logs([BCSafe()], replace(data, spec=replace(spec, cost=(kept,))))
        exceeded = replace(kept, limit=float(expected.min()) * 0.99)
        with pytest.raises(InputError, match=r"no logged episode does: the .* is at least"):
            check_logs([BCSafe()], replace(data, spec=replace(spec, cost=(exceeded,))))


def test_actions_that_move_within_a_single_episode_move(path: Path) -> None:
    check_logs([FQL()], streamed_data(path, episodes=np.array([2])))
