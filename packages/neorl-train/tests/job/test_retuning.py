"""A run retunes a controller in a model of its log, chooses a candidate, and judges it."""

import dataclasses
import json
import re
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from neorl_agents import load_policy
from neorl_agents.retuning import Prediction
from neorl_core import InputError, Spec
from neorl_core.control import PID
from neorl_envs import collect_log, make, write_dataset
from neorl_train import Run, configure, resume, start
from neorl_train._job.artefacts import parity_observations
from neorl_train._job.candidates import choose, with_plants
from neorl_train._job.plant_model import log_context, policies_beside
from neorl_train.candidates import Candidate, Material, Pool, RunInputs, check_candidate
from neorl_train.choosing import ChooseOptions, check_plant_model, select_candidates
from neorl_train.configuration import RetuningConfig, check_retuning
from neorl_train.judging import read_verdict
from neorl_train.pages import print_summary

QUICK = {
    "training": {"algorithms": ["bc"], "seeds": [0], "updates": 2, "chunk": 1},
    "checkpoints": {"interval": 2},
    "algorithms": {"bc": {"steps": {"batch_size": 16}, "networks": {"hidden": [8]}}},
}
CSTR, DMSD = make("CSTR-v0"), make("DMSD-v0")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run on the plant, and one on a log that its PI has filled."""
    here = tmp_path_factory.mktemp("retuning")
    output = {"directory": str(here / "runs"), "tracking": False}
    quick = {"updates": 200, "generations": 5}
    plant = configure(
        **QUICK,
        output=output,
        data={"source": "CSTR-v0", "steps": 6_000},
        evaluation={"starts": 32, "curve_starts": 0},
        retuning={"controller": "incumbent", "residual": True, **quick},
    )
    only = {"PI": CSTR.tunings()["PI"]}
    write_dataset(here / "log.h5", collect_log(CSTR, only, n_steps=6_000, key=jax.random.key(3)))
    log = configure(
        **QUICK,
        output=output,
        data={"source": str(here / "log.h5")},
        penalty={"temperature": 1.0},
        classical={
            "controllers": ["pid_imitation"],
            "manipulated": {"C_A": "T_c"},
            "setpoint_channel": {"C_A": "C_A_SP"},
        },
        retuning={"controller": "pid_imitation", "exogenous": ["C_A_SP"], **quick},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("neorl_train._job.run.prepare_process", lambda: None)
        return start(plant, quiet=True), start(log, quiet=True)


@pytest.mark.nightly
def test_the_retuned_controller_is_chosen_and_beats_what_runs_today(runs):
    """The gain on the plant, in paired episodes that the search has not seen."""
    run, _ = runs
    assert run.config.evaluation.candidate == "best"
    assert run.config.evaluation.incumbent == "PI"
    decided = run.verdict
    # Alone or with a network on top: which has the larger lower bound is close on so short a log.
    assert decided.candidate in ("retuned-0", "residual-0")
    assert decided.reference == "PI"
    (gain,) = [clause for clause in decided.clauses if clause.name == "return"]
    assert gain.low > 0
    assert (
        f"{decided.candidate} was chosen from the predictions alone, without a run on the plant"
        in run.record["choice"]
    )
    assert any(line.startswith("bc-0: predicted gain") for line in run.record["choice"])


@pytest.mark.nightly
def test_a_network_on_top_competes_too_and_is_left_as_a_file(runs):
    """With so short a log it may well be refused; then the retuned controller stands for it."""
    run, _ = runs
    artefact = load_policy(run.path / "policies" / "residual-0.safetensors")
    assert artefact.kind in ("residual", "feedforward_pid")
    assert any(line.startswith("residual-0: predicted gain") for line in run.record["choice"])
    wanted = "residual: a network" if artefact.kind == "residual" else "no network is added to"
    assert any(line.startswith(wanted) for line in run.record["controllers"])


def test_the_pool_delivers_a_candidate_of_a_family_from_outside(monkeypatch):
    """Where the plant model predicts the most for it; the rule is that of every candidate."""
    usual = dict.fromkeys(Prediction.__dataclass_fields__, ())
    rows = {"PI": 0.0, "retuned-0": 1.0, "table": 2.0}
    compared = []

    def predicted(plants, policies, incumbent, rule, **_):
        compared.extend(policies)
        table = [
            Prediction(**{**usual, "name": name, "gain": gain, "low": gain, "returns_reach": 0.1})
            for name, gain in rows.items()
        ]
        return max(rows, key=rows.get), table

    own = SimpleNamespace(predicted=-1.0, logged=-1.0, episodes=8)
    monkeypatch.setattr("neorl_train._job.candidates.select", predicted)
    monkeypatch.setattr("neorl_train._job.candidates.own_returns", lambda *_: own)
    config = configure(retuning={"controller": "PI"}, evaluation={"candidate": "best"})
    pool = Pool((Candidate("retuned", "retuned", "r", (0,)), Candidate("table", "shift", "t")))
    material = Material(
        config, CSTR.spec, plants=SimpleNamespace(scale=1.0), incumbent="PI", pool=pool
    )
    delivered = choose(material)
    assert compared == ["PI", "retuned-0", "table"]
    assert delivered.candidate.family == "shift"
    assert "table was chosen from the predictions alone" in delivered.notes[-1]


@pytest.mark.nightly
def test_both_comparisons_stand_in_the_tables(runs, capsys):
    pooled = runs[0].evaluation.tables.pooled
    against = {row.against for row in pooled if row.group == "retuned"}
    assert {"PI", "PI feed-forward"} <= against
    print_summary(runs[0].path)
    said = " ".join(capsys.readouterr().out.split())
    group = runs[0].verdict.candidate.partition("-")[0]
    start = f"{group} compared with PI feed-forward, the plant's reference: return "
    assert said.count(start) == 1


@pytest.mark.nightly
def test_what_changed_is_said_in_the_engineers_terms_and_stands_in_the_report(runs):
    for run in runs:
        words = run.record["controllers"]
        assert any(re.match("gain of T_c from .* to .* K per ", line) for line in words)
        assert "gain of T_c from " in run.report.read_text()


@pytest.mark.nightly
def test_its_artefact_is_the_controller_with_the_numbers_that_are_said(runs):
    run, _ = runs
    artefact = load_policy(run.path / "policies/retuned-0.safetensors")
    feedback = artefact.policy.feedback
    assert isinstance(feedback, PID)
    before = float(CSTR.tunings()["PI"].feedback.kp[0])
    after = float(feedback.kp[0])
    (line,) = [x for x in run.record["controllers"] if x.startswith("gain of T_c from ")]
    printed = [float(one) for one in re.findall(r"-?\d[\d.]*", line.partition(" from ")[2])[:2]]
    np.testing.assert_allclose(printed, [before, after], rtol=2e-3)
    assert run.record["policies"]["retuned-0.safetensors"] == artefact.digest


@pytest.mark.nightly
def test_a_log_alone_is_worth_a_trial_or_says_what_is_missing(runs):
    """Never a permission to deploy, every clause with its numbers, and a plan."""
    decided = runs[1].verdict
    assert decided.answer in ("worth a trial", "cannot tell")
    assert [clause.name for clause in decided.clauses] == [
        "model", "return", "temperature", "support", "agreement", "excitation", "choice rule",
    ]  # fmt: skip
    assert decided.reference == "pid_imitation"
    failed = [clause for clause in decided.clauses if not clause.holds]
    assert bool(failed) == (decided.answer == "cannot tell")
    if not failed:
        assert "Run it in shadow first" in decided.sentence
    assert decided.answer in runs[1].report.read_text()


@pytest.mark.nightly
def test_select_takes_what_was_retuned_for_what_runs_today(runs):
    assert [log_context(run.path).incumbent for run in runs] == ["PI", "pid_imitation"]


@pytest.fixture(scope="module")
def declared(tmp_path_factory):
    """A run on a log alone of a plant that declares its reward, which its PD has filled."""
    here = tmp_path_factory.mktemp("declared")
    only = {"PD": DMSD.tunings()["PD"]}
    write_dataset(here / "log.h5", collect_log(DMSD, only, n_steps=3_000, key=jax.random.key(3)))
    config = configure(
        **QUICK,
        output={"directory": str(here / "runs"), "tracking": False},
        data={"source": str(here / "log.h5")},
        classical={
            "controllers": ["pid_imitation"],
            "manipulated": {"x1": "force1", "x2": "force2"},
            "setpoint_channel": {"x1": "target1", "x2": "target2"},
        },
        retuning={"controller": "pid_imitation", "updates": 200, "generations": 2},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("neorl_train._job.run.prepare_process", lambda: None)
        return start(config, quiet=True)


@pytest.mark.nightly
def test_model_and_the_verdict_of_the_run_use_what_the_plant_declares(declared):
    """The run once learned the reward of a log that ``choose RUN`` took from the plant."""
    log = log_context(declared.path)
    assert log.facts.objective == DMSD.objective
    dataset, options = log.for_run_options(ChooseOptions())
    check = check_plant_model(dataset, "", options, log.facts, log.controllers, log.incumbent)
    (ours,) = [one for one in check.checks if one.name == "model"]
    (clause,) = [one for one in declared.verdict.clauses if one.name == "model"]
    assert ours.holds == clause.holds
    # The verdict goes on with what the model alone predicts after moves.
    assert clause.sentence.startswith(ours.sentence)


@pytest.mark.nightly
@pytest.mark.parametrize("fixture", ["runs", "declared"])
def test_select_and_the_verdict_of_the_run_judge_on_the_same_episodes(request, fixture):
    found = request.getfixturevalue(fixture)
    run = found[1] if fixture == "runs" else found
    log = log_context(run.path)
    asked = ChooseOptions(value_updates=0, held_out_modes=0, incumbent=log.incumbent)
    dataset, options = log.for_run_options(asked)
    assert (options.updates, options.seed) == (200, run.config.retuning.seed)
    candidates = {**log.controllers, **policies_beside(run.path, [], dataset.spec)}
    selection = select_candidates(dataset, "log", candidates, options, log.facts)
    predictions = {one.prediction.name: one.prediction for one in selection.candidates}
    (gain,) = [clause for clause in run.verdict.clauses if clause.name == "return"]
    ours = predictions[run.verdict.candidate]
    assert [ours.gain, ours.low, ours.high] == pytest.approx([gain.value, gain.low, gain.high])


@pytest.mark.nightly
def test_resumed_after_its_report_was_lost_it_ends_the_same(runs, monkeypatch):
    run, _ = runs
    monkeypatch.setattr("neorl_train._job.run.prepare_process", lambda: None)
    before = {name: (run.path / name).read_bytes() for name in ("verdict.json", "evaluation.json")}
    digest = run.record["policies"]["retuned-0.safetensors"]
    run.report.unlink()
    again = resume(run, quiet=True)
    assert again.record["policies"]["retuned-0.safetensors"] == digest
    assert {name: (again.path / name).read_bytes() for name in before} == before


@pytest.mark.nightly
def test_a_run_leaves_the_other_mode_of_its_log_out_of_a_fit_if_asked_to():
    """The sentence of `neorl-train choose` is one of the run's; the plants hold the mode."""
    config = configure(
        data={"source": "CSTR-v0"},
        retuning={"controller": "PI", "updates": 2, "generations": 1, "held_out_modes": 1},
    )
    log = collect_log(CSTR, n_steps=4_000, key=jax.random.key(0))
    done, lines = with_plants(Material(config, CSTR.spec, CSTR, log), {}, config.limits)
    assert [one.name for one in done.plants.held_out] == ["PI feed-forward"]
    assert sum(line.startswith("held-out mode: ") for line in lines) == 1
    unasked = dataclasses.replace(config.retuning, held_out_modes=0)
    config = dataclasses.replace(config, retuning=unasked)
    done, _ = with_plants(Material(config, CSTR.spec, CSTR, log), {}, config.limits)
    assert done.plants.held_out == ()


def test_candidates_that_are_not_made_are_refused():
    def check(name, controller="", controllers=()):
        config = configure(
            data={"source": "CSTR-v0"}, training={"algorithms": ["bc"], "seeds": [0]},
            evaluation={"candidate": name}, retuning={"controller": controller},
        )  # fmt: skip
        classical = dataclasses.replace(config.classical, controllers=controllers)
        check_candidate(RunInputs(dataclasses.replace(config, classical=classical), None, None))

    one = RetuningConfig(controller="PI")
    for name in ("retuned", "best"):
        check(name, "PI")
        with pytest.raises(InputError, match="no controller is retuned; name one with"):
            check(name)
    with pytest.raises(InputError, match="'residual', but no network is trained on top of a"):
        check("residual", "PI")
    with pytest.raises(InputError, match=r"choose one of .*: bc, retuned, best"):
        check("iql", "PI")
    check("lqg", controllers=("pid", "lqg"))
    with pytest.raises(InputError, match=r"choose one of .*: bc, pid"):
        check("lqg", controllers=("pid",))
    check_retuning(one, ["PI"], [])
    with pytest.raises(InputError, match=r"choose one of P, pid, or fit one on the log"):
        check_retuning(one, ["P"], ["pid"])


def test_a_log_that_does_not_suffice_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr("neorl_train._job.run.prepare_process", lambda: None)
    config = configure(
        **QUICK,
        output={"directory": str(tmp_path / "runs"), "tracking": False},
        data={"source": "CSTR-v0", "steps": 600, "held_out": 0.4},
        retuning={"controller": "PI"},
    )
    with pytest.raises(InputError, match=r"retuning PI: the log has \d episodes; a plant model"):
        start(config, quiet=True)
    assert not list((tmp_path / "runs").glob("0*"))


def test_an_unknown_incumbent_is_refused_by_name(tmp_path):
    config = configure(
        **QUICK,
        output={"directory": str(tmp_path / "runs"), "tracking": False},
        data={"source": "CSTR-v0", "steps": 600},
        evaluation={"incumbent": "PID"},
    )
    with pytest.raises(InputError, match=r"unknown controller as evaluation\.incumbent"):
        start(config, quiet=True)


@pytest.mark.nightly
def test_the_record_of_a_run_is_json(runs):
    for run in runs:
        json.dumps(run.record)
        assert isinstance(Run(run.path).config.retuning, RetuningConfig)
        assert isinstance(run.evaluation.tables.spec, Spec)
        assert read_verdict(run.path) == run.verdict


def test_artefacts_are_checked_on_rows_that_are_not_masked():
    """A log with holes ended in a traceback after the search: its masked rows hold NaN."""
    rows = collect_log(CSTR, {"PI": CSTR.tunings()["PI"]}, n_steps=200, key=jax.random.key(1))
    rows = rows.transitions
    whole = parity_observations(rows, None)
    holes = np.arange(len(rows.mask)) % 3 == 0
    obs = np.where(holes[:, None], np.nan, rows.obs)
    seen = parity_observations(rows._replace(obs=obs, mask=rows.mask & ~holes), None)
    assert seen.shape == whole.shape
    assert np.isfinite(seen).all()
