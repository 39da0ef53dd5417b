"""The tutorial on the forms of a bundle: its commands are typed, and what it shows appears."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs/pages/tutorials/every-form.md"


def typed(line: str, folder: Path) -> str:
    """What a command prints; one of this environment is taken from it."""
    program, *rest = shlex.split(line)
    installed = Path(sys.executable).with_name(program)
    done = subprocess.run(
        [str(installed if installed.exists() else program), *rest],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.nightly
@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")
def test_a_pid_and_a_network_leave_one_run_in_every_form(tmp_path: Path) -> None:
    pytest.importorskip("fmpy")
    shown: list[str] = []
    for kind, block in re.findall(r"```(console|text)\n(.+?)```", PAGE.read_text(), re.DOTALL):
        for line in block.splitlines():
            if kind == "console":
                shown += [" ".join(one.split()) for one in typed(line, tmp_path).splitlines()]
            else:
                assert " ".join(line.split()) in shown
    forms = (".st", ".xml", ".h", ".c", ".fmu", "-test-sheet.csv", ".o")
    for name in ("pid", "network"):
        assert all((tmp_path / f"neorl_{name}{end}").stat().st_size for end in forms)
        (sealed,) = re.findall(r"seal sha256:(\w+)", (tmp_path / f"neorl_{name}.st").read_text())
        assert sealed in (tmp_path / f"neorl_{name}.xml").read_text()
        assert sealed in (tmp_path / f"neorl_{name}.h").read_text()
    assert len((tmp_path / "pid.csv").read_text().splitlines()) > 2
