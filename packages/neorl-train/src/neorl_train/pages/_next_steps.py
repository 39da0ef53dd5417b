"""Commands that are useful after a run, with the reason for each."""

import importlib.util
import shlex
from pathlib import Path

from neorl_core.infrastructure.command_line import command_prefix
from neorl_train.judging._verdict import DEPLOY, REFUSE, Verdict

Step = tuple[str, str]
"""A command and its purpose."""


def next_steps(run: Path, verdict: Verdict, *, simulated: bool) -> list[Step]:
    """What a user can do with a finished run.

    Args:
        run: Directory of the run.
        verdict: Its verdict.
        simulated: Whether policies were run in a simulator.

    Returns:
        Commands, the most useful first. Those of neorl-deploy are left out if it is not installed.
    """
    run_path = shlex.quote(str(run))
    train = command_prefix("neorl-train")
    steps = []
    if not simulated and verdict.answer not in (DEPLOY, REFUSE):
        why = "estimate every candidate from the log, with intervals"
        steps.append((f"{train} select {run_path}", why))
    if not simulated and verdict.answer != DEPLOY:
        why = "check whether a plant model learned from the log can be used"
        steps.append((f"{train} model {run_path}", why))
    if simulated and verdict.answer != DEPLOY:
        why = "show which constraints are broken, with and without the filter"
        steps.append((f"{train} safety-report {run_path}", why))
    if importlib.util.find_spec("neorl_deploy") is None:
        return steps
    deploy, bundle = command_prefix("neorl-deploy"), shlex.quote(str(run / "policy.bundle"))
    why = "seal the candidate" if verdict.answer == DEPLOY else "seal the candidate, to watch it"
    steps += [
        (f"{deploy} export {run_path}", why),
        (f"{deploy} replay {bundle}", "run it in shadow over the log of this run"),
        (
            f"{deploy} init {bundle}",
            "write a draft of the tag map, to run it in shadow beside the plant",
        ),
    ]
    return steps


def next_lines(steps: list[Step]) -> list[str]:
    """The commands as lines of text, the first one after ``Next:``."""
    return [
        f"{'Next:' if not i else '     '} {command}    ({why})"
        for i, (command, why) in enumerate(steps)
    ]
