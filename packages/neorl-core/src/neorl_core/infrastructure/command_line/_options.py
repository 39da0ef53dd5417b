"""Typed options: the fields of a dataclass, set from the command line by ``tyro``."""

import contextlib
import dataclasses
import difflib
import io
import re
import sys
import typing
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from neorl_core._vocabulary.errors import InputError
from neorl_core.infrastructure.command_line._sections import (
    HELP,
    chosen_options,
    help_words,
    named_options,
    with_part,
)

Options = TypeVar("Options")

FRAME = "│╭╮╰╯ "
REWORDED = (
    (r"Error parsing (--\S+): invalid literal for int\(\) with base 10: (.*)", r"an integer"),
    (r"Error parsing (--\S+): could not convert string to float: (.*)", r"a number"),
)
"""Messages of the parser that name Python functions, and the expected kind of value instead."""

NEAR = 0.6
"""Smallest similarity, by ``difflib``, of an option suggested for a mistyped one."""
MOST_LISTED = 8
"""Largest number of options of a section that a message lists in full."""

VALUES: dict[Any, tuple[str, str]] = {float: ("a number", "0.75"), int: ("an integer", "3")}
"""Kinds of values of an option that takes pairs, in words and as an example."""
PAIRS = re.compile(r"Error parsing (--\S+): Failed to parse key-value pairs!")


def parse_options(
    kind: type[Options],
    words: Sequence[str],
    *,
    program: str,
    default: Options | None = None,
    description: str | None = None,
    by_section: bool = False,
) -> Options:
    """Parses the options of a command into an object.

    Args:
        kind: A dataclass whose fields are the options. Fields of nested dataclasses are written
            with dots; fields marked ``tyro.conf.Positional`` are words without an option name.
        words: Words after the command.
        program: The command as typed, for help and messages.
        default: Values of options that are not given; the defaults of the class if ``None``.
        description: Text for ``--help``; the docstring of the class by default.
        by_section: Whether ``--help`` lists only the sections, which are the nested dataclasses.
            Then ``--help SECTION ...`` shows the options of those sections, and ``--help all``
            shows every option.

    Returns:
        The object; its values have the declared types but are not checked further.

    Raises:
        InputError: If the words cannot be parsed; the message is one line and suggests the nearest
            option.
        SystemExit: After ``--help``.

    Example:
        >>> import dataclasses
        >>> @dataclasses.dataclass(frozen=True)
        ... class Count:
        ...     steps: int = 10
        >>> parse_options(Count, ["--steps", "3"], program="count").steps
        3
    """
    import tyro

    keywords: dict[str, Any] = {} if default is None else {"default": default}
    help_request = help_words(words) if by_section else None
    if help_request is not None:
        part, description = chosen_options(
            kind() if default is None else default,
            help_request,
            program=program,
            description=description or kind.__doc__ or "",
        )
        keywords, words = {"default": part}, HELP[-1:]
    _report_repeated(words, program)
    if by_section and default is not None and help_request is None:
        options = _of_named_sections(default, words, program)
        if options is not None:
            return options
    messages = io.StringIO()
    try:
        with contextlib.redirect_stderr(messages):
            options, unknown = tyro.cli(
                kind if help_request is None else type(part),
                args=list(words),
                prog=program,
                description=description,
                return_unknown_args=True,
                **keywords,
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        message = _reworded(_first_message(messages.getvalue()), words, kind, default)
        raise InputError(f"{message}; see `{program} --help`") from None
    if unknown:
        raise _unknown(unknown[0], list(_names(kind, default)), program, words)
    return options


def _of_named_sections(default: Options, words: Sequence[str], program: str) -> Options | None:
    """Parses the options with a parser for the named sections only, which is built much faster.

    ``None`` if it does not accept every word; the parser for all options then reports the error.
    """
    import tyro

    part = named_options(default, words)
    if part is None:
        return None
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            parsed, unknown = tyro.cli(
                type(part), args=list(words), prog=program, default=part, return_unknown_args=True
            )
    except SystemExit:
        return None
    return None if unknown else with_part(default, parsed)


def _report_repeated(words: Sequence[str], program: str) -> None:
    """Prints to standard error which option is given twice; the last value applies."""
    given: set[str] = set()
    for word in words:
        name = word.partition("=")[0].replace("_", "-")
        if name.startswith("--") and name in given:
            print(f"{program}: {name} is given twice; the last one counts", file=sys.stderr)
        given.add(name)


def _first_message(boxes: str) -> str:
    """The sentence in the first box of the parser's error, or under the first title."""
    parts: list[list[str]] = [[]]
    for line in boxes.splitlines():
        body = line.strip(FRAME)
        if body and set(body) <= set("─-"):
            parts.append([])
        elif not line.startswith("╭"):
            parts[-1].append(body)
    # If the terminal is not UTF-8 there is no frame, but a rule below the title.
    framed = "╭" in boxes
    chosen = parts[0] if framed or len(parts) == 1 else parts[1]
    return " ".join(" ".join(chosen).split()) or "the options cannot be read"


def _reworded(message: str, words: Sequence[str], kind: type, default: Any) -> str:
    for pattern, expected in REWORDED:
        message = re.sub(pattern, rf"\1 must be {expected}, got \2", message)
    pairs = PAIRS.search(message)
    if pairs:
        option = pairs[1]
        value_type = _type_of_values(kind, default, option)
        value_kind, value = VALUES.get(value_type, ("a text", "TEXT"))
        message = (
            f"{option} takes pairs of a name and {value_kind}, such as {option} NAME {value}"
            f"{_fault_of_pairs(option, words, value_type)}"
        )
    return message.removesuffix(".")


def _fault_of_pairs(option: str, words: Sequence[str], value_type: Any) -> str:
    """The name without a value, or the first value that is not of the type; empty if unclear."""
    names = [word.replace("_", "-") for word in words]
    if names.count(option) != 1:
        return ""
    given: list[str] = []
    for word in words[names.index(option) + 1 :]:
        if word.startswith("--"):
            break
        given.append(word)
    if len(given) % 2:
        return f"; {given[-1]!r} has no value"
    for name, value in zip(given[::2], given[1::2], strict=True):
        if value_type in VALUES and not _is_of(value_type, value):
            return f"; got {value!r} for {name}"
    return ""


def _is_of(value_type: Any, word: str) -> bool:
    try:
        value_type(word)
    except ValueError:
        return False
    return True


def _type_of_values(kind: type, default: Any, option: str) -> Any:
    """The type of the values of an option that takes pairs; ``None`` if it is unknown."""
    *sections, last = option.removeprefix("--").replace("-", "_").split(".")
    for section in sections:
        default = getattr(kind() if default is None else default, section)
        kind = type(default)
    return next(iter(typing.get_args(typing.get_type_hints(kind)[last])[1:]), None)


def _unknown(
    word: str, known: Sequence[str], program: str, words: Sequence[str] = ()
) -> InputError:
    name = word.partition("=")[0]
    if not name.startswith("-"):
        before = words[max(list(words).index(word) - 1, 0)] if word in words else ""
        folder, dot, last = before.replace("_", "-").removeprefix("--").rpartition(".")
        negated = f"--{folder}{dot}no-{last}"
        if negated in known:
            return InputError(
                f"{before} takes no value, got {word!r}; {negated} switches it off; "
                f"see `{program} --help`"
            )
        return InputError(
            f"unexpected word {word!r}; options begin with --; see `{program} --help`"
        )
    typed = name.replace("_", "-")
    if typed in known:  # a field without a form on the command line, such as a list of tables
        return InputError(
            f"{name} consists of tables, so it can be given in a configuration file only; see "
            f"`{program} --help`"
        )
    hint = _hint(typed, known)
    return InputError(f"unknown option {name!r}; {hint}see `{program} --help`")


def _hint(name: str, known: Sequence[str]) -> str:
    """A suggestion: the likely options, or those of the section that was named; may be empty."""
    section, _, last = name.lstrip("-").rpartition(".")
    by_last: dict[str, list[str]] = {}
    for option in known:
        by_last.setdefault(option.lstrip("-").rpartition(".")[2], []).append(option)
    inside = [option for option in known if section and option.startswith(f"--{section}.")]
    of_section: dict[str, list[str]] = {}
    for option in inside:
        of_section.setdefault(option.rpartition(".")[2], []).append(option)
    if matches := difflib.get_close_matches(last, list(of_section), n=1, cutoff=NEAR):
        return _did_you_mean(of_section[matches[0]])
    if last in by_last:
        return _did_you_mean(by_last[last])
    if 0 < len(inside) <= MOST_LISTED:
        return f"section {section} has {', '.join(inside)}; "
    if matches := difflib.get_close_matches(last, list(by_last), n=1, cutoff=NEAR):
        return _did_you_mean(by_last[matches[0]])
    return ""


def _did_you_mean(options: Sequence[str]) -> str:
    return f"did you mean {' or '.join(options[:3])}? "


def _names(kind: type, default: Any, prefix: str = "") -> Iterator[str]:
    """The options of a dataclass as they are typed."""
    import tyro

    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        marks = getattr(hints[field.name], "__metadata__", ())
        if tyro.conf.Positional in marks:
            continue
        name = f"{prefix}{field.name}".replace("_", "-")
        value = field.default if default is None else getattr(default, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from _names(type(value), value, f"{name}.")
        elif isinstance(value, bool):
            folder, _, last = name.rpartition(".")
            yield f"--{name}"
            if tyro.conf.FlagCreatePairsOff not in marks:
                yield f"--{folder + '.' if folder else ''}no-{last}"
        else:
            yield f"--{name}"
