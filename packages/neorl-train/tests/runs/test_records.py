"""Records are appended, survive a cut, and say no step twice."""

import pytest

from neorl_core import InputError
from neorl_train.runs import Records, read_records


def _line(step, **more):
    return {"kind": "chunk", "algorithm": "bc", "seed": 0, "step": step, "metrics": {}, **more}


def test_lines_are_appended_across_openings(tmp_path):
    path = tmp_path / "m.jsonl"
    for step in (1, 2):
        records = Records(path)
        records.write(_line(step))
        records.sync()
        assert len(list(read_records(path))) == step
        records.close()
    assert [line["step"] for line in read_records(path)] == [1, 2]


def test_a_missing_file_is_empty(tmp_path):
    assert list(read_records(tmp_path / "none")) == []


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_line_that_was_cut_short_is_left_out_and_replaced(tmp_path, cut):
    path = tmp_path / "m.jsonl"
    records = Records(path)
    for step in (1, 2, 3):
        records.write(_line(step))
    records.close()
    path.write_bytes(path.read_bytes()[:-cut])
    assert [line["step"] for line in read_records(path)] == [1, 2]
    records = Records(path)
    records.keep(lambda line: line["step"] < 2)
    records.write(_line(9))
    records.close()
    assert [line["step"] for line in read_records(path)] == [1, 9]


def test_a_damaged_line_is_numbered(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text('{"step":1}\n{"st\n{"step":3}\n')
    with pytest.raises(InputError, match=r"m\.jsonl, line 2 is damaged; delete") as error:
        list(read_records(path))
    assert "\n" not in str(error.value)


def test_numbers_that_are_not_finite_do_not_enter(tmp_path):
    records = Records(tmp_path / "m.jsonl")
    with pytest.raises(ValueError, match="JSON"):
        records.write(_line(1, metrics={"loss": float("nan")}))
    records.close()
