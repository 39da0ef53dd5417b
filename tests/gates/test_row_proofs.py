"""Every row of the acceptance list has a test, and no test of one reads other data unnoticed."""

from pathlib import Path

import pytest

import row_proofs

TEST = '''"""Tests of the toy."""

LOG = "Toy-v0-mixed"


def test_it_wins():
    """Row N13: it is above cloning on a mixed log."""
    assert read(LOG, "numbers.json") < benchmark("speed")
'''


def test_every_row_has_a_test_that_reads_the_recorded_data() -> None:
    wrong = row_proofs.faults()
    assert not wrong, f"{wrong}; review, then `python tools/pages/row_proofs.py record`"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one row and one test, as recorded."""
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_toy.py").write_text(TEST)
    (folder / "numbers.json").write_text("1")
    monkeypatch.setattr(row_proofs, "ROOT", tmp_path)
    monkeypatch.setattr(row_proofs, "RECORD", tmp_path / "record.csv")
    monkeypatch.setattr(row_proofs, "all_rows", lambda: ["N13"])
    row_proofs.write_record()
    assert row_proofs.faults() == []
    return folder


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("test_toy.py", "Toy-v0-mixed", "Toy-v0-medium", "and reads Toy-v0-medium; results/speed"),
        ("test_toy.py", '"speed"', '"other"', "Toy-v0-mixed; results/other.json; tests/numbers"),
        ("numbers.json", "1", "2", "read Toy-v0-mixed; results/speed.json; tests/numbers.json 6b"),
        ("test_toy.py", "Row N13", "It", "row N13 has no test"),
        ("test_toy.py", "test_it_wins", "test_it_loses", "test_it_wins is gone, or lost"),
    ],
)
def test_other_data_and_a_lost_test_are_named(
    toy: Path, file: str, old: str, new: str, says: str
) -> None:
    path = toy / file
    path.write_text(path.read_text().replace(old, new))
    assert says in "; ".join(row_proofs.faults())
    with pytest.raises(ValueError, match=r"row_proofs\.py record"):
        row_proofs.table()
