"""Learning is real: pooled seeds beat the logged behaviour, on seeds that nothing was developed on.

The seeds, the log and the starts are the second set of the page
docs/pages/decisions/reactor-learning.md. Everything else is the demo's configuration.
"""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

UNUSED = ("--training.seeds", 100, 101, 102, 103, "--evaluation.seed=101", "--data.seed=100")
ONLY = ("--training.algorithms=td3_bc", "--evaluation.candidate=td3_bc", "--output.no-tracking")


def test_four_fresh_seeds_beat_what_was_logged_at_no_more_cost(command, tmp_path: Path) -> None:
    command("neorl-train", "run", *UNUSED, *ONLY, cwd=tmp_path)
    evaluation = json.loads((tmp_path / "runs/0001/evaluation.json").read_text())
    tables = evaluation["tables"]
    assert tables["n_starts"] >= 100
    (row,) = [r for r in tables["pooled"] if r["against"] == "logged behaviour" and r["guarded"]]
    assert row["seeds"] == [f"td3_bc-{seed}" for seed in (100, 101, 102, 103)]
    assert row["difference"]["low"] > 0
    for cost in row["costs"]:
        assert cost["ours"]["high"] <= cost["theirs"]["high"], cost["name"]
