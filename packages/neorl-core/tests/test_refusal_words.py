"""The recorded words of every refusal of the table, so that a change of one shows in review.

``python packages/neorl-core/tests/test_refusal_words.py`` records them anew.
"""

import json
from pathlib import Path

import pytest

from neorl_core.testing import configure_tests, load_table

HERE = Path(__file__).parent
RECORD = HERE / "public_api" / "refusals.json"
ROWS = [row for row in load_table(HERE) if row.refuses]


def words(row):
    """What the function of a row says to each misuse, in the order of the table."""
    said = []
    for refusal in row.refuses:
        with pytest.raises(refusal.error) as caught:
            row.function(*refusal.args, **refusal.options)
        said.append(str(caught.value))
    return said


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_refusal_says_what_is_recorded(row):
    recorded = json.loads(RECORD.read_text())
    assert words(row) == recorded[str(row)], f"if that is meant, run `python {__file__}`"


def main() -> None:
    configure_tests(strict_dtypes=True)
    record = {str(row): words(row) for row in ROWS}
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
