"""Shared parts of commands: subcommands, exit codes, typed options, one-line errors, switches."""

from neorl_core.infrastructure.command_line._declared import Positional as Positional
from neorl_core.infrastructure.command_line._declared import Section as Section
from neorl_core.infrastructure.command_line._declared import declared_keys as declared_keys
from neorl_core.infrastructure.command_line._declared import declared_section as declared_section
from neorl_core.infrastructure.command_line._declared import declared_table as declared_table
from neorl_core.infrastructure.command_line._declared import declared_value as declared_value
from neorl_core.infrastructure.command_line._declared import section_of as section_of
from neorl_core.infrastructure.command_line._declared import summary_of as summary_of
from neorl_core.infrastructure.command_line._options import parse_options as parse_options
from neorl_core.infrastructure.command_line._program import BAD_INPUT as BAD_INPUT
from neorl_core.infrastructure.command_line._program import DONE as DONE
from neorl_core.infrastructure.command_line._program import Program as Program
from neorl_core.infrastructure.command_line._program import StoppedError as StoppedError
from neorl_core.infrastructure.command_line._program import Subcommand as Subcommand
from neorl_core.infrastructure.command_line._program import cache_directory as cache_directory
from neorl_core.infrastructure.command_line._program import command_prefix as command_prefix
from neorl_core.infrastructure.command_line._program import is_out_of_memory as is_out_of_memory
from neorl_core.infrastructure.command_line._program import one_line as one_line

__all__ = [
    "BAD_INPUT",
    "DONE",
    "Positional",
    "Program",
    "Section",
    "StoppedError",
    "Subcommand",
    "cache_directory",
    "command_prefix",
    "declared_keys",
    "declared_section",
    "declared_table",
    "declared_value",
    "is_out_of_memory",
    "one_line",
    "parse_options",
    "section_of",
    "summary_of",
]
