"""Declared limits and a declared fallback act, and every file and page of a run says them."""

import json
import tomllib
from dataclasses import replace

import numpy as np
import pytest

from neorl_agents import load_policy
from neorl_core import InputError
from neorl_envs import write_dataset
from neorl_envs.datasets import dataset_from_columns
from neorl_safety.constraints import action_constraints
from neorl_safety.filters import Flag
from neorl_train import configure, verdict
from neorl_train._command.main import main
from neorl_train._job.resolution import resolve
from neorl_train.configuration import limited_spec

QUICK = (
    *("--data.source", "log.h5", "--training.algorithms", "bc", "--evaluation.candidate", "bc"),
    *("--training.seeds", "0", "--training.updates", "2", "--training.chunk", "1"),
    *("--checkpoints.interval", "2", "--output.no-tracking", "--quiet"),
    *("--algorithms.bc.steps.batch-size", "16", "--algorithms.bc.networks.hidden", "8"),
    *("--penalty", "cost_0", "0.1"),
)


def test_a_tighter_cost_limit_turns_a_verdict_and_stands_in_every_table(toy):
    plant, policies = toy.Line(noise=toy.NOISE), {"good-0": toy.proportional(0.5)}
    declared = toy.evaluate(plant, policies, candidate="good-0", n_starts=100)
    assert verdict(declared.tables).answer == "deploy"
    result = declared.tables.row("good-0", guarded=True).costs[0].total
    tighter = result.value * 0.9
    limits = limited_spec(plant.spec, {"load": tighter})
    judged = toy.evaluate(plant, policies, candidate="good-0", n_starts=100, spec=limits)
    answer = verdict(judged.tables)
    assert answer.answer == "do not deploy"
    failed = [clause for clause in answer.clauses if not clause.holds]
    assert [(clause.name, clause.limit) for clause in failed] == [("load", tighter)]
    assert {row.costs[0].limit for row in judged.tables.rows} == {tighter}
    assert [channel.limit for channel in judged.tables.spec.cost] == [tighter, plant.peak_limit]
    rows = [run.tables.row("good-0", guarded=True).costs[0] for run in (declared, judged)]
    assert rows[0].violations < rows[1].violations
    assert rows[0].total == rows[1].total


def test_a_tighter_box_and_rate_are_never_left_by_the_guarded_policy(toy):
    plant = toy.Line(noise=toy.NOISE)
    wild = {"wild-0": toy.proportional(0.6, bias=3.0)}
    limits = action_constraints(plant.spec, [0.005], low=[-0.5], high=[0.25])
    result = toy.evaluate(plant, wild, candidate="wild-0", constraints=limits)
    guarded = [trace for trace in result.traces if trace.guarded]
    assert guarded
    for trace in guarded:
        assert trace.action.min() >= -0.5
        assert trace.action.max() <= 0.25
        assert np.abs(np.diff(trace.action[:, 0])).max() <= 0.005 * 60 + 1e-6
        assert (trace.flags & int(Flag.BOX_ACTIVE | Flag.RATE_ACTIVE)).any()


@pytest.fixture(scope="module")
def declared(tmp_path_factory, make_log):
    """A run on a log with everything declared, and what it printed."""
    here = tmp_path_factory.mktemp("declared")
    write_dataset(here / "log.h5", make_log(n_cost=1))
    words = ("--limits.cost", "cost_0", "0.25", "--limits.low", "valve", "-1", "--limits.high")
    words += ("valve", "2.5", "--limits.rate-up", "valve", "0.125")
    words += ("--fallback.kind", "constant", "--fallback.values", "valve", "1.5")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("neorl_train._command.main.prepare_process", lambda: None)
        patch.chdir(here)
        assert main(["run", *QUICK, *words]) == 0
    return here / "runs" / "0001"


def test_a_log_with_a_declared_fallback_uses_it(declared):
    artefact = load_policy(declared / "policies" / "fallback.safetensors")
    assert artefact.kind == "constant"
    assert np.asarray(artefact.policy.action).tolist() == [1.5]


def test_declared_limits_reach_configuration_constraints_artefacts_and_tables(declared):
    config = tomllib.loads((declared / "config.toml").read_text())
    assert config["limits"]["cost"] == {"cost_0": 0.25}
    assert config["limits"]["rate_up"] == {"valve": 0.125}
    assert config["limits"]["rate_down"] == {"valve": float("inf")}
    values = {"valve": 1.5}
    declared_fallback = {"kind": "constant", "values": values, "controller": "", "then": []}
    assert config["fallback"] == declared_fallback
    constraints = json.loads((declared / "constraints.json").read_text())["constraints"]
    box, rate = constraints
    assert (box["low"], box["high"]) == (-1.0, 2.5)
    assert (rate["up"], rate["down"]) == (0.125, None)
    spec = load_policy(declared / "policies" / "bc-0.safetensors").spec
    assert spec.cost[0].limit == 0.25
    tables = json.loads((declared / "evaluation.json").read_text())["tables"]
    assert tables["spec"]["cost"][0]["limit"] == 0.25
    assert {row["costs"][0]["limit"] for row in tables["rows"]} == {0.25}


SAID = (
    "valve between -1 and 2.5 %",
    "valve rises by at most 0.125 % per second",
    "valve between -9 and 9 %",
    "holds valve 1.5 %",
)
ELSEWHERE = ("cost cost_0 at most 0.25 per episode", "cost cost_0 at most 1 per episode")


def test_the_run_the_report_and_inspect_say_limits_and_fallback(declared, capsys):
    assert main(["inspect", str(declared)]) == 0
    inspected = capsys.readouterr().out
    assert main(["inspect", str(declared), "--report"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(inspected)
    printed = printed.removeprefix(inspected)
    page = (declared / "report.html").read_text()
    for sentence in SAID:
        assert sentence in inspected
        assert sentence in printed
        assert sentence in page
    for sentence in ELSEWHERE:
        assert sentence in inspected
        assert sentence in printed


def test_a_log_without_declarations_is_told_what_the_guard_gets(tmp_path, make_log, capsys):
    log = make_log(n_cost=1)
    write_dataset(tmp_path / "log.h5", log)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert main(["run", *QUICK]) == 0
    output = capsys.readouterr()
    assert "no rate of change is declared for valve" in output.err
    assert "no fallback is declared" in output.err
    assert "--fallback.kind constant --fallback.values valve NUMBER" in output.err
    assert "the mean logged action, because no fallback was declared" in output.out
    held = load_policy(tmp_path / "runs" / "0001" / "policies" / "fallback.safetensors").policy
    mean = np.asarray(log.transitions.action, np.float64).mean(axis=0)
    assert np.asarray(held.action) == pytest.approx(mean, rel=1e-6)


def test_a_bad_limit_is_one_line_and_leaves_nothing(tmp_path, make_log, capsys):
    write_dataset(tmp_path / "log.h5", make_log(n_cost=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert main(["run", *QUICK, "--limits.low", "vavle", "0"]) == 2
    output = capsys.readouterr().err
    assert output.count("\n") == 1
    assert "did you mean 'valve'?" in output
    assert not (tmp_path / "runs").exists()


def test_the_tables_of_a_log_act_in_its_run_and_keep_below_takes_its_model_from_it(
    tmp_path, make_log
):
    spec, rng = make_log(length=40).spec, np.random.default_rng(4)
    level, obs, action = 0.0, [], rng.uniform(-9, 9, (1200, 1)).astype(np.float32)
    for u in action[:, 0]:
        obs.append([level, rng.normal()])
        level = 0.9 * level + 0.05 * u + rng.normal(0, 0.05)
    obs = np.array([*obs, [level, 0.0]], np.float32)
    tables = [
        {"kind": "rate", "channel": "valve", "up": 6.0, "per": "min"},
        {"kind": "while", "obs": "flow", "above": 5.0, "channel": "valve", "high": 1.0},
        {"kind": "keep_below", "obs": "level", "at_most": 2.0},
    ]
    log = dataset_from_columns(
        spec,
        obs=obs[:-1],
        action=action,
        reward=np.zeros(1200),
        cost=np.zeros((1200, 0)),
        next_obs=obs[1:],
        terminated=np.zeros(1200, bool),
        truncated=np.arange(1, 1201) % 40 == 0,
        attributes={"constraints": tables},
    )
    write_dataset(tmp_path / "log.h5", log)
    source = {"source": str(tmp_path / "log.h5")}
    result = resolve(configure(data=source, penalty={}, limits={"rate_down": {"valve": 0.5}}))
    text = "\n".join(result.facts["limits"])
    assert "valve rises by at most 0.1 % per second and falls by at most 0.5" in text
    assert "valve between -9 and 1 % while flow is above 5 m3/h" in text
    assert "level at most 2 m, by a linear model: its prediction one step ahead keeps 50 %" in text
    assert "which the error exceeded in" in text
    kinds = [record["kind"] for record in result.run.config.limits.further]
    assert kinds == ["while", "barrier"]
    again = resolve(result.run.config)
    assert again.run.config.limits == result.run.config.limits
    assert again.facts["limits"] == result.facts["limits"]
    by_the_log_alone = resolve(configure(data=source, penalty={}))
    assert not [note for note in by_the_log_alone.notes if "rate of change" in note]


def test_keep_below_without_a_log_is_refused_before_anything_is_collected():
    limits = {"further": [{"kind": "keep_below", "obs": "T_R", "at_most": 380.0}]}
    with pytest.raises(InputError, match="name a log as the source of the run"):
        resolve(configure(data={"source": "ChemicalReactor-v0"}, limits=limits))


@pytest.mark.parametrize(
    ("algorithm", "n_cost", "options", "reason"),
    [
        ("bc_safe", 0, (), "BCSafe learns to keep cost limits, but the plant has no costs"),
        (
            "cpq",
            1,
            ("--limits.cost", "cost_0", "0", "--penalty", "cost_0", "1"),
            "keep the limit of cost_0, 0 per episode, but no logged episode does",
        ),
    ],
)
def test_a_log_that_cannot_teach_limits_is_refused_and_leaves_no_run(
    tmp_path, monkeypatch, capsys, make_log, algorithm, n_cost, options, reason
):
    monkeypatch.chdir(tmp_path)
    write_dataset(tmp_path / "log.h5", make_log(n_cost=n_cost, episodes=60))
    words = ("--data.source", "log.h5", "--output.no-tracking", "--training.seeds", "0")
    assert main(["run", *words, "--training.algorithms", algorithm, *options]) == 2
    lines = capsys.readouterr().err.splitlines()
    refusals = [line for line in lines if line.startswith("neorl-train: ")]
    assert len(refusals) == 1
    assert reason in refusals[0]
    assert lines[-1] == refusals[0]
    assert list(tmp_path.glob("runs/*/")) == []


@pytest.mark.parametrize(
    ("last", "memory"),
    [("cpq", "2GB"), ("fql", "2GB"), ("mopo", "2GB"), ("cpq", "1kB"), ("fql", "1kB")],
)
def test_a_log_that_the_last_learner_cannot_use_is_refused_before_the_first_is_trained(
    tmp_path, monkeypatch, capsys, make_log, last, memory
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("neorl_train._job.kinds.train", lambda *_, **__: pytest.fail("trains"))
    log, keep_limits = make_log(n_cost=1, episodes=60), last == "cpq"
    still = ("cost",) if keep_limits else ("action", "next_action")
    columns = {name: np.zeros_like(getattr(log.transitions, name)) for name in still}
    write_dataset(
        tmp_path / "log.h5", replace(log, transitions=log.transitions._replace(**columns))
    )
    words = ("--data.source", "log.h5", "--output.no-tracking", "--penalty", "cost_0", "1")
    words = (*words, "--data.memory", memory)
    assert main(["run", *words, "--training.algorithms", "bc", last]) == 2
    refusal = capsys.readouterr().err.splitlines()[-1]
    assert refusal.startswith("neorl-train: ")
    assert ("no logged cost is above zero" if keep_limits else "is constant in the log") in refusal
    assert list(tmp_path.glob("runs/*/")) == []


@pytest.mark.nightly
def test_report_verdict_and_terminal_say_that_cost_critics_have_not_converged(
    tmp_path, make_log, monkeypatch, capsys
):
    monkeypatch.setattr("neorl_train._command.main.prepare_process", lambda: None)
    monkeypatch.chdir(tmp_path)
    write_dataset("log.h5", make_log(n_cost=1))
    words = [word.replace(".bc.", ".iql_lag.") if word != "bc" else "iql_lag" for word in QUICK]
    assert main(["run", *words, "--limits.cost", "cost_0", "100"]) == 0
    said = "iql_lag has not converged: cost critics need about 20,000 updates"
    run = tmp_path / "runs" / "0001"
    assert said in json.loads((run / "verdict.json").read_text())["sentence"]
    assert said in capsys.readouterr().out
    page = (run / "report.html").read_text()
    assert said in page[page.index('id="verdict"') :]
