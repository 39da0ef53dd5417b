"""The settings of all tests, and the log of a tutorial that several pages go on with."""

import gzip
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from neorl_core.testing import configure_tests

# `hatch run installs:check` sets the variable. All other tests reach no other machine.
collect_ignore = [] if os.environ.get("NEORL_INSTALLS") else ["installs"]


def pytest_configure() -> None:
    configure_tests()


@pytest.fixture(scope="session")
def checkout() -> Path:
    """Root of the checkout."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def packages(checkout: Path) -> list[Path]:
    """The folders of the packages."""
    return sorted((checkout / "packages").glob("neorl-*"))


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[list[str]], str]:
    """Runs `neorl-envs` in a folder, in this process, which has everything imported."""
    from neorl_envs._command.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("neorl_envs._command.main.prepare_process", lambda: None)

    def run(words: list[str]) -> str:
        capsys.readouterr()
        assert main(words) == 0
        return capsys.readouterr().out

    return run


def completed(drafted: str, lines: list[str], loop: str) -> str:
    """A draft with the lines of the tutorial in place of those marked TODO, and its loop."""
    head, table, _ = drafted.partition("# [[loop]]")
    assert table
    remaining = iter(lines)

    def replaced(match: re.Match[str]) -> str:
        new = next(remaining)
        assert match["key"] == new.partition(" = ")[0]
        return new

    # A range is two lines, and the first one has the mark.
    todo = r"(?m)^(?P<key>\w+) = .*# TODO.*$|(?<=\n)(?P<high>high) = .*$"
    text = re.sub(todo, lambda m: next(remaining) if m["high"] else replaced(m), head)
    assert next(remaining, None) is None
    return text + loop


@pytest.fixture
def reactor(checkout: Path, tmp_path: Path, command: Callable[[list[str]], str]) -> str:
    """The tutorial from a CSV to an answer, done up to the dataset; its page."""
    folder = checkout / "docs/pages/tutorials"
    text = (folder / "from-a-csv.md").read_text()
    shutil.copy(folder / "reactor.csv.gz", tmp_path)
    commands = re.findall(r"(?m)^neorl-envs .+$", text)
    lines, loop = re.findall(r"```toml\n(.+?)```", text, flags=re.DOTALL)
    shown = re.findall(r"```text\n(.+?)```", text, flags=re.DOTALL)
    head = gzip.decompress((tmp_path / "reactor.csv.gz").read_bytes()).decode("cp1252")
    assert head.startswith(shown[0])
    printed = command(commands[0].split()[1:])
    assert all(line in printed for line in shown[1].splitlines())
    plan = completed((tmp_path / "plant.toml").read_text(), lines.splitlines(), loop)
    (tmp_path / "plant.toml").write_text(plan)
    assert shown[2] in command(commands[1].split()[1:])
    command(commands[2].split()[1:])
    assert "<h2>Trends</h2>" in (tmp_path / "reactor.html").read_text()
    return text
