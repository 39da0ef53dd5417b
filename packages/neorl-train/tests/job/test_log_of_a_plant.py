"""A log in a file whose simulator is named: it is judged as the log of a plant is.

``evaluation.environment`` names the simulator, which must have the channels of the log.
"""

import dataclasses
import json

import jax
import numpy as np
import pytest

from neorl_core import InputError
from neorl_envs import collect_log, make, read_dataset, write_dataset
from neorl_envs.datasets import dataset_from_columns
from neorl_train import configure
from neorl_train._command.main import main
from neorl_train._job.plant_model import log_context, run_facts
from neorl_train._job.resolution import resolve
from neorl_train.configuration import config_to_dict, validate
from neorl_train.runs import create_run

CSTR = make("CSTR-v0")
NAMED = {"environment": "CSTR-v0"}
FEW = {"bc": {"steps": {"batch_size": 16}}}


@pytest.fixture(scope="module")
def recorded():
    """A log of both tunings of CSTR-v0, as its recorder writes it."""
    return collect_log(CSTR, n_steps=800, key=jax.random.key(0))


@pytest.fixture(scope="module")
def log(recorded, tmp_path_factory):
    """The same log without its origin, as an export from a historian has none."""
    attributes = {k: v for k, v in recorded.attributes.items() if k != "provenance"}
    path = tmp_path_factory.mktemp("log") / "log.h5"
    return write_dataset(path, dataclasses.replace(recorded, attributes=attributes))


def settings(source, **sections):
    training = {"algorithms": ["bc"], "seeds": [0]}
    data = {"source": str(source), "held_out": 0.5}
    given = configure(data=data, training=training, algorithms=FEW, **sections)
    validate(given)
    return given


def other_log(recorded, folder, **spec):
    changed = dataclasses.replace(recorded, spec=dataclasses.replace(recorded.spec, **spec))
    return write_dataset(folder / "other.h5", changed)


def test_a_named_simulator_gives_a_log_what_its_plant_declares(log):
    """Penalties, rates, fallback and incumbent are those of a run on the plant itself."""
    named = resolve(settings(log, evaluation=NAMED))
    plant = resolve(settings("CSTR-v0", evaluation={"seed": named.run.config.evaluation.seed}))
    assert named.run.environment == CSTR
    for section in ("penalty", "limits", "fallback", "retuning"):
        assert getattr(named.run.config, section) == getattr(plant.run.config, section)
    expected = dataclasses.replace(plant.run.config.evaluation, environment="CSTR-v0")
    assert named.run.config.evaluation == expected
    for fact in ("limits", "fallback"):
        assert named.facts[fact] == plant.facts[fact]
    assert named.notes == []
    assert named.run.judged_spec == plant.run.judged_spec


def test_a_mode_of_the_log_is_a_candidate_if_its_simulator_is_named(log):
    config = resolve(settings(log, evaluation={**NAMED, "candidate": "PI feed-forward"})).run.config
    assert (config.evaluation.candidate, config.evaluation.incumbent) == ("PI feed-forward", "PI")


def test_an_unknown_simulator_is_refused_with_the_nearest_name(log):
    with pytest.raises(InputError, match=r"evaluation\.environment 'CSTR-v1'.*CSTR-v0"):
        resolve(settings(log, evaluation={"environment": "CSTR-v1"}))


def test_a_simulator_that_does_not_fit_is_refused_by_channel_and_unit(recorded, tmp_path):
    spec = recorded.spec
    other = settings(other_log(recorded, tmp_path), evaluation={"environment": "DMSD-v0"})
    with pytest.raises(InputError, match="DMSD-v0 has 6 observed channels, and the log and its"):
        resolve(other)
    action = (dataclasses.replace(spec.action[0], unit="degC"),)
    expected = r"the action channel T_c \(.* K\), where the log and its policies have T_c \(.* degC"
    with pytest.raises(InputError, match=expected):
        resolve(settings(other_log(recorded, tmp_path, action=action), evaluation=NAMED))
    cost = (dataclasses.replace(spec.cost[0], unit="K h"),)
    with pytest.raises(InputError, match=r"temperature \(K min per .*temperature \(K h per"):
        resolve(settings(other_log(recorded, tmp_path, cost=cost), evaluation=NAMED))
    with pytest.raises(InputError, match="a control period of 15 s, the log one of 30 s"):
        resolve(settings(other_log(recorded, tmp_path, dt=30.0), evaluation=NAMED))


def test_a_simulated_source_is_judged_on_itself(log):
    with pytest.raises(InputError, match=r"data\.source is the simulated plant CSTR-v0, on which"):
        resolve(settings("CSTR-v0", evaluation={"environment": "DMSD-v0"}))
    same = configure(data={"source": "CSTR-v0", "constants": {"flow": 1.1}}, evaluation=NAMED)
    assert (
        resolve(same).run.environment
        == resolve(dataclasses.replace(same, evaluation=configure().evaluation)).run.environment
    )
    both = {"evaluation": NAMED, "finetune": {"environment": "DMSD-v0"}}
    with pytest.raises(InputError, match=r"but finetune\.environment is DMSD-v0"):
        resolve(settings(log, **both))


def test_the_limits_of_the_log_are_those_of_the_verdict(recorded, tmp_path):
    """They may differ from the simulator's; the run says so."""
    stricter = (dataclasses.replace(recorded.spec.cost[0], limit=0.25),)
    path = other_log(recorded, tmp_path, cost=stricter)
    named = resolve(settings(path, evaluation=NAMED))
    assert named.run.config.limits.cost == {"temperature": 0.25}
    assert named.run.judged_spec.cost == stricter
    (note,) = named.notes
    assert note.startswith(
        "cost temperature is judged by the limit of the log, 0.25 K min per episode; that of "
        "CSTR-v0 is 1 K min (declare"
    )
    declared = resolve(settings(path, evaluation=NAMED, limits={"cost": {"temperature": 2.0}}))
    assert (declared.run.judged_spec.cost[0].limit, declared.notes) == (2.0, [])


def test_a_rate_that_the_log_declares_lowers_that_of_the_actuator(recorded, tmp_path):
    rate = {"kind": "rate", "channel": "T_c", "up": 0.1, "down": 9.0}
    attributes = {**recorded.attributes, "constraints": [rate]}
    path = write_dataset(tmp_path / "log.h5", dataclasses.replace(recorded, attributes=attributes))
    limits = resolve(settings(path, evaluation=NAMED)).run.config.limits
    assert limits.rate_up == {"T_c": 0.1}
    assert limits.rate_down == {"T_c": pytest.approx(CSTR.action_rates()[0])}


def test_a_log_that_only_other_tunings_filled_is_compared_with_them(recorded, tmp_path):
    """The first tuning recorded none of it, so it does not run today."""
    names = recorded.attributes["behaviours"]
    (others,) = np.nonzero(np.asarray(recorded.behaviour) == names.index("PI feed-forward"))
    path = write_dataset(tmp_path / "log.h5", recorded.select_episodes(others))
    run = resolve(settings(path, evaluation=NAMED))
    assert run.run.config.evaluation.incumbent == "PI feed-forward"
    assert run.notes == [
        f"PI feed-forward is taken as today's controller, because it recorded {len(others)} of "
        f"{len(others)} episodes of the log and PI, the plant's first tuning, none (name another "
        "with `--evaluation.incumbent 'PI'`)"
    ]
    assert len(run.run.behaviour) == 1
    assert log_context(path).incumbent == "PI feed-forward"
    given = resolve(settings(path, evaluation={**NAMED, "incumbent": "PI"}))
    assert (given.run.config.evaluation.incumbent, given.notes) == ("PI", [])
    retuned = resolve(settings(path, evaluation=NAMED, retuning={"controller": "incumbent"}))
    assert retuned.run.config.retuning.controller == "PI feed-forward"


def test_what_filled_a_log_alone_runs_today(log):
    """Or the controller that the run retunes, which its answer compares with."""
    penalty = {"penalty": {"temperature": 1.0}}
    default = resolve(settings(log, **penalty)).run.config
    assert default.evaluation.incumbent == "logged behaviour"
    named = settings(log, evaluation={"incumbent": "logged behaviour"}, **penalty)
    assert config_to_dict(resolve(named).run.config) == config_to_dict(default)
    loops = {"manipulated": {"C_A": "T_c"}, "setpoint_channel": {"C_A": "C_A_SP"}}
    classical = {"controllers": ["pid_imitation", "pid"], **loops}
    both = {"classical": classical, "retuning": {"controller": "pid_imitation"}, **penalty}
    assert resolve(settings(log, **both)).run.config.evaluation.incumbent == "pid_imitation"
    for other in ("logged behaviour", "pid"):
        with pytest.raises(InputError, match=f"is '{other}', but a run on a log alone compares"):
            resolve(settings(log, evaluation={"incumbent": other}, **both))
    with pytest.raises(InputError, match=r"unknown controller as evaluation\.incumbent 'PI'"):
        resolve(settings(log, evaluation={"incumbent": "PI"}, **penalty))


@pytest.mark.parametrize(
    "plant", ["ChemicalReactor-v0", "DMSD-v0", "HVACControl-v0", "IndustrialBenchmark-v0"]
)
@pytest.mark.parametrize("known", [True, False])
def test_commands_on_a_run_use_the_facts_of_the_run(plant, known, tmp_path):
    """A plant that declares an interlock or its reward: known by its log, or by name."""
    environment = make(plant)
    path = write_dataset(tmp_path / "log.h5", still(environment, known=known))
    section = {} if known else {"environment": plant}
    config = configure(data={"source": str(path)}, evaluation=section)
    text = f'[data]\nsource = "{path}"\n[retuning]\ncontroller = "PI"\n[evaluation]\n'
    text += "".join(f'{name} = "{value}"\n' for name, value in section.items())
    run = create_run(tmp_path / "runs", text, {"status": "finished"})
    facts, _ = run_facts(
        config.limits, config.retuning.exogenous, None if known else environment, read_dataset(path)
    )
    assert facts == log_context(run.path).facts
    assert facts.interlock == environment.interlock
    assert facts.objective == environment.objective
    assert facts.exogenous == environment.exogenous


def still(environment, *, known):
    """A log of a plant that stands still, in two episodes, with or without its name."""
    spec, rows = environment.spec, 4
    return dataset_from_columns(
        spec,
        obs=np.full((rows, spec.n_obs), 0.5),
        action=np.full((rows, spec.n_action), 0.5),
        reward=np.zeros(rows),
        cost=np.zeros((rows, spec.n_cost)),
        next_obs=np.full((rows, spec.n_obs), 0.5),
        terminated=np.zeros(rows, bool),
        truncated=np.arange(rows) % 2 == 1,
        attributes={"provenance": {"environment": environment.name}} if known else {},
    )


def test_a_log_with_other_units_has_not_the_facts_of_its_plant(recorded, tmp_path):
    action = (dataclasses.replace(recorded.spec.action[0], unit="degC"),)
    dataset = read_dataset(other_log(recorded, tmp_path, action=action))
    inf = {"rate_up": {"T_c": 1.0}, "rate_down": {"T_c": 2.0}}
    facts, _ = run_facts(configure(limits=inf).limits, (), None, dataset)
    assert (facts.rates, facts.interlock) == ((1.0,), None)


QUICK = [
    "--training.algorithms", "bc",
    "--training.seeds", "0",
    "--training.updates", "20",
    "--training.chunk", "20",
    "--checkpoints.interval", "20",
    "--algorithms.bc.networks.hidden", "8",
    "--data.held-out", "0.25",
    "--evaluation.starts", "64",
    "--evaluation.seed", "1",
    "--output.no-tracking",
    "--quiet",
]  # fmt: skip


@pytest.mark.nightly
def test_a_run_on_the_file_is_the_run_on_the_plant(tmp_path, monkeypatch, capsys):
    """The same log, once collected and once from its file, gets the same answer to the bit."""
    monkeypatch.chdir(tmp_path)
    quick = [*QUICK, "--retuning.updates", "20", "--retuning.generations", "1"]
    quick += ["--retuning.controller", "incumbent", "--evaluation.candidate", "bc"]
    assert main(["run", "CSTR-v0", "--data.steps", "2400", *quick]) == 0
    collected = read_dataset(tmp_path / "runs/0001/dataset.h5")
    collected.attributes.pop("provenance")
    write_dataset(tmp_path / "log.h5", collected)
    assert main(["run", "log.h5", "--evaluation.environment", "CSTR-v0", *quick]) == 0
    plant, file = (tmp_path / "runs" / number for number in ("0001", "0002"))
    assert json.loads((file / "verdict.json").read_text())["answer"] in ("deploy", "do not deploy")
    assert (file / "verdict.json").read_bytes() == (plant / "verdict.json").read_bytes()
    results = [json.loads((run / "evaluation.json").read_text()) for run in (plant, file)]
    assert results[0]["tables"] == results[1]["tables"]
    assert {"PI", "PI feed-forward"} <= {row["name"] for row in results[1]["tables"]["rows"]}
    assert (file / "guard.json").read_bytes() == (plant / "guard.json").read_bytes()
    assert 'environment = "CSTR-v0"' in (file / "config.toml").read_text()
    answer = (file / "verdict.json").read_bytes()
    (file / "report.html").unlink()
    assert main(["resume", "runs/0002", "--quiet"]) == 0
    assert (file / "verdict.json").read_bytes() == answer
    facts = [log_context(run)[1:2] + log_context(run)[4:5] for run in (plant, file)]
    assert facts[0] == facts[1]
    capsys.readouterr()
    assert main(["choose", "runs/0002", "--value-updates", "0", "--json"]) == 0
    choice = json.loads(capsys.readouterr().out)
    assert choice["incumbent"] == "PI"
    assert choice["model"]["checks"]
    assert main(["evaluate", "runs/0002", "--starts", "8"]) == 0
    assert "CSTR-v0" in capsys.readouterr().out
    assert main(["compare", "runs/0001", "runs/0002"]) == 0
    assert "bc" in capsys.readouterr().out
