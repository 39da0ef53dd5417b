"""Help of a command: its most important options and its sections, or the options of some."""

import argparse
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from neorl_core.infrastructure._registry import unknown_name
from neorl_core.infrastructure.command_line._declared import (
    Section,
    Setting,
    declared_section,
    declared_value,
)
from neorl_core.infrastructure.command_line._options import (
    WIDTH,
    named_sections,
    named_settings,
    option_parser,
)

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
