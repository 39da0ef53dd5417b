import dataclasses
import io
import re
from pathlib import Path

import pytest

from neorl_envs import make
from neorl_train import verdict
from neorl_train._job.evaluation import write_results
from neorl_train.pages import _terminal, print_summary
from neorl_train.pages._html import glossary


def printed(run):
    stream = io.StringIO()
    print_summary(run, stream)
    return stream.getvalue()


def test_the_summary_says_it_all_in_short(tmp_path, noisy):
    write_results(tmp_path, noisy.evaluation, noisy.verdict)
    report = tmp_path / "report.html"
    report.touch()
    text = printed(tmp_path)
    lines = [line for line in text.splitlines() if line.strip()]
    assert lines[-1] == f"report: {report}"
    assert "DEPLOY  good-0 behind its guard may be deployed" in lines
    for name in ("good-0 + guard", "steady", "hasty", "log"):
        assert any(name in line for line in lines)
    assert any(line.startswith("good, 2 seeds: ") for line in lines)
    assert any(
        line.startswith("good-0 compared with steady, per episode: level ") for line in lines
    )
    assert sum(line.startswith("  ok ") for line in lines) == 5
    assert "\x1b" not in text, "no colour where nobody sees it"
    assert "\N{HORIZONTAL ELLIPSIS}" not in text, "nothing is cut"


def test_a_narrow_terminal_shows_integers_without_intervals(tmp_path, noisy, monkeypatch):
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
    prose = stream.getvalue().partition("good, 2 seeds")[2].partition("Next:")[0]
    assert all(len(line) <= 80 for line in prose.splitlines())
    words = " ".join(prose.split())  # lines end between words
    assert "more per episode than steady (95 % interval" in words


def test_the_reactor_explains_its_points_and_channels():
    points, channels = glossary("ChemicalReactor-v0")
    assert points.startswith("A return is 100 points for a finished batch")
    plant = make("ChemicalReactor-v0")
    for name in (next(iter(plant.tunings())), plant.reference):
        assert name in points, "a controller that a report compares with is explained"
    spec = plant.spec
    named = [c.name for c in (*spec.obs, *spec.action) if c.name != "batch_time"]
    assert all(name in channels.replace(",", "").replace(";", "").split() for name in named)
    assert glossary("Line-v0") == ("", "")


def test_a_refusal_names_the_clause(tmp_path, noisy):
    worse = dataclasses.replace(noisy.tables, candidate="bad-0")
    write_results(tmp_path, dataclasses.replace(noisy.evaluation, tables=worse), verdict(worse))
    text = printed(tmp_path)
    assert "DO NOT DEPLOY" in text
    assert re.search(r"  FAIL it earns \S+ \w+ less per episode than steady", text)
    assert text.splitlines()[-1] == f"results: {tmp_path}"


def test_a_deploy_counts_the_earlier_runs_of_its_folder(tmp_path, noisy):
    text = '[data]\nsource = "Line-v0"\n'
    for name in ("0001", "0002", "0003"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text(text, encoding="utf-8")
    (tmp_path / "0002/config.toml").write_text(text.replace("Line", "Other"), encoding="utf-8")
    for name in ("0001", "0002", "0003"):
        write_results(tmp_path / name, noisy.evaluation, noisy.verdict)
    assert "evaluated on the same source" not in printed(tmp_path / "0001")
    last = printed(tmp_path / "0003")
    assert "1 earlier run was evaluated on the same source" in last
    assert f"neorl-train evaluate {tmp_path.name}/0003" in last


@pytest.mark.parametrize("deployable", [True, False])
def test_what_may_follow_depends_on_the_answer(noisy, monkeypatch, deployable):
    monkeypatch.setattr(_terminal, "command_prefix", str)
    result = object() if deployable else None
    monkeypatch.setattr(_terminal.importlib.util, "find_spec", lambda name: result)
    sealing = ["neorl-deploy export", "neorl-deploy replay", "neorl-deploy init"] * deployable
    for answer, simulated, first in (
        ("deploy", True, []),
        ("do not deploy", True, ["neorl-train safety-report"]),
        ("cannot tell", False, ["neorl-train choose"]),
        ("worth a trial", False, ["neorl-train choose"]),
        ("do not deploy", False, ["neorl-train choose"]),
    ):
        judged = dataclasses.replace(noisy.verdict, answer=answer)
        tables = dataclasses.replace(noisy.tables, environment="CSTR-v0" if simulated else "")
        steps = _terminal.next_steps(Path("runs/my run"), judged, tables)
        assert [command.rpartition(" 'runs/my run")[0] for command, _ in steps] == first + sealing
        lines = _terminal.next_lines(steps)
        assert [line.startswith("Next: ") for line in lines] == [True, *[False] * len(lines)][
            : len(lines)
        ]
    judged = dataclasses.replace(noisy.verdict, clauses=())
    scored = dataclasses.replace(noisy.tables, environment="", judge="gym:Hopper-v5")
    ((command, _),) = _terminal.next_steps(Path("runs/0001"), judged, scored)
    assert command == "neorl-train evaluate runs/0001"
