"""Learning is real: pooled seeds beat the logged behaviour, on seeds used for nothing else too.

The two sets of seeds, log and starts are those of the page
docs/results/reactor-learning.md; everything else is the demo's configuration. Whole
trainings take minutes, and learners and plants will be many, so both sets run with ``--nightly``.
"""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

DEVELOPED = (0, 1, 2, 3)
UNUSED = (100, 101, 102, 103)
OTHER_LOG_AND_STARTS = ("--evaluation.seed=101", "--data.seed=100")
ONLY = ("--training.algorithms=td3_bc", "--evaluation.candidate=td3_bc", "--output.no-tracking")


@pytest.mark.parametrize("seeds", [DEVELOPED, UNUSED], ids=str)
def test_four_seeds_beat_what_was_logged_at_no_more_cost(
    command, tmp_path: Path, seeds: tuple[int, ...]
) -> None:
    others = OTHER_LOG_AND_STARTS if seeds == UNUSED else ()
    command("neorl-train", "run", "--training.seeds", *seeds, *others, *ONLY, cwd=tmp_path)
    evaluation = json.loads((tmp_path / "runs/0001/evaluation.json").read_text())
    tables = evaluation["tables"]
    assert tables["n_starts"] >= 100
    (row,) = [r for r in tables["pooled"] if r["against"] == "logged behaviour" and r["guarded"]]
    assert row["seeds"] == [f"td3_bc-{seed}" for seed in seeds]
    assert row["difference"]["low"] > 0
    for cost in row["costs"]:
        assert cost["mean"]["high"] <= cost["other"]["high"], cost["name"]
