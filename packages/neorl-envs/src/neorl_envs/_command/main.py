"""The command ``neorl-envs``: its subcommands, and the only place that sets process options."""

from collections.abc import Sequence

from neorl_core.infrastructure import keep_compiled_programs
from neorl_core.infrastructure.command_line import Program, Subcommand, cache_directory

OVERVIEW = """usage: neorl-envs COMMAND [ARGUMENTS] [--help] [--version]

Simulated plants, their logs, and reports on any log.

commands:
  init LOG              draft a plant.toml by looking at a plant log (CSV, Parquet)
  convert plant.toml    convert a plant log into a dataset file
  list                  list the environments
  describe PLANT        list the channels, limits, units and controllers of a plant
  render PLANT          draw or animate a run under a chosen policy
  collect --out FILE    record a plant under its own controllers and operators
  shard LOG ...         describe one log in several files by a manifest
  score PLANT           return and costs of a policy on a plant and on a shifted one
  inspect FILE          report on a log: rows, returns, costs, coverage, excitation, warnings
  check PLANT           check whether an environment keeps the contract

PLANT is one of `neorl-envs list`, MODULE:CLASS for one of your own, or a co-simulation unit *.fmu

examples:
  neorl-envs init export.csv
  neorl-envs convert plant.toml --out log.h5
  neorl-envs list
  neorl-envs describe ChemicalReactor-v0
  neorl-envs render ChemicalReactor-v0 --policy random --out run.gif
  neorl-envs collect --out log.h5
  neorl-envs collect --out big.h5 --steps 1000000 --seed 1
  neorl-envs score DMSD-v0 --policy LQR
  neorl-envs shard may.h5 june.h5 --out summer.shards.json
  neorl-envs inspect log.h5 --json > report.json
  neorl-envs check my_package.tank:QuadrupleTank

exit codes: 0 done, 2 bad input (one line says what to do), 130 stopped by Ctrl-C, 143 by SIGTERM
"""

COMMANDS = (
    "check",
    "collect",
    "convert",
    "describe",
    "init",
    "inspect",
    "list",
    "render",
    "score",
    "shard",
)
SUBCOMMANDS = {name: Subcommand(f"neorl_envs._command.{name}", name.title()) for name in COMMANDS}
"""One module each, with a function ``command`` and a class of options that has its name."""


def prepare_process() -> None:
    """Caches compiled programs in the user's cache folder; environment settings take priority."""
    keep_compiled_programs(cache_directory())


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: Command-line arguments; those of the process by default.

    Returns:
        Exit status: 0 for success, 2 for bad input, 128 + n if stopped by signal n.
    """
    program = Program(
        name="neorl-envs",
        overview=OVERVIEW,
        subcommands=SUBCOMMANDS,
        prepare=prepare_process,
        when_memory_ends="collect fewer --steps, or use a machine with more",
    )
    return program.run(arguments)
