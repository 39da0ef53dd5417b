"""Writes the files of an evaluation in an order that survives interruption."""

from pathlib import Path

from neorl_train.results._file import write_evaluation
from neorl_train.results._results import Evaluation
from neorl_train.verdicts._file import write_verdict
from neorl_train.verdicts._rule import Verdict


def write_results(run: Path, evaluation: Evaluation, verdict: Verdict) -> None:
    """Writes ``evaluation.json``, ``traces.json`` and ``verdict.json``, each atomically.

    Args:
        run: The directory.
        evaluation: What was found.
        verdict: What follows from it; written last, so that it never stands alone.

    Raises:
        OSError: If a file cannot be written.
    """
    write_evaluation(run, evaluation)
    write_verdict(run, verdict)
