"""The main job on a table of a historian: converted, trained on, judged, reported and sealed.

The table is that of a tank under a proportional controller, minute by minute, with set points that
change every hour. The commands run in this process, which has everything imported.
"""

import importlib
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

LITTLE = (
    "--data.held-out=0.3",
    "--training.algorithms=bc",
    "--training.seeds=0",
    "--training.updates=20",
    "--training.chunk=20",
    "--checkpoints.interval=20",
    "--evaluation.candidate=bc",
    "--algorithms.bc.networks.hidden=8",
    "--algorithms.bc.steps.batch-size=16",
    "--output.no-tracking",
    "--quiet",
)
COMPLETED = {
    'expression = "0"  # TODO': 'expression = "-abs(LI101_PV - LIC101_SP)"  #',
    "# length = 500": "length = 60",
    'name = "LV101_OP"\ntag = "LV101.OP"\nrole = "manipulated"\nunit = "?"': (
        'name = "LV101_OP"\ntag = "LV101.OP"\nrole = "manipulated"\nunit = "%"'
    ),
    'unit = "?"': 'unit = "m"',
    "# TODO": "#",
}


def table() -> str:
    rng = np.random.default_rng(0)
    begin, level, target = datetime(2026, 1, 5, 10, tzinfo=UTC), 2.0, 2.0
    lines = ["time,LI101.PV,LIC101.SP,LV101.OP"]
    for minute in range(600):
        target = rng.uniform(1.5, 2.5) if minute % 60 == 0 else target
        valve = float(np.clip(50 + 40 * (target - level) + 2 * rng.normal(), 0, 100))
        time = (begin + timedelta(minutes=minute)).isoformat()
        lines.append(f"{time},{level:.4f},{target:.3f},{valve:.2f}")
        level += 0.01 * (valve - 50) - 0.05 * (level - 2) + 0.01 * rng.normal()
    return "\n".join([*lines, ""])


def test_a_table_becomes_a_verdict_a_report_and_a_bundle_that_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("neorl_train.judging._summary.RESAMPLES", 1_000)
    for package in ("neorl_envs", "neorl_train"):
        monkeypatch.setattr(f"{package}._command.main.prepare_process", lambda: None)

    def command(name: str, *words: str) -> str:
        main = importlib.import_module(f"{name.replace('-', '_')}._command.main").main
        assert main(list(words)) == 0
        return capsys.readouterr().out

    Path("plant.csv").write_text(table())
    assert "3 tags" in command("neorl-envs", "init", "plant.csv")
    text = Path("plant.toml").read_text()
    for drafted, completed in COMPLETED.items():
        assert drafted in text
        text = text.replace(drafted, completed)
    Path("plant.toml").write_text(text)
    assert "599 rows" in command("neorl-envs", "convert", "plant.toml")
    assert "10 episodes" in command("neorl-envs", "inspect", "plant.h5")

    printed = command("neorl-train", "run", "plant.h5", *LITTLE)
    verdict = json.loads(Path("runs/0001/verdict.json").read_text())
    assert (verdict["answer"], verdict["candidate"]) == ("cannot tell", "bc-0")
    assert "CANNOT TELL" in printed
    page = Path("runs/0001/report.html").read_text()
    assert "plant.h5" in page
    assert "<svg" in page

    assert "CANNOT TELL" in command("neorl-deploy", "export")
    sealed = json.loads(Path("runs/0001/policy.bundle/verdict.json").read_text())
    assert sealed == verdict
    manifest = json.loads(Path("runs/0001/policy.bundle/manifest.json").read_text())
    assert manifest["parity"]["worst"] <= 1e-6
    replayed = command("neorl-deploy", "replay")
    assert re.search(r"599 rows of 10 episodes", replayed)
    assert json.loads(Path("runs/0001/replay.json").read_text())["finite"]
