"""Channels that no controller influences: a learner's model takes those that the plant declares."""

import jax
import pytest

from neorl_envs import collect_log, make, write_dataset
from neorl_train import configure
from neorl_train._job.resolution import resolve

PLANT = "DMSD-v0"


def of_models(config, *learners):
    return [getattr(config.algorithms, name).model.exogenous for name in learners]


def test_models_take_the_exogenous_channels_of_the_plant_where_none_are_given():
    settings = configure(
        data={"source": PLANT},
        training={"algorithms": ["mopo", "combo", "bc"]},
        algorithms={"combo": {"model": {"exogenous": ["target1"]}}},
    )
    config = resolve(settings).run.config
    assert of_models(config, "mopo", "combo") == [make(PLANT).exogenous, ("target1",)]


@pytest.mark.parametrize("known", [True, False])
def test_a_log_has_those_of_its_plant_and_those_that_are_declared(known, tmp_path):
    log = collect_log(make(PLANT), n_steps=2400, key=jax.random.key(0))
    if not known:
        log.attributes.pop("provenance")
    path = write_dataset(tmp_path / "log.h5", log)
    settings = configure(
        data={"source": str(path)},
        training={"algorithms": ["mopo"]},
        retuning={"exogenous": ["target2"]},
    )
    expected = make(PLANT).exogenous if known else ("target2",)
    assert of_models(resolve(settings).run.config, "mopo") == [expected]
