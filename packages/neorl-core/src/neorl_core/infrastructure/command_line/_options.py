"""Options as the fields of a dataclass, set from the command line by ``argparse``."""

import argparse
import dataclasses
import difflib
import re
import shutil
import sys
import types
import typing
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from neorl_core._vocabulary.errors import InputError
from neorl_core.infrastructure._settings import Range
from neorl_core.infrastructure.command_line._declared import (
    POSITIONAL,
    REQUIRED,
    Section,
    Setting,
    section_of,
)

Options = TypeVar("Options")

NEAR = 0.6
"""Smallest similarity, by ``difflib``, of an option suggested for a mistyped one."""
MOST_LISTED = 8
"""Largest number of options of a section that a message lists in full."""
WIDTH = 100
"""Widest line of a help text, in characters."""
NEGATIVE = re.compile(r"-(\.?\d|inf\b|nan\b)")
"""The beginning of a negative number."""
WORDS = {int: ("INT", "an integer", "3"), float: ("FLOAT", "a number", "0.75")}
"""Kinds of values: the name in help texts, the kind in a message, and an example."""


def parse_options(
    kind: type[Options], words: Sequence[str], *, program: str, default: Options | None = None
) -> Options:
    """Parses the options of a command into an object.

    Args:
        kind: A dataclass whose fields are the options. Fields of nested dataclasses are written
            with dots; fields annotated ``Positional[...]`` are words without an option name.
        words: Words after the command.
        program: The command as typed, for messages.
        default: Values of options that are not given; the defaults of the class if ``None``.

    Returns:
        The object; its values have the declared types and lie in the declared ranges.

    Raises:
        InputError: If the words cannot be parsed, or a value is out of its range; the message is
            one line and suggests the nearest option.

    Example:
        >>> import dataclasses
        >>> @dataclasses.dataclass(frozen=True)
        ... class Count:
        ...     steps: int = 10
        >>> parse_options(Count, ["--steps", "3"], program="count").steps
        3
    """
    section = section_of(kind if default is None else default)
    parser = option_parser(section, program)
    typed = [_normal(word) for word in words]
    _report_repeated(typed, program)
    given, unknown = parser.parse_known_intermixed_args(typed)
    if unknown:
        raise _unknown(unknown[0].strip(), section, program, typed)
    settings = dict(named_settings(section))
    values: dict[str, Any] = {}
    for name, value in vars(given).items():
        try:
            values[name] = _value(settings[name].kind, name, value)
            _require_range(settings[name].range, name, values[name])
        except ValueError as error:
            raise InputError(f"{error}; see `{program} --help`") from None
    if default is None:
        default = kind(**{n: v for n, v in values.items() if settings[n].value is REQUIRED})
    return _with(default, values)


class OptionParser(argparse.ArgumentParser):
    """A parser whose errors are one line, and that reads only whole names of options."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        """Creates a parser without ``--help``, which :class:`Program` answers."""
        keywords = {"add_help": False, "allow_abbrev": False} | keywords
        super().__init__(
            *arguments,
            argument_default=argparse.SUPPRESS,
            formatter_class=_formatter,
            **keywords,
        )

    def error(self, message: str) -> NoReturn:
        """Raises the message in place of ending the process."""
        raise InputError(f"{message.removeprefix('argument ')}; see `{self.prog} --help`")


def option_parser(
    section: Section,
    program: str,
    *,
    only: Collection[str] | None = None,
    usage: str | None = None,
    description: str | None = None,
    title: str = "options",
    parser: argparse.ArgumentParser | None = None,
    complete: Any = None,
) -> argparse.ArgumentParser:
    """A parser of the options of a section and of those in it.

    Args:
        section: The options.
        program: The command as typed.
        only: Names of the nested sections to include, ``""`` for the options outside of any; all
            by default.
        usage: The line that shows how to call the command; made from the options by default.
        description: Text above the options.
        title: Heading of the options outside of any section.
        parser: A parser to add the options to; a new one by default.
        complete: How ``shtab`` completes values that may be files.
    """
    parser = parser or OptionParser(prog=program, usage=usage, description=description)
    for name, part in named_sections(section):
        if only is not None and name not in only:
            continue
        group = parser.add_argument_group(
            name.replace("_", "-") or title, part.summary if name else None
        )
        settings = {n: one for n, one in part.fields.items() if isinstance(one, Setting)}
        for field in sorted(settings, key=lambda field: not _unmarked(settings[field].kind)[1]):
            if not _is_table(settings[field].kind):
                action = _add(group, f"{name}.{field}" if name else field, settings[field])
                if action.metavar not in (None, "CHOICE", "INT", "FLOAT"):
                    vars(action)["complete"] = complete
    if usage is None:
        parser.usage = _usage(section, program)
    return parser


def named_sections(section: Section, prefix: str = "") -> Iterator[tuple[str, Section]]:
    """A section and all in it, by the names of their fields with dots; the outermost is ``""``."""
    yield prefix, section
    for name, field in section.fields.items():
        if isinstance(field, Section):
            yield from named_sections(field, f"{prefix}.{name}" if prefix else name)


def named_settings(section: Section, prefix: str = "") -> Iterator[tuple[str, Setting]]:
    """Every option of a section, by the names of its fields with dots between them."""
    for name, field in section.fields.items():
        if isinstance(field, Section):
            yield from named_settings(field, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def _formatter(prog: str) -> argparse.HelpFormatter:
    columns = min(shutil.get_terminal_size().columns - 2, WIDTH)
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=28, width=columns)


def _add(group: Any, name: str, setting: Setting) -> argparse.Action:
    """Adds one option to a parser; values stay words, which are read when all are known."""
    kind, is_positional = _unmarked(setting.kind)
    required = setting.value is REQUIRED
    keywords: dict[str, Any] = {"help": _help(setting)}
    if kind is bool:
        names = _names(name, setting)
        return group.add_argument(*names, action=_Switch, dest=name, nargs=0, **keywords)
    is_list = typing.get_origin(kind) in (tuple, dict)
    if is_list:
        keywords["nargs"] = "+" if is_positional and required else "*"
    item = typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else kind
    if typing.get_origin(item) is Literal:
        # An empty text is what an option has that was not given.
        choices = [str(choice) for choice in typing.get_args(item) if choice != ""]
        keywords |= {"choices": choices, "help": f"One of {', '.join(choices)}. {_help(setting)}"}
    keywords["metavar"] = name.upper() if is_positional else _metavar(kind)
    if is_positional:
        optional = {} if required or is_list else {"nargs": "?"}
        return group.add_argument(name, **keywords, **optional)
    return group.add_argument(*_names(name, setting), dest=name, required=required, **keywords)


def _names(name: str, setting: Setting) -> list[str]:
    """The names of an option as typed; none for a word without one, two for a switch."""
    kind, is_positional = _unmarked(setting.kind)
    option = f"--{name.replace('_', '-')}"
    # A file may have switched a setting of a section on, which an option switches off.
    if kind is bool and ("." in name or setting.value):
        return [option, _negated(option)]
    return [] if is_positional else [option]


def _negated(option: str) -> str:
    """The name that switches an option off, such as ``--output.no-tracking``."""
    folder, dot, last = option.removeprefix("--").rpartition(".")
    return f"--{folder}{dot}no-{last}"


class _Switch(argparse.Action):
    """Sets a value to whether the first of its names was given, and not the negated one."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        setattr(namespace, self.dest, option_string == self.option_strings[0])


def _unmarked(kind: Any) -> tuple[Any, bool]:
    """A type without its mark, and whether its value is typed without the name of an option."""
    if typing.get_origin(kind) is Annotated:
        inner, *marks = typing.get_args(kind)
        return inner, POSITIONAL in marks
    return kind, False


def _is_table(kind: Any) -> bool:
    """Whether values consist of tables, which only a file can hold."""
    return kind is Any or any(
        typing.get_origin(part) is dict or _is_table(part)
        for part in typing.get_args(_unmarked(kind)[0])
    )


def _metavar(kind: Any) -> str:
    """What a value is called in the help."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return "CHOICE"
    if origin is dict:
        values = typing.get_args(arguments[1]) or (arguments[1],)
        return " ".join(["NAME", *map(_metavar, values)])
    if origin:  # a tuple, or a type or none
        return _metavar(arguments[0])
    return WORDS[kind][0] if kind in WORDS else "PATH" if kind is Path else "TEXT"


def _help(setting: Setting) -> str:
    """What an option means, its range and its default."""
    value, notes = setting.value, [setting.range.text] if setting.range else []
    if value is REQUIRED:
        notes.append("required")
    elif not (value is None or value is False or value in ("", (), {})):
        shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
        notes.append(f"default: {'on' if value is True else shown}")
    note = f" ({'; '.join(notes)})" if notes else ""
    return f"{setting.text}{note}".replace("%", "%%")


def _usage(section: Section, program: str) -> str:
    """How a command is called: its words, its required options, and a hint at the others."""
    words = [program]
    for name, setting in named_settings(section):
        kind, is_positional = _unmarked(setting.kind)
        typed = name.upper() if is_positional else f"--{name.replace('_', '-')} {_metavar(kind)}"
        more = " ..." if is_positional and typing.get_origin(kind) is tuple else ""
        if setting.value is REQUIRED:
            words.append(f"{typed}{more}")
        elif is_positional:
            words.append(f"[{typed}{more}]")
    return " ".join([*words, "[--OPTION VALUE ...]"])


def _normal(word: str) -> str:
    """A word with dashes for underscores in the name of an option."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return f"{name.replace('_', '-')}{equals}{value}"
    # argparse takes a word that begins with a dash for an option, unless a space stands before it.
    return f" {word}" if NEGATIVE.match(word) else word


def _value(kind: Any, name: str, given: Any) -> Any:
    """The value of an option from its words, one or several.

    Raises:
        ValueError: If a word is not of the declared type.
    """
    kind, option = _unmarked(kind)[0], f"--{name.replace('_', '-')}"
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return tuple(_word(arguments[0], option, word) for word in given)
    if origin is dict:
        return _pairs(arguments[1], option, [word.strip() for word in given])
    return given if isinstance(given, bool) else _word(kind, option, given)


def _require_range(range_: Range | None, name: str, value: Any) -> None:
    """Refuses a number, or one of several, that is not in the range that its field declares."""
    if range_ is not None:
        for number in value if isinstance(value, tuple) else (value,):
            range_.require(f"--{name.replace('_', '-')}", number, integer=isinstance(number, int))


def _word(kind: Any, option: str, word: str) -> Any:
    if typing.get_origin(kind) is types.UnionType:
        kind = typing.get_args(kind)[0]
    word = word.strip() if NEGATIVE.match(word.strip()) else word
    if typing.get_origin(kind) is Literal:
        return next(choice for choice in typing.get_args(kind) if str(choice) == word)
    try:
        return kind(word)
    except ValueError:
        raise ValueError(f"{option} must be {WORDS[kind][1]}, got {word!r}") from None


def _pairs(kind: Any, option: str, words: Sequence[str]) -> dict[str, Any]:
    """Names with a value each, or with several if the type is a tuple."""
    kinds: tuple[Any, ...] = typing.get_args(kind) or (kind,)
    size = 1 + len(kinds)
    what, example = WORDS[kinds[0]][1:] if kinds[0] in WORDS else ("a text", "TEXT")
    if size > 2:
        what, example = f"{len(kinds)} numbers", " ".join([example] * len(kinds))
    form = f"{option} takes {'pairs of ' * (size == 2)}a name and {what}, such as {option} NAME "
    form += example
    pairs = {}
    for start in range(0, len(words), size):
        name, *values = words[start : start + size]
        if len(values) < size - 1:
            raise ValueError(f"{form}; {name!r} has no value" if not values else form)
        try:
            read = tuple(one(word) for one, word in zip(kinds, values, strict=True))
        except ValueError:
            raise ValueError(f"{form}; got {' '.join(values)!r} for {name}") from None
        pairs[name] = read if size > 2 else read[0]
    return pairs


def _with(options: Options, values: dict[str, Any]) -> Options:
    """An object with other values; names with a dot are those of nested objects."""
    own: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        head, _, rest = name.partition(".")
        if rest:
            nested.setdefault(head, {})[rest] = value
        else:
            own[head] = value
    own |= {name: _with(getattr(options, name), inner) for name, inner in nested.items()}
    return dataclasses.replace(typing.cast(Any, options), **own) if own else options


def _report_repeated(words: Sequence[str], program: str) -> None:
    """Prints to standard error which option is given twice; the last value applies."""
    given: set[str] = set()
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("--") and name in given:
            print(f"{program}: {name} is given twice; the last one counts", file=sys.stderr)
        given.add(name)


def _unknown(word: str, section: Section, program: str, words: Sequence[str]) -> InputError:
    known = [name for one in named_settings(section) for name in _names(*one)]
    name = word.partition("=")[0]
    if not name.startswith("-"):
        before = words[max(words.index(word) - 1, 0)] if word in words else ""
        negated = _negated(before)
        if negated in known:
            return InputError(
                f"{before} takes no value, got {word!r}; {negated} switches it off; "
                f"see `{program} --help`"
            )
        return InputError(
            f"unexpected word {word!r}; options begin with --; see `{program} --help`"
        )
    if name in known:  # a field without a form on the command line, such as a list of tables
        return InputError(
            f"{name} consists of tables, so it can be given in a configuration file only; see "
            f"`{program} --help`"
        )
    hint = _hint(name, known)
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
