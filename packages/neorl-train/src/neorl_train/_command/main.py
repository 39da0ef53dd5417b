"""The command ``neorl-train``: which subcommand, which exit code."""

import importlib
import sys
from collections.abc import Sequence
from importlib import metadata

from neorl_core import InputError
from neorl_core.boundary import unknown_name
from neorl_train._errors import InterruptedRunError, is_out_of_memory, one_line
from neorl_train._process.switches import prepare_process

DONE, BAD_INPUT = 0, 2
OUT_OF_MEMORY = (
    "out of memory; start a run with a smaller batch_size or hidden, fewer seeds, starts or rows, "
    "or continue this one on a machine with more"
)

HELP = """usage: neorl-train COMMAND [ARGUMENTS] [--help] [--version]

Trains policies on logged data, judges them, and says whether one may be deployed.

commands:
  run [CONFIG.toml] [--OPTION VALUE ...]   train, evaluate, decide and report
  resume RUN                               continue a run that was interrupted, to the same bits
  report RUN                               write the report of a run again
  inspect RUN                              what a run is, how far it is, what it found
  list [RUNS]                              environments, algorithms and runs
  track RUN                                copy the records of a run into MLflow

examples:
  neorl-train run
  neorl-train run --data.source plant.h5 --training.updates 20000
  neorl-train run my.toml --algorithms.iql.expectile 0.8 --timings
  neorl-train resume runs/0001
  neorl-train list

exit codes: 0 done, 2 bad input (one line says what to do), 130 stopped by Ctrl-C, 143 by SIGTERM
"""

NAMES = ("run", "resume", "report", "inspect", "list", "track")
"""One module of this folder each, with a function ``command``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: Without the program's name; those of the process by default.

    Returns:
        0 done, 2 bad input, 128 + n when stopped by signal n.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(HELP, end="")
        return DONE
    if given[0] == "--version":
        print(f"neorl-train {metadata.version('neorl-train')}")
        return DONE
    try:
        _run_command(given)
    except InputError as error:
        print(f"neorl-train: {one_line(error)}", file=sys.stderr)
        return BAD_INPUT
    except InterruptedRunError as error:
        then = f"; continue with\n{error.resume}" if error.resume else ""
        print(f"neorl-train: {one_line(error)}{then}", file=sys.stderr)
        return 128 + error.signal_number
    except KeyboardInterrupt:
        print("neorl-train: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return DONE
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        reason = error.strerror or one_line(error)
        print(f"neorl-train: {where}{reason}; check the place and its permissions", file=sys.stderr)
        return BAD_INPUT
    return DONE


def _run_command(given: list[str]) -> None:
    """Runs a command; arrays that do not fit into memory are bad input too.

    Raises:
        InputError: In place of what NumPy and XLA raise when memory is exhausted.
    """
    if given[0] not in NAMES:
        raise unknown_name("command", given[0], NAMES)
    prepare_process()
    try:
        module = importlib.import_module(f"neorl_train._command.{given[0]}")
        module.command(given[1:])
    except Exception as error:
        if is_out_of_memory(error):
            raise InputError(f"{OUT_OF_MEMORY} ({one_line(error)[:160]})") from error
        raise
