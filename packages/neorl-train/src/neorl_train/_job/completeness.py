"""Checks whether a run needs nothing more: every result is present and readable."""

import json

from neorl_agents import load_policy
from neorl_core.infrastructure import check_head
from neorl_safety.constraints import constraints_from_dict
from neorl_train.judging._evaluation_file import read_evaluation
from neorl_train.judging._fine_tuning import read_fine_tuning
from neorl_train.judging._verdict_file import read_verdict
from neorl_train.runs._directory import RunDirectory
from neorl_train.runs._names import CONSTRAINTS, FINISHED, GUARD, REPORT, policy_file
from neorl_train.runs._records import read_records

LAST_TAG = "</html>"
GUARD_VERSION = 1


def is_complete(run: RunDirectory) -> bool:
    """Whether a run is finished and all its files are present, readable and its own.

    Args:
        run: Directory of the run.

    Returns:
        False if it did not finish, or a policy, the constraints, the evaluation, the verdict, the
        metrics or the report is missing, damaged, or not the one recorded.
    """
    record = run.record()
    if record["status"] != FINISHED:
        return False
    try:
        read_evaluation(run.path)
        read_verdict(run.path)
        if record.get("fine_tunes"):
            read_fine_tuning(run.path)
        constraints_from_dict(json.loads((run.path / CONSTRAINTS).read_text(encoding="utf-8")))
        guard = json.loads((run.path / GUARD).read_text(encoding="utf-8"))
        for name in check_head(guard, "guard", GUARD_VERSION, GUARD)["fallbacks"]:
            load_policy(run.path / policy_file(name))
        for name in record["algorithms"]:
            for seed in record["seeds"]:
                path = run.policy(name, seed)
                if load_policy(path).digest != record.get("policies", {}).get(path.name):
                    return False
        for _line in read_records(run.metrics):
            pass
        report = (run.path / REPORT).read_text(encoding="utf-8")
    except (OSError, ValueError):  # every InputError is a ValueError
        return False
    return report.rstrip().endswith(LAST_TAG)
