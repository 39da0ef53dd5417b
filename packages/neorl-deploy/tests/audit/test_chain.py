"""Any byte that is changed, and any record that is removed, added, swapped or cut, is found."""

import errno
import hashlib
import json
import os
import re
import shutil
import threading
import tracemalloc

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from neorl_deploy.audit import AuditError, AuditLog, records, verify_chain
from neorl_deploy.audit import _log as writer
from neorl_deploy.bundle import Signer


def compact(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def line_of(before, record):
    """A record as a line, and its hash, as anybody can compute them."""
    body = compact(record)
    digest = hashlib.sha256(bytes.fromhex(before) + body).hexdigest()
    return digest.encode() + b" " + body + b"\n", digest


def written(folder, count=8, **settings):
    log = AuditLog(folder, lambda: {"bundle": "sha256:ab"}, **settings)
    for i in range(count):
        log.append({"kind": "cycle", "value": i / 3, "text": "10 °C\nup"}, durable=i == 3)
    log.close()
    return log.head


@pytest.fixture
def folder(tmp_path):
    """A log of three files."""
    written(tmp_path / "audit", largest=600)
    assert len(list((tmp_path / "audit").glob("*.jsonl"))) == 3
    return tmp_path / "audit"


def test_a_log_is_what_was_written(folder):
    chain = verify_chain(folder)
    assert (chain.first, chain.records) == (0, 11)
    bodies = [record for record, _ in records(folder) if record["kind"] == "cycle"]
    assert [record["value"] for record in bodies] == [i / 3 for i in range(8)]
    assert verify_chain(folder, head=chain.head) == chain
    with pytest.raises(AuditError, match="that was noted is not in this log"):
        verify_chain(folder, head="0" * 64)


def test_any_changed_byte_of_any_file_is_found(folder):
    """Row N21: a changed byte of the audit log is found."""
    rng, count = np.random.default_rng(0), 0
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for place in range(len(whole)):
            changed = bytearray(whole)
            changed[place] ^= 1 << rng.integers(8)
            path.write_bytes(changed)
            with pytest.raises(AuditError):
                verify_chain(folder)
            count += 1
        path.write_bytes(whole)
    assert count > 1500
    verify_chain(folder)


def test_any_removed_repeated_swapped_or_moved_record_is_found(folder):
    paths = sorted(folder.glob("*.jsonl"))
    lines = [path.read_bytes().splitlines(keepends=True) for path in paths]
    flat = [(f, i) for f, rows in enumerate(lines) for i in range(len(rows))]

    def refused(changed):
        for path, rows in zip(paths, changed, strict=True):
            path.write_bytes(b"".join(rows))
        with pytest.raises(AuditError):
            verify_chain(folder)

    for f, i in flat:
        for replacement in ([], [lines[f][i]] * 2):
            changed = [list(rows) for rows in lines]
            changed[f][i : i + 1] = replacement
            refused(changed)
        for g, k in flat:
            if (f, i) < (g, k):
                changed = [list(rows) for rows in lines]
                changed[f][i], changed[g][k] = changed[g][k], changed[f][i]
                refused(changed)


def test_a_cut_at_any_place_and_a_missing_file_are_found(folder):
    for path in [*sorted(folder.glob("*.jsonl")), folder / "head.json"]:
        whole = path.read_bytes()
        for length in range(len(whole)):
            path.write_bytes(whole[:length])
            with pytest.raises(AuditError):
                verify_chain(folder)
        path.unlink()
        with pytest.raises(AuditError):
            verify_chain(folder)
        path.write_bytes(whole)


def test_a_log_goes_on_and_a_cut_record_of_a_crash_is_told(folder):
    last = sorted(folder.glob("*.jsonl"))[-1]
    with last.open("ab") as file:
        file.write(b"0123 half a rec")
    with pytest.raises(AuditError, match="cut off, by a crash or by a person"):
        verify_chain(folder)
    written(folder, 2)
    assert verify_chain(folder).records == 14
    text = last.read_bytes()
    last.write_bytes(text[:-1])  # what the crash left is part of what must not change
    with pytest.raises(AuditError, match="its end does not match the first record"):
        verify_chain(folder)


def test_a_changed_end_is_not_gone_on_with(folder):
    """The last file is checked at every start; the older ones by ``verify``."""
    path = sorted(folder.glob("*.jsonl"))[-1]
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"text":"10', b'"text":"11'))
    with pytest.raises(AuditError, match="was changed"):
        written(folder, 1)
    path.write_bytes(whole)
    path = sorted(folder.glob("*.jsonl"))[0]
    path.write_bytes(path.read_bytes().replace(b"0.33", b"0.34"))
    written(folder, 1)
    with pytest.raises(AuditError, match="was changed"):
        verify_chain(folder)


def test_a_start_reads_the_last_file_and_what_a_crash_kept_it_from_repeating(folder, monkeypatch):
    read, real = [], writer.records_of
    monkeypatch.setattr(writer, "records_of", lambda files: read.append(len(files)) or real(files))
    log = AuditLog(folder, dict, largest=600)
    log.append({"kind": "checked", "by": "shift leader"}, standing=True)
    log.append({"kind": "stage", "at": 2}, standing=True)
    log.close()
    log = AuditLog(folder, dict)
    log.close()
    assert read == [1, 1]
    last = sorted(folder.glob("*.jsonl"))[-1]
    rows = last.read_bytes().splitlines(keepends=True)
    last.write_bytes(b"".join(rows[:2]))  # the second was not yet repeated
    log = AuditLog(folder, dict)
    log.close()
    assert read == [1, 1, 1, 2]
    assert log.standing("checked") is not None
    assert log.standing("stage") == {"kind": "stage", "at": 2, "standing": True, "n": 13}


def test_the_next_start_records_that_the_log_did_not_end_with_its_head(command, tmp_path):
    AuditLog(tmp_path, dict).close()
    noted = verify_chain(tmp_path)
    line, _ = line_of(noted.head, {"kind": "note", "n": 1})
    noted.files[0].write_bytes(noted.files[0].read_bytes() + line)
    AuditLog(tmp_path, dict).close()
    verify_chain(tmp_path, head=noted.head)
    shown = command("verify", tmp_path, "--show")
    assert "named record 0 at this start, while the log ended with record 1: a crash, or" in shown
    (tmp_path / "head.json").write_text("{}")
    AuditLog(tmp_path, dict).close()
    assert "could not be read at this start" in command("verify", tmp_path, "--show")


def test_rotation_keeps_so_many_files_and_says_what_it_removed(tmp_path):
    written(tmp_path, 40, largest=400, files=2)
    chain = verify_chain(tmp_path)
    assert len(chain.files) == 2
    assert chain.first > 20
    assert chain.records < 20
    shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns("copy"))
    chain.files[0].unlink()
    with pytest.raises(AuditError, match="no rotation is recorded"):
        verify_chain(tmp_path)
    written(tmp_path / "copy", 40, largest=400, files=2)
    assert verify_chain(tmp_path / "copy").first > chain.first


@pytest.mark.parametrize("part", [0, 20])
def test_a_full_disk_loses_nothing_that_is_there_and_the_log_goes_on(tmp_path, monkeypatch, part):
    log = AuditLog(tmp_path, lambda: {})
    log.append({"kind": "cycle", "i": 0})
    real = os.write

    def full(handle, data):
        if not part:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data[:part])

    monkeypatch.setattr(writer.os, "write", full)
    with pytest.raises(OSError, match=r"[Nn]o space left"):
        log.append({"kind": "cycle", "i": 1})
    monkeypatch.setattr(writer.os, "write", real)
    assert verify_chain(tmp_path).records == 2
    log.append({"kind": "cycle", "i": 2})
    assert [record.get("i") for record, _ in records(tmp_path)] == [None, 0, 2]


def test_a_log_in_use_is_good_so_far(tmp_path):
    """The records follow the head while a loop writes, which is no sign of a forger."""
    log, ending = AuditLog(tmp_path, lambda: {}, largest=20_000, files=3), threading.Event()

    def write():
        while not ending.is_set():
            log.append({"kind": "cycle", "text": "x" * 300})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = [verify_chain(tmp_path)]
        while len(found) < 30 or (found[-1].first == 0 and len(found) < 1000):
            found.append(verify_chain(tmp_path))
    finally:
        ending.set()
        writer.join()
        log.close()
    assert all(chain.in_use for chain in found)
    assert found[-1].first > found[0].first
    chain = verify_chain(tmp_path, head=log.head)
    assert not chain.in_use
    assert chain.head == log.head


def test_a_record_behind_the_head_of_a_log_at_rest_is_found(folder):
    noted = verify_chain(folder)
    last = noted.files[-1]
    line, _ = line_of(noted.head, {"kind": "cycle", "n": noted.records})
    last.write_bytes(last.read_bytes() + line)
    for head in (None, noted.head):
        with pytest.raises(AuditError, match="left by a crash, or added by a person"):
            verify_chain(folder, head=head)


@pytest.mark.parametrize("with_file", [False, True])
def test_deleted_files_are_found_though_a_rotation_is_claimed(tmp_path, with_file):
    """A forger who can write anything claims that rotation removed seven of ten files."""
    written(tmp_path, 60, largest=1200)
    chain = verify_chain(tmp_path)
    kept = chain.files[7:]
    opening = json.loads(kept[0].read_bytes().splitlines()[0][65:])
    n, head, number, path = chain.records, chain.head, len(chain.files), chain.files[-1]
    lines = []
    if with_file:  # which states another rule from then on
        lines.append({"kind": "file", "format": "neorl-audit", "version": 1, "file": number + 1})
        lines[0] |= {"before": head, "torn": "", "keep": 3, "oldest": opening["n"]}
        path = tmp_path / f"audit-{number + 1:06d}.jsonl"
        path.touch()
    lines.append({"kind": "forgotten", "before": opening["n"], "hash": opening["before"]})
    for record in lines:
        line, head = line_of(head, {**record, "n": n})
        path.write_bytes(path.read_bytes() + line)
        (tmp_path / "head.json").write_bytes(compact({"n": n, "hash": head}) + b"\n")
        n += 1
    for old in chain.files[:7]:
        old.unlink()
    if with_file:  # without a noted head, it is a log whose rule was changed
        assert verify_chain(tmp_path).first == opening["n"]
        with pytest.raises(AuditError, match="when the noted record was written and were to be"):
            verify_chain(tmp_path, head=chain.head)
    else:
        with pytest.raises(AuditError, match="its file states that all are kept"):
            verify_chain(tmp_path)


def test_rotation_goes_on_under_a_noted_head(tmp_path):
    log = AuditLog(tmp_path, lambda: {}, largest=4000, files=3)
    for i in range(100):
        log.append({"kind": "cycle", "value": i, "text": "x" * 100})
    noted, first = log.head, verify_chain(tmp_path).first
    for i in range(25):
        log.append({"kind": "cycle", "value": i, "text": "x" * 100})
    log.close()
    assert verify_chain(tmp_path, head=noted).first > first


def test_a_check_holds_one_record_at_a_time_and_parses_no_period(tmp_path, monkeypatch):
    """A year of records is hashed in minutes and needs no memory for them."""
    written(tmp_path, 5000)
    parsed, real = [], json.loads
    monkeypatch.setattr(json, "loads", lambda *a, **b: parsed.append(0) or real(*a, **b))
    tracemalloc.start()
    try:
        assert verify_chain(tmp_path).records == 5001
        assert tracemalloc.get_traced_memory()[1] < 200_000  # the log has 700,000 bytes
    finally:
        tracemalloc.stop()
    assert len(parsed) <= 3  # the opening of the file, and the head


def test_a_removal_is_signed_and_a_forged_one_is_found(command, tmp_path):
    """The forger keeps to the rule of the log, and has no key."""
    keys = {}
    for name in ("plant", "forger"):
        path, private = tmp_path / name, ed25519.Ed25519PrivateKey.generate()
        path.touch(0o600)
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        path.write_bytes(private.private_bytes(serialization.Encoding.PEM, *form))
        public = serialization.PublicFormat.SubjectPublicKeyInfo
        pem = private.public_key().public_bytes(serialization.Encoding.PEM, public)
        (tmp_path / f"{name}.pub").write_bytes(pem)
        keys[name] = Signer(path)
    trusted, log = keys["plant"].public_key, tmp_path / "log"
    written(log, 60, largest=1500, files=4, signer=keys["plant"])
    noted = verify_chain(log, trusted_key=trusted)
    assert noted.first > 0
    command("verify", log, "--public-key", tmp_path / "plant.pub")
    assert "signed by" in command.refused("verify", log, "--public-key", tmp_path / "forger.pub")
    AuditLog(log, dict, files=writer.AS_BEFORE).close()  # without the key, it removes nothing
    noted = verify_chain(log, trusted_key=trusted)
    assert len(noted.files) == 5
    shutil.copytree(log, tmp_path / "signed")
    written(tmp_path / "signed", 3, largest=1500, files=4, signer=keys["plant"])
    assert verify_chain(tmp_path / "signed", head=noted.head, trusted_key=trusted).first > 0
    for signer in (None, keys["forger"]):
        forged = tmp_path / f"forged {signer is None}"
        shutil.copytree(log, forged)
        AuditLog(forged, dict, files=2, signer=signer).close()
        found = verify_chain(forged)
        assert found.first > noted.first
        line, head = line_of(
            found.head,
            {"kind": "forgotten", "before": found.first + 1, "hash": "0" * 64, "n": sum(found[:2])},
        )  # as if more was still to be removed
        found.files[-1].write_bytes(found.files[-1].read_bytes() + line)
        (forged / "head.json").write_bytes(compact({"hash": head, "n": sum(found[:2])}) + b"\n")
        for more in ({"trusted_key": trusted}, {"head": noted.head}):
            with pytest.raises(AuditError, match=f"no removal that fits, signed by {trusted}"):
                verify_chain(forged, **more)


def test_a_process_may_keep_as_many_files_as_the_last_one(tmp_path):
    """So that a check of the tag map between two runs of a loop does not change the rule."""
    written(tmp_path, 40, largest=400, files=3)
    for _ in range(2):
        AuditLog(tmp_path, dict, files=writer.AS_BEFORE).close()
    noted = verify_chain(tmp_path)
    assert len(noted.files) == 3
    log = AuditLog(tmp_path, dict, files=3)
    log.close()
    assert verify_chain(tmp_path, head=noted.head).first > noted.first
    AuditLog(tmp_path / "new", dict, files=writer.AS_BEFORE).close()
    assert next(iter(records(tmp_path / "new")))[0]["keep"] is None


def test_what_is_no_log_is_one_line(tmp_path):
    with pytest.raises(AuditError, match="holds no audit log"):
        verify_chain(tmp_path)
    with pytest.raises(AuditError, match="cannot read"):
        verify_chain(tmp_path / "none")
    (tmp_path / "head.json").write_bytes(compact({"n": 0, "hash": "0" * 64}) + b"\n")
    (tmp_path / "audit-000001.jsonl").write_text(json.dumps({"n": 0}) + "\n")
    with pytest.raises(AuditError, match="is not a record"):
        verify_chain(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(AuditError, match="cannot write the audit log"):
        AuditLog(tmp_path / "file", lambda: {})
    assert re.fullmatch("[0-9a-f]{64}", written(tmp_path / "new"))


@pytest.mark.parametrize("left", [b"", b'7f3a {"kind":"fi'])
def test_a_file_that_a_killed_process_left_without_a_record_refuses_no_start(folder, left):
    """The next start replaces it, and its first record says what was there."""
    head = verify_chain(folder).head
    (folder / "audit-000004.jsonl").write_bytes(left)
    with pytest.raises(AuditError, match="killed as it began this file, or a person emptied it"):
        verify_chain(folder)
    written(folder, count=2)
    chain = verify_chain(folder, head=head)
    assert chain.records == 14
    assert [path.name for path in chain.files] == [f"audit-00000{i}.jsonl" for i in range(1, 5)]
    opening = next(r for r, _ in records(folder) if r["kind"] == "file" and r["file"] == 4)
    digest = hashlib.sha256(left).hexdigest()
    assert opening["replaces"] == {"bytes": len(left), "sha256": digest}
    assert (opening["before"], opening["torn"], opening["head_found"]) == (head, "", None)


def test_a_first_file_without_a_record_is_replaced_too(tmp_path):
    folder = tmp_path / "audit"
    folder.mkdir()
    (folder / "audit-000001.jsonl").write_bytes(b"")
    written(folder, count=1)
    assert verify_chain(folder).records == 2
    assert next(records(folder))[0]["replaces"]["bytes"] == 0


def test_records_that_were_emptied_out_of_the_last_file_are_stated_by_the_next(folder):
    """Whoever empties the last file cannot hide that there were records: the head names them."""
    head = verify_chain(folder).head
    (folder / "audit-000003.jsonl").write_bytes(b"")
    written(folder, count=1)
    opening = next(r for r, _ in records(folder) if r["kind"] == "file" and r["file"] == 3)
    assert opening["head_found"]["hash"] == head
    with pytest.raises(AuditError, match="that was noted is not in this log"):
        verify_chain(folder, head=head)
