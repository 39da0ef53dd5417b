"""Files of a log in pieces give the table that polars reads at once."""

import gzip
import io
import random
from pathlib import Path

import polars as pl
import pytest

from neorl_envs import DatasetError
from neorl_envs.plant_logs import _tables
from neorl_envs.plant_logs._configuration import Files

FILES = Files(("log.csv",), "time")
CELLS = ("1.5", "", '"two, words"', '"a line\nbreak"', '"said ""so"""', '"\n\n"', "äß", " 7 ")


def table_of(seed: int) -> bytes:
    """CSV with line breaks between quotes, empty lines above it, any ends of lines, a mark."""
    choose = random.Random(seed)
    end = choose.choice(["\n", "\r\n"])
    lines = [choose.choice(["time,a,b", 'time,"a\nb",b', "time,a,a"])]
    lines += [
        ",".join([str(i), *choose.choices(CELLS, k=choose.choice([1, 2, 2, 2]))])
        for i in range(choose.choice([0, 1, 60]))
    ]
    text = end * choose.choice([0, 2]) + end.join(lines) + choose.choice(["", end])
    return choose.choice([b"", b"\xef\xbb\xbf"]) * (text[0] == "t") + text.encode()


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz"])
@pytest.mark.parametrize("seed", range(25))
def test_pieces_of_csv_are_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, name: str
) -> None:
    """Whatever the pieces; the oracle is one read of polars."""
    text = table_of(seed)
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    expected = pl.read_csv(text, infer_schema=False, row_index_name=_tables.ROW, row_index_offset=2)
    for at_once in (1, 7, 40, 10**6):
        monkeypatch.setattr(_tables, "LEAST", at_once)
        monkeypatch.setattr(_tables, "MOST", at_once)
        actual = list(_tables.tables(tmp_path / name, FILES, memory=1e9))
        assert len(expected) == sum(map(len, actual))
        if actual:
            assert pl.concat(actual).equals(expected)
            assert pl.concat(actual).columns == expected.columns
            assert at_once > 10 or len(actual) > len(expected) / 4
        if expected.columns[1:] == ["time", "a", "b"]:
            chosen = list(_tables.tables(tmp_path / name, FILES, memory=1, columns=["b", "time"]))
            if chosen:
                assert pl.concat(chosen).equals(expected.select(_tables.ROW, "b", "time"))


def test_rows_of_parquet_are_the_table(tmp_path: Path) -> None:
    """Asked for by rows, across row groups."""
    expected = pl.DataFrame({"time": range(1000), "a": [i / 7 for i in range(1000)]})
    expected.write_parquet(tmp_path / "log.parquet", row_group_size=150)
    actual = list(_tables.tables(tmp_path / "log.parquet", FILES, memory=64 * 3 * 110))
    assert len(actual) > 9
    assert pl.concat(actual).drop(_tables.ROW).equals(expected)
    assert pl.concat(actual)[_tables.ROW].to_list() == list(range(1000))


def test_a_row_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quote that is not closed would make the rest of a log one row."""
    monkeypatch.setattr(_tables, "LONGEST_ROW", 1000)
    text = b"time,a\n" + b"1,2\n" * 50 + b'2,"3\n' + b"1,2\n" * 500
    with pytest.raises(DatasetError, match=r"log\.csv: .* does not end within .* quote"):
        list(_tables.records(io.BytesIO(text), 100, "log.csv"))
    assert list(_tables.records(io.BytesIO(b""), 100, "log.csv")) == [b""]
