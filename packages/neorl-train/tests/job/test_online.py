"""What an online run refuses, each in one line before anything is compiled or written."""

import pytest

from neorl_core import InputError, Spec
from neorl_envs import make, write_dataset
from neorl_envs.plants import register_plant
from neorl_train import configure
from neorl_train._command.main import main
from neorl_train._job.resolution import reopen, resolve
from neorl_train.data import FileSource, PlantSource

ONLINE = ("run", "DMSD-v0", "--training.on", "plant")


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Whether the command refuses its arguments in one line with the given words."""
    monkeypatch.chdir(tmp_path)

    def check(words, *arguments):
        assert main([*map(str, arguments)]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert words in line
        assert not (tmp_path / "runs").exists()

    return check


def test_a_learner_says_itself_whether_it_can_be_trained_on_a_plant(refused):
    """No list of names is asked: whoever explores and needs no fit can."""
    bc = (*ONLINE, "--training.algorithms", "bc")
    refused("BC cannot be trained on a plant: it has no method explore(state)", *bc)
    config = configure(
        data={"source": "DMSD-v0", "steps": 0}, training={"algorithms": ["iql"], "on": "plant"}
    )
    result = resolve(config).run
    assert type(result.kind).__name__ == "Online"
    assert result.spec == make("DMSD-v0").spec


def test_numbers_that_do_not_go_together_are_named(refused):
    iql = (*ONLINE, "--training.algorithms", "iql")
    refused(
        "online.capacity is 8, smaller than a batch of IQL (128 rows)", *iql, "--online.capacity", 8
    )
    refused("online.warm_up is 16, and 128 of the 128 rows", *iql, "--online.warm-up", 16)
    message = "online.environments must be an integer of at least 1"
    refused(message, *iql, "--online.environments", 0)
    refused("training.chunk is 500; it must be a multiple of 30", *iql, "--online.environments", 30)


def test_what_needs_a_log_is_refused_where_none_is_recorded(refused, tmp_path, make_log):
    iql = (*ONLINE, "--training.algorithms", "iql")
    refused("monitor drift needs a log, and with data.steps = 0", *iql, "--monitors.drift")
    refused("checkpoints.best needs a log", *iql, "--checkpoints.best")
    refused("classical.controllers needs a log", *iql, "--classical.controllers", "pid")
    write_dataset(tmp_path / "log.h5", make_log())
    on_file = ("run", "log.h5", "--training.on", "plant", "--training.algorithms", "iql")
    refused('training.on is "plant", and log.h5 is a log; name a simulated plant', *on_file)
    refused("data.steps must be at least 1", "run", "DMSD-v0", "--data.steps", 0)


def test_a_plant_without_a_limit_on_its_episodes_gets_no_name():
    class Endless(type(make("DMSD-v0"))):
        @property
        def spec(self):
            known = make("DMSD-v0").spec
            return Spec(known.obs, known.action, known.cost, known.dt, None)  # pyright: ignore

    with pytest.raises(InputError, match=r"'Endless-v0': horizon must be an integer"):
        register_plant("Endless-v0", Endless)


def test_a_run_is_resolved_once_and_resumed_as_the_same(tmp_path, make_log):
    """Source, kind and channels with the limits of the run are those that it began with."""
    write_dataset(tmp_path / "log.h5", make_log(n_cost=1))
    begun = resolve(
        configure(
            data={"source": str(tmp_path / "log.h5")},
            training={"algorithms": ["bc"]},
            algorithms={"bc": {"steps": {"batch_size": 16}}},
            limits={"cost": {"cost_0": 0.25}},
            penalty={"cost_0": 1.0},
        )
    ).run
    again = reopen(begun.config)
    assert begun.source == again.source == FileSource(tmp_path / "log.h5")
    assert begun.spec == again.spec
    assert [channel.limit for channel in begun.spec.cost] == [0.25]
    assert type(begun.kind) is type(again.kind)
    plant = resolve(configure(data={"source": "DMSD-v0"})).run
    assert plant.source == PlantSource("DMSD-v0")
    assert plant.judged_spec == plant.spec


def test_runs_of_other_settings_meet_other_starts_and_equal_ones_the_same():
    def seed(**evaluation):
        training = {"updates": evaluation.pop("updates", 500)}
        config = configure(data={"source": "DMSD-v0"}, training=training, evaluation=evaluation)
        return resolve(config).run.config.evaluation.seed

    assert 0 <= seed() == seed() < 2**31
    assert seed(updates=1000) != seed()
    assert seed(seed=7) == 7
    with pytest.raises(InputError, match=r"evaluation\.seed must be an integer in .* or -1, got"):
        seed(seed=-2)
