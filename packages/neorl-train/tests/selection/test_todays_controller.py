"""A log that declares today's controller is judged against it without being asked."""

import dataclasses

from neorl_train import configure
from neorl_train.candidates._resolve import with_candidate_and_incumbent, with_todays_controller

LOOP = {
    "name": "LC-1",
    "controlled": "level",
    "manipulated": "valve",
    "direction": "direct",
    "gain": 2.0,
    "integral": 20,
    "integral_unit": "min",
    "setpoint": 0.0,
}
RANGES = [{"name": name, "low": -9.0, "high": 9.0, "unit": "%"} for name in ("level", "valve")]


def log_with_loops(make_log):
    configuration = {"tag": RANGES, "loop": [LOOP]}
    return dataclasses.replace(
        make_log(), attributes={"provenance": {"configuration": configuration}}
    )


def test_it_is_retuned_and_compared_with(make_log) -> None:
    log = log_with_loops(make_log)
    config, notes = with_todays_controller(configure(), None, log)
    assert config.retuning.controller == config.evaluation.incumbent == "LC-1"
    (loop,) = config.classical.declared["LC-1"]
    assert (loop["gain"], loop["integral_time"]) == (2.0, 1200.0)
    assert "LC-1: gain 2 % per %, integral time 1200 s, direct acting" in notes[0]
    config, _ = with_candidate_and_incumbent(config, None, log)
    assert config.evaluation.candidate == "best"


def test_what_the_run_says_itself_is_left(make_log) -> None:
    log = log_with_loops(make_log)
    given = configure()
    classical = dataclasses.replace(given.classical, declared={"other": ({},)})
    for config in (
        configure(evaluation={"incumbent": "logged behaviour"}),
        configure(retuning={"controller": "pid_imitation"}),
        dataclasses.replace(given, classical=classical),
    ):
        assert with_todays_controller(config, None, log) == (config, [])


def test_a_log_without_loops_changes_nothing(make_log) -> None:
    config = configure()
    assert with_todays_controller(config, None, make_log()) == (config, [])
