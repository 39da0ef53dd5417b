"""Shell completion of a command: its subcommands, and the options of each."""

import re
from collections.abc import Mapping, Sequence

from neorl_core._vocabulary.errors import InputError
from neorl_core.infrastructure import unknown_name

SHELLS = ("bash", "zsh", "fish")
NAME = "completion"

USAGE = """usage: {program} completion bash|zsh|fish

Prints a script that completes the commands of {program} and their options. After the first word,
names of files are completed.

examples:
  {program} completion bash >> ~/.bashrc
  {program} completion zsh >> ~/.zshrc
  {program} completion fish > ~/.config/fish/completions/{program}.fish
  eval "$({program} completion bash)"           (this shell alone)
"""

_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*(?:\.[a-z0-9-]+)*")


def options_in(text: str) -> list[str]:
    """The options listed in a help text, sorted.

    Args:
        text: Help text of a subcommand.

    Example:
        >>> options_in("usage: count [--steps INT] [--no-sum]  sums --steps numbers")
        ['--no-sum', '--steps']
    """
    return sorted(set(_OPTION.findall(text)))


def completion_script(program: str, options: Mapping[str, Sequence[str]], shell: str) -> str:
    """The completion script for one shell.

    Args:
        program: Name of the command.
        options: Options of every subcommand.
        shell: One of ``bash``, ``zsh`` and ``fish``.

    Raises:
        InputError: If the shell is not one of these.
    """
    if shell not in SHELLS:
        raise unknown_name("shell", shell, SHELLS)
    if shell == "fish":
        return _fish(program, options)
    body = _bash(program, options)
    if shell == "zsh":
        return f"autoload -U +X bashcompinit && bashcompinit\n{body}"
    return body


def shell_of(program: str, words: Sequence[str]) -> str:
    """The shell for which completion is requested.

    Raises:
        InputError: If there is not exactly one word.
    """
    if len(words) != 1:
        raise InputError(
            f"completion takes one of {', '.join(SHELLS)}; for example `{program} completion bash`"
        )
    return words[0]


def _bash(program: str, options: Mapping[str, Sequence[str]]) -> str:
    function = f"_{program.replace('-', '_')}"
    cases = [f"    {name}) options='{' '.join(names)}' ;;" for name, names in options.items()]
    lines = [
        f"{function}() {{",
        '  local word="${COMP_WORDS[COMP_CWORD]}" options=',
        '  if [ "$COMP_CWORD" -eq 1 ]; then',
        f"    COMPREPLY=($(compgen -W '{' '.join(options)} --help --version' -- \"$word\"))",
        "    return",
        "  fi",
        '  case "${COMP_WORDS[1]}" in',
        *cases,
        "  esac",
        "  COMPREPLY=()",
        '  case "$word" in -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;; esac',
        "}",
        f"complete -o default -F {function} {program}",
    ]
    return "\n".join(lines) + "\n"


def _fish(program: str, options: Mapping[str, Sequence[str]]) -> str:
    lines = [
        f"complete -c {program} -n __fish_use_subcommand -f -a '{' '.join(options)}'",
        *(
            f"complete -c {program} -n '__fish_seen_subcommand_from {name}' -l {option[2:]}"
            for name, names in options.items()
            for option in names
        ),
    ]
    return "\n".join(lines) + "\n"
