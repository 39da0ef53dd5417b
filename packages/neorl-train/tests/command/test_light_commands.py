"""Importing JAX takes seconds, and short commands do without it."""

import os
import subprocess
import sys

import pytest

from neorl_train.runs import create_run

LIGHT = ("evaluate", "compare", "sweep", "benchmark", "resume", "report", "track", "hunt")


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["rnu"],
        ["sweep", "--help"],
        # One process a command costs a third of a second: two by day.
        *[
            pytest.param([name, "--help"], marks=pytest.mark.nightly)
            for name in LIGHT
            if name != "sweep"
        ],
    ],
)
def test_the_command_answers_without_importing_jax(words):
    code = (
        "import sys; from neorl_train._command.main import main; "
        f"code = 0\ntry:\n    code = main({words!r})\nexcept SystemExit as stop:\n"
        "    code = stop.code or 0\nsys.exit(code + 100 * ('jax' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == (2 if words == ["rnu"] else 0)


LIST = """
import json, sys
from neorl_train._command.main import main
if not sys.argv[1:]:
    import neorl_train._command.subcommands.list as module
    known = {"environments": ["Tank-v0"], "networks": [], "algorithms": {"bc": "Cloning."}}
    module.cached_text = lambda *_: json.dumps(known)
code = main(["list", "runs"] if not sys.argv[1:] else None)
sys.exit(code + 100 * ("jax" in sys.modules))
"""


def test_runs_are_listed_without_importing_jax(tmp_path):
    """With the names of environments and algorithms as an earlier process kept them."""
    record = {"started": "yesterday", "status": "finished", "algorithms": ["bc"], "seeds": [0]}
    create_run(tmp_path / "runs", "", record)
    command = [sys.executable, "-c", LIST]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "  Tank-v0\n" in done.stdout
    assert "  bc  Cloning.\n" in done.stdout
    assert "  0001  yesterday  finished" in done.stdout


@pytest.mark.nightly
def test_names_are_kept_from_one_process_to_the_next(tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    answers = [
        subprocess.run(
            [sys.executable, "-c", LIST, "list"], cwd=here, env=environment,
            capture_output=True, text=True, check=False,
        )
        for _ in range(2)
    ]  # fmt: skip
    assert [answer.returncode for answer in answers] == [100, 0]
    assert answers[0].stdout == answers[1].stdout
    assert "CSTR-v0" in answers[0].stdout
