"""A command with subcommands: what it prints, and its exit codes."""

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
from neorl_core.infrastructure.command_line._cached_text import (
    cached_text,
    is_help,
    rendered_help,
)
from neorl_core.infrastructure.command_line._completion import (
    NAME,
    USAGE,
    completion_script,
    options_in,
    shell_of,
)
from neorl_core.infrastructure.command_line._errors import StoppedError, is_out_of_memory, one_line
from neorl_core.infrastructure.command_line._sections import ALL, HELP

DONE, BAD_INPUT = 0, 2
"""Exit codes; a command stopped by signal ``n`` ends with ``128 + n``."""


@dataclasses.dataclass(frozen=True)
class Program:
    """A command with subcommands; each is a module with a function ``command(words)``.

    Attributes:
        name: Name of the command and of the distribution that provides it.
        overview: Text for ``--help`` and for a call without arguments.
        subcommands: Module of every subcommand by its name; imported when the subcommand is called.
        prepare: Called before the subcommand is imported; sets process switches.
        when_memory_ends: Advice if an array did not fit into memory.
        sectioned: Subcommands whose options are grouped in sections, all shown by ``--help all``.
        without_prepare: Subcommands without computation, which are called without ``prepare``.
    """

    name: str
    overview: str
    subcommands: Mapping[str, str]
    prepare: Callable[[], object]
    when_memory_ends: str
    sectioned: tuple[str, ...] = ()
    without_prepare: tuple[str, ...] = ()

    def run(self, arguments: Sequence[str] | None = None) -> int:
        """Runs the command line; any failure prints one line to standard error.

        Args:
            arguments: Words after the name of the command; taken from the process by default.

        Returns:
            0 for success, including an output whose reader has gone away; 2 for bad input or an
            error of the operating system; 130 after Ctrl-C, 143 after SIGTERM.
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
                    # Cache only in a process of its own, whose tables hold nothing but installed
                    # entries.
                    self._print_help(words[0], words[1:], cached=arguments is None)
                else:
                    self._run_subcommand(words[0], words[1:])
                sys.stdout.flush()  # flushed here, where a closed pipe is not reported as an error
        except InputError as error:
            return self._fail(one_line(error))
        except StoppedError as error:
            continuation = f"; continue with\n{error.resume}" if error.resume else ""
            self._fail(f"{one_line(error)}{continuation}")
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
        """Turns ``help run`` into ``run --help``, and ``help`` into ``--help``."""
        if words and words[0] == "help" and "help" not in self.subcommands:
            return [*words[1:], HELP[-1]]
        return list(words)

    def _print_help(self, name: str, words: list[str], *, cached: bool) -> None:
        """Prints the help of a subcommand, without the switches that only its work needs."""

        def render() -> None:
            importlib.import_module(self.subcommands[name]).command(words)

        if cached:
            print(cached_text(self.name, [name, *words], render), end="")
        else:
            render()

    def _print_completion(self, words: list[str]) -> None:
        """Prints the script for a shell; its options come from the help of every subcommand."""
        if is_help(words):
            print(USAGE.format(program=self.name), end="")
            return
        shell, options = shell_of(self.name, words), {}
        for name in self.subcommands:
            help_request = [HELP[-1], ALL] if name in self.sectioned else [HELP[-1]]
            page = rendered_help(
                functools.partial(self._print_help, name, help_request, cached=False)
            )
            options[name] = options_in(page)
        print(completion_script(self.name, {**options, NAME: []}, shell), end="")

    def _run_subcommand(self, name: str, words: list[str]) -> None:
        if name not in self.subcommands:
            raise unknown_name("command", name, self.subcommands)
        if name not in self.without_prepare:
            self.prepare()
        try:
            importlib.import_module(self.subcommands[name]).command(words)
        except Exception as error:
            expected = isinstance(error, InputError | StoppedError | OSError)
            if not expected and is_out_of_memory(error):
                reason = one_line(error)[:160]
                raise InputError(f"out of memory; {self.when_memory_ends} ({reason})") from error
            raise

    def _fail(self, message: str) -> int:
        print(f"{self.name}: {message}", file=sys.stderr)
        return BAD_INPUT


def _refusal(error: OSError) -> str:
    """The operating system's error message, with the file and what to do."""
    where = "" if error.filename is None else f"{error.filename}: "
    if is_full_disk(error):
        return f"{where}no free disk space to write it; free some, then give the same command again"
    if not error.strerror:
        return one_line(error)
    return f"{where}{error.strerror}; check the path and its permissions"


@contextlib.contextmanager
def _termination_raises() -> Iterator[None]:
    """Raises an exception on SIGTERM, as on Ctrl-C, so that partly written files are cleaned up."""

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
    """Discards buffered output; otherwise Python would report the broken pipe when it exits."""
    with contextlib.suppress(io.UnsupportedOperation, OSError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)
