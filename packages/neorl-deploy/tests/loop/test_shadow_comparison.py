"""What was proposed in shadow beside what was done, from the audit log of the loop."""

import json
import shutil

import numpy as np
import pytest

from neorl_deploy.audit import AuditError
from neorl_deploy.loop import Mode, audit_log, recorder
from neorl_deploy.shadow import shadow_comparison


@pytest.fixture
def watched_loop(make, fresh, tmp_path):
    """Sixty periods in shadow while an operator moves the valve, twelve of the loop's, ten more."""
    log = audit_log(tmp_path / "loop" / "audit", fresh.bundle)
    bench = make(record=recorder(log))
    cycles = []
    for step in range(60):
        cycles.append(bench.step())
        bench.plant.tags["LC.OP"] = 50.0 + 10.0 * np.sin(step / 5)
        bench.plant.tags["LI"] = 1.0 + 0.004 * step
    bench.close()
    bench.step(6)
    bench.loop.ask(Mode.SHADOW, "the test")
    cycles += bench.step(10)
    log.close()
    return tmp_path / "loop", cycles


def test_every_proposal_is_compared_with_what_was_done_in_its_place(watched_loop, fresh):
    folder, cycles = watched_loop
    result = shadow_comparison(folder / "audit", fresh.bundle)
    # The loop closed at the fifth step of `close`, so four more were still in shadow.
    assert len(result.log.obs) == 60 + 4 + 9
    assert result.log.starts.tolist() == [0, 64]
    done = np.array([c.received for c in cycles[1:60]], np.float32)
    proposed = np.array([c.decision.action for c in cycles[:59]])
    np.testing.assert_array_equal(result.log.action[:59], done)
    np.testing.assert_array_equal(result.shadow.action[:59], proposed)
    apart = (result.shadow.action - result.log.action)[:, 0].astype(float)
    valve = result.report["agreement"]["valve"]
    assert valve["mean"] == pytest.approx(apart.mean())
    assert valve["within"] == pytest.approx((np.abs(apart) <= 5.0).mean())
    assert valve["low"] < valve["mean"] < valve["high"]
    quarter = len(result.log.obs) // 4
    first, last = result.log.obs[:quarter, 0], result.log.obs[-quarter:, 0]
    move = (last.mean() - first.mean()) / first.std(ddof=1)
    assert result.report["drift"]["level"] == pytest.approx(float(move), rel=1e-4)
    assert result.report["benefit"]["bound"] == 1.0
    assert result.report["filter"]["changed"] > 0


def test_the_command_prints_and_writes_the_numbers(command, watched_loop, exported, tmp_path):
    folder, _ = watched_loop
    output = command("shadow", folder, exported)
    for words in ("Agreement with what was done", "Predicted benefit", "Drift", "The filter"):
        assert words in output
    report = json.loads((folder / "shadow.json").read_text())
    assert set(report["agreement"]) == {"valve", "jacket"}
    command("shadow", folder, exported)  # made anew
    assert "has no audit log" in command.refused("shadow", tmp_path, exported)


def test_a_changed_log_and_one_without_two_periods_are_refused(watched_loop, fresh, make, tmp_path):
    folder, _ = watched_loop
    changed = tmp_path / "changed"
    shutil.copytree(folder / "audit", changed)
    file = changed / "audit-000001.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"mode":"shadow"', b'"mode":"manual"', 1))
    with pytest.raises(AuditError, match="was changed"):
        shadow_comparison(changed, fresh.bundle)
    log = audit_log(tmp_path / "short", fresh.bundle)
    make(record=recorder(log)).step()
    log.close()
    with pytest.raises(AuditError, match="nothing to compare"):
        shadow_comparison(tmp_path / "short", fresh.bundle)
