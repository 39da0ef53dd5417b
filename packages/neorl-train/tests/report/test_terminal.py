import dataclasses
import io

from neorl_envs import make
from neorl_train import verdict
from neorl_train._pipeline.write_results import write_results
from neorl_train.report import print_summary, write_report
from neorl_train.report._glossary import legend
from neorl_train.results import Estimate
from neorl_train.results._wording import (
    decimals,
    finest,
    fixed,
    listed,
    percent,
    signed,
    with_interval,
)


def printed(run):
    stream = io.StringIO()
    print_summary(run, stream)
    return stream.getvalue()


def test_the_summary_says_it_all_in_short(tmp_path, noisy):
    write_results(tmp_path, noisy.evaluation, noisy.verdict)
    report = write_report(tmp_path)
    text = printed(tmp_path)
    lines = [line for line in text.splitlines() if line.strip()]
    assert lines[-1] == f"report: {report}"
    assert "DEPLOY  good-0 behind its guard may be deployed" in lines
    for name in ("good-0 + guard", "PID steady", "PID hasty", "log"):
        assert any(name in line for line in lines)
    assert any(line.startswith("good, 2 seeds: ") for line in lines)
    assert sum(line.startswith("  ok ") for line in lines) == 3
    assert "\x1b" not in text, "no colour where nobody sees it"
    assert "\N{HORIZONTAL ELLIPSIS}" not in text, "nothing is cut"


def test_a_narrow_terminal_shows_whole_numbers_without_intervals(tmp_path, noisy, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    write_results(tmp_path, noisy.evaluation, noisy.verdict)
    stream = io.StringIO()
    stream.isatty = lambda: True
    print_summary(tmp_path, stream)
    table, *_ = stream.getvalue().partition("good, 2 seeds")
    assert "the report has their intervals" in table
    assert "[" not in table
    assert "\N{HORIZONTAL ELLIPSIS}" not in table
    assert all(len(line) <= 80 for line in table.splitlines())
    rows = [line for line in table.splitlines() if "good-0 + guard" in line]
    assert len(rows) == 1
    assert rows[0].rstrip().endswith("%")


def test_the_reactor_explains_its_points_and_channels():
    points, channels = legend("ChemicalReactor-v0")
    assert points.startswith("points: 100 for a finished batch")
    spec = make("ChemicalReactor-v0").spec
    named = [c.name for c in (*spec.obs, *spec.action) if c.name != "batch_time"]
    assert all(name in channels.replace(",", "").replace(";", "").split() for name in named)
    assert legend("Line-v0") == ("", "")


def test_a_refusal_names_the_clause(tmp_path, noisy):
    worse = dataclasses.replace(noisy.tables, candidate="bad-0")
    write_results(tmp_path, dataclasses.replace(noisy.evaluation, tables=worse), verdict(worse))
    text = printed(tmp_path)
    assert "DO NOT DEPLOY" in text
    assert "  NOT the lower bound of its gain in return over the PID steady" in text
    assert text.splitlines()[-1] == f"results: {tmp_path}"


def test_numbers_have_as_many_digits_as_they_deserve():
    assert decimals([Estimate(0, 0.0, 0.31)]) == 2
    assert decimals([Estimate(0, 0.0, 31.0)]) == 0
    assert decimals([None, Estimate(1, 1, 1)]) == 0
    assert finest([Estimate(0, 0.0, 31.0), Estimate(0, 0.0, 0.06), Estimate(1, 1, 1)]) == 2
    assert finest([Estimate(0, 0.0, 1e-9)]) == 2
    assert fixed(-0.001, 2) == "0.00"
    assert fixed(-1.25, 1) == "\N{MINUS SIGN}1.2"
    assert fixed(float("nan"), 1) == "not a number"
    assert fixed(12345.6, 0) == "12\N{THIN SPACE}346"
    assert signed(1.0, 1) == "+1.0"
    assert signed(0.0, 1) == "0.0"
    assert signed(0.001, 1) == "0.0"
    narrow = "\N{NO-BREAK SPACE}"
    assert with_interval(Estimate(1, 0.5, 1.5), 1) == f"1.0{narrow}[0.5,{narrow}1.5]"
    assert percent(0.0) == f"0{narrow}%"
    assert percent(1e-4) == f"<{narrow}0.1{narrow}%"
    assert percent(0.99999) == f">{narrow}99.9{narrow}%"
    assert listed(["a", "b", "c"]) == "a, b and c"
