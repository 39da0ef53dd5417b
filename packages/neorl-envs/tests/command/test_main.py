import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from neorl_core.infrastructure.command_line import declared_section, section_of
from neorl_envs import read_dataset
from neorl_envs._command.main import COMMANDS, SUBCOMMANDS


def test_collect_inspect_and_list(command: Any, tmp_path: Path) -> None:
    output = command("collect", "--out", "log.h5", "--steps", "400", "--seed", "3")
    dataset = read_dataset("log.h5")
    assert dataset.n_rows >= 400
    assert f"{dataset.n_rows} rows" in output
    assert dataset.content_hash in output
    output = command("inspect", "log.h5")
    assert "106/1500" in output
    last = "Next: neorl-train run log.h5 --penalty temperature NUMBER pressure NUMBER"
    assert f"\n{last}\n" in output
    assert "NUMBER: what one unit of that cost subtracts from the reward" in output
    document = json.loads(command("inspect", "log.h5", "--json"))
    assert (document["format"], document["version"]) == ("neorl-dataset-report", 3)
    assert document["content_hash"] == dataset.content_hash
    assert "106/1500" in command("inspect", "log.h5", "--html", "log.html")
    assert Path("log.html").read_text().startswith("<!doctype html>")
    before = Path("log.h5").read_bytes()
    again = ["collect", "--out", "log.h5", "--steps", "400", "--seed", "4"]
    assert "log.h5 exists; choose another --out, or pass --overwrite" in command.refused(*again)
    assert Path("log.h5").read_bytes() == before
    out = command(*again, "--overwrite")
    assert out.endswith("no published log of this quality, seed and size\n")
    assert read_dataset("log.h5").content_hash != dataset.content_hash
    assert "neorl/ChemicalReactor-v0" in command("list")
    listed = {one["name"]: one for one in json.loads(command("list", "--json"))["environments"]}
    assert listed["CSTR-v0"]["gymnasium"] == "neorl/CSTR-v0"
    assert "examples:" in command()
    for name in COMMANDS:
        assert f"example: neorl-envs {name}" in command(name, "--help").replace("\n", " ")


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
def test_bad_input_is_one_line_and_leaves_nothing(command: Any, tmp_path: Path, case: str) -> None:
    words, message = BAD[case]
    code, result, error = command.run(*words)
    assert code == 2
    assert message in error
    assert len(error.splitlines()) == 1
    assert error.startswith("neorl-envs: ")
    assert result == ""
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_said(command: Any) -> None:
    assert command("--version").startswith("neorl-envs 0.")


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
