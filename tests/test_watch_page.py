"""What the page on monitors says of long operation is what was measured."""

import json
import re
from pathlib import Path

import numpy as np

from neorl_core import Channel, Spec
from neorl_safety.monitoring import NamedMonitor, describe_monitor, drift_monitor

ROOT = Path(__file__).resolve().parents[1]
MEASURED = json.loads((ROOT / "tools/studies/benchmarks/results/drift_alarms.json").read_text())
PAGE = (ROOT / "docs/results/monitors.md").read_text()


def test_the_table_of_false_alarms_is_the_measurement():
    rows = {
        cells[0]: cells[1:]
        for line in PAGE.splitlines()
        if re.match(r"\| [A-Z]", line) and len(cells := line.strip("| ").split(" | ")) >= 5
    }
    assert set(rows) == {name.removesuffix("-v0") for name in MEASURED}
    for name, result in MEASURED.items():
        stretch, promised, share, a_day, *_ = rows[name.removesuffix("-v0")]
        running = result["running on"]
        assert float(stretch) == result["stretch_s"]
        assert float(promised) == result["promised_per_day"]
        part, error = (float(number.strip(" %")) for number in share.split("±"))
        assert abs(part - 100 * running["stretches with an alarm"]) < 0.051
        assert abs(error - 100 * running["standard error"]) < 0.051
        assert abs(float(a_day) / running["per_day"] - 1) < 0.01


def test_a_drift_monitor_says_the_largest_excess_that_was_measured():
    spec = Spec((Channel("level", "m", 0.0, 2.0),), (Channel("valve", "%", 0.0, 1.0),), (), 60.0, 9)
    monitor = drift_monitor(np.random.default_rng(0).normal(size=(200, 1)))
    words = describe_monitor(NamedMonitor("drift", monitor, 0.05, 99, stretch=600.0), spec)
    match = re.search(r"raised up to ([\d.]+) times as many alarms", words)
    worst = max(
        result["running on"]["stretches with an alarm"] / result["promised"]
        for result in MEASURED.values()
    )
    assert match
    assert abs(float(match[1]) - worst) < 0.05
