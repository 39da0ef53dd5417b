import dataclasses

import numpy as np
import pytest

from neorl_agents import ALGORITHMS
from neorl_core import InputError
from neorl_train import Config
from neorl_train.configuration import DataConfig, config_type
from neorl_train.experience import training_experience


def configured(*, held_out: float, batch_size: int = 8) -> Config:
    """With a batch that fits every learner."""
    config = config_type(ALGORITHMS)()
    learners = {
        name: dataclasses.replace(getattr(config.algorithms, name), batch_size=batch_size)
        for name in config.training.algorithms
    }
    return dataclasses.replace(
        config,
        data=DataConfig(held_out=held_out),
        algorithms=dataclasses.replace(config.algorithms, **learners),
    )


def test_a_batch_of_more_rows_than_the_training_part_is_refused(make_log):
    with pytest.raises(InputError, match=r"bc\.batch_size is 128, and there are 84 rows"):
        training_experience(configured(held_out=0.3, batch_size=128), make_log(), {})


def test_episodes_are_trained_on_or_held_out_and_rewards_penalised_in_training_alone(make_log):
    log = make_log(n_cost=1)  # 20 episodes of 6 rows
    experience = training_experience(configured(held_out=0.3), log, {"cost_0": 2.0})
    training, held_out = experience.training.rows, experience.held_out.transitions
    assert experience.dataset is log
    assert (len(training.reward), experience.held_out.n_rows) == (84, 36)
    rows = {obs.tobytes(): i for i, obs in enumerate(log.transitions.obs)}
    trained = [rows[obs.tobytes()] for obs in training.obs]
    kept = [rows[obs.tobytes()] for obs in held_out.obs]
    assert sorted(trained + kept) == list(range(120))
    own = log.transitions.reward[trained]
    penalised = own - 2.0 * log.transitions.cost[trained, 0]
    np.testing.assert_allclose(training.reward, penalised, rtol=1e-6)
    np.testing.assert_array_equal(held_out.reward, log.transitions.reward[kept])
