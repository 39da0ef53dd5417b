"""``neorl-train track RUN``: copies the records of a run to MLflow."""

import dataclasses

from neorl_core import InputError
from neorl_core.infrastructure.command_line import parse_options
from neorl_train._command.results import print_json
from neorl_train._command.run_argument import JsonFlag, RunArgument


@dataclasses.dataclass(frozen=True)
class TrackOptions(JsonFlag, RunArgument):
    """Copies the records of a run into MLflow.

    example: neorl-train track runs/0001
    """


def command(arguments: list[str]) -> None:
    """``neorl-train track RUN``."""
    options = parse_options(TrackOptions, arguments, program="neorl-train track")
    run = options.directory("track")
    from neorl_train.runs._tracker import MISSING, copy_once, mlflow_installed

    run.record()
    if not mlflow_installed():
        raise InputError(MISSING)
    from neorl_train.runs._mlflow import tracking_uri

    copy_once(run)
    where = tracking_uri(run)
    if options.json:
        print_json("tracked", {"run": str(run.path), "tracking_uri": where})
    else:
        print(f"copied to {where}")
