"""Completion of commands and options in a shell, from the parser itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

PROGRAM = "neorl-deploy"
SHELLS = ("bash", "zsh", "fish")
HOW = """Prints a script that completes commands and options; other words are completed as files.
Add it to the file that your shell reads at its start; for one shell alone, evaluate it:
  eval "$(neorl-deploy completion bash)"
"""


def options_by_command(
    parsers: Mapping[str, argparse.ArgumentParser],
) -> dict[str, list[str]]:
    """The options of every command, sorted.

    Args:
        parsers: Parser of every command by its name.
    """
    return {
        name: sorted(
            option
            for action in parser._actions
            for option in action.option_strings
            if option.startswith("--")
        )
        for name, parser in parsers.items()
    }


def completion_script(options: Mapping[str, Sequence[str]], shell: str) -> str:
    """The script for one shell.

    Args:
        options: Options of every command.
        shell: One of :data:`SHELLS`.
    """
    if shell == "fish":
        return _fish(options)
    loader = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return loader + _bash(options)


def _bash(options: Mapping[str, Sequence[str]]) -> str:
    words = " ".join((*options, "--help", "--version"))
    cases = "".join(f"    {name}) options='{' '.join(own)}' ;;\n" for name, own in options.items())
    return f"""\
_neorl_deploy() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" options=
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{words}' -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}  esac
  case "$word" in -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;; esac
}}
complete -o default -F _neorl_deploy {PROGRAM}
"""


def _fish(options: Mapping[str, Sequence[str]]) -> str:
    first = f"complete -c {PROGRAM} -n __fish_use_subcommand -f -a '{' '.join(options)}'"
    rest = [
        f"complete -c {PROGRAM} -n '__fish_seen_subcommand_from {name}' -l {option[2:]}"
        for name, own in options.items()
        for option in own
    ]
    return "\n".join([first, *rest, ""])
