"""The pool of candidates: fitted controllers, modes of the log, averages of seeds."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import load_policy, save_policy
from neorl_agents.controllers import TrackingPID
from neorl_agents.networks import init_mlp, largest, tanh
from neorl_agents.policies import AveragePolicy, NetworkPolicy
from neorl_agents.retuning import Prediction, RefineResult, Refusal
from neorl_core import Affine, Channel, InputError, Spec
from neorl_core.control import ConstantPolicy
from neorl_envs import collect_log, make, write_dataset
from neorl_train import configure, start
from neorl_train.candidates import (
    Candidate,
    Material,
    Pool,
    RunInputs,
    check_candidate,
    default_candidate,
    learner_of,
    make_candidates,
    with_controllers,
)
from neorl_train.candidates._residual import residual_sentences
from neorl_train.configuration import RetuningConfig, check_retuning

CSTR = make("CSTR-v0")
LOOP = {"manipulated": {"C_A": "T_c"}, "setpoint_channel": {"C_A": "C_A_SP"}}


@pytest.fixture(scope="module")
def log():
    """Both tunings of the plant recorded half of the episodes each."""
    return collect_log(CSTR, n_steps=6_000, key=jax.random.key(4))


def config_with(candidate="bc", seeds=(0, 1), **sections: Any):
    training = {"algorithms": ["bc"], "seeds": list(seeds)}
    evaluation = {"candidate": candidate, "incumbent": "PI"}
    data = {"source": "CSTR-v0"}
    return configure(training=training, evaluation=evaluation, data=data, **sections)


def tuned(config, log, plant=CSTR):
    material, notes = make_candidates(["tuned"], Material(config, log.spec, plant, log))
    return material.pool, notes


def test_the_modes_of_the_log_are_candidates_if_that_is_asked_for(log):
    none, _ = tuned(config_with(), log)
    assert len(none) == 0
    pool = {"controller": "PI", "modes": True}
    for config in (config_with("PI feed-forward"), config_with(retuning=pool)):
        modes, notes = tuned(config, log)
        assert (list(modes.policies), notes) == (["PI feed-forward-0"], [])
        (one,) = modes
        assert (one.name, one.family) == ("PI feed-forward", "tuned")
        assert (one.description, one.from_log) == ("mode PI feed-forward of the log", True)
        assert type(one.policy) is type(CSTR.tunings()["PI feed-forward"])


def test_a_tuning_that_recorded_nothing_is_refused(log):
    alone = log.select_episodes(np.flatnonzero(np.asarray(log.behaviour) == 0))
    config = config_with("PI feed-forward", retuning={"controller": "PI", "modes": True})
    words = r"is 'PI feed-forward', which recorded no episode of the log; choose one of bc$"
    with pytest.raises(InputError, match=words):
        tuned(config, alone)
    config = dataclasses.replace(
        config, evaluation=dataclasses.replace(config.evaluation, candidate="best")
    )
    assert len(tuned(config, alone)[0]) == 0


class Unstored(NamedTuple):
    """A controller of which no artefact can be written."""

    action: Any


def test_a_mode_that_no_artefact_holds_is_left_out_in_one_line(log):
    class Plant:
        def tunings(self):
            return {"PI": CSTR.tunings()["PI"], "PI feed-forward": Unstored(1.0)}

    config = config_with("best", retuning={"controller": "PI", "modes": True})
    modes, (note,) = tuned(config, log, Plant())
    assert len(modes) == 0
    assert note == (
        "mode PI feed-forward of the log is not a candidate, because a Unstored cannot be written "
        "to an artefact"
    )


def test_the_best_mode_of_a_log_alone_is_imitated(log):
    """Fitted to the episodes of that mode, it differs from an imitation of all of them."""
    classical = {"controllers": ["pid_imitation"], **LOOP}
    config = config_with(
        "best", classical=classical, retuning={"controller": "pid_imitation", "modes": True}
    )
    returns, modes = np.asarray(log.episode_returns()), np.asarray(log.behaviour)
    best = log.attributes["behaviours"][max(range(2), key=lambda i: returns[modes == i].mean())]
    material, controllers, words = with_controllers(Material(config, log.spec, None, log))
    assert any(line.startswith(f"{best} ran the plant best by its logged return") for line in words)
    assert list(material.pool.policies) == ["pid_imitation-0", f"imitated-{best}-0"]
    one = material.pool[f"imitated-{best}-0"]
    assert (one.description, one.from_log) == (f"pid_imitation of the episodes of {best}", False)
    assert isinstance(one.policy, TrackingPID)
    of_all: Any = controllers["pid_imitation"]
    assert abs(float(one.policy.loops.kp[0]) / float(of_all.loops.kp[0]) - 1) > 0.01
    few = log.select_episodes(np.arange(12))
    note = with_controllers(Material(config, few.spec, None, few))[2][-1]
    assert "two of them need at least 8 training episodes each" in note
    config = config_with(
        "best", classical={"controllers": ["pid"], **LOOP},
        retuning={"controller": "pid", "modes": True},
    )  # fmt: skip
    note = with_controllers(Material(config, log.spec, None, log))[2][-1]
    assert "add pid_imitation to classical.controllers" in note


def network_policy(seed, output=tanh):
    network = init_mlp((3, 4, 2), jax.random.key(seed), output=output)
    unit = Affine(jnp.zeros(2), jnp.ones(2))
    return NetworkPolicy(
        Affine(jnp.zeros(3), jnp.ones(3)), network, unit, -jnp.ones(2), jnp.ones(2)
    )


def averages(config, policies):
    material = Material(config, CSTR.spec, trained={"bc": policies})
    material, notes = make_candidates(["learner", "average"], material)
    return material.pool.of("average"), notes


def test_the_seeds_of_every_learner_have_an_average():
    trained = {seed: network_policy(seed) for seed in (0, 1)}
    made, notes = averages(config_with(), trained)
    assert (list(made.policies), notes) == (["bc-mean"], [])
    (one,) = made
    assert (one.description, one.metadata["seeds"]) == ("mean of 2 seeds", [0, 1])
    assert isinstance(one.policy, AveragePolicy)
    assert one.policy.members == (trained[0], trained[1])
    none, notes = averages(config_with(seeds=[0]), {0: trained[0]})
    assert (len(none), notes) == (0, [])
    choosing = {seed: network_policy(0, output=largest) for seed in trained}
    made, (note,) = averages(config_with(), choosing)
    assert len(made) == 0
    assert note.startswith("the seeds of bc cannot be averaged: this NetworkPolicy chooses one of")


def check(candidate="", algorithms=("bc",), seeds=(0,), controllers=(), taken=(), **sections):
    """Checks the candidate of a run without a log."""
    evaluation = {"candidate": candidate, "policies": sections.pop("policies", [])}
    config = configure(
        data={"source": "CSTR-v0"}, evaluation=evaluation,
        training={"algorithms": list(algorithms), "seeds": list(seeds)}, **sections,
    )  # fmt: skip
    classical = dataclasses.replace(config.classical, controllers=tuple(controllers))
    plant = sections.get("plant", CSTR)
    check_candidate(RunInputs(dataclasses.replace(config, classical=classical), plant, None), taken)


def test_candidates_that_a_run_does_not_produce_are_refused_with_those_that_it_does():
    retuned = {"retuning": {"controller": "PI"}}
    check("bc-mean", seeds=[0, 1])
    check("PI feed-forward")
    check("lqg", controllers=["lqg"], **retuned)
    with pytest.raises(InputError, match=r"'bc-mean', the average of several seeds, and .* 0 1$"):
        check("bc-mean")
    words = r": bc, bc-mean, lqg, PI feed-forward, retuned, best$"
    with pytest.raises(InputError, match=words):
        check("iql-mean", seeds=[0, 1], controllers=["lqg"], **retuned)
    with pytest.raises(InputError, match="bc is a learner and a classical controller of this run"):
        check(controllers=["bc"])
    with pytest.raises(InputError, match=r"retuning\.modes has no effect without a pool"):
        check_retuning(RetuningConfig(modes=True), ["PI"], [])
    learners = ("td3_bc", "bc")
    assert [learner_of(one, learners) for one in ("td3_bc-mean", "bc", "pid")] == [*learners, ""]


def test_a_file_named_like_the_incumbent_is_refused():
    """Its candidate would be left out without a word."""
    files = ["files/lqg.safetensors"]
    check(policies=files)
    with pytest.raises(InputError, match="another policy of the run is called lqg; rename"):
        check(policies=files, taken=["lqg"])


def test_a_run_says_which_of_several_learners_it_judges():
    def default(*learners, controller=""):
        config = configure(
            data={"source": "CSTR-v0"}, training={"algorithms": [*learners]},
            retuning={"controller": controller},
        )  # fmt: skip
        return default_candidate(config)

    assert default("bc") == ("bc", [])
    assert default("bc", "iql", controller="PI") == ("best", [])
    name, (note,) = default("bc", "iql")
    assert name == "iql"
    assert note.startswith("iql is judged as the candidate, because it was named last")


def test_a_pool_names_its_candidates():
    """Nothing is read from a name: what a candidate is stands in its fields."""
    policy = ConstantPolicy(jnp.ones(1))
    one = Candidate("PI 106/1500", "tuned", policy, (3,), "a mode", from_log=True)
    assert (one.id, one.group, one.file) == (
        "PI 106_1500-3", "PI 106_1500", "policies/PI 106_1500-3.safetensors",
    )  # fmt: skip
    assert one.title == "PI 106_1500-3 (a mode)"
    assert one.tunables(CSTR.spec) == ()
    pi = Candidate("PI", "tuned", CSTR.tunings()["PI"])
    assert next(iter(pi.tunables(CSTR.spec))).name == "gain of T_c"
    mean = Candidate("bc-mean", "average", policy, (0, 1))
    assert mean.id == "bc-mean"
    pool = Pool((one, mean), "PI") | [pi]
    assert list(pool.policies) == ["PI 106_1500-3", "bc-mean", "PI"]
    assert pool.incumbent == "PI"
    assert [len(pool.of("tuned")), len(pool.named("bc-mean")), "PI" in pool] == [2, 1, True]
    again = Candidate.from_facts(one.facts(), policy)
    assert (again.id, again.title, again.from_log) == (one.id, one.title, True)
    with pytest.raises(InputError, match="two candidates are called PI; rename one of them"):
        Pool((pi, pi))
    with pytest.raises(InputError, match=r"unknown candidate 'bc-maen'.*bc-mean"):
        pool["bc-maen"]


def test_the_incumbent_is_no_candidate(tmp_path):
    config = configure(
        output={"directory": str(tmp_path / "runs"), "tracking": False},
        data={"source": "CSTR-v0"},
        training={"algorithms": ["bc"]},
        evaluation={"candidate": "PI"},
    )
    with pytest.raises(InputError, match=r"is 'PI', which this run does not produce; .* PI feed-"):
        start(config, quiet=True)


@pytest.mark.nightly
def test_the_average_of_two_seeds_is_judged_and_left_as_a_file(tmp_path, monkeypatch, make_log):
    monkeypatch.setattr("neorl_train._job.run.prepare_process", lambda: None)
    write_dataset(tmp_path / "log.h5", make_log(n_cost=1))
    run = start(
        configure(
            data={"source": str(tmp_path / "log.h5")},
            penalty={"cost_0": 0.1},
            training={"algorithms": ["bc"], "seeds": [0, 1], "updates": 2, "chunk": 1},
            checkpoints={"interval": 2},
            evaluation={"candidate": "bc-mean"},
            algorithms={"bc": {"steps": {"batch_size": 16}, "networks": {"hidden": [8]}}},
            output={"directory": str(tmp_path / "runs"), "tracking": False},
        ),
        quiet=True,
    )
    assert run.verdict.candidate == "bc-mean"
    artefact = load_policy(run.path / "policies/bc-mean.safetensors")
    assert run.record["policies"]["bc-mean.safetensors"] == artefact.digest
    assert artefact.metadata["seeds"] == [0, 1]
    members = [load_policy(run.path / f"policies/bc-{seed}.safetensors") for seed in (0, 1)]
    mean = np.mean([one.parity_actions for one in members], axis=0)
    np.testing.assert_allclose(artefact.parity_actions, mean, rtol=1e-5, atol=1e-6)


def run_with_policies(tmp_path, make_log, files, **evaluation):
    log = tmp_path / "log.h5"
    write_dataset(log, make_log(n_cost=1))
    return configure(
        data={"source": str(log)},
        penalty={"cost_0": 0.1},
        training={"algorithms": ["bc"], "seeds": [3], "updates": 2, "chunk": 1},
        checkpoints={"interval": 2},
        evaluation={"policies": [str(file) for file in files], **evaluation},
        algorithms={"bc": {"steps": {"batch_size": 16}, "networks": {"hidden": [8]}}},
        output={"directory": str(tmp_path / "runs"), "tracking": False},
    )


def saved_actor(path, spec, value=0.25):
    policy = ConstantPolicy(jnp.full(spec.n_action, value))
    save_policy(path, policy, spec, np.zeros((32, spec.n_obs), np.float32), {})
    return policy


def test_a_policy_from_a_file_is_judged_and_sealed(tmp_path, monkeypatch, make_log):
    monkeypatch.setattr("neorl_train._job.run.prepare_process", lambda: None)
    file = tmp_path / "actor.safetensors"
    policy = saved_actor(file, make_log(n_cost=1).spec)
    run = start(run_with_policies(tmp_path, make_log, [file], candidate="actor"), quiet=True)
    assert run.verdict.candidate == "actor-3"
    artefact = load_policy(run.path / "policies/actor-3.safetensors")
    digest = load_policy(file).digest
    assert run.record["given_policies"] == {str(file): digest}
    assert artefact.metadata["given_digest"] == digest
    jax.tree.map(np.testing.assert_array_equal, artefact.policy, policy)


def test_files_of_policies_that_cannot_be_candidates_are_refused(tmp_path, make_log):
    spec, missing = make_log(n_cost=1).spec, tmp_path / "missing.safetensors"
    (tmp_path / "other").mkdir()
    names = ("actor", "bc", "other/actor", "fallback")
    files = [tmp_path / f"{name}.safetensors" for name in names]
    for file in files:
        saved_actor(file, spec)
    for given, words in (
        ([missing], "there is no such policy artefact"),
        ([files[1]], "another policy of the run is called bc; rename the file"),
        ([files[0], files[2]], "another policy of the run is called actor; rename the file"),
        ([files[3]], "another policy of the run is called fallback"),
    ):
        with pytest.raises(InputError, match=words):
            start(run_with_policies(tmp_path, make_log, given), quiet=True)
    other = dataclasses.replace(spec, dt=spec.dt * 2)
    saved_actor(files[0], other)
    with pytest.raises(InputError, match="has a control period of"):
        start(run_with_policies(tmp_path, make_log, files[:1]), quiet=True)
    assert not (tmp_path / "runs").exists()
    config = run_with_policies(tmp_path, make_log, files[2:3])
    before = {str(files[2]): load_policy(files[2]).digest}
    material, _ = make_candidates(["given"], Material(config, spec, digests=before))
    assert list(material.pool.policies) == ["actor-3"]
    saved_actor(files[2], spec, value=0.5)
    with pytest.raises(InputError, match="was changed since the run began; restore the file"):
        make_candidates(["given"], Material(config, spec, digests=before))


def test_what_a_network_may_do_is_said_in_units():
    spec = Spec(
        (Channel("level", "m", 0.0, 1.0),), (Channel("valve", "%", 0.0, 100.0),), (), 1.0, 9
    )
    usual = dict.fromkeys(Prediction.__dataclass_fields__, ())
    today = Prediction(**{**usual, "name": "today"})
    best = Prediction(**{**usual, "name": "0.5", "gain": 2.0, "low": 1.5, "by_member": (2.0, 1.0)})
    done = RefineResult(None, "0.5", np.asarray([3.25]), (), (today, best))
    first, second = residual_sentences(done, spec)
    assert first == (
        "residual: a network adds to the action of the retuned controller; it moves valve by at "
        "most 3.25 %"
    )
    assert "2 [1.5, 2.5]; the linear part of the model alone predicts 1" in second
    # By hand: a half width of 0.5 and 1.96 errors of 1.2 / 1.96 are 1.3 together.
    wide = dataclasses.replace(best, error=1.2 / 1.96)
    _, second = residual_sentences(done._replace(table=(today, wide)), spec)
    assert "2 [1.5, 2.5], with the model's error on logged episodes 0.7 to 3.3; the" in second
    refused = dataclasses.replace(best, refused_by=(Refusal("divergence", "it diverges"),))
    (line,) = residual_sentences(
        RefineResult(None, "today", np.zeros(1), (), (today, refused)), spec
    )
    assert line == (
        "no network is added to the retuned controller; the best one was refused: it diverges"
    )
