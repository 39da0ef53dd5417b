"""What runs today is stated by the user: a policy in a file, or declared PID loops."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import load_policy, save_policy
from neorl_agents.controllers import TrackingPID
from neorl_core import InputError
from neorl_core.control import ConstantPolicy
from neorl_envs import collect_log, make, write_dataset
from neorl_train import configure, resume, start
from neorl_train._job.job import resume_job
from neorl_train._job.plant_model import log_context
from neorl_train._job.resolution import resolve
from neorl_train._process.progress import Reporter, Timings
from neorl_train.candidates import Material, with_controllers
from neorl_train.choosing import ChooseOptions, check_plant_model
from neorl_train.configuration import config_hash, config_to_dict, dump_toml
from neorl_train.data import training_sample
from neorl_train.runs import RunDirectory, create_run
from neorl_train.studies import evaluate_again

CSTR, DMSD = make("CSTR-v0"), make("DMSD-v0")
PENALTY = {"temperature": 1.0}
LOOP = {
    "controlled": "C_A", "manipulated": "T_c", "setpoint_channel": "C_A_SP",
    "gain": 12.0, "direction": "direct", "integral_time": 150.0, "bias": 298.0,
}  # fmt: skip
"""The numbers of the plant's PI."""
QUICK = {
    "training": {"algorithms": ["bc"], "seeds": [0], "updates": 2, "chunk": 1},
    "checkpoints": {"interval": 2},
    "algorithms": {"bc": {"steps": {"batch_size": 16}, "networks": {"hidden": [8]}}},
}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log that the PI of CSTR-v0 filled."""
    path = tmp_path_factory.mktemp("log") / "log.h5"
    only = {"PI": CSTR.tunings()["PI"]}
    return write_dataset(path, collect_log(CSTR, only, n_steps=800, key=jax.random.key(0)))


def artefact(path, plant, policy):
    observations = np.full((32, plant.spec.n_obs), 0.5)
    return save_policy(path, policy, plant.spec, observations, {"role": "learner"})


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """The plant's own PI as a file."""
    path = tmp_path_factory.mktemp("old") / "old.safetensors"
    artefact(path, CSTR, CSTR.tunings()["PI"])
    return path


def begun(config):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("neorl_train._job.run.prepare_process", lambda: None)
        return start(config, quiet=True)


def settings(source, *, loops=(LOOP,), **sections):
    penalty = {} if source == "CSTR-v0" else PENALTY
    classical = {"declared": {"dcs": list(loops)}} if loops else {}
    data = {"source": str(source), "held_out": 0.5}
    return configure(
        **{**QUICK, "data": data, "penalty": penalty, "classical": classical, **sections}
    )


def digests(config):
    return resolve(config).facts["given_policies"]


def test_a_file_is_what_runs_today_and_is_called_like_it(log, old):
    for source in ("CSTR-v0", log):
        given = settings(source, loops=(), evaluation={"incumbent": str(old)})
        complete = resolve(given)
        given_policies = complete.facts["given_policies"]
        config = complete.run.config
        assert config.evaluation.incumbent == str(old)
        assert list(given_policies) == [str(old)]
        material, controllers, (line,) = with_controllers(
            Material(config, CSTR.spec, complete.run.environment, digests=given_policies)
        )
        assert list(controllers) == ["old"]
        assert f"old (from {old}): gain of T_c " in line
        # It is compared with, and no candidate.
        assert len(material.pool) == 0
        for name in ("incumbent", "old", str(old)):
            retuned = dataclasses.replace(given.retuning, controller=name)
            config = resolve(dataclasses.replace(given, retuning=retuned)).run.config
            assert config.retuning.controller == "old"
            assert config.evaluation.incumbent == str(old)


def test_declared_loops_are_what_runs_today(log):
    for source in ("CSTR-v0", log):
        given = settings(
            source, evaluation={"incumbent": "dcs"}, retuning={"controller": "incumbent"}
        )
        config = resolve(given).run.config
        assert (config.evaluation.incumbent, config.retuning.controller) == ("dcs", "dcs")
    # That it is retuned says that it runs today.
    named = settings(log, retuning={"controller": "dcs"})
    assert resolve(named).run.config.evaluation.incumbent == "dcs"
    material, controllers, words = with_controllers(Material(named, CSTR.spec))
    assert words == ["dcs (declared): gain of T_c -12 K per mol/L, integral time of T_c 150 s"]
    assert isinstance(controllers["dcs"], TrackingPID)
    assert list(material.pool.policies) == ["dcs-0"]


def test_a_loop_without_a_bias_takes_it_from_the_first_rows_of_the_log(log):
    without = {key: value for key, value in LOOP.items() if key != "bias"}
    run = resolve(settings(log, loops=[without])).run
    material = Material(run.config, run.spec, dataset=run.dataset)
    _, controllers, (line,) = with_controllers(material)
    sample = training_sample(run.config.data, run.dataset)
    rows, first = sample.transitions, np.asarray(sample.episode_starts)
    measured, _, setpoint = np.asarray(rows.obs, np.float64)[first].T
    error = setpoint - measured
    expected = np.mean(np.asarray(rows.action)[first, 0] + 12 * (1 + 15 / 150) * error)
    np.testing.assert_allclose(controllers["dcs"].loops.bias, [expected], rtol=1e-6)
    assert line.endswith(
        f", bias of T_c {expected:.4g} K (from the first rows of the log's episodes)"
    )
    online = {"on": "plant", "algorithms": ["ppo"], "seeds": [0]}
    bare = configure(
        data={"source": "CSTR-v0", "steps": 0}, training=online,
        classical={"declared": {"dcs": [without]}},
    )  # fmt: skip
    with pytest.raises(
        InputError, match="the loop of C_A by T_c declares no bias, and without a log no"
    ):
        resolve(bare)


def test_a_declared_controller_can_be_the_fallback(log):
    fallback = {"kind": "classical", "controller": "dcs"}
    complete = resolve(settings(log, fallback=fallback))
    assert complete.facts["fallback"] == "the declared controller dcs"


def test_files_that_cannot_be_what_runs_today_are_refused_in_one_line(log, old, tmp_path):
    def refused(message, incumbent, source=log, **sections):
        with pytest.raises(InputError, match=message) as error:
            resolve(settings(source, evaluation={"incumbent": str(incumbent)}, **sections))
        assert "\n" not in str(error.value)

    refused("there is no such policy artefact", tmp_path / "none.safetensors")
    other = tmp_path / "other.safetensors"
    artefact(other, DMSD, DMSD.tunings()["PD"])
    refused(
        "other.safetensors has 6 observed channels, and the log and its policies have 3; name a "
        "policy of the plant",
        other,
    )
    warmer = dataclasses.replace(CSTR.spec.action[0], unit="degC")
    spec = dataclasses.replace(CSTR.spec, action=(warmer,))
    save_policy(other, ConstantPolicy(jnp.full(1, 300.0)), spec, np.full((32, 3), 0.5), {})
    refused(r"has the action channel T_c \(.* degC\), where the log and its policies have", other)
    (tmp_path / "dcs.toml").write_text("")
    refused(r"a policy artefact, NAME\.safetensors; declare a PID", tmp_path / "dcs.toml")
    for name in ("dcs", "bc", "retuned"):
        twice = tmp_path / f"{name}.safetensors"
        artefact(twice, CSTR, CSTR.tunings()["PI"])
        refused(f"another controller or policy called {name}; rename the file", twice)
    pi = tmp_path / "PI.safetensors"
    artefact(pi, CSTR, CSTR.tunings()["PI"])
    refused("another controller or policy called PI; rename the file", pi, "CSTR-v0")
    resolve(settings(log, evaluation={"incumbent": str(pi)}))  # the log may have that mode
    with pytest.raises(InputError, match="another policy of the run is called old"):
        resolve(settings(log, evaluation={"incumbent": str(old), "policies": [str(old)]}))
    words, other = "compares with the controller that it retunes, 'dcs'", {"controller": "dcs"}
    refused(words, old, retuning=other)


NO_LOOPS = {
    "the gain of the loop of C_A by T_c must be a positive number, got -12": {"gain": -12.0},
    "the gain of the loop of C_A by T_c must be a positive number, got nan": {"gain": np.nan},
    "must be a number, got '12 K'": {"gain": "12 K"},
    r"unknown key in \[classical.declared.dcs\[0\]\] 'Ti'": {"Ti": 3.0},
    r"unknown observation channel 'C_A_PS'; did you mean 'C_A_SP'\?": {
        "setpoint_channel": "C_A_PS"
    },
    r"unknown action channel 'Tc'; did you mean 'T_c'\?": {"manipulated": "Tc"},
}


@pytest.mark.parametrize("message", NO_LOOPS)
def test_loops_that_do_not_fit_are_refused_in_one_line(message, log):
    with pytest.raises(InputError, match=message) as error:
        resolve(settings(log, loops=[{**LOOP, **NO_LOOPS[message]}]))
    assert "\n" not in str(error.value)
    assert "classical.declared.dcs" in str(error.value)


TAKEN = {
    "PI": "has PI, which is the name of a tuning of the plant",
    "retuned": "has retuned, which is the name of something else in every run",
    "logged behaviour": "has logged behaviour, which is the name of something else",
    "pid": "has pid, which is the name of a controller that is fitted",
    "bc": "bc is a learner and a classical controller of this run",
    "a/b": "has the name 'a/b', which also names a file",
    "": "has the name '', which also names a file",
}


@pytest.mark.parametrize("name", TAKEN)
def test_names_of_other_controllers_are_refused(name):
    with pytest.raises(InputError, match=TAKEN[name]):
        resolve(settings("CSTR-v0", classical={"declared": {name: [LOOP]}}))


def test_a_declared_controller_belongs_to_the_configuration_and_survives_its_file(tmp_path):
    with_loop, without = settings("CSTR-v0"), settings("CSTR-v0", loops=())
    assert config_hash(with_loop) != config_hash(without)
    faster = settings("CSTR-v0", loops=[{**LOOP, "integral_time": 120.0}])
    assert config_hash(with_loop) != config_hash(faster)
    (tmp_path / "run.toml").write_text(dump_toml(config_to_dict(with_loop)))
    assert config_hash(configure(tmp_path / "run.toml")) == config_hash(with_loop)


def test_a_file_that_was_changed_is_noticed(log, tmp_path):
    """By the commands on the run, and when it is resumed."""
    file = tmp_path / "old.safetensors"
    artefact(file, CSTR, CSTR.tunings()["PI"])
    config = resolve(settings(log, loops=(), evaluation={"incumbent": str(file)})).run.config
    record = {"given_policies": digests(config), "config_hash": config_hash(config), "id": "1",
              "algorithms": ["bc"], "versions": {}, "status": "failed"}  # fmt: skip
    run = create_run(tmp_path / "runs", dump_toml(config_to_dict(config)), record)
    assert list(log_context(run.path).controllers) == ["PI", "PI feed-forward", "old"]
    assert log_context(run.path).incumbent == "old"
    artefact(file, CSTR, CSTR.tunings()["PI feed-forward"])
    words = r"old\.safetensors was changed since the run began; restore the file"
    with pytest.raises(InputError, match=words):
        log_context(run.path)
    with pytest.raises(InputError, match=words):
        resume_job(RunDirectory(run.path), config, Reporter(quiet=True), Timings())


@pytest.mark.nightly
def test_the_verdict_is_that_of_the_run_that_names_the_tuning(old, tmp_path):
    """The same controller, once by its name and once as a file, on the same starts."""
    common = {
        "source": "CSTR-v0", "loops": (),
        "output": {"directory": str(tmp_path / "runs"), "tracking": False},
    }  # fmt: skip
    evaluation = {"starts": 16, "curve_starts": 0, "seed": 1, "candidate": "bc"}
    data = {"source": "CSTR-v0", "steps": 800, "held_out": 0.5}
    runs = [
        begun(settings(**common, data=data, evaluation={**evaluation, "incumbent": incumbent}))
        for incumbent in ("PI", str(old))
    ]
    by_name, by_file = (run.verdict for run in runs)
    assert (by_name.reference, by_file.reference) == ("PI", "old")
    assert (by_file.answer, by_file.candidate) == (by_name.answer, by_name.candidate)
    for ours, theirs in zip(by_file.clauses, by_name.clauses, strict=True):
        assert (ours.name, ours.holds) == (theirs.name, theirs.holds)
        np.testing.assert_allclose(
            [ours.value, ours.low, ours.high], [theirs.value, theirs.low, theirs.high], rtol=1e-6
        )
    run = runs[1]
    assert str(old) in run.record["given_policies"]
    assert f"old (from {old}): gain of T_c " in run.report.read_text()
    before = (run.path / "verdict.json").read_bytes()
    run.report.unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("neorl_train._job.run.prepare_process", lambda: None)
        again = resume(run, quiet=True)
    assert (again.path / "verdict.json").read_bytes() == before
    repeated = evaluate_again(RunDirectory(run.path), starts=8)
    assert repeated.verdict.reference == "old"


@pytest.fixture(scope="module")
def on_a_log(tmp_path_factory):
    """Runs on a log alone: one with the declared PI, one with a policy that cannot be retuned."""
    here = tmp_path_factory.mktemp("declared")
    only = {"PI": CSTR.tunings()["PI"]}
    path = write_dataset(
        here / "log.h5", collect_log(CSTR, only, n_steps=6_000, key=jax.random.key(3))
    )
    output = {"directory": str(here / "runs"), "tracking": False}
    data = {"source": str(path)}
    retuning = {"controller": "incumbent", "exogenous": ["C_A_SP"]}
    declared = settings(
        path, data=data, output=output, evaluation={"incumbent": "dcs"},
        retuning={**retuning, "updates": 200, "generations": 5},
    )  # fmt: skip
    file = here / "held.safetensors"
    artefact(file, CSTR, ConstantPolicy(jnp.full(1, 299.0)))
    held = settings(
        path, loops=(), data=data, output=output, evaluation={"incumbent": str(file)},
        retuning={**retuning, "updates": 20, "generations": 1},
    )  # fmt: skip
    return begun(declared), begun(held)


@pytest.mark.nightly
def test_on_a_log_alone_the_model_reproduces_the_declared_loops(on_a_log):
    run, _ = on_a_log
    clauses = {clause.name: clause for clause in run.verdict.clauses}
    assert clauses["model"].holds
    assert run.verdict.reference == "dcs"
    assert run.record["changes"][0].startswith("gain of T_c from -12 to -")
    assert run.record["changes"][1].startswith("integral time of T_c from 150 to ")
    assert "dcs (declared): gain of T_c" in run.report.read_text()
    stored = load_policy(run.path / "policies" / "retuned-0.safetensors").policy
    assert isinstance(stored, TrackingPID)
    np.testing.assert_allclose(
        [stored.loops.bias, stored.loops.high], [[298.0], [CSTR.spec.action[0].high]]
    )


@pytest.mark.nightly
def test_commands_on_the_run_judge_the_declared_loops_as_the_run_did(on_a_log):
    run, _ = on_a_log
    log = log_context(run.path)
    assert log.incumbent == "dcs"
    dataset, options = log.for_run_options(ChooseOptions())
    check = check_plant_model(dataset, "", options, log.facts, log.controllers, log.incumbent)
    (ours,) = [one for one in check.checks if one.name == "model"]
    (clause,) = [one for one in run.verdict.clauses if one.name == "model"]
    assert (ours.holds, ours.sentence) == (clause.holds, clause.sentence)


@pytest.mark.nightly
def test_a_policy_that_cannot_be_retuned_is_compared_with_the_others(on_a_log):
    _, run = on_a_log
    assert run.record["changes"] == []
    kept = [line for line in run.record["controllers"] if line.startswith("held ")]
    assert kept[0].endswith("held.safetensors): it declares no tuning parameter")
    assert kept[1].startswith("held declares no tuning parameter, so it is kept as it is;")
    assert any(line.startswith("bc-0: predicted gain") for line in run.record["choice"])
    assert run.verdict.reference == "held"
    assert not any(line.startswith("held") for line in run.record["choice"])


@pytest.mark.nightly
def test_a_run_with_declared_loops_is_resumed_to_the_bit(on_a_log):
    run, _ = on_a_log
    names = ("verdict.json", "evaluation.json", "policies/retuned-0.safetensors")
    before = {name: (run.path / name).read_bytes() for name in names}
    (run.path / "verdict.json").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("neorl_train._job.run.prepare_process", lambda: None)
        again = resume(run, quiet=True)
    assert {name: (again.path / name).read_bytes() for name in names} == before
