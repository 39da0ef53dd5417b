"""``neorl-train run``: trains, evaluates, decides and reports."""

import sys
from collections.abc import Sequence

from neorl_agents import ALGORITHMS
from neorl_train._command.options import read_run_options
from neorl_train._command.results import print_json, print_results
from neorl_train._process.distributed import join_processes
from neorl_train._process.progress import Reporter
from neorl_train._process.timings import IMPORTS, REST_OF_IMPORTS, Timings
from neorl_train.configuration._sections import Config, config_hash, config_to_dict
from neorl_train.configuration._toml import dump_toml

USAGE = """neorl-train run [CONFIG.toml | LOG | PLANT] [--OPTION VALUE ...]

Collects or reads a log, trains every algorithm on it, evaluates the policies and writes a verdict
and a report into a numbered run directory. Values on the command line override those of the file,
which override the defaults below. With --training.on plant, learners are trained on a simulated
plant itself. The first word may also name a log or a plant: the same as
--data.source with the defaults.

examples:
  neorl-train run
  neorl-train run CSTR-v0 --retuning.controller incumbent
  neorl-train run --training.algorithms iql --training.seeds 0 1
  neorl-train run CSTR-v0 --training.on plant --training.algorithms iql
  neorl-train run --data.source ../plant/log.h5 --penalty overheating 0.5
  neorl-train run log.h5 --evaluation.environment CSTR-v0    (judge in a simulator of the log)
  neorl-train run my.toml --algorithms.td3-bc.alpha 1.0 --output.no-tracking
  neorl-train run my.toml --devices.batch 4
  neorl-train run my.toml --dry-run          (print the complete configuration, train nothing)

several processes train one run if these variables are set in each (two on one machine):
  export NEORL_COORDINATOR=127.0.0.1:8476 NEORL_PROCESSES=2
  NEORL_PROCESS=1 neorl-train run my.toml &
  NEORL_PROCESS=0 neorl-train run my.toml
"""


def command(arguments: list[str]) -> None:
    """``neorl-train run [CONFIG.toml] [--OPTION VALUE ...]``."""
    timings = Timings.since_start(IMPORTS)
    with timings.stage("configuration"):
        config, flags = read_run_options(arguments, ALGORITHMS)
    note = single_seed_note(config, arguments)
    if note and not flags.json:
        print(note, file=sys.stderr)
    if flags.dry_run:
        _print_resolved(config, as_json=flags.json)
        return
    # Imported here because a misspelt option does not need the training code.
    with timings.stage(REST_OF_IMPORTS):
        from neorl_train._job.follower import follow
        from neorl_train._job.job import run_job
        from neorl_train.configuration._validation import validate
        from neorl_train.training._processes import all_or_none, leads, require_equal
    join_processes()
    with all_or_none("check its configuration"):
        validate(config)
    require_equal(config_hash(config), "configuration")
    if not leads():
        follow()
        return
    run = run_job(config, Reporter(quiet=flags.quiet), timings, profile=flags.profile)
    print_results(run, timings, flags)


def single_seed_note(config: Config, arguments: Sequence[str]) -> str:
    """A note for users who wrote ``--training.seeds 4`` but wanted four seeds; otherwise empty."""
    seeds = config.training.seeds
    if "--training.seeds" not in arguments or len(seeds) != 1 or seeds[0] < 2:
        return ""
    seed_list = " ".join(map(str, range(seeds[0]))) if seeds[0] <= 16 else "0 1 2 3"
    return (
        f"--training.seeds {seeds[0]} trains one seed, number {seeds[0]}; for "
        f"{len(seed_list.split())} seeds write --training.seeds {seed_list}"
    )


def _print_resolved(config: Config, *, as_json: bool) -> None:
    """Prints the configuration that the run would use, after every check that needs no training."""
    from neorl_train._job.resolution import resolve
    from neorl_train.configuration._validation import validate

    validate(config)
    complete = resolve(config)
    for note in complete.notes:
        print(note, file=sys.stderr)
    content = config_to_dict(complete.run.config)
    if as_json:
        print_json("configuration", content)
    else:
        print(dump_toml(content), end="")
