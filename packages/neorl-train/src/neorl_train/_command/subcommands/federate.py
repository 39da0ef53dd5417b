"""``neorl-train federate``: trains one policy at several sites that share no data."""

from neorl_agents import ALGORITHMS
from neorl_train._command.federation_options import read_federation
from neorl_train._command.results import print_json, run_results
from neorl_train._process.progress import Reporter
from neorl_train._process.timings import IMPORTS, REST_OF_IMPORTS, Timings

USAGE = """neorl-train federate [FILE.toml | SOURCE SOURCE ... | FOLDER] [--OPTION VALUE ...]

Trains one policy at several sites. No row of a log leaves its site: sites exchange parameters, and
once, for a common scale, sums and ranges of the channels. FILE.toml has the sections of a run,
which all sites share, and one section [sites.NAME] for each site with its own settings, such as
sites.NAME.data.source. Without a file, each SOURCE (a log or a plant) is a site.
FOLDER is that of an earlier federation, which is continued with bit-identical results. Every site
becomes a run with evaluation, verdict and report, which compares the policy with training on that
site alone and with the plant's controllers.

examples:
  neorl-train federate north.h5 south.h5 east.h5 --penalty overheating 0.5
  neorl-train federate sites.toml --federation.rule median --federation.byzantine 1
  neorl-train federate sites.toml --privacy.noise-multiplier 5 --privacy.clip-norm 0.2
  neorl-train federate sites.toml --messages.bits 8 --messages.fraction 0.1
  neorl-train federate federations/0001
"""


def command(arguments: list[str]) -> None:
    """``neorl-train federate [FILE.toml | SOURCE SOURCE ... | FOLDER] [--OPTION VALUE ...]``."""
    timings = Timings.since_start(IMPORTS)
    folder, plan, file, flags = read_federation(arguments, ALGORITHMS)
    with timings.stage(REST_OF_IMPORTS):  # not needed for a misspelt option
        from neorl_train.federation._job import new_federation, run_federation
        from neorl_train.runs._directory import RunDirectory
    reporter = Reporter(quiet=flags.quiet)
    if folder is None:
        folder = new_federation(plan, file, reporter)
    sentence = run_federation(folder, plan, reporter, timings)
    if flags.json:
        sites = {
            path.name: run_results(RunDirectory(path.absolute()))
            for path in sorted((folder / "sites").iterdir())
        }
        print_json("federation", {"folder": str(folder), "sentence": sentence, "sites": sites})
        return
    print(sentence)
    if flags.timings:
        print(timings.table())
    print(f"written to {folder}; every site is a run: `neorl-train inspect {folder}/sites/NAME`")
