import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest

from neorl_agents import ALGORITHMS, IQL
from neorl_core import InputError
from neorl_envs import Dataset, read_dataset, write_dataset
from neorl_train import Config
from neorl_train.configuration import DataConfig, config_type
from neorl_train.data import Experience, StreamedData, is_streamed, read_log, training_experience
from neorl_train.judging import classical_imitators


def configured(*, held_out: float) -> Config:
    return dataclasses.replace(config_type(ALGORITHMS)(), data=DataConfig(held_out=held_out))


def experience_of(
    config: Config, dataset: Dataset, path: Path | None = None, batch_size: int = 8
) -> Experience:
    """What a run of a configuration trains on."""
    return training_experience(
        config.data,
        dataset,
        dataset.spec,
        penalty=config.penalty,
        batch_sizes={"bc": batch_size},
        path=path,
    )


def test_a_batch_of_more_rows_than_the_training_part_is_refused(make_log):
    with pytest.raises(InputError, match=r"a batch of bc has 128 rows, and there are 84"):
        experience_of(configured(held_out=0.3), make_log(), batch_size=128)


def test_episodes_are_trained_on_or_held_out_and_rewards_priced_for_learners_alone(make_log):
    log = make_log(n_cost=1)  # 20 episodes of 6 rows
    config = dataclasses.replace(configured(held_out=0.3), penalty={"cost_0": 2.0})
    experience = experience_of(config, log)
    data, held_out = experience.training, experience.held_out.transitions
    training = data.rows
    assert experience.dataset is log
    assert (len(training.reward), experience.held_out.n_rows) == (84, 36)
    rows = {obs.tobytes(): i for i, obs in enumerate(log.transitions.obs)}
    trained = [rows[obs.tobytes()] for obs in training.obs]
    kept = [rows[obs.tobytes()] for obs in held_out.obs]
    assert sorted(trained + kept) == list(range(120))
    own = log.transitions.reward[trained]
    penalised = own - 2.0 * log.transitions.cost[trained, 0]
    np.testing.assert_array_equal(training.reward, own)
    np.testing.assert_array_equal(training.cost, log.transitions.cost[trained])
    np.testing.assert_allclose(data.rows_for(IQL()).reward, penalised, rtol=1e-6)
    statistics = data.statistics_for(IQL())
    np.testing.assert_allclose(statistics.reward.mean, penalised.mean(), rtol=1e-5)
    np.testing.assert_allclose(data.statistics.reward.mean, own.mean(), rtol=1e-5)
    np.testing.assert_array_equal(held_out.reward, log.transitions.reward[kept])


def test_a_log_in_its_file_gives_what_it_gives_in_memory(make_log, tmp_path):
    """Statistics bit for bit, the same split, the same imitators; of held-out rows a sample."""
    path = write_dataset(tmp_path / "log.h5", make_log(n_cost=1, episodes=200))
    config = dataclasses.replace(configured(held_out=0.3), penalty={"cost_0": 2.0})
    small = dataclasses.replace(config, data=dataclasses.replace(config.data, memory="30kB"))
    assert is_streamed(small.data, path)
    assert not is_streamed(config.data, path)
    dataset = read_dataset(path)
    inside = experience_of(config, dataset, path)
    outside = experience_of(small, read_log(small.data, path), path)
    assert isinstance(outside.training, StreamedData)
    assert outside.dataset.content_hash == inside.dataset.content_hash
    assert outside.training.n_rows == inside.training.n_rows
    for ours, theirs in zip(
        jax.tree.leaves(outside.training.statistics),
        jax.tree.leaves(inside.training.statistics),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)
    rows = {obs.tobytes() for obs in inside.held_out.transitions.obs}
    some = outside.held_out
    assert 2 <= some.n_episodes < inside.held_out.n_episodes
    assert all(obs.tobytes() in rows for obs in some.transitions.obs)
    assert sum(column.nbytes for _, column in some.columns()) < 1.1 * 30_000 / 20
    spec = inside.dataset.spec
    for ours, theirs in zip(
        jax.tree.leaves(classical_imitators(outside.training, spec)),
        jax.tree.leaves(classical_imitators(inside.training.rows, spec)),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_only_the_dataset_file_stays_on_the_disk(shared_data):
    path = shared_data("neorl2", "DMSD-high-20000-val.npz")
    config = configured(held_out=0.3)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, memory="1MB"))
    with pytest.raises(
        InputError, match=r"more than data\.memory = 1MB, and only neorl's own dataset"
    ):
        read_log(config.data, path)
