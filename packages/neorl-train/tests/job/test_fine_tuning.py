"""``neorl-train finetune``: from a finished run to a fine-tuned one, and what it refuses."""

import json
import shutil

import jax
import numpy as np
import pytest

from neorl_agents import ALGORITHMS, load_policy
from neorl_core import InputError
from neorl_envs import collect_log, make, write_dataset
from neorl_train._command.main import main
from neorl_train._command.subcommands.run import read_fine_tuning_options
from neorl_train.judging import read_evaluation, read_fine_tuning
from neorl_train.runs import create_run, read_records, tree_digest

FEW = [
    "--training.seeds", "0", "1",
    "--training.updates", "40",
    "--training.chunk", "20",
    "--checkpoints.interval", "20",
    "--evaluation.starts", "4",
    "--evaluation.curve-starts", "2",
    "--output.no-tracking",
    "--quiet",
]  # fmt: skip
SMALL = [word for name in ("iql", "rebrac", "bc") for word in (
    f"--algorithms.{name}.networks.hidden", "8", f"--algorithms.{name}.steps.batch-size", "16",
)]  # fmt: skip


@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    """A finished run on a log of DMSD-v0 that lies in a file: three learners, two seeds."""
    folder = tmp_path_factory.mktemp("offline")
    env = make("DMSD-v0")
    write_dataset(folder / "log.h5", collect_log(env, n_steps=600, key=jax.random.key(0)))
    words = ["run", "--data.source", str(folder / "log.h5"), *FEW, *SMALL]
    words += ["--training.algorithms", "iql", "rebrac", "bc", "--data.held-out", "0.4"]
    words += ["--output.directory", str(folder / "runs")]
    assert main(words) == 0
    return folder / "runs" / "0001"


@pytest.fixture
def refused(capsys):
    """Whether the command refuses its arguments in one line with the given words."""

    def check(words, *arguments):
        assert main(["finetune", *map(str, arguments)]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert words in line

    return check


def test_what_is_no_finished_run_is_refused(refused, tmp_path):
    refused("takes the directory of a finished run", "--training.updates", "20")
    refused("no such run directory", tmp_path / "0007")
    refused("my.toml is a configuration file, and finetune takes the directory", "my.toml")
    artefact = tmp_path / "iql-0.safetensors"
    artefact.write_bytes(b"actor")
    refused("contains only the actor; fine-tuning also needs the critics", artefact)


def test_a_fine_tuning_is_not_fine_tuned_again(refused, tmp_path):
    """Its checkpoints hold the ring too; the message says where to go on from."""
    settings = '[finetune]\nrun = "runs/0007"\n'
    run = create_run(tmp_path / "runs", settings, {"status": "finished"}).path
    refused("is itself a fine-tuning run and cannot be fine-tuned again; fine-tune the run", run)


@pytest.mark.nightly
def test_what_does_not_fit_is_refused_by_name(offline, refused, tmp_path):
    """Each in one line, before a run directory is made."""
    refused("log without a simulator", offline)
    refused("CSTR-v0 has 3 observed channels", offline, "--finetune.environment", "CSTR-v0")
    dmsd = (offline, "--finetune.environment", "DMSD-v0")
    refused("BC cannot be fine-tuned online", *dmsd, "--training.algorithms", "bc")
    refused("smaller than a batch", *dmsd, "--finetune.capacity", "8")
    refused("training.seeds has 7", *dmsd, "--training.seeds", "7")
    refused("[data] differs", *dmsd, "--data.seed", "7")
    bare = tmp_path / "runs" / "0001"
    shutil.copytree(offline, bare)
    shutil.rmtree(bare / "checkpoints" / "iql")
    gone = "has no checkpoint of iql at update 40, so its critics are lost"
    refused(gone, bare, "--finetune.environment", "DMSD-v0")
    record = json.loads((bare / "run.json").read_text())
    (bare / "run.json").write_text(json.dumps({**record, "status": "interrupted"}))
    refused("is interrupted, not finished", bare)
    assert [p.name for p in offline.parent.iterdir() if p.name.isdecimal()] == ["0001"]


@pytest.mark.nightly
def test_rates_that_a_log_does_not_know_are_left_to_the_plant(offline):
    words = [str(offline), "--finetune.environment", "DMSD-v0"]
    config, _ = read_fine_tuning_options(words, ALGORITHMS)
    assert config.limits.rate_up == config.limits.rate_down == {}
    assert config.training.algorithms == ("iql", "rebrac")
    assert config.finetune.run == str(offline)
    assert config.algorithms.iql.networks.hidden == (8,)
    with pytest.raises(InputError, match="unknown"):
        read_fine_tuning_options([str(offline), "--finetune.shares", "1"], ALGORITHMS)


@pytest.mark.nightly
def test_a_run_is_fine_tuned_interrupted_and_resumed(offline, capsys):
    """Both learners end to end; cut after its first checkpoint the run ends in the same bits."""
    runs = offline.parent
    words = ["finetune", str(offline), "--finetune.environment", "DMSD-v0", *FEW]
    words += ["--finetune.environments", "2", "--finetune.warm-up", "32", "--finetune.capacity"]
    words += ["500", "--output.directory"]
    assert main([*words, str(runs)]) == 0
    text, progress = capsys.readouterr()
    assert "does not train" not in progress, "the learners of the run that stay behind are no fault"
    assert "iql fine-tuned, 2 seeds: return" in text
    assert "on the simulated plant, of" in text
    run = runs / "0002"
    actual = read_fine_tuning(run)
    assert [one.name for one in actual.learners] == ["iql", "rebrac"]
    for one in actual.learners:
        assert one.before.low <= one.before.value <= one.before.high
        assert one.gain.value == pytest.approx(one.after.value - one.before.value, abs=1e-3)
        assert np.isfinite(one.regret).all()
        assert [seed.seed for seed in one.collected] == [0, 1]
        assert all(seed.steps == 2 * (16 + 1 + 20) for seed in one.collected)
    names = {result.name for result in read_evaluation(run).results if result.role == "learner"}
    assert {"iql-0", "iql_offline-0", "rebrac-1", "rebrac_offline-1"} <= names
    before = load_policy(offline / "policies" / "iql-0.safetensors")
    after = load_policy(run / "policies" / "iql-0.safetensors")
    assert tree_digest(before.policy) != tree_digest(after.policy)
    assert after.metadata["fine_tunes"] == str(offline)
    record = json.loads((run / "run.json").read_text())
    assert (record["status"], record["fine_tunes"]) == ("finished", str(offline))
    steps = {line["step"] for line in read_records(run / "metrics.jsonl")}
    assert steps == {20, 40}
    for folder in (run / "checkpoints").iterdir():
        shutil.rmtree(folder / "40")
    (run / "finetune.json").unlink()
    assert main(["resume", str(run), "--quiet"]) == 0
    again = load_policy(run / "policies" / "iql-0.safetensors")
    assert again.digest == after.digest
    assert repr(read_fine_tuning(run)) == repr(actual)
