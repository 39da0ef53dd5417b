"""The command ``neorl-envs``: its subcommands, and the one place that sets process switches."""

from collections.abc import Sequence

from neorl_core.boundary import keep_compiled_programs
from neorl_envs.command_line import Program, cache_directory

OVERVIEW = """usage: neorl-envs COMMAND [ARGUMENTS] [--help] [--version]

Simulated plants, their logs, and what a log holds.

commands:
  init LOG              draft a plant.toml by looking at a plant log (CSV, Parquet)
  convert plant.toml    a plant log into a dataset file
  generate --out FILE   record a plant under its own controllers and operators
  inspect FILE          what a log holds: rows, returns, costs, coverage, excitation, doubts
  list                  the environments

examples:
  neorl-envs init export.csv
  neorl-envs convert plant.toml --out log.h5
  neorl-envs list
  neorl-envs generate --out log.h5
  neorl-envs generate --out big.h5 --steps 1000000 --seed 1
  neorl-envs inspect log.h5
  neorl-envs inspect log.h5 --json > report.json

exit codes: 0 done, 2 bad input (one line says what to do), 130 stopped by Ctrl-C, 143 by SIGTERM
"""

COMMANDS = ("convert", "generate", "init", "inspect", "list")
SUBCOMMANDS = {name: f"neorl_envs._command.{name}" for name in COMMANDS}


def prepare_process() -> None:
    """Compiled programs persist in the user's cache; what the environment says is kept."""
    keep_compiled_programs(cache_directory())


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: Without the program's name; those of the process by default.

    Returns:
        0 done, 2 bad input, 128 + n when stopped by signal n.
    """
    program = Program(
        name="neorl-envs",
        overview=OVERVIEW,
        subcommands=SUBCOMMANDS,
        prepare=prepare_process,
        when_memory_ends="generate fewer --steps, or use a machine with more",
    )
    return program.run(arguments)
