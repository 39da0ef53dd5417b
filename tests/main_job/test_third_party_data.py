"""The same commands on logs that nobody of this project made: no simulator, so no verdict."""

import json
from pathlib import Path

import pytest

ONE = ("--training.algorithms", "td3_bc", "--evaluation.candidate", "td3_bc")

# One log goes through one algorithm and through all of them; the other log shows that
# episodes of unequal length are read. A small third-party log is in the tests of neorl-train.
FILES = {
    "DMSD": ("DMSD-high-100000-train.npz", "100000 rows of 1000 episodes", ONE),
    "DMSD, all": ("DMSD-high-100000-train.npz", "100000 rows of 1000 episodes", ()),
    "Simglucose": (
        "Simglucose-high-100000-train.npz",
        "100257 rows of 280 episodes",
        ("--training.algorithms", "iql"),
    ),
}
OWNER = "NeoRL-2 (polixir/NeoRL2), data licensed CC-BY-4.0"


@pytest.mark.nightly
@pytest.mark.parametrize("name", FILES)
def test_neorl2(name: str, command, tmp_path: Path, small, shared_data) -> None:
    file, size, options = FILES[name]
    log = shared_data("neorl2", file)
    words = ("run", f"--data.source={log}", *small, *options)
    printed = command("neorl-train", *words, cwd=tmp_path).stdout
    run = tmp_path / "runs" / "0001"
    verdict = json.loads((run / "verdict.json").read_text())
    assert verdict["answer"] == "cannot tell"
    assert "simulator" in verdict["reason"]
    assert "cannot tell" in printed.lower()
    assert OWNER in printed
    assert OWNER in (run / "report.html").read_text(encoding="utf-8")
    command("neorl-deploy", "export", cwd=tmp_path)
    replayed = command("neorl-deploy", "replay", cwd=tmp_path).stdout
    assert size in replayed
    assert OWNER in replayed
    refused = command(
        "neorl-deploy", "export", "--require-deploy", "--out=gated.bundle", cwd=tmp_path, code=3
    )
    assert "cannot tell" in (refused.stdout + refused.stderr).lower()
    assert not (tmp_path / "gated.bundle").exists()
