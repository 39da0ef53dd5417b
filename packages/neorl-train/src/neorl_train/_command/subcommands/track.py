"""``neorl-train track RUN``: copies the records of a run to MLflow."""

from neorl_core import InputError
from neorl_train._command.results import print_json
from neorl_train._command.run_argument import read_run_argument


def command(arguments: list[str]) -> None:
    """``neorl-train track RUN``."""
    summary = "Copies the records of a run into MLflow."
    run, flags = read_run_argument("track", arguments, summary, accepted=["--json"])
    from neorl_train.runs._tracker import MISSING, copy_once, mlflow_installed

    run.record()
    if not mlflow_installed():
        raise InputError(MISSING)
    from neorl_train.runs._mlflow import tracking_uri

    copy_once(run)
    where = tracking_uri(run)
    if flags.json:
        print_json("tracked", {"run": str(run.path), "tracking_uri": where})
    else:
        print(f"copied to {where}")
