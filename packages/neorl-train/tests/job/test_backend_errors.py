"""What the backend says while a run trains: out of memory is one line, a fault is not hidden."""

import json

import jax
import pytest

from neorl_envs import write_dataset
from neorl_train._command.main import main

QUICK = [
    "--training.algorithms", "bc",
    "--training.updates", "20",
    "--training.chunk", "20",
    "--checkpoints.interval", "20",
    "--algorithms.bc.steps.batch-size", "16",
    "--output.no-tracking",
    "--quiet",
]  # fmt: skip


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "error",
    [
        jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nallocating 1 byte."),
        MemoryError("Unable to allocate 9 EiB"),
    ],
)
def test_memory_that_runs_out_is_one_line_and_recorded(here, capsys, monkeypatch, make_log, error):
    def exhausted(*_, **__):
        raise error

    monkeypatch.setattr("neorl_train._job.stages._train_all", exhausted)
    write_dataset(here / "log.h5", make_log())
    assert main(["run", *QUICK, "--data.source", "log.h5"]) == 2
    output = capsys.readouterr().err.splitlines()[-1]
    assert output.startswith(
        "neorl-train: out of memory; start a run with a smaller steps.batch_size"
    )
    assert "llocat" in output
    record = json.loads((here / "runs" / "0001" / "run.json").read_text())
    assert record["status"] == "failed"
    assert record["error"] == " ".join(str(error).split())
    assert main(["inspect", "runs/0001"]) == 0
    assert "try again" in capsys.readouterr().out


def test_another_error_of_the_backend_is_not_hidden(here, monkeypatch, make_log):
    def broken(*_, **__):
        raise jax.errors.JaxRuntimeError("INTERNAL: a fault")

    monkeypatch.setattr("neorl_train._job.stages._train_all", broken)
    write_dataset(here / "log.h5", make_log())
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        main(["run", *QUICK, "--data.source", "log.h5"])
