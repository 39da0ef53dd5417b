"""A historian's log: its shifts, the best one's imitation, and today's controller if declared."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import ALGORITHMS, load_policy
from neorl_agents.controllers import TrackingPID
from neorl_core import Channel, InputError
from neorl_core.control import ConstantPolicy, standard_pid
from neorl_envs import Dataset, make, write_dataset
from neorl_train import Run, configure, start
from neorl_train._command.subcommands.run import read_run_options
from neorl_train._job.plant_model import log_context
from neorl_train._job.resolution import resolve
from neorl_train.candidates import (
    FAMILIES,
    Material,
    RunInputs,
    best_behaviour,
    best_mean,
    faceplate_texts,
    make_candidates,
    with_candidate_and_incumbent,
    with_controllers,
    with_todays_controller,
)
from neorl_train.configuration import validate
from neorl_train.data import own_episodes, recorded_tunings, usual_incumbent

pytest.importorskip("polars")
from neorl_envs.plant_logs import convert_log, read_plant_log

GAINS = {"A": (4.0, 0.004), "B": (30.0, 0.06), "C": (8.0, 0.008)}  # % per m, and per m and s
TURN, TURNS = 60, 30
PERIOD = 60.0
PLANT = """
name = "tank"
[log]
files = ["log.csv"]
timestamp = "time"
timestamp_format = "epoch_s"
[sampling]
period_s = 60
[episodes]
gap_s = 300
length = 30
[reward]
expression = "-abs(level - setpoint)"
unit = "m"
[[cost]]
name = "overflow"
expression = "greatest(level - 1.8, 0)"
unit = "m"
limit = 0.05
[[tag]]
name = "level"
role = "observation"
low = 0
high = 3
unit = "m"
[[tag]]
name = "setpoint"
role = "setpoint"
low = 0
high = 3
unit = "m"
[[tag]]
name = "valve"
role = "manipulated"
low = 0
high = 100
unit = "%"
[[tag]]
name = "mode"
role = "mode"
automatic = ["AUTO"]
[[tag]]
name = "crew"
role = "behaviour"
"""
LOOP = {"manipulated": {"level": "valve"}, "setpoint_channel": {"level": "setpoint"}}


def exported(crews: list[str], gains: dict[str, tuple[float, float]]) -> str:
    """A CSV of a tank whose crews, one after another, run a PI with gains of their own.

    In the first ten rows of every third turn the crew moves the valve by hand.
    """
    random = np.random.default_rng(1)
    level, load, lines = 1.0, 0.0, ["time,level,setpoint,valve,mode,crew"]
    row = 0
    for turn, crew in enumerate(crews):
        kp, ki = gains[crew]
        integral, setpoint = 0.0, float(random.choice([0.8, 1.0, 1.2]))
        for step in range(TURN):
            if step == TURN // 2:
                setpoint = float(random.choice([0.8, 1.0, 1.2]))
            error = setpoint - level
            integral += PERIOD * error
            by_hand = turn % 3 == 0 and step < 10
            valve = 40 + kp * error + ki * integral + (random.normal(0, 4) if by_hand else 0)
            valve = float(np.clip(valve, 0, 100))
            words = f"{level:.6f},{setpoint},{valve:.6f},{'MAN' if by_hand else 'AUTO'},{crew}"
            lines.append(f"{1_700_000_040 + 60 * row},{words}")
            load = 0.95 * load + 0.01 * random.normal()
            level += 0.05 * (valve / 40 - level) + load / 4 + 0.002 * random.normal()
            row += 1
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Three crews in turns; crew B has by far the best tuning."""
    return converted(tmp_path_factory.mktemp("tank"), list("ABC") * TURNS, GAINS)


def converted(here: Path, crews: list[str], gains: dict[str, tuple[float, float]]) -> Dataset:
    (here / "log.csv").write_text(exported(crews, gains))
    (here / "plant.toml").write_text(PLANT)
    return convert_log(read_plant_log(here / "plant.toml"), folder=here)


def config_with(**sections: Any) -> Any:
    classical = {"controllers": ["pid_imitation"], **LOOP}
    pool = {"controller": "pid_imitation", "modes": True}
    given = {"classical": classical, "retuning": pool, **sections}
    return configure(data={"source": "tank.h5"}, training={"algorithms": ["bc"]}, **given)


def resolved(config: Any, log: Dataset) -> Any:
    return with_candidate_and_incumbent(config, None, log)[0]


@pytest.mark.parametrize("sizes", [(8, 8), (6, 20), (8, 8, 8, 8)])
def test_of_equal_behaviours_hardly_ever_one_is_named(
    sizes: tuple[int, ...], pytestconfig: pytest.Config
) -> None:
    """The best of equal ones is above zero in one of two cases, without a correction in 5 %."""
    random = np.random.default_rng(0)
    draws = 1500 if pytestconfig.getoption("--nightly") else 300
    named = uncorrected = 0
    for _ in range(draws):
        results = {str(i): random.normal(size=size) for i, size in enumerate(sizes)}
        one = best_mean(results, 0.95)[1]
        assert one is not None
        named += one.low > 0
        alone = best_mean(results, 1 - len(sizes) * 0.05)[1]  # that of one comparison at 95 %
        assert alone is not None
        uncorrected += alone.low > 0
    assert named / draws < 0.025 + 3 * np.sqrt(0.025 * 0.975 / draws)
    if len(sizes) == 2:
        assert uncorrected / draws > 0.04


def test_the_shift_that_ran_the_plant_best_is_imitated(logged: Dataset) -> None:
    """Its gains come back from the rows of that crew alone, those by hand included."""
    config = resolved(config_with(), logged)
    material, controllers, words = with_controllers(Material(config, logged.spec, None, logged))
    assert list(controllers) == ["pid_imitation", "imitated-B"]
    policy: Any = controllers["imitated-B"]
    assert isinstance(policy, TrackingPID)
    kp, ki = (float(value[0]) for value in (policy.loops.kp, policy.loops.ki))
    assert kp == pytest.approx(GAINS["B"][0], rel=0.05)
    assert ki == pytest.approx(GAINS["B"][1], rel=0.1)
    of_all: Any = controllers["pid_imitation"]
    assert abs(float(of_all.loops.kp[0]) / kp - 1) > 0.1
    (line,) = [one for one in words if one.startswith("B ran the plant best")]
    gap = r"by its logged reward per step: the difference to [AC] is 0\.\d+ \[0\.\d+, 0\.\d+\] m "
    assert re.search(gap + r"\(from 30 turns and 30 turns, 95 % for the best of 3\)$", line)
    assert any(one.startswith("imitated-B: level by valve: ") for one in words)
    assert list(material.pool.policies) == ["pid_imitation-0", "imitated-B-0"]
    (one,) = material.pool.named("imitated-B")
    assert (one.family, one.from_log) == ("imitated", False)
    assert one.title == "imitated-B-0 (pid_imitation of the episodes of B)"


def test_a_turn_is_one_result_whatever_its_number_of_episodes(logged: Dataset) -> None:
    """The episodes of one turn share their disturbances, so they are no separate evidence."""
    labels = np.asarray(logged.behaviour)
    both = labels != 1  # without B, the turns of A and C are still told apart
    part = logged.select_episodes(np.flatnonzero(both)[:18])
    name, words = best_behaviour(part, part.spec, 0.95)
    assert not name
    assert "from 5 turns and 4 turns" in words[-1] or "from 4 turns and 5 turns" in words[-1]
    untimed = dataclasses.replace(part, time=None)
    assert "9 turns" not in best_behaviour(part, part.spec, 0.95)[1][-1]
    name, words = best_behaviour(untimed, untimed.spec, 0.95)
    assert ("highest return" in words[-1]) or ("by its logged return" in words[-1])


def test_behaviours_that_cannot_be_compared_are_left_out_in_a_sentence(
    logged: Dataset, tmp_path: Path
) -> None:
    labels, names = np.asarray(logged.behaviour), logged.attributes["behaviours"]

    def words_of(episodes: np.ndarray, log: Dataset = logged) -> str:
        part = log.select_episodes(episodes)
        name, words = best_behaviour(part, part.spec, 0.95)
        assert not name
        assert "\n" not in words[-1]
        return words[-1]

    alone = np.flatnonzero(labels == names.index("A"))
    assert "because A recorded the whole log, and there is no other" in words_of(alone)
    few = np.append(alone, np.flatnonzero(labels == names.index("B"))[:5])
    expected = "two of them need at least 8 training episodes each, in 2 turns or more, and the "
    assert f"{expected}log has of A 60 in" in words_of(np.sort(few))
    assert "of B 5 in 3 turns; record more, or cut the log" in words_of(np.sort(few))
    equal = converted(tmp_path, list("AB") * 12, {"A": (8.0, 0.01), "B": (8.0, 0.01)})
    line = words_of(np.arange(equal.n_episodes), equal)
    assert "the log does not show which one is best: " in line
    assert line.endswith("or name one of them with --evaluation.candidate imitated-NAME")
    unknown = dataclasses.replace(logged, behaviour=None)
    line = best_behaviour(unknown, unknown.spec, 0.95)[1][-1]
    assert 'the role "behaviour" in plant.toml' in line


def test_a_shift_over_a_limit_is_no_best_one(logged: Dataset) -> None:
    """Of the others, the best is imitated if the log shows which one that is."""
    columns: Any = logged.transitions
    cost = np.array(columns.cost)
    b = logged.attributes["behaviours"].index("B")
    by_row = np.repeat(np.asarray(logged.behaviour), logged.episode_lengths)
    cost[by_row == b] = 0.2
    over = dataclasses.replace(logged, transitions=columns._replace(cost=cost))
    name, words = best_behaviour(over, over.spec, 0.95)
    expected = "B is not imitated: its logged cost overflow, 0.2 m per step, exceeds the limit of "
    assert f"{expected}0.05 m" in words
    assert name != "B"
    assert "for the best of 2)" in words[-1]


def test_a_shift_can_be_named_as_candidate_incumbent_and_controller(logged: Dataset) -> None:
    """Whether it is the best or not; its own episodes are then those of the incumbent."""
    config = config_with(retuning={}, evaluation={"candidate": "imitated-C"})
    config = resolved(config, logged)
    _, controllers, _ = with_controllers(Material(config, logged.spec, None, logged))
    assert list(controllers) == ["pid_imitation", "imitated-C"]
    config = resolved(config_with(retuning={"controller": "imitated-A"}), logged)
    assert config.evaluation.incumbent == "imitated-A"
    config = config_with(evaluation={"incumbent": "imitated-A"}, retuning={})
    assert resolved(config, logged).evaluation.incumbent == "imitated-A"
    config = config_with(retuning={}, evaluation={"candidate": "imitated-D"})
    with pytest.raises(InputError, match=r"choose one of .*imitated-A, imitated-B, imitated-C$"):
        resolved(config, logged)
    config = config_with(retuning={}, evaluation={"incumbent": "B"})
    with pytest.raises(InputError, match=r"known: .*imitated-B"):
        resolved(config, logged)
    config = config_with(retuning={}, evaluation={"candidate": "imitated-C"})
    none = dataclasses.replace(config.classical, controllers=())
    with pytest.raises(InputError, match=r"'imitated-C', a controller that pid_imitation fits to "):
        resolved(dataclasses.replace(config, classical=none), logged)
    few = logged.select_episodes(np.arange(12))
    config = resolved(config_with(retuning={}, evaluation={"candidate": "imitated-C"}), few)
    words = r"^classical controller imitated-C: C recorded [34] training episodes, and an imitation"
    with pytest.raises(InputError, match=words):
        with_controllers(Material(config, few.spec, None, few))


def test_names_of_tunings_in_an_export_are_modes_of_its_simulator(tmp_path: Path) -> None:
    """With a simulator nothing is imitated: the tunings themselves are candidates."""
    gains = {"PI": (8.0, 0.01), "PI feed-forward": (30.0, 0.06)}
    log = converted(tmp_path, ["PI feed-forward", "PI", "PI feed-forward"] * 3, gains)
    plant = make("CSTR-v0")
    assert recorded_tunings(plant, log) == {"PI feed-forward": 12, "PI": 6}
    alone = log.select_episodes(own_episodes(log, "PI feed-forward").nonzero()[0])
    assert usual_incumbent(plant, alone)[0] == "PI feed-forward"
    config = config_with(
        evaluation={"incumbent": "PI"}, retuning={"controller": "PI", "modes": True}
    )
    config, _ = with_candidate_and_incumbent(config, plant, log)
    material, notes = make_candidates(["tuned"], Material(config, plant.spec, plant, log))
    assert (list(material.pool.policies), notes) == (["PI feed-forward-0"], [])
    assert FAMILIES["imitated"].names(RunInputs(config, plant, log)) == []


@pytest.mark.nightly
def test_a_run_judges_the_imitation_of_the_best_shift(
    logged: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the historian's export to the verdict, with model and learner hardly trained."""
    monkeypatch.setattr("neorl_train._job.run.prepare_process", lambda: None)
    write_dataset(tmp_path / "tank.h5", logged)

    def run_with(**sections: Any) -> Run:
        classical = {"controllers": ["pid_imitation"], **LOOP}
        return start(
            configure(
                data={"source": str(tmp_path / "tank.h5")},
                penalty={"overflow": 1.0},
                training={"algorithms": ["bc"], "seeds": [0], "updates": 2, "chunk": 1},
                checkpoints={"interval": 2},
                algorithms={"bc": {"steps": {"batch_size": 16}, "networks": {"hidden": [8]}}},
                classical=classical,
                output={"directory": str(tmp_path / "runs"), "tracking": False},
                **sections,
            ),
            quiet=True,
        )

    quick = {"updates": 200, "generations": 3, "modes": True}
    run = run_with(
        retuning={"controller": "imitated-A", **quick}, evaluation={"candidate": "imitated-B"}
    )
    assert run.verdict.candidate == "imitated-B-0"
    assert run.verdict.reference == "imitated-A"
    (clause,) = [one for one in run.verdict.clauses if one.name == "model"]
    counts = re.findall(r"mean over (\d+) episodes that the model was not fitted", clause.statistic)
    assert 0 < int(counts[0]) < 30  # of the 40 that judge, those of shift A
    (line,) = [one for one in run.record["choice"] if one.startswith("imitated-B-0 (pid_imitation")]
    assert re.search(
        r"predicted gain \S+ \[\S+, \S+\], with the model's error on logged episodes \S+ to \S+; ",
        line,
    )
    assert any(one.startswith("B ran the plant best") for one in run.record["controllers"])
    artefact = load_policy(run.path / "policies/imitated-B-0.safetensors")
    assert artefact.metadata["controller"] == "imitated-B"
    context = log_context(run.path)
    assert context.incumbent == "imitated-A"
    assert {"imitated-A", "imitated-B"} <= set(context.controllers)


DECLARED_LOOP = {
    "name": "LC-1",
    "controlled": "level",
    "manipulated": "valve",
    "direction": "direct",
    "gain": 2.0,
    "integral": 20,
    "integral_unit": "minutes",
    "setpoint": 0.0,
}
RANGES = [{"name": name, "low": -9.0, "high": 9.0, "unit": "%"} for name in ("level", "valve")]


def log_with_loops(make_log):
    configuration = {"tag": RANGES, "loop": [DECLARED_LOOP]}
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
    for named in ("LC-1", "incumbent"):  # Naming it asks for the same.
        other, _ = with_todays_controller(configure(retuning={"controller": named}), None, log)
        assert other.retuning == config.retuning
    config, _ = with_candidate_and_incumbent(config, None, log)
    assert config.evaluation.candidate == "best"


def test_a_retuned_loop_is_named_by_its_tag_in_the_numbers_of_its_faceplate(make_log) -> None:
    log = log_with_loops(make_log)
    config, _ = with_todays_controller(configure(), None, log)
    bank = standard_pid(
        gain=[-2.0], integral_time=[1200.0], derivative_time=[0.0], setpoint=[0.0], bias=[0.0],
        low=[-9.0], high=[9.0], dt=log.spec.dt, measured=[0],
    )  # fmt: skip
    material = Material(config, log.spec, dataset=log)
    assert faceplate_texts(material, bank) == []
    retuned = dataclasses.replace(bank, kp=1.3 * bank.kp, ki=2.6 * bank.ki)
    (text,) = faceplate_texts(material, retuned)
    assert text == "LC-1: gain 2 to 2.6 % per %, reset 20 to 10 min, direct (unchanged)"
    assert faceplate_texts(material, ConstantPolicy(jnp.zeros(1))) == []
    other = dataclasses.replace(config.retuning, controller="other")
    config = dataclasses.replace(config, retuning=other)
    assert faceplate_texts(material._replace(config=config), retuned) == []


def test_a_log_with_its_controller_trains_no_learner_unless_one_is_asked_for(
    make_log, tmp_path
) -> None:
    path = str(write_dataset(tmp_path / "log.h5", log_with_loops(make_log)))

    def asked(*words: str):
        config = read_run_options([path, *words], ALGORITHMS)[0]
        validate(config)
        return config

    config = asked()
    assert config.training.algorithms == ()
    assert resolve(config).run.config.retuning.controller == "LC-1"
    assert asked("--training.algorithms", "bc").training.algorithms == ("bc",)
    with pytest.raises(InputError, match=r"training\.algorithms is empty, and no controller"):
        resolve(asked("--evaluation.incumbent", "logged behaviour"))
    path = str(write_dataset(tmp_path / "without.h5", make_log()))
    assert len(asked().training.algorithms) == 3


def test_a_mistyped_tag_is_answered_with_the_one_of_the_log(make_log) -> None:
    config = configure(retuning={"controller": "LC1"})
    log = log_with_loops(make_log)
    assert with_todays_controller(config, None, log) == (config, [])
    with pytest.raises(InputError, match="is 'LC1'; choose one of LC-1, or fit one"):
        with_candidate_and_incumbent(config, None, log)


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


def test_a_controller_with_a_loop_missing_is_named_and_not_retuned(make_log) -> None:
    log = log_with_loops(make_log)
    valves = (*log.spec.action, Channel("pump", "%", 0.0, 100.0))
    log = dataclasses.replace(log, spec=dataclasses.replace(log.spec, action=valves))
    config = configure()
    left, notes = with_todays_controller(config, None, log)
    assert left == config
    assert "declares no loop for pump" in notes[0]


def test_a_log_without_loops_changes_nothing(make_log) -> None:
    config = configure()
    assert with_todays_controller(config, None, make_log()) == (config, [])
