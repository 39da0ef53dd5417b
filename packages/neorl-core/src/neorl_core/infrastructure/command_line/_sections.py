"""Help for options grouped in sections: a list of the sections, or the options of some."""

import dataclasses
import re
import textwrap
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from neorl_core.infrastructure import unknown_name

HELP = ("-h", "--help")
ALL = "all"
WIDTH = 80
MARKUP = re.compile(r"(?::\w+:)?`+~?([^`]*)`+")
"""Names in docstrings: an optional role, and the text between backticks."""


def summary_of(kind: type) -> str:
    """The first paragraph of a docstring on one line, without markup; else the class name.

    Args:
        kind: A class.

    Returns:
        One line of plain text.

    Example:
        >>> class Cost:
        ...     "A :class:`Cost` in ``GBP``."
        >>> summary_of(Cost)
        'A Cost in GBP.'
    """
    text = kind.__doc__ or kind.__name__
    if (
        dataclasses.is_dataclass(kind)
        and text.startswith(f"{kind.__name__}(")
        and text.endswith(")")
    ):
        text = kind.__name__  # Python gives a dataclass without a docstring its signature as one.
    first = text.strip().split("\n\n")[0]
    return " ".join(MARKUP.sub(r"\1", first).split())


def help_words(words: Sequence[str]) -> tuple[str, ...] | None:
    """The words typed after ``--help``; ``None`` if help was not requested.

    Args:
        words: Words after a command.

    Returns:
        The words after the first ``-h`` or ``--help``; ``None`` if there is neither.
    """
    first = next((i for i, word in enumerate(words) if word in HELP), None)
    return None if first is None else tuple(words[first + 1 :])


def chosen_options(
    options: Any, help_request: Sequence[str], *, program: str, description: str
) -> tuple[Any, str]:
    """The part of the options that a help request is about, and the text above it.

    Args:
        options: A dataclass whose sections are dataclasses; its values are shown as defaults.
        help_request: Names of sections, last words of section names (``iql`` for
            ``algorithms.iql``), options (which stand for their section), or ``"all"``. An empty
            sequence asks for the list of sections.
        program: The command as typed.
        description: What the command does; omitted if only some sections are shown.

    Returns:
        A dataclass with the requested fields and the same values, and the text to print above
        them.

    Raises:
        InputError: If a word names neither a section nor an option; the message names the nearest.
    """
    if ALL in help_request:
        return options, description
    sections = {name: section for name, section in _sections(options) if name}
    if not help_request:
        return _part(options, lambda name: not name), f"{description}\n{_listed(sections, program)}"
    chosen = {_section_of(word, options, list(sections)) for word in help_request}

    def is_requested(name: str) -> bool:
        return any(name == one or name.startswith(f"{one}.") for one in chosen)

    return _part(options, is_requested), f"Options of `{program}`: {', '.join(sorted(chosen))}."


def named_options(options: Any, words: Sequence[str]) -> Any:
    """The part of the options whose sections occur among the typed words.

    Args:
        options: A dataclass whose sections are dataclasses.
        words: Words after the command.

    Returns:
        A dataclass with the options outside sections and the named sections; ``None`` if no section
        is named.
    """
    typed = tuple(word.partition("=")[0].replace("_", "-") for word in words)

    def is_named(name: str) -> bool:
        return not name or any(word.startswith(f"--{name}.") for word in typed)

    return _part(options, is_named)


def with_part(options: Any, part: Any) -> Any:
    """The options with some values replaced by those of a part.

    Args:
        options: A dataclass whose sections are dataclasses.
        part: Some of its sections and fields.

    Returns:
        An object of the type of ``options``.
    """
    values = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    for name, value in values.items():
        before = getattr(options, name)
        if _is_section(before):
            values[name] = with_part(before, value)
    return dataclasses.replace(options, **values)


def _section_of(word: str, options: Any, sections: list[str]) -> str:
    """The section that a word names by its name, the end of its name or one of its options."""
    name = word.lstrip("-").replace("_", "-")
    parents = {one.rpartition(".")[0] for one in sections} - {""}
    for section in sorted({*sections, *parents}, key=len):
        if name == section or section.endswith(f".{name}"):
            return section
    for section, value in _sections(options):
        if name in {f"{section}.{field.name}".replace("_", "-") for field in _own(value)}:
            return section
    raise unknown_name("section", name, [*sections, ALL])


def _listed(sections: dict[str, Any], program: str) -> str:
    """One line per section: its name and its summary."""
    width = max(len(name) for name in sections) + 2
    lines = []
    for name, section in sections.items():
        lines += textwrap.wrap(
            summary_of(type(section)),
            WIDTH,
            initial_indent=f"  {name:<{width}}",
            subsequent_indent=" " * (width + 2),
        )
    return "\n".join(
        [
            "sections of options, each an option's first word (--training.updates):",
            *lines,
            "",
            f"see them with `{program} --help {next(iter(sections))}`, several names, or `--help "
            f"{ALL}`",
        ]
    )


def _sections(options: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every dataclass with options of its own, by its name as typed; the outermost is ``""``."""
    if next(iter(_own(options)), None) is not None:
        yield prefix, options
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if _is_section(value):
            name = field.name.replace("_", "-")
            yield from _sections(value, f"{prefix}.{name}" if prefix else name)


def _own(options: Any) -> Iterator[dataclasses.Field[Any]]:
    for field in dataclasses.fields(options):
        if field.init and not _is_section(getattr(options, field.name)):
            yield field


def _is_section(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _part(options: Any, keep: Callable[[str], bool], prefix: str = "") -> Any:
    """The options of the sections to keep, with their values; ``None`` if there are none."""
    included = keep(prefix)
    hints = typing.get_type_hints(type(options), include_extras=True) if included else {}
    fields, values = [], {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if _is_section(value):
            name = field.name.replace("_", "-")
            value = _part(value, keep, f"{prefix}.{name}" if prefix else name)
            if value is not None:
                fields.append((field.name, type(value)))
                values[field.name] = value
        elif field.init and included:
            fields.append((field.name, hints[field.name]))
            values[field.name] = value
    if not fields:
        return None
    part_type = dataclasses.make_dataclass(type(options).__name__, fields, frozen=True)
    part_type.__doc__ = type(options).__doc__
    return part_type(**values)
