"""A command ends with a code that says how, and whatever goes wrong is one line."""

import dataclasses
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from neorl_core import InputError
from neorl_core.infrastructure.command_line import (
    BAD_INPUT,
    DONE,
    Program,
    StoppedError,
    Subcommand,
)

RunCommand = Callable[[Callable[[list[str]], object]], int]
PREPARED: list[str] = []


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    PREPARED.clear()
    return Program(
        name="neorl-envs",
        overview="usage: neorl-envs COMMAND\n",
        subcommands={
            "act": Subcommand("a_subcommand", "Options"),
            "rest": Subcommand("another_subcommand", "Options"),
            "halt": Subcommand("a_subcommand:halt", "Options"),
        },
        prepare=lambda: PREPARED.append("prepared"),
        when_memory_ends="take fewer rows",
    )


@pytest.fixture
def run(program: Program, monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    """``run(command)``: exit code of a subcommand that does this."""

    def run_command(command: Callable[[list[str]], object]) -> int:
        module: Any = types.ModuleType("a_subcommand")
        module.command = command
        monkeypatch.setitem(sys.modules, "a_subcommand", module)
        return program.run(["act", "--fast", "log.h5"])

    return run_command


def raising(error: BaseException) -> Callable[[list[str]], object]:
    def command(words: list[str]) -> None:
        raise error

    return command


def test_a_subcommand_gets_its_words_after_the_switches_are_set(run: RunCommand) -> None:
    seen: list[Any] = []
    assert run(lambda words: seen.append((words, list(PREPARED)))) == DONE
    assert seen == [(["--fast", "log.h5"], ["prepared"])]


def test_a_module_may_hold_several_subcommands(program: Program, monkeypatch) -> None:
    module: Any = types.ModuleType("a_subcommand")
    words: list[str] = []
    module.halt = words.extend
    monkeypatch.setitem(sys.modules, "a_subcommand", module)
    assert program.run(["halt", "--fast"]) == 0
    assert words == ["--fast"]


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_the_overview(
    program: Program, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run(words) == DONE
    output = capsys.readouterr().out
    assert output.startswith("usage: neorl-envs COMMAND\n")
    assert output.endswith("completion in a shell: `neorl-envs completion --help`\n")
    assert PREPARED == []


def test_a_subcommand_that_computes_nothing_takes_no_switches(
    run: RunCommand, program: Program
) -> None:
    assert run(lambda words: None) == DONE
    assert PREPARED == ["prepared"]
    assert dataclasses.replace(program, without_prepare=("act",)).run(["act"]) == DONE
    assert PREPARED == ["prepared"]


def test_a_mistyped_subcommand(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["rst"]) == BAD_INPUT
    output = capsys.readouterr().err
    assert (
        output == "neorl-envs: unknown command 'rst'; did you mean 'rest'? known: act, rest, halt\n"
    )


@pytest.mark.parametrize("words", [["doze"], ["doze", "--help"], ["help", "doze"]])
def test_a_subcommand_of_an_earlier_version_says_what_replaced_it(
    program: Program, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    changed = dataclasses.replace(program, gone={"doze": "`neorl-envs rest` does the same"})
    assert changed.run(words) == BAD_INPUT
    assert capsys.readouterr().err == (
        "neorl-envs: there is no command 'doze' any more; `neorl-envs rest` does the same\n"
    )
    assert PREPARED == []


ENDS = {
    "bad input": (InputError("log.h5:\n  no such file"), 2, "log.h5: no such file"),
    "Ctrl-C": (KeyboardInterrupt(), 130, "stopped by Ctrl-C"),
    "SIGTERM": (StoppedError(signal.SIGTERM), 143, "stopped by SIGTERM"),
    "no permission": (
        PermissionError(13, "Permission denied", "log.h5"),
        2,
        "log.h5: Permission denied; check the path and its permissions",
    ),
    "a full disk": (
        OSError(28, "No space left on device", "report.html"),
        2,
        "report.html: no free disk space to write it; free some, then give the same command again",
    ),
    "a worded refusal": (OSError("log.h5: cannot write"), 2, "log.h5: cannot write"),
    "memory": (MemoryError("1 GiB"), 2, "out of memory; take fewer rows (1 GiB)"),
}


@pytest.mark.parametrize("case", ENDS)
def test_every_end_has_its_code_and_one_line(
    run: RunCommand, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    error, code, message = ENDS[case]
    assert run(raising(error)) == code
    output = capsys.readouterr()
    assert output.err == f"neorl-envs: {message}\n"
    assert output.out == ""


def test_what_was_begun_can_be_continued(
    run: RunCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = StoppedError(signal.SIGINT, "neorl-train resume runs/0001")
    assert run(raising(stopped)) == 130
    output = capsys.readouterr().err
    assert output.endswith("stopped by Ctrl-C; continue with\nneorl-train resume runs/0001\n")


def test_memory_of_a_device_counts_and_other_faults_are_not_hidden(
    run: RunCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    from jax.errors import JaxRuntimeError

    assert run(raising(JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"))) == BAD_INPUT
    assert "take fewer rows (RESOURCE_EXHAUSTED" in capsys.readouterr().err
    with pytest.raises(ValueError, match="a fault of ours"):
        run(raising(ValueError("a fault of ours")))


def test_sigterm_ends_a_subcommand_like_ctrl_c(
    run: RunCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    tidied: list[str] = []

    def command(words: list[str]) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            tidied.append("done")

    assert run(command) == 143
    assert tidied == ["done"]
    assert capsys.readouterr().err == "neorl-envs: stopped by SIGTERM\n"
    assert signal.getsignal(signal.SIGTERM) is before


CLOSED_PIPE = """
import sys, types
from neorl_core.infrastructure.command_line import Program, Subcommand
module = types.ModuleType("talker")
module.command = lambda words: [print("line " * 1000) for _ in range(1000)]
sys.modules["talker"] = module
commands = {"talk": Subcommand("talker", "")}
program = Program("neorl-envs", "line " * 100000, commands, lambda: None, "")
sys.exit(program.run(sys.argv[1:]))
"""


@pytest.mark.parametrize("words", [["talk"], ["--help"]])
def test_a_reader_that_goes_away_is_no_error(words: list[str]) -> None:
    command = ["bash", "-c", 'set -o pipefail; "$0" -c "$@" | head -c 10', sys.executable]
    completed = subprocess.run(
        [*command, CLOSED_PIPE, *words], capture_output=True, text=True, check=False
    )
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "line line ", "")
