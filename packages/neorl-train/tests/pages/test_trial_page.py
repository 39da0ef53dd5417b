"""The page of a run on a log alone whose candidate was judged by a model of the log."""

import dataclasses
import json
import re

import pytest

from neorl_core.infrastructure import head
from neorl_core.infrastructure.command_line import command_prefix
from neorl_train._job.evaluation import write_results
from neorl_train.candidates import Candidate
from neorl_train.judging import Clause
from neorl_train.pages import write_report

pytest.importorskip("matplotlib", reason="the pictures need the extra 'report'")


def test_a_refusal_on_a_log_alone_shows_its_clauses(tmp_path, noisy):
    """Such a verdict has no reason beside them."""
    numbers = (0.8, 0.1, 1.5, 1.5, "<=", 0.0, "K", False)
    sentence = "hot: predicted up to 1.5 K, above the limit"
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
    # On a narrow screen each row is a list, in which the cells repeat the heads of their columns.
    row = page[page.index("<strong>hot</strong>") :].partition("</tr>")[0]
    assert re.findall('<td[^>]*data-label="([^"]*)"', row) == [
        "Holds",
        "Estimate with its interval",
        "Must hold",
        "Interval and limit",
    ]
    assert ">0.8 [0.1,\N{NO-BREAK SPACE}1.5] K<" in row
    assert ">1.5 \N{LESS-THAN OR EQUAL TO} 0 K<" in row
    assert len(re.findall("<td", page)) == len(re.findall('<td[^>]* data-label="[^"]', page))
    assert "of a model learned from the log" in page
    assert f"{command_prefix('neorl-train')} choose" in page


def test_a_trial_begins_with_the_changed_parameters_and_the_gain(tmp_path, noisy):
    """What an engineer would enter into the control system, before any clause of the rule."""
    sentences = "the model reproduces PID", "it earns more than PID"
    plan = "Run it in shadow first."
    trial = dataclasses.replace(
        noisy.verdict,
        answer="worth a trial",
        sentence=f"retuned-0 is worth a trial: {'; '.join(sentences)}. {plan}",
        candidate="retuned-0",
        reference="PID",
        reason="",
        clauses=(
            Clause("model", "difference", 1.0, 1.0, 1.0, 1.0, "<=", 5.0, "EUR", True, sentences[0]),
            Clause("return", "gain", 2.0, 1.5, 2.5, 1.5, ">", 0.0, "EUR", True, sentences[1]),
        ),
    )
    tables = dataclasses.replace(noisy.tables, environment="")
    write_results(tmp_path, dataclasses.replace(noisy.evaluation, tables=tables), trial)
    retuned = Candidate("retuned", "retuned", None, (0,))
    changes = {
        "changes": ["gain of valve from 0.5 to 2 % per m"],
        "candidates": [retuned.facts()],
        "seeds": [],
    }
    compared = {"candidate": [0.3, 0.25, 0.35], "incumbent": [0.1, 0.05, 0.15]}
    moves = {"kind": "travel", "name": "valve", "unit": "%", **compared}
    others = [{**moves, "kind": kind, "name": "level"} for kind in ("deviation", "error")]
    changes["predicted_movement"] = [moves, *others]
    (tmp_path / "run.json").write_text(json.dumps({**head("run", 1), **changes}))
    page = write_report(tmp_path).read_text()
    box = page[page.index('id="verdict"') : page.index("<nav")]
    told = ["retuned-0 is worth a trial.", "Gain of valve from 0.5 to 2 % per m"]
    told += ["valve moves 3.0 times as much: 0.1 to 0.3 [0.25, 0.35] % a step, predicted"]
    told += ["level, mean size of setpoint minus measurement: 0.1 to 0.3 [0.25, 0.35] %, predicted"]
    told += ["Predicted gain in return over PID: 2 [1.5, 2.5] EUR per episode", plan]
    assert [box.index(line) for line in told] == sorted(box.index(line) for line in told)
    assert sentences[0] not in box
    # A number without an interval has none, but the digits that decide; and no training, no curves.
    assert ">1.00 EUR<" in page
    assert ">1 \N{LESS-THAN OR EQUAL TO} 5 EUR<" in page
    assert "Learning curves" not in page
    assert "<dt>Seeds" not in page
    moved = page[page.index("Predicted by the plant model of the log") :].partition("</table>")[0]
    moved = re.sub("<[^>]*>", " ", moved)
    assert re.search(r"retuned-0.*PID", moved, re.DOTALL)
    for name in ("valve", "level"):
        assert re.search(rf"{name} +% +0.3 \[0.25, 0.35\] +0.1 \[0.05, 0.15\]", moved), moved
