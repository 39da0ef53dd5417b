"""A run on a log whose policies are scored in a Gymnasium environment, as papers score them."""

import hashlib
import json
import math
from importlib.metadata import version
from types import SimpleNamespace

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import load_policy
from neorl_core import InputError
from neorl_envs import write_dataset
from neorl_envs.ingest import collect_rollouts, dataset_from_rollouts, spec_of_spaces
from neorl_train import configure
from neorl_train._command.main import main
from neorl_train._job.job import PACKAGES, note_other_versions
from neorl_train._job.plant_model import log_context
from neorl_train._job.resolution import resolve
from neorl_train.runs import create_run, read_records

QUICK = [
    "--training.algorithms", "bc",
    "--training.seeds", "0", "1",
    "--training.updates", "100",
    "--training.chunk", "10",
    "--algorithms.bc.steps.batch-size", "16",
    "--algorithms.bc.networks.hidden", "8",
    "--evaluation.starts", "3",
    "--evaluation.seed", "7",
    "--evaluation.curve-starts", "2",
    "--output.no-tracking",
    "--quiet",
]  # fmt: skip
NAME = "gym:Pendulum-v1"


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Random actions on Gymnasium's pendulum, as a published log: no units, no rates."""
    env, random = gymnasium.make("Pendulum-v1"), np.random.default_rng(0)
    rollouts = collect_rollouts(env, lambda _: random.uniform(-2, 2, 1), n_steps=4000, seed=0)
    rows = dataset_from_rollouts(spec_of_spaces(env, dt=0.05, horizon=200), rollouts)
    return write_dataset(tmp_path_factory.mktemp("log") / "pendulum.h5", rows)


@jax.jit
def act(policy, obs):
    return policy((), obs, None)[1]


def plain_return(policy, seed):
    """Gymnasium's own loop: no batch, no copy of the environment, nothing of this project."""
    env = gymnasium.make("Pendulum-v1")
    obs, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(np.asarray(act(policy, jnp.asarray(obs))))
        total, over = total + float(reward), terminated or truncated
    return total


def test_a_run_prints_scores_and_the_curve_of_the_plain_loop(log, tmp_path, monkeypatch, capsys):
    """Over both seeds, with no word on guards, rates and units that a log lacks."""
    monkeypatch.chdir(tmp_path)
    assert main(["run", str(log), "--evaluation.environment", NAME, *QUICK]) == 0
    printed = capsys.readouterr()
    run = tmp_path / "runs/0001"
    evaluation = json.loads((run / "evaluation.json").read_text())
    policies = [load_policy(run / f"policies/bc-{seed}.safetensors").policy for seed in (0, 1)]
    loops = [[plain_return(policy, seed) for seed in (7, 8, 9)] for policy in policies]
    played = {result["name"]: result["episodes"]["returns"] for result in evaluation["results"]}
    np.testing.assert_allclose([played["bc-0"], played["bc-1"]], loops, rtol=1e-5)
    assert {"mean action", "linear feedback", "log"} < set(played)
    score = evaluation["tables"]["scores"][0]
    assert (score["policy"], score["seeds"]) == ("bc", 2)
    assert score["returns"]["value"] == pytest.approx(np.mean(loops))
    assert score["seed_std"] == pytest.approx(np.std(np.mean(loops, axis=1), ddof=1))
    records = [line for line in read_records(run / "metrics.jsonl") if line["kind"] == "validation"]
    assert [line["step"] for line in records if line["seed"] == 0] == [*range(10, 101, 10)]
    last = [line["metrics"]["plant_return"] for line in records if line["step"] == 100]
    seeds = (100_007, 100_008)
    expected = [np.mean([plain_return(policy, seed) for seed in seeds]) for policy in policies]
    np.testing.assert_allclose(last, expected, rtol=1e-6)  # stored in single precision
    lines = printed.out.splitlines()
    assert lines[1] == f"{NAME}, 3 episodes, the same for every policy"
    assert (
        "return while training, 2 episodes a seed, mean ± standard deviation over 2 s"
        in printed.out
    )
    assert [line.split()[0] for line in lines if "±" in line][1:] == [
        f"{i}" for i in range(10, 101, 10)
    ]
    (answer,) = [line for line in lines if line.startswith("SCORED")]
    assert f"Mean return of 3 episodes in {NAME}, with 95 % intervals: bc " in answer
    assert answer.count("over 2 seeds") == 1
    shown = printed.out + printed.err
    assert not any(word in shown for word in ("?", "guard", "rate of change", "fallback", "CANNOT"))
    verdict = json.loads((run / "verdict.json").read_text())
    assert verdict["answer"] == "cannot tell"
    assert "scores in it permit nothing on one" in verdict["reason"]
    report = (run / "report.html").read_text()
    assert f"What do the learners score in {NAME}?" in report
    assert report.index('id="curves"') < report.index('id="imitation"')
    assert "Updates" in report
    assert not any(mark in report for mark in ("[?]", ">?<", " ?<", " ? ", ">?, "))
    assert 'id="guard"' not in report
    assert main(["compare", "runs/0001"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line[:4] == "0001"]
    assert {row[1] for row in rows} == {NAME}
    assert sorted(row[2] for row in rows) == ["bc", "linear", "log", "mean"]
    origins = json.loads((run / "run.json").read_text())["origins"]
    assert origins["environment"] == {NAME: f"gymnasium {gymnasium.__version__}"}
    assert any(NAME in note for note in log_context(run).notes), "`choose` says what it leaves out"
    # The run used the seeds 7 to 9, so others are taken, and those after them the next time.
    for number, seeds in enumerate(([10, 11, 12], [13, 14]), start=1):
        words = ["evaluate", "runs/0001", *(["--starts", "2"] if number == 2 else [])]
        assert main(words) == 0
        printed = capsys.readouterr().out
        assert f"in episodes with the seeds {seeds[0]} to {seeds[-1]}. Report" in printed
        assert f"{NAME}, {len(seeds)} episodes, the same for every policy" in printed
        fresh = json.loads((run / f"evaluations/{number:04d}/evaluation.json").read_text())
        (played,) = [r["episodes"]["returns"] for r in fresh["results"] if r["name"] == "bc-1"]
        loops = [plain_return(policies[1], seed) for seed in seeds]
        np.testing.assert_allclose(played, loops, rtol=1e-5)


def settings(log, **sections):
    training = {"algorithms": ["bc"], "seeds": [0], "updates": 30_000}
    quick = {"bc": {"steps": {"batch_size": 16}}}
    return configure(data={"source": str(log)}, training=training, algorithms=quick, **sections)


def test_a_curve_has_at_least_ten_points(log):
    """A finer interval is kept; without an environment nothing changes."""

    def interval(environment, **given):
        evaluation = {"environment": environment}
        return resolve(
            settings(log, evaluation=evaluation, **given)
        ).run.config.checkpoints.interval

    assert interval(NAME) == 3000
    assert interval(NAME, checkpoints={"interval": 1000}) == 1000
    assert interval("") == 5000


def test_a_declared_limit_is_spoken_of(log):
    """Who declares a limit on a published log wants to hear of the guard."""
    silent = resolve(settings(log))
    assert (silent.notes, silent.facts["speaks_of_guard"]) == ([], False)
    spoken = resolve(settings(log, limits={"high": {"action_0": 1.0}}))
    facts = spoken.facts
    assert facts["speaks_of_guard"]
    assert spoken.notes[0].startswith("no rate of change is declared for action_0")
    assert "action_0 between -2 and 1" in facts["limits"]
    assert not any("?" in line for line in (*spoken.notes, *facts["limits"], facts["fallback"]))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gym:Pendulum-v7", "gym:Pendulum-v7: Gymnasium knows no environment Pendulum-v7; did you"),
        ("gym:MountainCarContinuous-v0", "has 2 observations, and the log has 3"),
        ("Pendulum", "unknown simulated plant .* gym:ID or gym:MODULE:ID"),
    ],
)
def test_another_environment_is_refused_before_anything_is_written(log, name, words):
    with pytest.raises(InputError, match=words):
        resolve(settings(log, evaluation={"environment": name}))


def test_a_plant_is_judged_on_itself_and_a_fine_tuning_on_its_own_plant(log):
    with pytest.raises(InputError, match=r"data\.source is the simulated plant CSTR-v0, on which"):
        resolve(settings("CSTR-v0", evaluation={"environment": NAME}))
    named = {"evaluation": {"environment": NAME}, "finetune": {"environment": "CSTR-v0"}}
    with pytest.raises(InputError, match=r"but finetune\.environment is CSTR-v0"):
        resolve(settings(log, **named))


BROKEN = """
import gymnasium
from gymnasium.envs.classic_control import PendulumEnv

class Broken(PendulumEnv):
    def step(self, action):
        self.count = getattr(self, "count", 0) + 1
        if self.count > 450:
            raise RuntimeError("out of torque")
        return super().step(action)

gymnasium.register(id="Broken-v0", entry_point=Broken, max_episode_steps=200)
"""


def test_a_file_that_changed_since_the_run_began_is_named_on_resuming(log, tmp_path, monkeypatch):
    """Its code is recorded, because a path says nothing of it."""
    monkeypatch.chdir(tmp_path)
    file, name = tmp_path / "own_pendulum.py", "gym:own_pendulum:Own-v0"
    file.write_text(BROKEN.replace("Broken", "Own"))
    try:
        resolution = resolve(settings(log, evaluation={"environment": name}))
    finally:
        gymnasium.registry.pop("Own-v0", None)
    origins = resolution.facts["origins"]
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    before = f"{file}, code sha256:{digest}"
    assert origins["environment"] == {name: before}
    origins["environment"]["tank"] = "outsider 0.3"  # a plant, on which nothing is resumed
    versions = {package: version(package) for package in PACKAGES}
    record = {"algorithms": [], "origins": origins, "versions": versions}
    run, lines = create_run(tmp_path / "runs", "", record), []
    reporter, judge = SimpleNamespace(print_line=lines.append), resolution.run.judge
    note_other_versions(run, run.record(), reporter, judge)
    assert lines == []
    assert "resumed_with" not in run.record()
    file.write_text(file.read_text().replace("450", "900"))
    note_other_versions(run, run.record(), reporter, judge)
    (line,) = lines
    assert line.startswith(f"the run was started with {name} {before}, this is {file}, code sha256")
    assert len(run.record()["resumed_with"]) == 1


def test_an_environment_that_breaks_while_training_ends_the_run_in_one_line(
    log, tmp_path, monkeypatch, capsys
):
    """What was trained stays, and the run can be resumed once the environment is mended."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_pendulum.py").write_text(BROKEN)
    name = "gym:broken_pendulum:Broken-v0"
    try:
        assert main(["run", str(log), "--evaluation.environment", name, *QUICK]) == 2
    finally:
        gymnasium.registry.pop("Broken-v0", None)
    *_, line = [line for line in capsys.readouterr().err.splitlines() if line]
    assert f"{name}, episode with seed 100007: step() raised in step " in line
    assert "RuntimeError: out of torque" in line
    assert json.loads((tmp_path / "runs/0001/run.json").read_text())["status"] == "failed"
    assert math.prod(
        (tmp_path / "runs/0001" / file).exists() for file in ("config.toml", "metrics.jsonl")
    )
