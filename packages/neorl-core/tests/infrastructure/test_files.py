"""Files that are complete or not there, whatever fails while they are written."""

import errno
import json
import os

import pytest

from neorl_core.infrastructure import (
    is_full_disk,
    replacing,
    sync_folder,
    write_bytes,
    write_json,
    write_text,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_and_replaced(tmp_path):
    path = tmp_path / "a.txt"
    for text in ("first", "µ and ∞, longer than before", ""):
        write_text(path, text)
        assert path.read_bytes() == text.encode()
    write_bytes(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    write_json(path, {"b": [1, 0.1], "a": None})
    assert path.read_text().endswith("}\n")
    assert list(json.loads(path.read_text()).items()) == [("b", [1, 0.1]), ("a", None)]
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_json_cannot_hold_is_refused_before_anything_is_written(tmp_path, number):
    path = tmp_path / "a.json"
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"x": number})
    assert names(tmp_path) == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_when_the_block_fails_the_old_file_stays_and_no_other(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write_a_part():
        with replacing(path) as temporary:
            assert temporary.parent == tmp_path
            assert not temporary.exists()
            temporary.write_text("a part")
            raise error

    with pytest.raises(error):
        write_a_part()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_when_flushing_or_renaming_fails_the_old_file_stays_and_no_other(
    tmp_path, monkeypatch, function
):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        with pytest.raises(OSError, match="No space left") as caught:
            write_text(path, "new")
    assert is_full_disk(caught.value)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_the_error_of_the_block_is_told_even_where_clearing_up_fails(tmp_path, monkeypatch):
    def refuse(*args, **options):
        raise PermissionError("held by another program")

    def fail():
        with replacing(tmp_path / "a.txt") as temporary:
            temporary.write_text("a part")
            monkeypatch.setattr(type(temporary), "unlink", refuse)
            raise RuntimeError("the first")

    with pytest.raises(RuntimeError, match="the first"):
        fail()


def test_a_block_that_writes_nothing_is_an_error(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), replacing(path):
        pass
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_the_content_is_on_the_disk_before_the_name_points_to_it(tmp_path, monkeypatch):
    calls = []
    flush, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda *args: (calls.append("flush"), flush(*args)))
    monkeypatch.setattr(os, "replace", lambda *args: (calls.append("rename"), rename(*args)))
    write_text(tmp_path / "a.txt", "text")
    assert calls == ["flush", "rename", "flush"]  # The file, its new name, the folder.


def test_two_writers_of_one_file_do_not_meet(tmp_path):
    path = tmp_path / "a.txt"
    with replacing(path) as first, replacing(path) as second:
        first.write_text("first")
        second.write_text("second")
        assert first != second
    assert path.read_text() == "first"
    assert names(tmp_path) == ["a.txt"]


def test_a_folder_that_cannot_be_flushed_is_let_be(tmp_path):
    sync_folder(tmp_path)
    sync_folder(tmp_path / "missing")


def test_a_disk_that_is_full_names_the_file_that_was_to_be_written(tmp_path):
    """The system names no file where a write fails, and the temporary one means nothing to anyone.

    A limit on the size of files fails writes as a full disk does.
    """
    resource = pytest.importorskip("resource", reason="Windows has no such limit")
    path = tmp_path / "report.html"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            write_text(path, "x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert is_full_disk(caught.value)
    assert caught.value.filename == str(path)
    assert names(tmp_path) == []
    with pytest.raises(FileNotFoundError) as caught:
        write_text(tmp_path / "missing" / "a.txt", "text")
    assert caught.value.filename == str(tmp_path / "missing" / "a.txt")


def test_the_name_of_another_file_stays(tmp_path):
    def read_another():
        with replacing(tmp_path / "a.txt"):
            (tmp_path / "other").read_text()

    with pytest.raises(FileNotFoundError) as caught:
        read_another()
    assert caught.value.filename == str(tmp_path / "other")


def chained(first, then):
    try:
        raise first
    except Exception:
        try:
            raise then
        except Exception as error:
            return error


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "x"), True),
        (OSError(errno.EFBIG, "x"), True),
        (OSError(errno.EACCES, "x"), False),
        (RuntimeError("write failed: No space left on device"), True),
        (OSError("unable to write (file write failed: errno = 28, error message = '...')"), True),
        (ValueError("no such column"), False),
        (chained(OSError(errno.ENOSPC, "x"), ValueError("cannot write")), True),
        (chained(KeyError("x"), ValueError("cannot write")), False),
        (None, False),
    ],
)
def test_a_full_disk_is_recognised_behind_other_errors(error, full):
    assert is_full_disk(error) is full
