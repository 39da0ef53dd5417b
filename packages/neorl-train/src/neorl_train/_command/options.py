"""From the words after ``neorl-train run`` to a configuration, with one-line errors."""

import contextlib
import dataclasses
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from neorl_core import InputError
from neorl_core.boundary import nearest_name
from neorl_train.configuration._sections import Config, config_type
from neorl_train.configuration._toml import load_toml

USAGE = """neorl-train run [CONFIG.toml] [--OPTION VALUE ...]

Collects or reads a log, trains every algorithm on it, evaluates the policies and writes a verdict
and a report into a numbered run directory. Values on the command line override those of the file,
which override the defaults below.

examples:
  neorl-train run
  neorl-train run --training.algorithms iql --training.seeds 0 1
  neorl-train run --data.source ../plant/log.h5 --penalty overheating 0.5
  neorl-train run my.toml --algorithms.td3-bc.alpha 1.0 --output.no-tracking

more flags: --quiet (no progress), --timings (a table of where the time went)
"""
PAIRS = r"\1 takes pairs of a cost and a number, such as \1 temperature 0.75"


def read_config(arguments: list[str], algorithms: Mapping[str, type]) -> Config:
    """The configuration of a command line.

    Args:
        arguments: Perhaps first the name of a file, then options.
        algorithms: Class of every algorithm by name.

    Returns:
        The configuration, not yet validated.

    Raises:
        InputError: In one line, for whatever is wrong; the nearest option is named.
        SystemExit: After ``--help``.
    """
    import tyro

    default = config_type(algorithms)()
    words = list(arguments)
    if words and not words[0].startswith("-"):
        default = load_toml(Path(words.pop(0)), default)
    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output):
            config, unknown = tyro.cli(
                type(default),
                default=default,
                args=words,
                prog="neorl-train run",
                description=USAGE,
                return_unknown_args=True,
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise InputError(_first_message(output.getvalue())) from None
    if unknown:
        raise _unknown_option(unknown[0], default)
    return config


def config_of(path: Path, algorithms: Mapping[str, type]) -> Config:
    """The configuration that a run directory keeps."""
    return load_toml(path, config_type(algorithms)())


def _first_message(output: str) -> str:
    """The sentence in the first box that the parser drew; without a box, under the first title."""
    parts: list[list[str]] = [[]]
    for line in output.splitlines():
        body = line.strip("│╭╮╰╯ ")
        if body and set(body) <= set("─-"):
            parts.append([])
        elif not line.startswith("╭"):
            parts[-1].append(body)
    boxed = "╭" in output
    chosen = parts[0] if boxed or len(parts) == 1 else parts[1]
    message = _plain(" ".join(" ".join(chosen).split()))
    return f"{message or 'the options cannot be read'}; see `neorl-train run --help`"


def _plain(message: str) -> str:
    """Without the names of Python's functions."""
    for output, kind in (
        (r"invalid literal for int\(\) with base 10:", "a whole number"),
        (r"could not convert string to float:", "a number"),
    ):
        message = re.sub(
            rf"Error parsing (--\S+): {output} (.*)", rf"\1 must be {kind}, got \2", message
        )
    message = re.sub(r"Error parsing (--\S+): Failed to parse key-value pairs!", PAIRS, message)
    return message.removesuffix(".")


def _unknown_option(word: str, config: Config) -> InputError:
    name = word.partition("=")[0]
    if not name.startswith("-"):
        return InputError(
            f"unexpected word {word!r}; a configuration file comes first, options begin with --"
        )
    known = [f"--{name}" for name in _names(config, "")]
    near = nearest_name(name.replace("_", "-"), known)
    hint = f"did you mean {near}? " if near else ""
    return InputError(f"unknown option {name!r}; {hint}see `neorl-train run --help`")


def _names(section: Any, prefix: str) -> Iterator[str]:
    for field in dataclasses.fields(section):
        value, name = getattr(section, field.name), f"{prefix}{field.name}".replace("_", "-")
        if dataclasses.is_dataclass(value):
            yield from _names(value, f"{name}.")
        elif isinstance(value, bool):
            section_name, _, last = name.rpartition(".")
            yield from (name, f"{section_name}.no-{last}")
        else:
            yield name
