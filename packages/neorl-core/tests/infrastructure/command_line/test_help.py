"""Help that is kept while the code is the same, and completion by what it names."""

import dataclasses
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from neorl_core import InputError
from neorl_core.infrastructure.command_line import _cached_text, summary_of
from neorl_core.infrastructure.command_line._cached_text import cached_text, rendered_help
from neorl_core.infrastructure.command_line._completion import completion_script, options_in
from neorl_core.infrastructure.command_line._program import Program

PREPARED: list[str] = []


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    PREPARED.clear()

    def sweep(words: list[str]) -> None:
        print("usage: neorl-x sweep [--retry] [--processes INT]")
        raise SystemExit(0)

    def run(words: list[str]) -> None:
        text = " [--training.updates INT]" if words[1:] == ["all"] else ""
        print(f"usage: neorl-x run [--quiet]{text}")

    for name, command in (("x_sweep", sweep), ("x_run", run)):
        module: Any = types.ModuleType(name)
        module.command = command
        monkeypatch.setitem(sys.modules, name, module)
    return Program(
        name="neorl-x",
        overview="usage: neorl-x COMMAND\n",
        subcommands={"sweep": "x_sweep", "run": "x_run"},
        prepare=lambda: PREPARED.append("prepared"),
        when_memory_ends="",
        sectioned=("run",),
    )


def test_help_does_without_the_switches_of_the_process(
    program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run(["run", "--help"]) == 0
    assert capsys.readouterr().out == "usage: neorl-x run [--quiet]\n"
    assert PREPARED == []


def test_a_subcommand_that_computes_nothing_takes_no_switches(
    program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    light = dataclasses.replace(program, without_prepare=("run",))
    assert light.run(["run"]) == 0
    assert PREPARED == []
    assert program.run(["run"]) == 0
    assert PREPARED == ["prepared"]


def test_a_text_is_kept_until_the_code_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    state, rendered = ["one"], []
    monkeypatch.setattr(_cached_text, "_state", lambda: state[0])
    monkeypatch.setattr(_cached_text, "_has_third_party", lambda: False)

    def render() -> None:
        rendered.append(state[0])
        print(f"help of {state[0]}")

    for _ in range(2):
        print(cached_text("neorl-x", ["run", "--help"], render), end="")
    state[0] = "two"
    print(cached_text("neorl-x", ["run", "--help"], render), end="")
    assert capsys.readouterr().out == "help of one\nhelp of one\nhelp of two\n"
    assert rendered == ["one", "two"]
    assert len(list((tmp_path / "neorl/help").iterdir())) == 1
    monkeypatch.setattr(_cached_text, "_has_third_party", lambda: True)
    for _ in range(2):
        cached_text("neorl-x", ["other", "--help"], render)
    assert len(rendered) == 4


def test_the_state_is_that_of_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _cached_text._state() == _cached_text._state()
    monkeypatch.syspath_prepend(str(tmp_path))
    before = _cached_text._state()
    (tmp_path / "guest.py").touch()
    assert _cached_text._state() != before


def test_a_text_that_ends_otherwise_is_not_kept() -> None:
    def render() -> None:
        raise SystemExit(2)

    with pytest.raises(SystemExit):
        rendered_help(render)


def test_options_are_those_that_a_text_names() -> None:
    text = "--a.b-c INT  (--no-a) see x--y, --training.updates=3 and a --- rule"
    assert options_in(text) == ["--a.b-c", "--no-a", "--training.updates"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["neorl-x", "sw"], "sweep"),
        (["neorl-x", "--v"], "--version"),
        (["neorl-x", "sweep", "--pro"], "--processes"),
        (["neorl-x", "run", "--tr"], "--training.updates"),
        (["neorl-x", "run", "file"], ""),
    ],
)
def test_bash_completes(
    program: Program, typed: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    words = f"COMP_WORDS=({' '.join(typed)}); COMP_CWORD={len(typed) - 1}"
    code = f'{script}\n{words}; _neorl_x; echo "${{COMPREPLY[@]}}"'
    completed = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == expected


def test_the_other_shells_have_the_same_words() -> None:
    options = {"run": ["--quiet"], "list": []}
    zsh = completion_script("neorl-x", options, "zsh")
    assert zsh.startswith("autoload -U +X bashcompinit")
    assert zsh.endswith(completion_script("neorl-x", options, "bash"))
    fish = completion_script("neorl-x", options, "fish")
    assert "__fish_seen_subcommand_from run' -l quiet" in fish
    with pytest.raises(InputError, match=r"unknown shell 'csh'"):
        completion_script("neorl-x", options, "csh")


def test_completion_without_a_shell_is_told(
    program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run(["completion"]) == 2
    assert "takes one of bash, zsh, fish" in capsys.readouterr().err
    assert program.run(["completion", "--help"]) == 0
    assert "~/.bashrc" in capsys.readouterr().out


def test_a_dataclass_without_a_docstring_is_summed_up_by_its_name() -> None:
    bare = dataclasses.make_dataclass("Bare", ["level"])
    assert (bare.__doc__ or "").startswith("Bare(")
    assert summary_of(bare) == "Bare"
    bare.__doc__ = "Bare(level) holds the level."
    assert summary_of(bare) == "Bare(level) holds the level."
