"""``neorl-train evaluate RUN``: evaluates a finished run on fresh starts, without retraining."""

import dataclasses

from neorl_core.infrastructure.command_line import parse_options
from neorl_train._command.shared import JsonFlag, RunArgument, print_json

USAGE = """neorl-train evaluate [RUN] [--OPTION VALUE ...]

Evaluates the policies of a finished run on fresh starts of its simulated plant, behind the same
guard and by the same rule, or scores them in fresh episodes of its Gymnasium environment. Nothing
is trained, and the run's own verdict is not changed. The results are written to a numbered folder
in RUN/evaluations. If RUN was trained on a log, --plant names the simulator or the environment.

examples:
  neorl-train evaluate runs/0001
  neorl-train evaluate runs/0001 --starts 1000
  neorl-train evaluate runs/0001 --starts 256 --seed 7 --candidate td3_bc-2
  neorl-train evaluate runs/0002 --plant Tank-v0
  neorl-train evaluate runs/0003 --plant gym:Hopper-v5
"""


@dataclasses.dataclass(frozen=True)
class EvaluateOptions(JsonFlag, RunArgument):
    """Starts of the evaluation and the policy to judge.

    Attributes:
        starts: Number of paired episodes; 0 uses as many as the run.
        seed: Seed of the starts; -1 chooses one that no evaluation of this run has used.
        candidate: Policy to judge; empty uses the candidate of the run.
        plant: Simulated plant, or Gymnasium environment for a run on a log, with the channels of
            the run; empty uses that of the run.
    """

    starts: int = 0
    seed: int = -1
    candidate: str = ""
    plant: str = ""


def command(arguments: list[str]) -> None:
    """``neorl-train evaluate [RUN] [--OPTION VALUE ...]``."""
    options = parse_options(EvaluateOptions, arguments, program="neorl-train evaluate")
    run = options.directory("evaluate")
    from neorl_train.pages._terminal import print_evaluation
    from neorl_train.studies._fresh_starts import evaluate_again

    repeated = evaluate_again(
        run,
        starts=options.starts,
        seed=options.seed,
        candidate=options.candidate,
        plant=options.plant,
    )
    if options.json:
        from neorl_train.judging._results import to_plain

        content = {
            "results": str(repeated.path),
            "seed": repeated.seed,
            "evaluations": repeated.earlier + 1,
            "first_answer": repeated.first,
            "verdict": to_plain(repeated.verdict),
            "tables": to_plain(repeated.evaluation.tables),
        }
        print_json("run-results", content)
        return
    print_evaluation(repeated.evaluation, repeated.verdict)
    seed, tables = repeated.seed, repeated.evaluation.tables
    where = f"on starts of seed {seed}, and the run itself answered {repeated.first!r}"
    if tables.judge:
        where = f"in episodes with the seeds {seed} to {seed + tables.n_starts - 1}"
    print(
        f"Counting its own, the run now has {repeated.earlier + 1} evaluations; this one is "
        f"{where}. Report them all: an evaluation that was picked for its result proves nothing."
    )
    print(f"results: {repeated.path}")
