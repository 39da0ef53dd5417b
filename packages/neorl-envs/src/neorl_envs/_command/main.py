"""The command ``neorl-envs``; the one module that may set switches of the whole process."""

import contextlib
import dataclasses
import difflib
import io
import json
import os
import re
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import tyro

from neorl_core.boundary import head, keep_compiled_programs
from neorl_envs.datasets._file import write_dataset
from neorl_envs.ingest._read import read_dataset
from neorl_envs.inspection._report import dataset_report
from neorl_envs.inspection._text import report_text
from neorl_envs.interfaces._gymnasium_names import gymnasium_id
from neorl_envs.plants._table import environment_names, make

DONE, BAD_INPUT = 0, 2
HELP = """usage: neorl-envs COMMAND [ARGUMENTS] [--help] [--version]

Simulated plants, their logs, and what a log holds.

commands:
  generate --out FILE   record a plant under its own controllers and operators
  inspect FILE          what a log holds: rows, returns, costs, coverage, excitation, doubts
  list                  the environments

examples:
  neorl-envs list
  neorl-envs generate --out log.h5
  neorl-envs generate --out big.h5 --steps 1000000 --seed 1
  neorl-envs inspect log.h5
  neorl-envs inspect log.h5 --json > report.json

exit codes: 0 done, 2 bad input (one line says what to do), 130 stopped by Ctrl-C
"""


@dataclasses.dataclass(frozen=True)
class Generate:
    """Records a plant under its own controllers and operators, and writes a dataset file.

    example: neorl-envs generate --environment ChemicalReactor-v0 --steps 100000 --out log.h5
    """

    out: Path
    """The file; an existing one is kept, and refused, without --overwrite."""
    environment: str = "ChemicalReactor-v0"
    """One of `neorl-envs list`."""
    steps: int = 100_000
    """Smallest number of rows; whole episodes are kept."""
    seed: int = 0
    """Decides everything: the same seed gives the same file content on one machine."""
    spread: float = 0.15
    """Relative width of the randomisation of the plant's parameters from episode to episode."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace an existing file."""


@dataclasses.dataclass(frozen=True)
class Inspect:
    """Says what a log holds: rows, episodes, returns, costs, coverage, excitation, doubts.

    example: neorl-envs inspect log.h5
    """

    file: tyro.conf.Positional[Path]
    """A dataset file, a NeoRL-2 .npz or a D4RL HDF5 file."""
    json: bool = False
    """Print JSON instead of text."""


@dataclasses.dataclass(frozen=True)
class List:
    """Lists the environments.

    example: neorl-envs list
    """


COMMANDS: dict[str, type] = {"generate": Generate, "inspect": Inspect, "list": List}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: Without the program's name; those of the process by default.

    Returns:
        0 done, 2 bad input, 130 stopped by Ctrl-C.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(HELP, end="")
        return DONE
    if given[0] == "--version":
        print(f"neorl-envs {metadata.version('neorl-envs')}")
        return DONE
    try:
        command = _parsed(given[0], given[1:])
        _prepare_process()
        _run(command)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("neorl-envs: stopped", file=sys.stderr)
        return 130
    except (ValueError, OSError) as error:
        print(f"neorl-envs: {' '.join(str(error).split())}", file=sys.stderr)
        return BAD_INPUT
    return DONE


def _parsed(name: str, words: list[str]) -> Any:
    """The command as an object, or a one-line error; prints the help and exits when asked to."""
    if name not in COMMANDS:
        raise ValueError(f"unknown command {name!r}; {_nearest(name, COMMANDS)}")
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            command, unknown = tyro.cli(
                COMMANDS[name], args=words, prog=f"neorl-envs {name}", return_unknown_args=True
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise ValueError(f"{_sentence(said.getvalue())}; see `neorl-envs {name} --help`") from None
    if unknown:
        options = [f"--{field.name}" for field in dataclasses.fields(COMMANDS[name])]
        raise ValueError(f"unknown option {unknown[0]!r}; {_nearest(unknown[0], options)}")
    return command


def _nearest(word: str, known: Sequence[str] | dict[str, type]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}known: {', '.join(known) or 'none'}"


def _sentence(boxes: str) -> str:
    """What the parser says in its first box: between the title and the next rule.

    Where the terminal is not UTF-8 the box has no frame, and a rule stands below the title.
    """
    lines = [line.strip("│╭╮╰╯ ") for line in boxes.splitlines()]
    rules = [i for i, line in enumerate(lines) if not line.strip("─- ")]
    ends = [0, *rules] if boxes.startswith("╭") else rules
    body = lines[ends[0] + 1 : ends[1]] if len(ends) > 1 else []
    return re.sub(r"\s+", " ", " ".join(body)).strip() or "the options cannot be read"


def _run(command: Generate | Inspect | List) -> None:
    if isinstance(command, Generate):
        _generate(command)
    elif isinstance(command, Inspect):
        report = dataset_report(read_dataset(command.file))
        document = {**head("dataset-report", 1), **report}
        print(json.dumps(document, indent=2) if command.json else report_text(report))
    else:
        for name in environment_names():
            spec = make(name).spec
            print(
                f"{name}  {spec.n_obs} measured, {spec.n_action} manipulated, {spec.n_cost} "
                f"costs, period {spec.dt:g} s, at most {spec.horizon} steps; "
                f"Gymnasium: {gymnasium_id(name)}"
            )


def _generate(command: Generate) -> None:
    import jax

    from neorl_envs.recording._collect import collect_log

    env = make(command.environment)
    if not command.out.parent.is_dir():
        raise ValueError(f"{command.out}: no folder {command.out.parent}; create it first")
    if command.out.is_dir():
        raise ValueError(f"{command.out} is a folder; name a file, such as {command.out}/log.h5")
    if os.path.lexists(command.out) and not command.overwrite:
        raise ValueError(f"{command.out} exists; choose another --out, or pass --overwrite")
    if not 0 <= command.seed < 2**31:
        raise ValueError(f"seed must be from 0 to 2^31 - 1, got {command.seed}")
    key = jax.random.key(command.seed)
    dataset = collect_log(env, n_steps=command.steps, key=key, spread=command.spread)
    write_dataset(command.out, dataset)
    print(
        f"{command.out}: {dataset.n_rows} rows, {dataset.n_episodes} episodes, mean return "
        f"{dataset.episode_returns().mean():.2f}, {command.out.stat().st_size / 1e6:.1f} MB, "
        f"{dataset.content_hash}"
    )


def _prepare_process() -> None:
    """Compiled programs persist in the user's cache; what the environment says is kept."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    keep_compiled_programs(Path(root) / "neorl" / "jax")
