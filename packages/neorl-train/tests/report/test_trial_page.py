"""The page of a run on a log alone whose candidate was judged by a model of the log."""

import dataclasses

import pytest

from neorl_train._pipeline.write_results import write_results
from neorl_train.report import write_report
from neorl_train.verdicts import Clause

pytest.importorskip("matplotlib", reason="the pictures need the extra 'report'")


def test_a_refusal_on_a_log_alone_shows_its_clauses(tmp_path, noisy):
    """Such a verdict has no reason beside them."""
    numbers = (0.8, 0.1, 1.5, 1.5, "<=", 0.0, "K", False)
    sentence = "the upper bound of its predicted cost is not within the limit"
    refused = dataclasses.replace(
        noisy.verdict,
        answer="do not deploy",
        sentence=sentence,
        reason="",
        clauses=(Clause("hot", "predicted worst step", *numbers, sentence),),
    )
    tables = dataclasses.replace(noisy.tables, environment="")
    write_results(tmp_path, dataclasses.replace(noisy.evaluation, tables=tables), refused)
    page = write_report(tmp_path).read_text()
    assert "Reason:" not in page
    assert "For a trial, every clause must hold" in page
    assert "predicted worst step" in page
    assert "of a model learned from the log" in page
    assert "neorl-train model" in page
