"""Every decision of a loop is recorded before it is written, and decided again to the same bits."""

import dataclasses
import importlib.metadata
import json

import pytest

from neorl_deploy.audit import AuditError, records, replay_decisions, verify_chain
from neorl_deploy.loop import Mode, Quality, audit_log, recorder
from neorl_deploy.runtime import Runtime


@pytest.fixture
def driven(make, fresh, tmp_path):
    """A loop with faults, a stop, a restart of its log and of its memory, in several files."""
    for part in range(2):
        log = audit_log(tmp_path / "audit", fresh.bundle, largest=8_000)
        bench = make(record=recorder(log))
        if part == 1:
            bench.loop.release("shift leader")
            bench.step()
        bench.close()
        bench.plant.quality["TI"] = Quality.BAD
        bench.step(3)
        bench.plant.quality.clear()
        bench.step(10)
        bench.loop.stop("operator 7")
        bench.step(3, missed=1)
        bench.plant.tags["LC.OP"] = 5.0
        bench.step(2)
        log.close()
        if part == 0:
            fresh.save(tmp_path / "state")
            fresh.restore(tmp_path / "state")
    return tmp_path / "audit"


def test_what_was_decided_is_decided_again_to_the_same_bits(driven, fresh):
    chain = verify_chain(driven)
    assert len(chain.files) > 2
    result = replay_decisions(driven, fresh.bundle, runtime=fresh)
    assert result.decisions == 49
    assert result.differ == ()
    with_carry = [r["carry"] is not None for r, _ in records(driven) if r["kind"] == "cycle"]
    assert 4 <= sum(with_carry) <= 14  # orders, restarts and the first of each file


def test_the_events_of_a_log_are_printed_with_who_when_and_why(command, driven):
    lines = command("verify", driven, "--show").splitlines()
    events = [line for line in lines if " UTC  record " in line]
    assert sum("operator 7" in line for line in events) == 2  # one stop in each part
    assert any(f"from {Mode.CLOSED_LOOP} to " in line for line in events)
    counted = [int(line.split()[0]) for line in lines if line.endswith("without an event")]
    cycles = [record for record, _ in records(driven) if record["kind"] == "cycle"]
    quiet = [r for r in cycles if r["mode"] == r["before"] and not r["notes"]]
    assert sum(counted) >= len(quiet) > 0
    assert any(line.startswith("No record was changed since") for line in lines)


def test_every_file_names_what_decided_where_and_for_whom(command, make, fresh, tmp_path):
    """A wrong scale of the past is found, because the tag map of the time is named."""
    tags = make().loop.tags
    wrong = dataclasses.replace(
        tags, inputs=(dataclasses.replace(tags.inputs[0], scale=10.0), *tags.inputs[1:])
    )
    for one in (tags, wrong):
        log = audit_log(tmp_path, fresh.bundle, tags=one, largest=1)
        log.append({"kind": "note"})
        log.close()
    first, *others = [record for record, _ in records(tmp_path) if record["kind"] == "file"]
    assert first["tags"] == others[0]["tags"] != others[1]["tags"] == others[2]["tags"]
    assert first["bundle"] == f"sha256:{fresh.bundle.digest}"
    assert first["signed_by"] == fresh.bundle.signed_by
    assert first["versions"]["neorl-deploy"] == importlib.metadata.version("neorl-deploy")
    assert {"python", "numpy"} <= set(first["versions"])
    assert first["machine"]
    assert first["account"]
    assert command("verify", tmp_path, "--show").count("the tag map is sha256:") == 2


def test_a_loop_by_numpy_alone_is_decided_again_in_the_form_that_decided(make, fresh, tmp_path):
    log = audit_log(tmp_path / "audit", fresh.bundle, form="numpy")
    bench = make(runtime=Runtime(fresh.bundle, "numpy"), record=recorder(log)).close()
    bench.plant.quality["TI"] = Quality.BAD
    assert {cycle.mode for cycle in bench.step(3)} == {Mode.FALLBACK}
    log.close()
    result = replay_decisions(tmp_path / "audit", fresh.bundle, runtime=fresh)
    assert result == (9, ())
    log = audit_log(tmp_path / "odd", fresh.bundle, form="abacus")
    log.close()
    with pytest.raises(AuditError, match="'abacus'"):
        replay_decisions(tmp_path / "odd", fresh.bundle)


def test_another_decision_and_another_bundle_are_noticed(driven, fresh, make, tmp_path):
    log = audit_log(tmp_path / "forged", fresh.bundle)
    write = recorder(log)
    forged = make(
        record=lambda cycle: write(
            cycle._replace(decision=cycle.decision._replace(action=cycle.decision.action + 1))
        )
    )
    forged.step(3)
    log.close()
    assert replay_decisions(tmp_path / "forged", fresh.bundle, runtime=fresh).differ == (1, 2, 3)
    other = audit_log(tmp_path / "other", fresh.bundle)
    other._opening = lambda: {"bundle": "sha256:ab"}
    other._begin_file()
    with pytest.raises(AuditError, match="made by another bundle"):
        replay_decisions(tmp_path / "other", fresh.bundle, runtime=fresh)


def test_verify_tells_a_log_from_a_bundle(command, driven, exported):
    output = command("verify", driven.parent)
    assert "records in" in output
    head = output.split("head ")[1].split()[0]
    output = command("verify", driven, "--decided-by", exported, "--head", head)
    assert "49 decisions were computed again and are identical" in output
    assert "up to the record that you noted" in output
    document = json.loads(command("verify", driven, "--head", head, "--show", "--json"))
    assert (document["head"], document["compared_with"]) == (head, head)
    assert document["decisions_recomputed"] is None
    assert any("operator 7" in event for event in document["events"])
    path = next(driven.glob("*.jsonl"))
    path.write_bytes(path.read_bytes().replace(b"operator 7", b"operator 8"))
    assert "was changed" in command.refused("verify", driven)


def test_every_written_action_was_recorded_before(make, fresh, tmp_path):
    log = audit_log(tmp_path, fresh.bundle)
    bench = make(record=recorder(log))
    known = []
    write = bench.plant.write

    def checked(values):
        last = list(records(tmp_path))[-1][0]
        known.append(last["planned"] == values)
        return write(values)

    bench.plant.write = checked
    bench.close()
    assert known == [True, True]
    assert bench.loop.mode is Mode.CLOSED_LOOP
