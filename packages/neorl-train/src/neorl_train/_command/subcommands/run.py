"""``neorl-train run``: trains, evaluates, decides and reports."""

import sys
from collections.abc import Sequence

from neorl_agents import ALGORITHMS
from neorl_train._command.options import read_run_options
from neorl_train._command.results import print_json, print_results
from neorl_train._command.run_argument import DRY_RUN, take_flag
from neorl_train._process.distributed import join_processes
from neorl_train._process.progress import Reporter
from neorl_train._process.timings import IMPORTS, REST_OF_IMPORTS, Timings
from neorl_train.configuration._sections import Config, config_hash, config_to_dict
from neorl_train.configuration._toml import dump_toml


def command(arguments: list[str]) -> None:
    """``neorl-train run [CONFIG.toml] [--OPTION VALUE ...]``."""
    timings = Timings.since_start(IMPORTS)
    words, dry = take_flag(DRY_RUN, arguments)
    with timings.stage("configuration"):
        config, flags = read_run_options(words, ALGORITHMS)
    note = single_seed_note(config, words)
    if note and not flags.json:
        print(note, file=sys.stderr)
    if dry:
        _print_resolved(config, as_json=flags.json)
        return
    # Imported here because help and a misspelt option do not need the training code.
    with timings.stage(REST_OF_IMPORTS):
        from neorl_train._pipeline.job import run_job
        from neorl_train._pipeline.processes.follower import follow
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


def single_seed_note(config: Config, words: Sequence[str]) -> str:
    """A note for users who wrote ``--training.seeds 4`` but wanted four seeds; otherwise empty."""
    seeds = config.training.seeds
    if "--training.seeds" not in words or len(seeds) != 1 or seeds[0] < 2:
        return ""
    seed_list = " ".join(map(str, range(seeds[0]))) if seeds[0] <= 16 else "0 1 2 3"
    return (
        f"--training.seeds {seeds[0]} trains one seed, number {seeds[0]}; for "
        f"{len(seed_list.split())} seeds write --training.seeds {seed_list}"
    )


def _print_resolved(config: Config, *, as_json: bool) -> None:
    """Prints the configuration that the run would use, after every check that needs no training."""
    from neorl_train._pipeline.resolution import resolved
    from neorl_train.configuration._validation import validate

    validate(config)
    complete = resolved(config)
    for note in complete.notes:
        print(note, file=sys.stderr)
    content = config_to_dict(complete.run.config)
    if as_json:
        print_json("configuration", content)
    else:
        print(dump_toml(content), end="")
