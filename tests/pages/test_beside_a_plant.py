"""The tutorial on a bundle beside a plant: what it says to type is typed, what it shows appears."""

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs/pages/tutorials/beside-a-plant.md"
PORT = "4840"
STAY = ("simulate", "serve", "check")
"""Commands that run in terminals of their own until Ctrl-C, or until a person has acted."""
LONGEST = 900.0
"""Seconds that a command or a line may take on a busy machine; a period has 15 s."""


def free_port() -> str:
    with contextlib.closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        return str(held.getsockname()[1])


def words(line: str) -> str:
    """A line without its numbers, which differ from machine to machine."""
    return re.sub(r"\d[\d.]*", "#", line.strip())


class Terminals:
    """The reader's terminals in one folder, and everything that they have shown so far."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.staying: list[subprocess.Popen[bytes]] = []
        self.started: list[subprocess.Popen[bytes]] = []
        self._seen: Counter[str] = Counter()
        self._outputs: list[Path] = []

    def type(self, line: str) -> None:
        """Types a command; waits for its end unless it stays."""
        program, *rest = shlex.split(line.replace(PORT, self.port))
        typed = [str(Path(sys.executable).with_name(program)), *rest]
        output = self.folder / f"terminal-{len(self._outputs)}.txt"
        self._outputs.append(output)
        with output.open("wb") as file:
            started = subprocess.Popen(
                [*typed, "--port", self.port] if rest[0] == "simulate" else typed,
                cwd=self.folder,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self.started.append(started)
        if rest[0] in STAY:
            self.staying.append(started)
        else:
            assert started.wait(LONGEST) == 0, output.read_text()

    def wait_for(self, line: str) -> None:
        """Waits until a line has appeared as often as the page has shown it."""
        expected, ends = words(line), time.monotonic() + LONGEST
        self._seen[expected] += 1
        while self.shown().count(expected) < self._seen[expected]:
            assert time.monotonic() < ends, f"{line!r} does not appear in\n{self.shown()}"
            time.sleep(0.2)

    def shown(self) -> str:
        return "\n".join(words(line) for file in self._outputs for line in self._lines(file))

    def press_ctrl_c(self) -> None:
        """In the terminal that was opened last, then in the one before it."""
        while self.staying:
            process = self.staying.pop()
            process.send_signal(signal.SIGINT)
            assert process.wait(LONGEST) == 0

    @staticmethod
    def _lines(file: Path) -> list[str]:
        return file.read_text().splitlines()


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    made = Terminals(tmp_path)
    yield made
    for process in made.started:
        process.kill()
        process.wait()


@pytest.mark.nightly
def test_the_tutorial_leads_from_a_run_to_a_loop_that_was_stopped_and_is_audited(
    reactor: str, terminals: Terminals
) -> None:
    """Its commands in their order, in real time."""
    (train,) = re.findall(r"(?m)^neorl-train run .+$", reactor)
    terminals.type(train)
    typed = []
    for kind, block in re.findall(r"```(console|text)\n(.+?)```", PAGE.read_text(), re.DOTALL):
        for line in block.splitlines():
            if kind == "text":
                terminals.wait_for(line)
                continue
            if "verify" in line:
                terminals.press_ctrl_c()  # as the text says; a second time there is none left
            terminals.type(line)
            typed.append(line.split()[1])
    assert typed[:3] == ["export", "simulate", "check"]
    assert {"serve", "mode", "verify", "shadow"} <= {*typed}
    assert "Head of the audit log" in terminals.shown()
