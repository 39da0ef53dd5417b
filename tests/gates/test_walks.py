"""What a reader has to hold grows only where someone says so: the record of `tools/walks.py`.

The goals stand in the record: a hyperparameter and a cost limit seen by at most 25 files, at most
80 files before the loop, at most 150 from a table to a decision, at most 14 rooms in a package.
"""

import json

import pytest

import walks


def test_no_package_has_more_rooms_files_or_code_than_its_record() -> None:
    grown = walks.grown({"sizes": walks.measured_sizes()}, walks.read_record())
    assert not grown, f"{grown}; take something away, or `python tools/walks.py --write --size`"


@pytest.mark.nightly
def test_no_walk_passes_more_files_than_its_record() -> None:
    """Two runs under a profiler."""
    counted = {name: len(files) for name, files in walks.measured_walks().items()}
    grown = walks.grown({"walks": counted, "sizes": {}}, walks.read_record())
    assert not grown, f"{grown}; shorten the walk, or `python tools/walks.py --write`"


def test_the_record_has_every_walk_and_the_goals() -> None:
    record = walks.read_record()
    assert record["goals"] == walks.GOALS
    assert set(record["walks"]) == set(walks.GOALS) - {"rooms"}
    assert set(record["sizes"]) == set(walks.PACKAGES)


def test_a_number_that_grew_is_named() -> None:
    record = walks.read_record()
    now = json.loads(json.dumps(record))
    now["walks"]["files before the loop"] += 1
    now["sizes"]["neorl_train"]["rooms"] += 1
    now["sizes"]["neorl_core"]["code"] -= 1
    rooms = record["sizes"]["neorl_train"]["rooms"]
    files = record["walks"]["files before the loop"]
    assert walks.grown(now, record) == [
        f"files before the loop: {files + 1}, at most {files}",
        f"rooms of neorl_train: {rooms + 1}, at most {rooms}",
    ]


def test_code_is_counted_without_blank_lines_comments_and_docstrings() -> None:
    text = '"""Says\n\nit."""\n\n# A comment.\nx = 1  # One.\n\n\ndef f():\n    """Says."""\n'
    assert walks.code_lines(text) == 2
    assert walks.code_lines(f'{text}    return """a\n\n# b"""\n') == 5


def test_a_marked_number_is_found_within_settings_and_not_within_arrays() -> None:
    settings = walks.SimpleNamespace(learner={"alpha": [0.5, walks.ALPHA]})
    assert walks.holds((1, settings), walks.ALPHA)
    assert not walks.holds((1, settings), walks.LIMIT)
    assert not walks.holds((1, settings), walks.ALPHA, depth=2)
