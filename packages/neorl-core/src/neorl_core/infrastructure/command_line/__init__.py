"""Shared parts of commands: subcommands, exit codes, typed options, one-line errors, switches."""

from neorl_core.infrastructure.command_line._cached_text import cached_text as cached_text
from neorl_core.infrastructure.command_line._errors import StoppedError as StoppedError
from neorl_core.infrastructure.command_line._errors import is_out_of_memory as is_out_of_memory
from neorl_core.infrastructure.command_line._errors import one_line as one_line
from neorl_core.infrastructure.command_line._options import parse_options as parse_options
from neorl_core.infrastructure.command_line._process import cache_directory as cache_directory
from neorl_core.infrastructure.command_line._process import command_prefix as command_prefix
from neorl_core.infrastructure.command_line._program import BAD_INPUT as BAD_INPUT
from neorl_core.infrastructure.command_line._program import DONE as DONE
from neorl_core.infrastructure.command_line._program import Program as Program
from neorl_core.infrastructure.command_line._sections import summary_of as summary_of

__all__ = [
    "BAD_INPUT",
    "DONE",
    "Program",
    "StoppedError",
    "cache_directory",
    "cached_text",
    "command_prefix",
    "is_out_of_memory",
    "one_line",
    "parse_options",
    "summary_of",
]
