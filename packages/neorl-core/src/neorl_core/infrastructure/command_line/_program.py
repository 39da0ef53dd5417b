"""A command with subcommands: its process, what it prints, its errors and its exit codes."""

import argparse
import contextlib
import dataclasses
import importlib
import io
import os
import re
import shlex
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from neorl_core._vocabulary.errors import InputError
from neorl_core.infrastructure import is_full_disk, unknown_name
from neorl_core.infrastructure.command_line._declared import (
    Section,
    Setting,
    declared_section,
    declared_value,
)
from neorl_core.infrastructure.command_line._options import (
    WIDTH,
    OptionParser,
    named_sections,
    named_settings,
    option_parser,
)

# Where the code of a subcommand is, and its help.


HELP = ("-h", "--help")
ALL = "all"

Table = Callable[[], Mapping[str, Callable[[], Section]]]
"""Makes the sections that a field without fields of its own has, by their names."""


class Subcommand(NamedTuple):
    """Where the code of a subcommand is, and what its help shows.

    Attributes:
        module: Full name of the module with the function ``command(words)``, the class of options
            and, if the class does not describe the command itself, its description ``USAGE``. As
            ``"module:name"`` the function is ``name`` and its description ``NAME_USAGE``.
        options: Name of the class of options in that module, which may have imported it.
        first: The options that matter most; if there are any, ``--help`` shows these and a list of
            the sections.
        tables: Sections that are known only at run time, by the field that holds them.
    """

    module: str
    options: str
    first: tuple[str, ...] = ()
    tables: Mapping[str, Table] = {}

    def parser(
        self, program: str, parser: argparse.ArgumentParser | None = None, complete: Any = None
    ) -> argparse.ArgumentParser:
        """A parser of every option; the modules of the options are read, not imported.

        Args:
            program: The command as typed.
            parser: A parser to add the options to; a new one by default.
            complete: How ``shtab`` completes values that may be files.
        """
        section = self._section()
        for field, table in self.tables.items():
            section = _with_table(section, field, {name: read() for name, read in table().items()})
        usage, description = self._description(section)
        return option_parser(
            section,
            program,
            usage=usage,
            description=description,
            parser=parser,
            complete=complete,
        )

    def summary(self) -> str:
        """What the subcommand does, in a sentence."""
        return _first_sentence(" ".join(self._description(self._section())[1].split()))

    def help(self, program: str, words: Sequence[str]) -> str:
        """The help text; the modules of the options are read, not imported.

        Args:
            program: The command as typed.
            words: Words after ``--help``: names of sections, last words of such names (``iql`` for
                ``algorithms.iql``), options (which stand for their section), or ``"all"``.

        Raises:
            InputError: If a word names neither a section nor an option; the nearest is named.
        """
        if not self.first or ALL in words:
            return self.parser(program).format_help()
        section = self._section()
        usage, description = self._description(section)
        if not words:
            return self._first_page(section, program, usage, description)
        fixed = {name: field for name, field in section.fields.items() if name not in self.tables}
        if None in [_chosen(section._replace(fields=fixed), word) for word in words]:
            for field, table in self.tables.items():
                section = _with_table(section, field, _named(table(), words))
        names = [name for name, _ in named_sections(section)]
        chosen = [_chosen(section, word) for word in words]
        if None in chosen:
            known = [name.rpartition(".")[2] for name in names[1:] if name.count(".") < 2]
            word = words[chosen.index(None)].replace("_", "-")
            raise unknown_name("section", word, [name.replace("_", "-") for name in (*known, ALL)])
        only = [name for name in names if any(f"{name}.".startswith(f"{one}.") for one in chosen)]
        parser = option_parser(section, program, only=only, usage=usage)
        return parser.format_help()

    def place(self) -> tuple[str, str]:
        """The module and the name of the function."""
        module, _, name = self.module.partition(":")
        return module, name or "command"

    def _section(self) -> Section:
        return declared_section(self.place()[0], self.options)

    def _description(self, section: Section) -> tuple[str | None, str]:
        """The line with the usage, if it is written out, and the description."""
        module, function = self.place()
        text = "USAGE" if function == "command" else f"{function.upper()}_USAGE"
        try:
            usage, _, description = declared_value(module, text).partition("\n\n")
        except LookupError:
            return None, section.text
        return usage, description.strip()

    def _first_page(
        self, section: Section, program: str, usage: str | None, description: str
    ) -> str:
        """The description, the options that matter most, and one line for every section."""
        settings = dict(named_settings(section))
        brief = {
            name: settings[name]._replace(text=_first_sentence(settings[name].text))
            for name in self.first
        }
        what, _, more = description.partition("\n\n")
        page = option_parser(
            Section("", "", {**brief}),
            program,
            usage=usage,
            description=what,
            title="the options that matter most",
        ).format_help()
        summaries = {
            name.replace("_", "-"): field.summary
            for name, field in section.fields.items()
            if isinstance(field, Section)
        }
        outside = [name for name in section.fields if isinstance(section.fields[name], Setting)]
        options = (f"--{name.replace('_', '-')}" for name in outside if name not in self.tables)
        summaries["(none)"] = f"{', '.join(options)}."
        for name, table in self.tables.items():
            summaries[f"{name}.NAME"] = f"NAME is one of {', '.join(table())}."
        width = max(map(len, summaries)) + 2
        lines = [
            line
            for name, summary in summaries.items()
            for line in textwrap.wrap(
                summary,
                WIDTH,
                initial_indent=f"  {name:<{width}}",
                subsequent_indent=" " * (width + 2),
            )
        ]
        return "\n".join(
            [
                page,
                f"sections of options; `{program} --help training` shows one, `--help data iql` "
                f"two,\n`--help {ALL}` all:",
                *lines,
                *["", more] * bool(more),
                "",
            ]
        )


def _first_sentence(text: str) -> str:
    return f"{re.split('[.:;] ', text)[0].removesuffix('.')}."


def _with_table(section: Section, field: str, sections: Mapping[str, Section]) -> Section:
    summary = section.fields[field]
    text = summary.text if isinstance(summary, Setting) else ""
    return section._replace(fields={**section.fields, field: Section(text, text, {**sections})})


def _named(table: Mapping[str, Callable[[], Section]], words: Sequence[str]) -> dict[str, Section]:
    """The sections of a table that a part of a word names; all, if there is none."""
    parts = {part for word in words for part in word.replace("-", "_").split(".")}
    named = [name for name in table if name in parts]
    return {name: table[name]() for name in named or table}


def _chosen(section: Section, word: str) -> str | None:
    """The section that a word names by its name, the end of its name or one of its options."""
    name = word.lstrip("-").replace("-", "_")
    for one in sorted((one for one, _ in named_sections(section)), key=len):
        if name == one or one.endswith(f".{name}"):
            return one
    return name.rpartition(".")[0] if name in dict(named_settings(section)) else None


# Early ends of a command, and errors as one line.


_NAMES = {int(signal.SIGINT): "Ctrl-C", int(signal.SIGTERM): "SIGTERM"}


class StoppedError(Exception):
    """A signal asked the command to stop.

    Attributes:
        signal_number: Number of the signal; the command ends with 128 plus this number.
        resume: Command that continues the work; empty if nothing was started.
    """

    def __init__(self, signal_number: int, resume: str = "") -> None:
        super().__init__(f"stopped by {_NAMES.get(signal_number, f'signal {signal_number}')}")
        self.signal_number = signal_number
        self.resume = resume


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error reports that an array did not fit into host or device memory."""
    if isinstance(error, MemoryError):
        return True
    from jax.errors import JaxRuntimeError

    return isinstance(error, JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


def one_line(error: BaseException) -> str:
    """The message of an error on one line; the name of its type if it has no message."""
    text = " ".join(str(error).split())
    return text or type(error).__name__


# Facts about the process of a command: the user's cache, and how the command was called.


def cache_directory(name: str = "jax") -> Path:
    """The user's folder for files that can be recreated.

    Args:
        name: Name of the folder; ``"jax"`` holds compiled programs.
    """
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "neorl" / name


def command_prefix(program: str) -> str:
    """The words with which the user's shell calls a program, as far as they can be determined.

    Args:
        program: Name of the command, such as ``"neorl-envs"``.

    Returns:
        The words before its arguments: a call through hatch if hatch started this process, the bare
        name if the program is installed beside this Python, otherwise the module.
    """
    environment = os.environ.get("HATCH_ENV_ACTIVE")
    if environment:
        which = "" if environment == "default" else f"{environment}:"
        return f"python -m hatch run {which}{program}"
    path = shutil.which(program)
    if path and Path(path).parent == Path(sys.executable).parent:
        return program
    return f"{shlex.quote(sys.executable)} -m {program.replace('-', '_')}"


# A command with subcommands: what it prints, and its exit codes.


COMPLETION = "completion"
USAGE = """usage: {program} completion bash|zsh|fish|tcsh|powershell

Prints a script that completes the commands of {program}, their options, their choices and names of
files.

examples:
  {program} completion bash > ~/.local/share/bash-completion/completions/{program}
  {program} completion zsh > ~/.zfunc/_{program}      (a folder of your fpath)
  {program} completion fish > ~/.config/fish/completions/{program}.fish
  eval "$({program} completion bash)"           (this shell alone)
"""
HELP_WORDS = frozenset(HELP)

DONE, BAD_INPUT = 0, 2
"""Exit codes; a command stopped by signal ``n`` ends with ``128 + n``."""


@dataclasses.dataclass(frozen=True)
class Program:
    """A command with subcommands; each is a module with a function ``command(words)``.

    Attributes:
        name: Name of the command and of the distribution that provides it.
        overview: Text for ``--help`` and for a call without arguments.
        subcommands: Every subcommand by its name; its module is imported when it is called.
        prepare: Called before the subcommand is imported; sets process switches.
        when_memory_ends: Advice if an array did not fit into memory.
        without_prepare: Subcommands without computation, which are called without ``prepare``.
        gone: What replaced each subcommand of an earlier version, as the end of a message.
    """

    name: str
    overview: str
    subcommands: Mapping[str, Subcommand]
    prepare: Callable[[], object]
    when_memory_ends: str
    without_prepare: tuple[str, ...] = ()
    gone: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def run(self, arguments: Sequence[str] | None = None) -> int:
        """Runs the command line; any failure prints one line to standard error.

        Args:
            arguments: Words after the name of the command; taken from the process by default.

        Returns:
            0 for success, including an output whose reader has gone away; 2 for bad input or an
            error of the operating system; 130 after Ctrl-C, 143 after SIGTERM.
        """
        words = self._without_help_word(sys.argv[1:] if arguments is None else arguments)
        try:
            with _termination_raises():
                if not words or words[0] in HELP:
                    print(self.overview, end="")
                    print(f"\ncompletion in a shell: `{self.name} completion --help`")
                elif words[0] == "--version":
                    print(f"{self.name} {metadata.version(self.name)}")
                elif words[0] == COMPLETION:
                    self._print_completion(words[1:])
                elif words[0] in self.subcommands and not HELP_WORDS.isdisjoint(words):
                    print(self._help(words[0], words[1:]), end="")
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

    def _help(self, name: str, words: Sequence[str]) -> str:
        """The help of a subcommand, which neither prepares the process nor imports its module."""
        first = next(i for i, word in enumerate(words) if word in HELP)
        return self.subcommands[name].help(f"{self.name} {name}", words[first + 1 :])

    def _print_completion(self, words: Sequence[str]) -> None:
        """Prints the script for a shell, which ``shtab`` writes."""
        if not HELP_WORDS.isdisjoint(words):
            print(USAGE.format(program=self.name), end="")
            return
        import shtab

        shells = shtab.SUPPORTED_SHELLS
        if len(words) != 1:
            raise InputError(
                f"{COMPLETION} takes one of {', '.join(shells)}; for example "
                f"`{self.name} {COMPLETION} bash`"
            )
        if words[0] not in shells:
            raise unknown_name("shell", words[0], shells)
        parser = OptionParser(prog=self.name)
        parser.add_argument(*HELP, action="help")
        parser.add_argument("--version", action="version", version="")
        commands = parser.add_subparsers()
        for name, subcommand in self.subcommands.items():
            program = f"{self.name} {name}"
            command = commands.add_parser(name, prog=program, help=subcommand.summary())
            subcommand.parser(program, command, shtab.FILE)
            vars(command.add_argument("files", nargs="*"))["complete"] = shtab.FILE
        print(shtab.complete(parser, words[0]), end="")

    def _run_subcommand(self, name: str, words: list[str]) -> None:
        if name in self.gone:
            raise InputError(f"there is no command {name!r} any more; {self.gone[name]}")
        if name not in self.subcommands:
            raise unknown_name("command", name, self.subcommands)
        if name not in self.without_prepare:
            self.prepare()
        try:
            module, function = self.subcommands[name].place()
            getattr(importlib.import_module(module), function)(words)
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
