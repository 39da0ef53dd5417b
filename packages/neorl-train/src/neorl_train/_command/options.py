"""From the words after ``neorl-train run`` to a configuration, with one-line errors."""

from collections.abc import Mapping
from pathlib import Path

from neorl_envs.command_line import parse_options
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
    default = config_type(algorithms)()
    words = list(arguments)
    if words and not words[0].startswith("-"):
        default = load_toml(Path(words.pop(0)), default)
    return parse_options(
        type(default), words, program="neorl-train run", default=default, description=USAGE
    )
