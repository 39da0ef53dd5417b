"""A learner that diverges leaves a run to the others, and is compared with nothing."""

import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import pytest

from neorl_agents import ALGORITHMS
from neorl_core import InputError
from neorl_envs import read_dataset, write_dataset
from neorl_train import configure, resume, start
from neorl_train._command.main import main
from neorl_train._command.shared import run_results
from neorl_train._job import stages
from neorl_train._job.offline_run import check_offline_run
from neorl_train.configuration import FineTuningConfig
from neorl_train.runs import RunDirectory
from neorl_train.studies import compare_runs, comparison_text


@pytest.fixture
def run_of(make_line, make_log, monkeypatch, tmp_path):
    """Runs learners of which one is sound, one breaks in one of its seeds, and one at once."""

    class Late(make_line):
        def update(self, state, batch, key):
            new, metrics = super().update(state, batch, key)
            broken = (new.updates == 15) & (new.targets["noise_seen"] > 0)
            weight = jnp.where(broken, jnp.nan, new.parameters["weight"])
            return new.with_parameters(weight=weight), metrics

    class Wild(make_line):
        learning_rate: float = 1e30

    for name, learner in (
        ("sound", make_line),
        ("calm", make_line),
        ("late", Late),
        ("wild", Wild),
    ):
        monkeypatch.setitem(ALGORITHMS._builtin, name, learner)
    monkeypatch.setattr("neorl_train._job.run.prepare_process", lambda: None)
    monkeypatch.chdir(tmp_path)
    write_dataset(tmp_path / "log.h5", make_log())

    def run(*learners, seeds=(0, 1, 2)):
        training = {"algorithms": list(learners), "seeds": list(seeds), "updates": 40, "chunk": 10}
        return start(
            configure(
                data={"source": "log.h5"},
                training=training,
                checkpoints={"interval": 20},
                output={"tracking": False},
            )
        )

    return run


def read(run, name):
    return (run.path / name).read_bytes()


def fine_tuned_learners(run, names):
    training = dataclasses.replace(run.config.training, algorithms=names)
    config = dataclasses.replace(run.config, training=training)
    config = dataclasses.replace(config, finetune=FineTuningConfig(run=str(run.path)))
    check_offline_run(config, SimpleNamespace(spec=read_dataset("log.h5").spec, name="Line"), None)


SWEEP = """
[data]
source = "log.h5"
[training]
algorithms = ["sound", "calm"]
seeds = [0]
updates = 20
chunk = 10
[checkpoints]
interval = 10
[output]
tracking = false
[grid]
algorithms.sound.learning_rate = [0.1, 1e30]
"""


def test_the_others_of_a_run_are_compared(run_of, capsys):
    """Seed 0 of one learner diverges late, and of the named candidate all three at once."""
    run = run_of("sound", "late", "wild")
    diverged = run.record["diverged"]
    late, wild = diverged["late"], diverged["wild"]
    assert (late["seeds"], late["update"], late["checkpoint"]) == ([0], 40, 20)
    assert (wild["seeds"], wild["update"], wild["checkpoint"]) == ([0, 1, 2], 10, None)
    progress = capsys.readouterr().err.splitlines()
    said = [line for line in progress if line.startswith("late is in no comparison: Late diverged")]
    assert len(said) == 1
    assert "seed 0 is nan" in said[0]
    assert "at update 40; the last good checkpoint is that of update 20; lower its" in said[0]
    assert run.record["status"] == "finished"
    assert not {"late", "wild"} & {fit.group for fit in run.evaluation.imitation}
    assert run.verdict.candidate == "sound-0"
    assert run.verdict.sentence.endswith("wild diverged, so sound is judged in its place.")
    assert said[0] in run.report.read_text().replace("&#x27;", "'")
    assert run_results(RunDirectory(run.path))["diverged"] == diverged
    comparison = compare_runs([run.path])
    assert comparison.diverged == {"0001": ("late", "wild")}
    assert {row.policy for row in comparison.rows if row.role == "learner"} == {"sound"}
    assert "In run 0001, late and wild diverged, with no row." in comparison_text(comparison, ())
    assert main(["list"]) == 0
    assert "sound, late (diverged), wild (diverged)" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"has late, which .* did not train; it has sound$"):
        fine_tuned_learners(run, ("late",))

    assert main(["resume", "runs/0001"]) == 0
    assert "its results are complete; there is nothing to do" in capsys.readouterr().err
    before = {name: read(run, name) for name in ("metrics.jsonl", "evaluation.json")}
    run.report.unlink()
    resume(run)
    assert "not trained again: late is in no comparison" in capsys.readouterr().err
    assert run.record["diverged"] == diverged
    assert {name: read(run, name) for name in before} == before


def test_a_run_of_which_all_diverge_fails_in_one_line(run_of, capsys):
    line = (
        r"^no learner finished its training: late diverged at update 40 \(seed 0\); wild diverged"
    )
    with pytest.raises(InputError, match=line):
        run_of("late", "wild")
    with pytest.raises(
        InputError, match=r"^Wild diverged: loss of seed 0 is nan .* at update 10; no"
    ):
        run_of("wild")
    capsys.readouterr()
    for name, expected in (("0001", line[1:]), ("0002", "Wild diverged: loss of seed 0 is")):
        record = json.loads(Path(f"runs/{name}/run.json").read_text())
        assert record["status"] == "failed"
        assert re.match(expected, record["error"])
        records = Path(f"runs/{name}/metrics.jsonl").read_bytes()
        assert main(["resume", f"runs/{name}"]) == 2
        *_, error = capsys.readouterr().err.splitlines()
        assert re.search(expected, error)
        assert Path(f"runs/{name}/metrics.jsonl").read_bytes() == records


def test_an_interrupted_run_goes_on_with_the_learners_that_are_left(run_of, monkeypatch):
    """The one that diverged before the interruption is not trained a second time."""
    whole = run_of("wild", "sound", seeds=(1,))
    save, calls = stages._save_policies, []

    def stopped(*arguments):
        calls.append(arguments[3])
        raise InputError("the power failed")

    monkeypatch.setattr(stages, "_save_policies", stopped)
    with pytest.raises(InputError, match="the power failed"):
        run_of("wild", "sound", seeds=(1,))
    monkeypatch.setattr(stages, "_save_policies", save)
    monkeypatch.setattr(stages, "record_diverged", None)  # a second training would call it
    again = resume("runs/0002")
    assert calls == ["sound"]
    assert list(again.record["diverged"]) == ["wild"]
    assert again.verdict == whole.verdict
    assert again.record["policies"].keys() == {"sound-1.safetensors"}


def test_a_sweep_goes_on_with_the_other_learners_of_its_runs(run_of, capsys):
    """Trained together, one rate diverges; its run has the other learner, and no other suffers."""
    Path("rates.toml").write_text(SWEEP)
    assert main(["sweep", "rates.toml", "--output", "swept"]) == 0
    runs = sorted(Path("swept").glob("0*"))
    records = [json.loads((run / "run.json").read_text()) for run in runs]
    assert [record["status"] for record in records] == ["finished", "finished"]
    assert [list(record.get("diverged", {})) for record in records] == [[], ["sound"]]
    assert "In run 0002, sound diverged, with no row." in capsys.readouterr().out
