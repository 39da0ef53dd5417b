"""Help texts and completion are read from source: no JAX, no NumPy, a fraction of a second."""

import json
import subprocess
import sys

import pytest

# Each call is a process of its own, forked from one that has imported nothing of ours: its clock
# begins at zero, and its modules are those that the call itself imports.
PROBE = """
import contextlib, importlib, io, os, sys, time

def answer(package, words):
    if not package:
        return 0, len([importlib.import_module(word) for word in words])
    page = io.StringIO()
    with contextlib.redirect_stdout(page):
        try:
            code = importlib.import_module(package + "._command.main").main(words)
        except SystemExit as stop:
            code = stop.code or 0
    return code, len(page.getvalue())

for package, words in eval(sys.stdin.read()):
    if os.fork() == 0:
        begun = time.process_time()
        code, length = answer(package, words)
        heavy = sorted({"jax", "numpy", "equinox"} & set(sys.modules))
        print([package, words, code, length, heavy, time.process_time() - begun], flush=True)
        os._exit(0)
    os.wait()
"""
STANDARD = ("", ["argparse", "ast", "dataclasses", "email.message", "inspect", "typing"])
"""The yardstick: parts of the standard library that any command of this kind imports."""
SECTIONED = ("run", "finetune", "federate")
MOST = 0.3
"""Most seconds of processor time that a help text may take after the start of Python."""
YARDSTICKS = 8
"""The same in units of the yardstick, for a slower or busier machine."""


def calls() -> list[tuple[str, list[str]]]:
    """Every help text but those of single sections, and the completion of a shell."""
    from neorl_deploy._command import main as deploy
    from neorl_envs._command import main as envs
    from neorl_train._command import main as train

    programs = {
        "neorl_train": (*train.NAMES, "completion"),
        "neorl_envs": (*envs.COMMANDS, "completion"),
        "neorl_deploy": deploy.names(),
    }
    return [
        STANDARD,
        *((package, ["--help"]) for package in programs),
        *((package, [name, "--help"]) for package, names in programs.items() for name in names),
        *(("neorl_train", [name, "--help", "all"]) for name in SECTIONED),
        ("neorl_train", ["run", "--help", "training", "iql"]),
    ]


def answers(given: list[tuple[str, list[str]]]) -> list[list]:
    command = [sys.executable, "-c", PROBE]
    done = subprocess.run(command, input=repr(given), capture_output=True, text=True, check=True)
    lines = [json.loads(line.replace("'", '"')) for line in done.stdout.splitlines()]
    assert len(lines) == len(given), done.stderr
    return lines


def too_slow(lines: list[list]) -> list[list]:
    """The calls that took more than a help text may; the first line is the yardstick."""
    most = max(MOST, YARDSTICKS * lines[0][-1])
    return [line for line in lines if line[-1] > most]


def test_every_help_text_is_light() -> None:
    """Nothing is kept between processes, so this is what the first call takes, and every other."""
    lines = answers(calls())
    assert [line for line in lines[1:] if line[2] != 0 or line[3] < 100] == []
    assert [line for line in lines if line[4]] == []
    slow = too_slow(lines)
    for _ in range(2):  # Other processes on the machine also take time from this one.
        slow = too_slow(answers([STANDARD, *((line[0], line[1]) for line in slow)]))
    assert slow == []


def test_an_import_of_jax_would_be_seen_and_be_too_slow() -> None:
    lines = answers([STANDARD, ("", ["jax"])])
    assert lines[1][4] == ["jax", "numpy"]
    assert too_slow(lines) == lines[1:]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_made_without_jax(shell: str) -> None:
    programs = ("neorl_train", "neorl_envs", "neorl_deploy")
    lines = answers([(program, ["completion", shell]) for program in programs])
    assert [line for line in lines if line[2] != 0 or line[3] < 1000 or line[4]] == []
