"""The gain in the units of the plant, over all starts, and episodes to choose from."""

import dataclasses
import re

import numpy as np
import pytest

from neorl_train._job.evaluation import write_results
from neorl_train.judging import decimals, with_sign
from neorl_train.pages import _style, write_report
from neorl_train.pages.sections._amounts import reversals, travel

pytest.importorskip("matplotlib", reason="the pictures need the extra 'report'")


@pytest.fixture(scope="module")
def page(tmp_path_factory, noisy):
    """With empty pictures: only where they stand is looked at."""
    run = tmp_path_factory.mktemp("benefit")
    write_results(run, noisy.evaluation, noisy.verdict)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_style, "svg_figure", lambda *_, **__: "<svg></svg>")
        return write_report(run).read_text()


def tables_of(page):
    return re.findall(r"<table>.*?</table>", page, flags=re.DOTALL)


def test_the_gain_is_told_in_the_units_of_the_plant(page, noisy):
    (table,) = [table for table in tables_of(page) if "Terms of the return of an episode" in table]
    row = noisy.tables.row("good-0", guarded=True)
    level, steps, *moved = row.amounts
    assert level.difference.value == pytest.approx(-row.difference.value, rel=1e-4)
    assert steps.difference.value == 0
    assert f"{with_sign(row.difference.value, decimals([row.difference]))}" in table
    assert "Gain in return" in table
    assert "any of the terms" not in table
    assert "Reported without a worth, so not part of the return: steps." in page
    assert [cell.kind for cell in moved] == ["travel", "reversals", "beyond"]
    (table,) = [table for table in tables_of(page) if "mean over all 100 starts" in table]
    for words in (
        "Travel of the actuators",
        "Reversals of the actuators",
        "Time beyond a limit",
    ):
        assert words in table


def test_a_gain_that_the_terms_do_not_explain_is_said(noisy, tmp_path, monkeypatch):
    monkeypatch.setattr(_style, "installed", lambda: False)
    rows = []
    for row in noisy.tables.rows:
        cells = [dataclasses.replace(cell, worth=cell.worth / 2) for cell in row.amounts]
        rows.append(dataclasses.replace(row, amounts=tuple(cells)))
    tables = dataclasses.replace(noisy.tables, rows=tuple(rows))
    write_results(tmp_path, dataclasses.replace(noisy.evaluation, tables=tables), noisy.verdict)
    assert "does not belong to any of the terms" in write_report(tmp_path).read_text()


def test_an_episode_can_be_chosen_without_a_script(page):
    chosen = re.findall(r'<details class="more" name="episode"><summary>([^<]+)</summary>', page)
    assert len(chosen) == 8
    gains = [
        float(words.split(": ")[1].split()[0].replace("\N{MINUS SIGN}", "-")) for words in chosen
    ]
    assert gains == sorted(gains)
    assert "<h3>Choose an episode</h3>" in page


def test_travel_and_reversals_count_moves_and_turns():
    assert travel(np.array([0.0, 2.0, 1.0])) == 1.5
    assert travel(np.array([3.0])) == reversals(np.array([3.0])) == 0.0
    assert reversals(np.array([0.0, 1.0, 1.0, 0.0, 2.0])) == 0.4  # two turns in five steps
    assert reversals(np.array([0.0, 1.0, 0.999, 2.0]), smallest=0.01) == 0.0
    wave = np.sin(2 * np.pi * np.arange(1000) / 50)  # two turns a period of 50 steps
    assert reversals(wave) == pytest.approx(2 / 50, abs=2e-3)
    assert travel(wave) == pytest.approx(4 / 50, rel=0.02)
