import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from neorl_core.infrastructure.command_line import declared_section, section_of
from neorl_envs import read_dataset
from neorl_envs._command.main import COMMANDS, SUBCOMMANDS, main


def test_collect_inspect_and_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("neorl_envs._command.main.prepare_process", lambda: None)
    assert main(["collect", "--out", "log.h5", "--steps", "400", "--seed", "3"]) == 0
    output = capsys.readouterr().out
    dataset = read_dataset("log.h5")
    assert dataset.n_rows >= 400
    assert f"{dataset.n_rows} rows" in output
    assert dataset.content_hash in output
    assert main(["inspect", "log.h5"]) == 0
    output = capsys.readouterr().out
    assert "106/1500" in output
    last = "Next: neorl-train run log.h5 --penalty temperature NUMBER pressure NUMBER"
    assert f"\n{last}\n" in output
    assert "NUMBER: what one unit of that cost subtracts from the reward" in output
    assert main(["inspect", "log.h5", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["format"], document["version"]) == ("neorl-dataset-report", 3)
    assert document["content_hash"] == dataset.content_hash
    assert main(["inspect", "log.h5", "--html", "log.html"]) == 0
    assert "106/1500" in capsys.readouterr().out
    assert Path("log.html").read_text().startswith("<!doctype html>")
    before = Path("log.h5").read_bytes()
    again = ["collect", "--out", "log.h5", "--steps", "400", "--seed", "4"]
    assert main(again) == 2
    assert "log.h5 exists; choose another --out, or pass --overwrite" in capsys.readouterr().err
    assert Path("log.h5").read_bytes() == before
    assert main([*again, "--overwrite"]) == 0
    assert capsys.readouterr().out.endswith("no published log of this quality, seed and size\n")
    assert read_dataset("log.h5").content_hash != dataset.content_hash
    assert main(["list"]) == 0
    assert "neorl/ChemicalReactor-v0" in capsys.readouterr().out
    assert main(["list", "--json"]) == 0
    listed = {one["name"]: one for one in json.loads(capsys.readouterr().out)["environments"]}
    assert listed["CSTR-v0"]["gymnasium"] == "neorl/CSTR-v0"
    assert main([]) == 0
    assert "examples:" in capsys.readouterr().out
    for command in COMMANDS:
        assert main([command, "--help"]) == 0
        assert f"example: neorl-envs {command}" in capsys.readouterr().out.replace("\n", " ")


BAD = {
    "command": (["collct"], "unknown command 'collct'; did you mean 'collect'?"),
    "option": (["collect", "--out", "x.h5", "--stps", "3"], "did you mean --steps?"),
    "environment": (
        ["collect", "--out", "x.h5", "--environment", "ChemicalRactor-v0"],
        "unknown environment 'ChemicalRactor-v0'; did you mean 'ChemicalReactor-v0'?",
    ),
    "number": (
        ["collect", "--out", "x.h5", "--steps", "ten"],
        "--steps must be an integer, got 'ten'",
    ),
    "steps": (
        ["collect", "--out", "x.h5", "--steps", "0"],
        "--steps must be an integer of at least 1",
    ),
    "more than memory": (
        ["collect", "--out", "x.h5", "--steps", "99999999999999"],
        "--steps 99999999999999 would need about",
    ),
    "spread": (["collect", "--out", "x.h5", "--spread", "2"], "spread must be in [0, 1), got 2"),
    "seed": (
        ["collect", "--out", "x.h5", "--seed", "-3"],
        "--seed must be an integer in [0, 2147483647]",
    ),
    "a folder": (["collect", "--out", "."], ". is a folder; name a file, such as"),
    "folder": (["collect", "--out", "no/x.h5"], "no/x.h5: no folder no; create it first"),
    "required": (["collect"], "--out"),
    "a word too many": (["inspect", "a.h5", "b.h5"], "unexpected word 'b.h5'; options begin with"),
    "page": (["inspect", "no.h5", "--html", "no/x.html"], "no/x.html: no folder no; create it"),
    "file": (["inspect", "no.h5"], "no.h5: no such file; give the path of a dataset"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    words, message = BAD[case]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("neorl_envs._command.main.prepare_process", lambda: None)
    assert main(words) == 2
    seen = capsys.readouterr()
    assert message in seen.err
    assert len(seen.err.splitlines()) == 1
    assert seen.err.startswith("neorl-envs: ")
    assert seen.out == ""
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("neorl-envs 0.")


def test_a_closed_pipe_is_no_error(toy_npz: Path) -> None:
    command = f"{sys.executable} -m neorl_envs inspect {toy_npz} | true"
    completed = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert completed.stderr == ""


def test_the_module_is_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "neorl_envs", "inspect", "nothing.h5"]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert completed.returncode == 2
    assert len(completed.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_the_options_that_the_command_takes(command: str) -> None:
    """Help is read from source, what a command takes is the class that it imports."""
    module, name = SUBCOMMANDS[command][:2]
    kind = getattr(importlib.import_module(module), name)
    assert section_of(kind) == declared_section(module, name)
