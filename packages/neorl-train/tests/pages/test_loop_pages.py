"""The change sheet of a loop, its part of a report, and the page that compares two periods."""

import dataclasses
import io
import json
import math
import re

import numpy as np
import pytest

from neorl_agents.loops import Interval, LoopModel, LoopRecord, compare_periods, propose
from neorl_core import InputError
from neorl_core.infrastructure import head
from neorl_core.loops import Faceplate, PIDForm, PIDGains, TransferFunction
from neorl_train.candidates import Candidate
from neorl_train.judging import (
    Clause,
    LogFacts,
    duration_words,
    loop_change,
    one_at_a_time,
    read_changes,
    touched_by_loop,
    turn_length,
    write_changes,
    write_evaluation,
    write_verdict,
)
from neorl_train.pages import (
    change_sheet,
    compared_logs,
    loop_change_section,
    periods_page,
    print_summary,
    write_report,
)

PERIOD = 20.0
FORM = PIDForm(integral="minutes", measurement_span=30.0)
SHOWN = Faceplate(0.1, 20.0, 0.0, 10.0)
TODAY = PIDGains(1 / 3, 1 / 3600, 0.0, 0.0)
FACTS = LogFacts(
    "evap.h5", "sha256:4f5e", "2026-10-20 to 2026-10-25",
    ("interlock high level: when level > 1.8, set AIC-401.OP = 0",), True,
)  # fmt: skip


def interval(value: float) -> Interval:
    return Interval(value, 0.9 * value, 1.1 * value)


def member(gain: float, lag: float, dead_time: float) -> TransferFunction:
    return TransferFunction(np.asarray([gain]), np.asarray([lag, 1.0]), np.asarray(dead_time))


MODEL = LoopModel(
    (member(0.9, 600.0, 80.0), member(1.0, 560.0, 90.0), member(0.8, 640.0, 75.0)),
    interval(0.9), interval(80.0), (interval(600.0),), False, 0.8, 600.0,
    ("it rests on 12 moves of the setpoint",), True, "",
)  # fmt: skip


def logged(seed: int = 0, n: int = 3000, size: float = 1.0, gains: PIDGains = TODAY) -> LoopRecord:
    """Rows of a loop around the first member, under a wandering load."""
    rng = np.random.default_rng(seed)
    a, late = math.exp(-PERIOD / 600), 4
    load, y, u, x, integral = 0.0, np.zeros(n), np.zeros(n), 0.0, 40.0
    loads = np.zeros(n)
    for t in range(n):
        load = 0.97 * load + size * rng.normal()
        loads[t] = load
        if t > late:
            x = a * x + 0.9 * (1 - a) * (u[t - 1 - late] - 40.0 + loads[t - 1 - late])
        y[t] = 45.0 + x + 0.05 * rng.normal()
        integral += gains.ki * PERIOD * (45.0 - y[t])
        u[t] = gains.kp * (45.0 - y[t]) + integral
    return LoopRecord(
        "AIC-401", y, u, np.full(n, 45.0), np.ones(n, bool), np.zeros(n, int), PERIOD,
        "°Bx", "%", (30.0, 60.0), (0.0, 100.0),
    )  # fmt: skip


@pytest.fixture(scope="module")
def change():
    found = propose(MODEL, TODAY, period=PERIOD, output_span=100.0, noise=0.05)
    return loop_change(
        logged(), MODEL, SHOWN, FORM, found.chosen.gains, FACTS, proposal=found, band=1.5
    )


def test_what_is_typed_is_what_is_judged(change):
    gain, reset = change.typed
    assert (gain.name, gain.unit, gain.old) == ("gain", "%/%", "0.1")
    assert (reset.name, reset.unit, reset.old) == ("reset", "min", "20")
    assert float(gain.new) > float(gain.halfway) > 0.1
    assert change.sentence == (
        f"AIC-401: gain 0.1 to {gain.new} %/%, reset 20 to {reset.new} min, reverse (unchanged)"
    )
    assert [name.partition(" (")[0] for name in change.vendors] == [
        "Rockwell PIDE, dependent gains",
        "Rockwell PID, dependent gains",
    ]
    assert "1756-RM006K" in change.vendors[0]
    engineering = change.engineering[0]
    assert float(engineering.new) == pytest.approx(float(gain.new) * 100 / 30, rel=1e-3)
    assert engineering.unit == "% per °Bx"
    assert change.accepted


def test_the_evidence_says_what_the_replay_and_the_margins_say(change):
    margins = {row.name: row for row in change.margins}
    assert margins["peak sensitivity Ms"].proposed.high <= 1.82
    assert margins["gain margin"].proposed.low >= 1.7
    assert margins["gain margin"].today.value > margins["gain margin"].proposed.value
    expected = {row.name: row for row in change.expected}
    error = expected["mean size of setpoint minus measurement"]
    assert error.proposed.high < error.today.low
    assert change.logged[1] == pytest.approx(error.today.value, rel=0.02)
    outside = expected["time with more than 1.5 °Bx"]
    assert outside.unit == "%"
    assert 0 <= outside.proposed.value < outside.today.value <= 100
    travel = expected["travel of the output per hour"]
    assert travel.proposed.value > travel.today.value
    errors = [point.error for point in change.profile if not point.refusal]
    assert errors[0] > min(errors)
    assert any("peak sensitivity" in point.refusal for point in change.profile)


def test_a_trial_is_planned_in_hours_and_turns(change):
    text = " ".join(change.plan)
    assert "change it in two moves" in text
    turns = re.search(r"(\d+) turns of each, (\S+) (h|days) in all", text)
    assert turns is not None
    assert int(turns[1]) >= 4
    assert "neorl-train loop NEW.csv --before OLD.csv" in text
    assert any("largest distance in the log" in stop for stop in change.stop)
    assert turn_length(1000.0) == 3600.0
    assert turn_length(4000.0) == 4 * 3600.0
    assert turn_length(100.0) == 300.0
    assert duration_words(math.inf) == "an unknown time"


def test_loops_that_change_together_are_tried_one_at_a_time(change):
    other = dataclasses.replace(change, loop="TIC-402")
    first, second = one_at_a_time([change, other])
    assert first.plan[0].startswith("New values are proposed for TIC-402 too. Change one loop at a")
    assert second.plan[0].startswith("New values are proposed for AIC-401 too.")
    assert first.plan[1:] == second.plan[1:] == change.plan
    assert one_at_a_time([change]) == [change]


def test_a_change_is_stored_and_read_again(change, tmp_path):
    point = dataclasses.replace(change.profile[0], error=math.inf)
    unstable = dataclasses.replace(change, profile=(point,))
    write_changes(tmp_path / "loops.json", [change, unstable])
    assert read_changes(tmp_path / "loops.json") == [change, unstable]
    assert read_changes(tmp_path / "none.json") == []
    (tmp_path / "loops.json").write_text("[{")
    with pytest.raises(InputError, match="is damaged"):
        read_changes(tmp_path / "loops.json")


def test_the_sheet_holds_what_a_person_signs(change):
    page = change_sheet(change)
    text = re.sub(r"<[^>]+>", " ", page)
    for told in (
        "May be tried", change.sentence, "to roll back", "Halfway", "Go back at once",
        "To go back, type gain 0.1 %/%, reset 20 min", "Who watches", "Control engineer",
        "interlock high level: when level &gt; 1.8", "sha256:4f5e", "2026-10-20 to 2026-10-25",
        "it rests on 12 moves of the setpoint"[1:], "the extremes over 3 linear models",
    ):  # fmt: skip
        assert told in text, told
    assert "A4 portrait" in page
    assert not re.search(r'(?:src|href)="(?!#|data:)', page)
    assert "<script" not in page
    assert page.count("<svg") == 2


def test_the_report_begins_with_what_the_change_brings_and_costs(change, tmp_path, noisy):
    clause = Clause("return", "gain", 2.0, 1.5, 2.5, 1.5, ">", 0.0, "EUR", True, "gain")
    trial = dataclasses.replace(
        noisy.verdict, answer="worth a trial", candidate="retuned-0", reference="AIC-401",
        sentence="retuned-0 is worth a trial: gain. Try it.", reason="", clauses=(clause,),
    )  # fmt: skip
    tables = dataclasses.replace(noisy.tables, environment="")
    write_evaluation(tmp_path, dataclasses.replace(noisy.evaluation, tables=tables))
    write_verdict(tmp_path, trial)
    facts = Candidate("retuned", "retuned", None, (0,)).facts()
    record = {**head("run", 1), "changes": [change.sentence], "candidates": [facts]}
    (tmp_path / "run.json").write_text(json.dumps(record))
    write_changes(tmp_path / "loops.json", [change])
    page = write_report(tmp_path).read_text()
    sheet = tmp_path / "change-AIC-401.html"
    assert sheet.read_text() == change_sheet(change)
    box = page[page.index('id="verdict"') : page.index("<nav")]
    assert change.sentence in box
    assert "setpoint minus measurement: mean size" in box
    assert "times as much" in box
    assert "The loops before and after" in page
    assert f'href="{sheet.name}"' in page
    assert "What the log shows of the process" in page
    assert change.stopped[1:].rstrip(".") in page
    assert "gain, °Bx per %: 0.9 [0.81, 0.99]" in page
    assert "dead time: 80 s [72, 88]" in page
    stream = io.StringIO()
    print_summary(tmp_path, stream)
    assert f"change sheet: {sheet}" in stream.getvalue()
    assert "loop NEW.csv --before OLD.csv" in stream.getvalue()
    # The first lines do not stand for numbers that the part on the loop refuses.
    assert "do not type these numbers" not in page
    write_changes(tmp_path / "loops.json", [dataclasses.replace(change, accepted=False)])
    page = write_report(tmp_path).read_text()
    box = page[page.index('id="verdict"') : page.index("<nav")]
    assert "margins are too small, so do not type these numbers" in box
    assert "Do not type these numbers" in sheet.read_text()


def test_a_run_that_proposes_no_trial_has_no_sheet_to_type_from(change, tmp_path, noisy):
    """The margins alone are no reason to type numbers that the run does not stand for."""
    untold = dataclasses.replace(
        noisy.verdict, answer="cannot tell", candidate="retuned-0", reason="a model", clauses=()
    )
    tables = dataclasses.replace(noisy.tables, environment="")
    write_evaluation(tmp_path, dataclasses.replace(noisy.evaluation, tables=tables))
    write_verdict(tmp_path, untold)
    told = "TIC-7: no change sheet, because the valve sticks"
    (tmp_path / "run.json").write_text(json.dumps({**head("run", 1), "loops": [told]}))
    write_changes(tmp_path / "loops.json", [change])
    page = write_report(tmp_path).read_text()
    assert not list(tmp_path.glob("change-*.html"))
    assert "The run does not propose to try this" in page
    assert 'href="change-' not in page
    assert f"{told}." in page


def test_a_loop_without_margins_is_not_to_be_typed(change):
    wide = MODEL._replace(members=(*MODEL.members, member(9.0, 600.0, 300.0)))
    refused = loop_change(logged(), wide, SHOWN, FORM, PIDGains(1.5, 0.004, 0.0, 0.0),
                          LogFacts("a.csv", "sha256:0"), reason="as the run proposes")  # fmt: skip
    assert not refused.accepted
    page = change_sheet(refused)
    assert "Do not type these numbers" in page
    assert "Not provided." in page
    section = loop_change_section(refused, 0, "change-AIC-401.html").text
    assert "do not type these numbers" in section
    assert "Why not more?" not in section
    assert "Why not more?" in loop_change_section(change, 0, "change-AIC-401.html").text


def test_limits_and_interlocks_on_the_loop_are_found():
    configuration = {
        "tag": [
            {"name": "steam", "unit": "%", "low": 0.0, "high": 80.0},
            {"name": "brix", "low": "-inf"},
        ],
        "interlock": [
            {"name": "high level", "when": "level > 1.8", "set": {"steam": 0.0}},
            {"name": "elsewhere", "when": "p > 3", "set": {"q": 1.0}},
        ],
        "cost": [{"name": "thick", "expression": "brix - 50", "limit": 0.0}],
        "constraint": [{"kind": "rate", "channel": "steam"}],
    }
    assert touched_by_loop(configuration, "brix", "steam") == (
        "range of steam: 0 to 80 %",
        "interlock high level: when level > 1.8, set steam = 0.0",
        'constraint {"kind": "rate", "channel": "steam"}',
        "limit thick: brix - 50, at most 0.0",
    )


def test_the_page_of_two_periods_says_whether_to_go_back():
    calmer = TODAY._replace(kp=0.8 * TODAY.kp, ki=0.8 * TODAY.ki)
    old, new = logged(size=0.6), logged(1, size=2.0, gains=calmer)
    worse = compare_periods(old, new, band=1.5)
    page = periods_page(worse, "AIC-401", ("OLD.csv", "NEW.csv"), "gain 0.1 %/%, reset 20 min")
    assert "worse: roll back to gain 0.1 %/%, reset 20 min" in page
    assert 'class="verdict no"' in page
    better = periods_page(
        compare_periods(new, old, band=1.5, dead_time=80.0), "AIC-401", ("N.csv", "O.csv")
    )
    assert 'class="verdict yes"' in better
    assert "Caution: the part of the error that no controller could remove" in better
    same = periods_page(
        compare_periods(old.rows(np.s_[:300]), new, band=1.5), "AIC-401", ("OLD.csv", "NEW.csv")
    )
    assert 'class="verdict unknown"' in same
    assert "The period before the change has only" in same
    assert not re.search(r'(?:src|href)="(?!#|data:)', page)


def test_loops_of_two_logs_are_compared_by_their_tags(tmp_path):
    calmer = TODAY._replace(kp=0.8 * TODAY.kp, ki=0.8 * TODAY.ki)
    old, new = logged(size=0.6), logged(1, size=2.0, gains=calmer)
    (one,) = compared_logs(
        [old], [new], tmp_path, files=("OLD.csv", "NEW.csv"), roll_back={"AIC-401": "gain 0.1"}
    )
    assert one.words == "worse: roll back to gain 0.1"
    assert one.found.band == float(f"{np.std(old.setpoint - old.measurement):.2g}")
    assert "OLD.csv" in one.page.read_text()
    other = dataclasses.replace(new, name="TIC-1")
    with pytest.raises(InputError, match="no loop is in both logs"):
        compared_logs([old], [other], tmp_path, files=("OLD.csv", "NEW.csv"))
    still = dataclasses.replace(old, measurement=old.setpoint)
    with pytest.raises(InputError, match="its error does not vary"):
        compared_logs([still], [new], tmp_path, files=("OLD.csv", "NEW.csv"))
