"""From the export of a sluggish loop to its change sheet, and the comparison after the change."""

import datetime
import re
from pathlib import Path

import numpy as np
import pytest

from neorl_train._command.main import main

pytest.importorskip("polars")

PERIOD, LAG, DEAD_ROWS, GAIN = 5.0, 60.0, 4, 1.5
TAGS = ["--pv", "TI1.PV", "--op", "TI1.OP", "--sp", "TI1.SP"]


def export(file: Path, *, gain: float, integral_time: float, seed: int) -> Path:
    """Rows of a lag with dead time and a wandering load under a PI, with moves of its setpoint."""
    rng, pole = np.random.default_rng(seed), np.exp(-PERIOD / LAG)
    inside, load, output, last, waiting = 0.0, 0.0, 50.0, 0.0, [50.0] * DEAD_ROWS
    begin, lines, setpoint = datetime.datetime(2026, 3, 1), ["time,TI1.PV,TI1.OP,TI1.SP"], 50.0
    for row in range(9000):
        if row % 450 == 0:
            setpoint = 50 + rng.uniform(-5, 5)
        load = 0.98 * load + 0.2 * rng.standard_normal()
        measured = 50 + inside + 0.05 * rng.standard_normal()
        error = setpoint - measured
        output += gain * (error - last + PERIOD / integral_time * error)
        output, last = float(np.clip(output, 0, 100)), error
        waiting.append(output)
        inside = pole * inside + (1 - pole) * (GAIN * (waiting.pop(0) - 50) + 3 * load)
        time = begin + datetime.timedelta(seconds=PERIOD * row)
        lines.append(f"{time.isoformat()},{measured:.4f},{output:.4f},{setpoint:.3f}")
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.mark.nightly
def test_a_sluggish_loop_gets_a_change_sheet_and_is_better_after_the_change(tmp_path, capsys):
    """Row U1: the command proposes gains, writes the sheet, and later compares both periods."""
    before = export(tmp_path / "before.csv", gain=0.15, integral_time=120.0, seed=0)
    out = ["--out", str(tmp_path / "sheets")]
    assert main(["loop", str(before), *TAGS, *out]) == 0
    text = capsys.readouterr().out
    assert "TI1.PV: RETUNE\n  The tuning is sluggish." in text
    (change,) = re.findall(r"gain 0\.15 to ([\d.]+), reset 2 to ([\d.]+) min, reverse", text)
    gain, minutes = map(float, change)
    assert 0.3 < gain < 1.5
    sheet = (tmp_path / "sheets" / "change-TI1.PV.html").read_text()
    assert change[0] in sheet
    assert change[1] in sheet
    after = export(tmp_path / "after.csv", gain=gain, integral_time=60 * minutes, seed=1)
    assert main(["loop", str(after), "--before", str(before), *TAGS, *out]) == 0
    assert "TI1.PV: BETTER\n" in capsys.readouterr().out
    assert (tmp_path / "sheets" / "TI1.PV-before-and-after.html").is_file()
