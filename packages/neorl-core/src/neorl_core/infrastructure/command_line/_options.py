"""Typed options: the fields of a dataclass, set by words of the command line, over ``tyro``."""

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
    (r"Error parsing (--\S+): invalid literal for int\(\) with base 10: (.*)", r"a whole number"),
    (r"Error parsing (--\S+): could not convert string to float: (.*)", r"a number"),
)
"""What the parser says with the names of Python's functions, and what was expected."""

NEAR = 0.6
"""Least similarity, by ``difflib``, of an option that a mistyped one may have meant."""
MOST_LISTED = 8
"""Options of a section up to which a message lists them all."""

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
    """The options of a command as an object.

    Args:
        kind: A dataclass; its fields are the options, those of nested dataclasses with dots, and
            fields marked ``tyro.conf.Positional`` are the words without a name.
        words: What was typed after the command.
        program: The command as typed, for help and messages.
        default: Values of the options that are not given; those of the class by default.
        description: Text for ``--help``; the docstring of the class by default.
        by_section: Whether ``--help`` lists the sections, which are the nested dataclasses, and
            ``--help SECTION ...`` shows the options of some; ``--help all`` shows every one.

    Returns:
        The object; its values have the declared types and are otherwise unchecked.

    Raises:
        InputError: In one line, for whatever is wrong; the nearest option is named.
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
    _say_repeated(words, program)
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
        message = _reworded(_first_message(messages.getvalue()), kind, default)
        raise InputError(f"{message}; see `{program} --help`") from None
    if unknown:
        raise _unknown(unknown[0], list(_names(kind, default)), program)
    return options


def _of_named_sections(default: Options, words: Sequence[str], program: str) -> Options | None:
    """The options by a parser of the named sections alone, which is made many times faster.

    None where it does not take every word: the parser of all options says what is wrong.
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


def _say_repeated(words: Sequence[str], program: str) -> None:
    """Says on standard error which option is given twice, of which the last one counts."""
    given: set[str] = set()
    for word in words:
        name = word.partition("=")[0].replace("_", "-")
        if name.startswith("--") and name in given:
            print(f"{program}: {name} is given twice; the last one counts", file=sys.stderr)
        given.add(name)


def _first_message(boxes: str) -> str:
    """The sentence in the first box that the parser drew; without a box, under the first title."""
    parts: list[list[str]] = [[]]
    for line in boxes.splitlines():
        body = line.strip(FRAME)
        if body and set(body) <= set("─-"):
            parts.append([])
        elif not line.startswith("╭"):
            parts[-1].append(body)
    # Where the terminal is not UTF-8 there is no frame, and a rule stands below the title.
    framed = "╭" in boxes
    chosen = parts[0] if framed or len(parts) == 1 else parts[1]
    return " ".join(" ".join(chosen).split()) or "the options cannot be read"


def _reworded(message: str, kind: type, default: Any) -> str:
    for pattern, expected in REWORDED:
        message = re.sub(pattern, rf"\1 must be {expected}, got \2", message)
    pairs = PAIRS.search(message)
    if pairs:
        option = pairs[1]
        numbers = _holds_numbers(kind, default, option)
        value_kind, value = ("number", "0.75") if numbers else ("text", "TEXT")
        message = (
            f"{option} takes pairs of a name and a {value_kind}, such as {option} NAME {value}"
        )
    return message.removesuffix(".")


def _holds_numbers(kind: type, default: Any, option: str) -> bool:
    """Whether an option that takes pairs gives every name a number."""
    *sections, last = option.removeprefix("--").replace("-", "_").split(".")
    for section in sections:
        default = getattr(kind() if default is None else default, section)
        kind = type(default)
    values = typing.get_args(typing.get_type_hints(kind)[last])[1:]
    return values[:1] in ((float,), (int,))


def _unknown(word: str, known: Sequence[str], program: str) -> InputError:
    name = word.partition("=")[0]
    if not name.startswith("-"):
        return InputError(
            f"unexpected word {word!r}; options begin with --; see `{program} --help`"
        )
    hint = _hint(name.replace("_", "-"), known)
    return InputError(f"unknown option {name!r}; {hint}see `{program} --help`")


def _hint(name: str, known: Sequence[str]) -> str:
    """The options that may have been meant, or those of the section that was named; or nothing."""
    section, _, last = name.lstrip("-").rpartition(".")
    by_last: dict[str, list[str]] = {}
    for option in known:
        by_last.setdefault(option.lstrip("-").rpartition(".")[2], []).append(option)
    inside = [option for option in known if section and option.startswith(f"--{section}.")]
    of_section = [option.rpartition(".")[2] for option in inside]
    if near := difflib.get_close_matches(last, of_section, n=1, cutoff=NEAR):
        return _did_you_mean([f"--{section}.{near[0]}"])
    if last in by_last:
        return _did_you_mean(by_last[last])
    if 0 < len(inside) <= MOST_LISTED:
        return f"section {section} has {', '.join(inside)}; "
    if near := difflib.get_close_matches(last, list(by_last), n=1, cutoff=NEAR):
        return _did_you_mean(by_last[near[0]])
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
