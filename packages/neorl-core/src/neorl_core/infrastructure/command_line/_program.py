"""A command with subcommands: what it prints, and with which exit code it ends."""

import contextlib
import dataclasses
import functools
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from types import FrameType

from neorl_core._vocabulary.errors import InputError
from neorl_core.infrastructure import is_full_disk, unknown_name
from neorl_core.infrastructure.command_line._completion import (
    NAME,
    USAGE,
    completion_script,
    options_in,
    shell_of,
)
from neorl_core.infrastructure.command_line._errors import StoppedError, is_out_of_memory, one_line
from neorl_core.infrastructure.command_line._kept_text import (
    is_help,
    kept_text,
    rendered_help,
)
from neorl_core.infrastructure.command_line._sections import ALL, HELP

DONE, BAD_INPUT = 0, 2
"""Exit codes; a command that signal ``n`` stops ends with ``128 + n``."""


@dataclasses.dataclass(frozen=True)
class Program:
    """A command with subcommands; each is a module with a function ``command(words)``.

    Attributes:
        name: Name of the command and of the distribution that brings it.
        overview: Text for ``--help`` and for a call without arguments.
        subcommands: Module of every subcommand by its name, imported when it is called.
        prepare: Called before the subcommand is imported; sets process switches.
        when_memory_ends: Advice where an array did not fit into memory.
        sectioned: Subcommands whose options are in sections, of which ``--help all`` shows all.
        unprepared: Subcommands that compute nothing, which are called without ``prepare``.
    """

    name: str
    overview: str
    subcommands: Mapping[str, str]
    prepare: Callable[[], object]
    when_memory_ends: str
    sectioned: tuple[str, ...] = ()
    unprepared: tuple[str, ...] = ()

    def run(self, arguments: Sequence[str] | None = None) -> int:
        """Runs the command line; whatever goes wrong is one line on standard error.

        Args:
            arguments: Words after the name of the command; those of the process by default.

        Returns:
            0 done, also where the reader of the output went away; 2 bad input or a refusal of the
            operating system; 130 stopped by Ctrl-C, 143 by SIGTERM.
        """
        words = self._without_help_word(sys.argv[1:] if arguments is None else arguments)
        if not words or words[0] in HELP:
            print(self.overview, end="")
            print(f"\ncompletion in a shell: `{self.name} completion --help`")
            return DONE
        if words[0] == "--version":
            print(f"{self.name} {metadata.version(self.name)}")
            return DONE
        try:
            with _termination_raises():
                if words[0] == NAME and NAME not in self.subcommands:
                    self._print_completion(words[1:])
                elif is_help(words[1:]) and words[0] in self.subcommands:
                    # A process of its own has the tables as they are installed, and nothing more.
                    self._print_help(words[0], words[1:], kept=arguments is None)
                else:
                    self._run_subcommand(words[0], words[1:])
                sys.stdout.flush()  # here, where a reader that went away is no error
        except InputError as error:
            return self._fail(one_line(error))
        except StoppedError as error:
            then = f"; continue with\n{error.resume}" if error.resume else ""
            self._fail(f"{one_line(error)}{then}")
            return 128 + error.signal_number
        except KeyboardInterrupt:
            self._fail(one_line(StoppedError(signal.SIGINT)))
            return 128 + signal.SIGINT
        except BrokenPipeError:
            _discard_output()
        except OSError as error:
            return self._fail(_refusal(error))
        return DONE

    def _without_help_word(self, words: Sequence[str]) -> list[str]:
        """``help run`` as ``run --help``, and ``help`` as ``--help``."""
        if words and words[0] == "help" and "help" not in self.subcommands:
            return [*words[1:], HELP[-1]]
        return list(words)

    def _print_help(self, name: str, words: list[str], *, kept: bool) -> None:
        """What a subcommand says of itself, without the switches that only its work needs."""

        def render() -> None:
            importlib.import_module(self.subcommands[name]).command(words)

        if kept:
            print(kept_text(self.name, [name, *words], render), end="")
        else:
            render()

    def _print_completion(self, words: list[str]) -> None:
        """The script for a shell: the options are those that the help of every command names."""
        if is_help(words):
            print(USAGE.format(program=self.name), end="")
            return
        shell, options = shell_of(self.name, words), {}
        for name in self.subcommands:
            help_request = [HELP[-1], ALL] if name in self.sectioned else [HELP[-1]]
            page = rendered_help(
                functools.partial(self._print_help, name, help_request, kept=False)
            )
            options[name] = options_in(page)
        print(completion_script(self.name, {**options, NAME: []}, shell), end="")

    def _run_subcommand(self, name: str, words: list[str]) -> None:
        if name not in self.subcommands:
            raise unknown_name("command", name, self.subcommands)
        if name not in self.unprepared:
            self.prepare()
        try:
            importlib.import_module(self.subcommands[name]).command(words)
        except Exception as error:
            ours = isinstance(error, InputError | StoppedError | OSError)
            if not ours and is_out_of_memory(error):
                reason = one_line(error)[:160]
                raise InputError(f"out of memory; {self.when_memory_ends} ({reason})") from error
            raise

    def _fail(self, message: str) -> int:
        print(f"{self.name}: {message}", file=sys.stderr)
        return BAD_INPUT


def _refusal(error: OSError) -> str:
    """What the operating system said, with the file and what to do."""
    where = "" if error.filename is None else f"{error.filename}: "
    if is_full_disk(error):
        return f"{where}no free disk space to write it; free some, then give the same command again"
    if not error.strerror:
        return one_line(error)
    return f"{where}{error.strerror}; check the place and its permissions"


@contextlib.contextmanager
def _termination_raises() -> Iterator[None]:
    """SIGTERM is raised like Ctrl-C, so that files that are being written are cleaned up."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise StoppedError(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _discard_output() -> None:
    """Sends what is still buffered nowhere, or Python would complain about the pipe at its end."""
    with contextlib.suppress(io.UnsupportedOperation, OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
