"""The command ``neorl-train``: its subcommands."""

from collections.abc import Sequence

from neorl_core.infrastructure.command_line import Program, Subcommand
from neorl_train._command.learner_sections import learner_sections
from neorl_train._process.control import exit_process, prepare_process

OVERVIEW = """usage: neorl-train COMMAND [ARGUMENTS] [--help] [--version]

Trains policies on logged data, evaluates them, and decides whether one may be deployed.

commands:
  run [CONFIG.toml | LOG | PLANT] [--OPTION VALUE ...]
                                           train, evaluate, decide and report
  finetune RUN [--OPTION VALUE ...]        train learners of a run further on a simulated plant
  resume [RUN]                             continue an interrupted run with bit-identical results
  evaluate [RUN] [--OPTION VALUE ...]      evaluate a finished run on fresh starts, without training
  compare RUN ... [--OPTION VALUE ...]     compare runs, or the learners of one, in one table
  sweep SWEEP.toml [--OPTION VALUE ...]    run every combination of settings, or search over them
  benchmark [FILE.toml | FOLDER] [--OPTION VALUE ...]
                                           score learners x plants x logs x seeds; resumable
  baselines PLANT_OR_LOG [--OPTION VALUE ...]
                                           show the classical controllers in the same tables
  safety-report RUN|ARTEFACT|BUNDLE        count violations with and without the filter
  inspect [RUN] [--report] [--track]       show the settings, progress and results of a run; write
                                           its report again, copy its records into MLflow
  list [RUNS]                              list environments, algorithms and runs
  loop LOG [--OPTION VALUE ...]            say what ails the control loops of a log: retune, mend
                                           the valve or sensor, leave it, or cannot tell
  open [--OPTION VALUE ...]                the same as a page on this machine: drop a CSV, confirm
                                           its loops, get the change sheets
  choose RUN_OR_LOG [--OPTION VALUE ...]   choose among candidates without the plant: is a learned
                                           model of it good enough, what is each worth, at what risk
  federate [FILE.toml | SOURCE SOURCE ... | FOLDER] [--OPTION VALUE ...]
                                           train one policy at sites that share no data

RUN is a run directory or its number in ./runs, such as 0001. `resume`, `evaluate` and `inspect`
use the newest run there unless one is named.

examples:
  neorl-train run
  neorl-train run plant.h5 --training.updates 20000
  neorl-train run my.toml --algorithms.iql.expectile 0.8 --timings
  neorl-train finetune runs/0001 --training.updates 10000
  neorl-train resume runs/0001
  neorl-train federate north.h5 south.h5 east.h5
  neorl-train evaluate runs/0001 --starts 1000
  neorl-train compare runs/0001 runs/0002
  neorl-train benchmark --plants CSTR-v0 DMSD-v0 --algorithms bc iql
  neorl-train baselines CSTR-v0
  neorl-train list

exit codes: 0 done, 1 a hard constraint was broken (safety-report), 2 bad input (one line says what
to do), 130 stopped by Ctrl-C, 143 by SIGTERM
"""

COMMON = ("training.algorithms", "training.seeds", "training.updates")
FIRST: dict[str, tuple[str, ...]] = {
    "run": (
        "data.source",
        "penalty",
        *COMMON,
        "evaluation.environment",
        "evaluation.incumbent",
        "retuning.controller",
        "output.directory",
        "dry_run",
    ),
    "finetune": (
        *COMMON,
        "finetune.environment",
        "finetune.share",
        "finetune.environments",
        "output.directory",
    ),
    "federate": (
        "penalty",
        *COMMON,
        "federation.rule",
        "federation.rounds",
        "federation.local_updates",
        "federation.byzantine",
        "privacy.noise_multiplier",
        "output.directory",
    ),
}
"""The options that matter most, which help shows first, of commands with the sections of a run."""

OPTIONS = {
    "run": "RunOptions",
    "finetune": "FineTuningOptions",
    "resume": "ResumeOptions",
    "evaluate": "EvaluateOptions",
    "compare": "CompareOptions",
    "sweep": "SweepOptions",
    "benchmark": "BenchmarkOptions",
    "baselines": "BaselineOptions",
    "safety-report": "SafetyOptions",
    "inspect": "InspectOptions",
    "list": "ListOptions",
    "loop": "LoopOptions",
    "open": "OpenOptions",
    "choose": "CommandOptions",
    "federate": "FederationOptions",
}
NAMES = tuple(OPTIONS)
MODULES = {"finetune": "run:finetune", "resume": "run:resume"}
SUBCOMMANDS = {
    name: Subcommand(
        f"neorl_train._command.subcommands.{MODULES.get(name, name.replace('-', '_'))}",
        options,
        FIRST.get(name, ()),
        {"algorithms": learner_sections} if name in FIRST else {},
    )
    for name, options in OPTIONS.items()
}
"""One module in ``subcommands`` each (a dash is an underscore), except those in ``MODULES``."""

GONE = {
    "select": "`neorl-train choose RUN_OR_LOG` chooses among candidates without the plant",
    "model": "`neorl-train choose RUN_OR_LOG --show model` says whether a learned model of the "
    "plant may be used",
    "critic": "`neorl-train choose RUN_OR_LOG --show risk` shows the risk of every candidate",
    "hunt": "the page on the treasure hunt has a script that does the same, treasure_hunt.py",
    "report": "`neorl-train inspect RUN --report` writes the report of a run again",
    "track": "`neorl-train inspect RUN --track` copies the records of a run into MLflow",
}
"""Subcommands of earlier versions, and what replaced each."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Returns:
        0 done, 2 bad input, 128 + n when stopped by signal n.
    """
    program = Program(
        name="neorl-train",
        overview=OVERVIEW,
        subcommands=SUBCOMMANDS,
        prepare=prepare_process,
        without_prepare=("list",),
        gone=GONE,
        when_memory_ends="start a run with a smaller steps.batch_size or networks.hidden, fewer "
        "seeds, starts or rows, or continue this one on a machine with more",
    )
    return exit_process(program.run(arguments))
