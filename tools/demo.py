"""The demo of the README: from the log of a simulated reactor to a verdict and a sealed controller.

It does in one process what these three commands do, of which each is useful by itself. The options
make the run smaller than its defaults, and further ones, such as `--data.seed 1`, change it:

    neorl-train run {settings}
    neorl-deploy export
    neorl-deploy replay
"""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from neorl_core.infrastructure.command_line import Program, Subcommand, parse_options
from neorl_train import prepare_process

if TYPE_CHECKING:
    from neorl_train.judging import PolicyRow, ResultTables, Verdict

SETTINGS = (
    ("--retuning.controller", "incumbent"),
    ("--retuning.updates", "1500"),
    ("--retuning.generations", "8"),
    ("--data.steps", "60000"),
    ("--training.algorithms", "bc", "iql"),
    ("--training.seeds", "0", "1"),
    ("--training.updates", "8000"),
    ("--checkpoints.interval", "2000"),
    ("--output.no-tracking",),
)
"""Options of ``neorl-train run`` for the demo; one that is given replaces that of its name."""

OVERVIEW = "usage: hatch run demo [--OPTION VALUE ...]\n\n" + (__doc__ or "").format(
    settings=" ".join(word for option in SETTINGS for word in option)
)

FIRST_LINE = (
    "In about two minutes on two cores, or one when repeated: record the log of a simulated "
    "reactor, learn a model of it, retune today's controller, train two networks, test all of "
    "them, seal the one that was chosen before the tests."
)


def command(words: list[str]) -> None:
    """Runs the three commands in this process; prints one line a stage, then the answer."""
    print(FIRST_LINE, file=sys.stderr, flush=True)
    # Imported after the first line, since they take seconds.
    from neorl_agents import ALGORITHMS
    from neorl_core import InputError
    from neorl_deploy import DeployError
    from neorl_deploy.export import export_run
    from neorl_deploy.shadow import read_log, replay, replay_path, write_replay
    from neorl_train import start
    from neorl_train.configuration import config_type

    given = {word.partition("=")[0] for word in words}
    own = [word for option in SETTINGS if option[0] not in given for word in option]
    options = config_type(ALGORITHMS)
    run = start(parse_options(options, [*own, *words], program="hatch run demo"), brief=True)
    try:
        with stage("sealing the candidate behind its guard, and checking it in a fresh process"):
            bundle = export_run(run.path)
        with stage("running the sealed controller in shadow over the log"):
            shadowed = replay(bundle, read_log(run.path / "dataset.h5"))
            write_replay(replay_path(bundle.path), shadowed.report)
    except DeployError as error:
        raise InputError(str(error)) from error
    for line in last_lines(run.path, bundle.path):
        print(line)


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Prints how long the context took, as a brief run prints of its stages."""
    began = time.monotonic()
    yield
    print(f"{time.monotonic() - began:6.1f} s  {name}", file=sys.stderr, flush=True)


def last_lines(run: Path, bundle: Path) -> list[str]:
    """The answer, its reasons, and what to open."""
    from neorl_train.judging import parts, read_evaluation, read_verdict

    verdict, tables = read_verdict(run), read_evaluation(run).tables
    opening, deciding, _ = parts(verdict)
    if verdict.answer == "deploy":
        deciding = reasons(verdict, tables)
    return [
        "",
        f"{verdict.answer.upper()}  {opening}",
        *(f"  {number}. {reason}" for number, reason in enumerate(deciding, start=1)),
        "",
        f"report: {shown(run / 'report.html')}",
        f"bundle: {shown(bundle)}",
    ]


def reasons(verdict: "Verdict", tables: "ResultTables") -> list[str]:
    """Why a candidate may be deployed, and why the learners beside it are not."""
    from neorl_train.judging import decimals, with_interval

    ours = tables.row(tables.candidate, guarded=True)
    (earned,) = (clause.sentence for clause in verdict.clauses if clause.name == "return")
    costs = [
        f"{channel.name} {with_interval(cell.limited, decimals([cell.limited], most=2))} "
        f"of at most {channel.limit:g} {channel.unit}"
        for channel, cell in zip(tables.spec.cost, ours.costs, strict=True)
    ]
    others = [
        f"{row.name} in {broken(row)}"
        for row in tables.rows
        if row.role == "learner" and row.guarded and row.name != tables.candidate
    ]
    return [
        earned,
        f"it keeps the limits: {', '.join(costs)}; it broke one in {broken(ours)} episodes",
        f"the networks do not: a limit is broken by {', '.join(others)} episodes",
    ]


def broken(row: "PolicyRow") -> str:
    """In how many of its episodes a policy broke a limit."""
    return f"{round((1 - row.satisfied.value) * row.n_episodes)} of {row.n_episodes}"


def shown(path: Path) -> Path:
    """A path as one would type it in this folder."""
    path = path.absolute()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def prepare() -> None:
    """The switches of every command; and XLA compiles each program in one piece.

    By default it divides a program among the cores, which costs processor time where there are few.
    """
    # XLA ends the process for a flag that it does not know.
    if metadata.version("jaxlib").startswith(("0.10.", "0.12.")):
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_parallel_codegen_split_count=1"
        os.environ["XLA_FLAGS"] = flags.strip()
    prepare_process()


PROGRAM = Program(
    name="demo",
    overview=OVERVIEW,
    subcommands={"run": Subcommand(__name__, "")},  # its options are those of `neorl-train run`
    prepare=prepare,
    when_memory_ends="close other programs",
)

if __name__ == "__main__":
    if {"-h", "--help"} & {*sys.argv}:
        print(OVERVIEW, end="")
    else:
        sys.exit(PROGRAM.run(["run", *sys.argv[1:]]))
