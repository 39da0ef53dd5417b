"""The same commands on logs that nobody of this project made: no simulator, so no verdict."""

import json
from pathlib import Path

import pytest

from neorl_core.testing import shared_data

pytestmark = pytest.mark.slow

FILES = {
    "DMSD": "DMSD-high-100000-train.npz",
    "Simglucose": "Simglucose-high-100000-train.npz",
}


@pytest.mark.parametrize("name", FILES)
def test_neorl2(name: str, command, tmp_path: Path, small: tuple[str, ...]) -> None:
    log = shared_data("neorl2", FILES[name])
    printed = command("neorl-train", "run", f"--data.source={log}", *small, cwd=tmp_path).stdout
    run = tmp_path / "runs" / "0001"
    verdict = json.loads((run / "verdict.json").read_text())
    assert verdict["verdict"] == "cannot tell"
    assert "simulator" in verdict["reason"]
    assert "cannot tell" in printed.lower()
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "NeoRL" in page  # the attribution
    command("neorl-deploy", "export", cwd=tmp_path)
    replayed = command("neorl-deploy", "replay", cwd=tmp_path).stdout
    assert "100" in replayed
    refused = command(
        "neorl-deploy", "export", "--require-deploy", "--out=gated.bundle", cwd=tmp_path, code=3
    )
    assert "cannot tell" in (refused.stdout + refused.stderr).lower()
    assert not (tmp_path / "gated.bundle").exists()
