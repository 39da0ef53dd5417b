"""Numbered, locked, complete or said to be broken."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from neorl_core import InputError
from neorl_core.infrastructure import head, write_json, write_text
from neorl_train._command.subcommands.inspect import describe_run
from neorl_train._command.subcommands.list import describe_all
from neorl_train.runs import RunDirectory, create_run, locked, numbered_runs, require_free_space


@pytest.fixture
def run(tmp_path):
    return create_run(tmp_path / "runs", "[data]\n", {"status": "running"})


def _python(program, *arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_runs_are_numbered_and_hold_what_they_began_with(tmp_path, run):
    other = create_run(tmp_path / "runs", "", {})
    (tmp_path / "runs" / "notes").mkdir()
    assert [path.name for path in numbered_runs(tmp_path / "runs")] == ["0001", "0002"]
    assert other.path.is_absolute()
    assert run.record() == {"status": "running"}
    assert run.update_record(status="finished", x=1)["x"] == 1
    assert run.record()["status"] == "finished"


@pytest.mark.nightly
def test_many_processes_get_many_numbers(tmp_path):
    program = """
        import pathlib, sys
        from neorl_train.runs import create_run
        for _ in range(5):
            create_run(pathlib.Path(sys.argv[1]), "", {})
    """
    processes = [_python(program, tmp_path) for _ in range(4)]
    for process in processes:
        assert process.wait() == 0, process.stderr.read()
        process.communicate()
    assert [int(path.name) for path in numbered_runs(tmp_path)] == list(range(1, 21))


def test_a_second_process_is_kept_out_and_told_by_whom(run):
    program = """
        import pathlib, sys, time
        from neorl_train.runs import RunDirectory
        from neorl_train.runs._directory import locked
        with locked(RunDirectory(pathlib.Path(sys.argv[1]))):
            print("held", flush=True)
            time.sleep(3600)
    """
    holder = _python(program, run.path)
    assert holder.stdout.readline() == "held\n"
    message = f"0001 is in use by process {holder.pid}; wait for it or stop it"
    with pytest.raises(InputError, match=message), locked(run):
        pass
    holder.kill()
    holder.communicate()
    with locked(run):
        pass


def test_the_lock_ends_with_its_block(run):
    with locked(run), pytest.raises(InputError, match=f"process {os.getpid()}"), locked(run):
        pass
    with locked(run):
        pass


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda path: (path / "run.json").unlink(),
            "has no run.json, so it is not a run directory, or its run",
        ),
        (lambda path: (path / "config.toml").unlink(), "has no config.toml"),
        (
            lambda path: (path / "run.json").write_text('{"sch'),
            r"is damaged .*; restore it or start a new run",
        ),
        (lambda path: (path / "run.json").write_bytes(b"\xff\xfe"), r"run\.json is damaged"),
        (lambda path: (path / "run.json").write_text("[]"), "holds a list, expected a JSON object"),
        (lambda path: write_json(path / "run.json", head("run", 9)), "version 9 of neorl-run"),
    ],
)
def test_a_broken_directory_is_one_line(run, tmp_path, damage, message):
    damage(run.path)
    with pytest.raises(InputError, match=message) as error:
        run.record()
    assert "\n" not in str(error.value)
    assert "0001  " in describe_all(tmp_path / "runs")


def test_records_that_end_before_a_checkpoint_are_said(run, monkeypatch):
    record = {"started": "", "execution_mode": "", "devices": 1, "versions": {}, "config_hash": ""}
    run.update_record(**record, algorithms=["iql"], seeds=[0])
    monkeypatch.setattr(
        "neorl_train._command.subcommands.inspect.complete_steps", lambda folder: [2000, 4000]
    )
    line = {"kind": "chunk", "algorithm": "iql", "seed": 0, "step": 4000, "time": 0, "metrics": {}}
    run.metrics.write_text(json.dumps(line) + "\n")
    assert "cut short" not in describe_run(run)
    run.metrics.write_text("")
    assert "metrics.jsonl ends before the checkpoint at 4000" in describe_run(run)


def test_a_killed_run_is_told_from_one_that_runs(run):
    record = {"started": "", "execution_mode": "", "devices": 1, "versions": {}, "config_hash": ""}
    run.update_record(**record, algorithms=["iql"], seeds=[0])
    with locked(run):
        assert f"status      running (process {os.getpid()})" in describe_run(run)
        assert " resume " not in describe_run(run)
        assert "  running     iql" in describe_all(run.path.parent)
    assert "status      stopped: its process ended without recording a reason" in describe_run(run)
    assert run.resume_line() in describe_run(run)
    assert "  stopped     iql" in describe_all(run.path.parent)
    run.update_record(status="failed", error="no space")
    assert "status      failed: no space" in describe_run(run)


def test_no_directory_at_all(tmp_path):
    with pytest.raises(InputError, match="no such run directory; `neorl-train list` names"):
        RunDirectory(tmp_path / "0009").record()


def test_the_resume_line_names_program_and_path(run, monkeypatch):
    monkeypatch.delenv("HATCH_ENV_ACTIVE", raising=False)
    assert run.resume_line().endswith(f" resume {run.path}")
    monkeypatch.setenv("HATCH_ENV_ACTIVE", "default")
    assert run.resume_line() == f"python -m hatch run neorl-train resume {run.path}"
    monkeypatch.setenv("HATCH_ENV_ACTIVE", "lab")
    assert run.resume_line() == f"python -m hatch run lab:neorl-train resume {run.path}"


def test_the_resume_line_runs_as_it_is_printed(run, monkeypatch):
    monkeypatch.delenv("HATCH_ENV_ACTIVE", raising=False)
    (run.path / "run.json").unlink()
    result = subprocess.run(
        run.resume_line(), shell=True, cwd="/", capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert f"{run.path} has no run.json" in result.stderr


def test_a_file_is_whole_or_the_old_one(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    with pytest.raises(FileNotFoundError):
        write_text(tmp_path / "nowhere" / "b", "")
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_room_is_asked_for_before_writing(tmp_path):
    require_free_space(tmp_path / "new", 10_000)
    assert list((tmp_path / "new").iterdir()) == []
    program = """
        import pathlib, resource, sys
        from neorl_core.infrastructure import is_full_disk
        from neorl_train.runs._directory import require_free_space
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        require_free_space(pathlib.Path(sys.argv[1]), 1000)
        try:
            require_free_space(pathlib.Path(sys.argv[1]), 1001)
        except OSError as error:
            assert is_full_disk(error)
            print("full")
    """
    process = _python(program, tmp_path / "new")
    assert process.communicate()[0] == "full\n"
    assert list((tmp_path / "new").iterdir()) == []
