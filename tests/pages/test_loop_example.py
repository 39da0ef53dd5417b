"""The example of the page from a log to a change sheet is answered as the page says."""

import re
import shutil
from pathlib import Path

import pytest

from neorl_train._command.main import main

FOLDER = Path(__file__).resolve().parents[2] / "docs/pages/how-to"


@pytest.mark.nightly
def test_the_example_leads_to_the_sheet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (FOLDER / "change-a-loop.md").read_text("utf-8")
    (example,) = re.findall(r"(?m)^neorl-train (loop heater.+)$", page)
    (shown,) = re.findall(r"```text\n(.+?)```", page, flags=re.DOTALL)
    shutil.copy(FOLDER / "heater.csv.gz", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(example.split()) == 0
    assert shown in capsys.readouterr().out
    (sheet,) = re.findall(r"`(change-.+?\.html)`", page.partition("## An example")[2])
    text = (tmp_path / sheet).read_text("utf-8")
    assert "May be tried" in text
    # The numbers of the faceplate of today are those of the simulation.
    assert "gain 0.05 to" in text
    assert "reset 0.3333 to" in text
