"""``neorl-train track RUN``: copy the records of a run into MLflow."""

from neorl_core import InputError
from neorl_train._command.options import read_run_argument
from neorl_train.runs._names import MLFLOW_DATABASE
from neorl_train.runs._tracker import MISSING, mlflow_installed


def command(arguments: list[str]) -> None:
    """``neorl-train track RUN``."""
    run, _ = read_run_argument("track", arguments, "Copies the records of a run into MLflow.")
    run.record()
    if not mlflow_installed():
        raise InputError(MISSING)
    from neorl_train.runs._mlflow import copy_to_mlflow

    copy_to_mlflow(run)
    print(f"copied to {run.path.parent / MLFLOW_DATABASE}")
