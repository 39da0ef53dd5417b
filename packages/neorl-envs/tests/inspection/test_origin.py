"""Lines on how a log was recorded and read, and durations that are compared."""

import math

import pytest

from neorl_envs.inspection._wording import duration, durations, origin_lines

NOTHING = {"excitation": None, "ingestion": None, "provenance": None, "split": None}
INGESTION = {
    "rows_read": 1204,
    "samples": 8428,
    "repeated": 0,
    "out_of_order": 3,
    "in_a_repeated_hour": 0,
    "offsets_from_utc": ["+01:00", "+02:00"],
    "tags": {"LI_1": {"outside the range": 2, "bad quality": 1}},
    "unknown_tags": [f"X{i}" for i in range(10)],
    "rows": {"of the running plant": 1200, "left out: unknown at an end of an episode": 4},
    "excluded": [{"from": "2026-01-08", "to": "2026-01-09", "reason": "revision", "rows": 1}],
    "unknown": {"QI_2": {"rows": 30, "alone": 20, "mean_spacing_s": 7200.0}},
}
PROVENANCE = {
    "generator": "neorl_envs.plant_logs.convert_log",
    "neorl-envs": "0.1.0",
    "polars": "2.1.0",
    "files": [{"name": "a.csv", "bytes": 9, "sha256": "5f"}, {"name": "b.csv", "sha256": "6f"}],
    "configuration": {"tag": [{"name": "LI_1"}]},
}


def test_what_was_read_is_told_in_lines_without_the_structure_of_the_file():
    excitation = {
        "channels": [
            {
                "channel": "feed",
                "unit": "kg/h",
                "prbs_amplitude": 3000.0,
                "prbs_mean_dwell_s": 600.0,
                "prbs_fraction_of_steps": 0.93,
                "manual_fraction_of_steps": 0.07,
                "action_std": 8672.4,
            }
        ]
    }
    split = {"of": "sha256:ab", "episodes": 3, "of_episodes": 12}
    report = {
        "excitation": excitation,
        "ingestion": INGESTION,
        "provenance": PROVENANCE,
        "split": split,
    }
    assert origin_lines(report) == [
        "excitation of feed: a test signal of 3000 kg/h that changes every 10 min on average, in "
        "93% of the steps; in manual in 7% of the steps; standard deviation of the action 8672 "
        "kg/h",
        "ingestion: 1204 rows of the files with 8428 values were read",
        "ingestion: 3 rows are earlier than the row above them",
        "ingestion: timestamps have the offsets +01:00, +02:00 from UTC",
        "ingestion: plant.toml does not declare the tags X0, X1, X2, X3, X4, X5, X6, X7 and 2 more",
        "rows: 1200 of the running plant; 4 left out: unknown at an end of an episode",
        "excluded: 1 row from 2026-01-08 to 2026-01-09: revision",
        "values of LI_1 that were not used: 2 outside the range; 1 bad quality",
        "QI_2 is unknown in 30 rows, in 20 of them alone; its values are 2 h apart",
        "provenance: converted from a.csv, b.csv",
        "provenance: written by neorl_envs.plant_logs.convert_log (neorl-envs 0.1.0, polars 2.1.0)",
        "split: 3 of the 12 episodes of the log with content sha256:ab",
    ]


def test_attributes_of_other_programs_are_listed_if_they_are_single_values():
    odd = {"format": "Minari", "file": "main.hdf5", "nested": {"a": [1, 2]}, "list": [1, 2]}
    report = NOTHING | {"provenance": odd, "ingestion": {"note": "by hand"}, "split": {"part": 2}}
    assert origin_lines(report) == [
        "ingestion: note by hand",
        "provenance: format Minari, file main.hdf5",
        "split: part 2",
    ]
    for value in (None, "words", [1], 3.0, {"channels": 4, "rows": 5, "tags": 6, "files": 7}):
        lines = origin_lines(dict.fromkeys(NOTHING, value))
        assert not any(mark in line for line in lines for mark in "[]{}")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ([0.0, 600.0, 5400.0], ["0 min", "10 min", "90 min"]),
        ([600.0, 9000.0], ["10 min", "150 min"]),
        ([23 * 86_400.0, 1800.0], ["552 h", "0.5 h"]),
        ([1.0, 2 * 86_400.0], ["1 s", "2 d"]),  # no unit suits both
        ([math.inf, 600.0], ["inf", "10 min"]),
        ([], []),
    ],
)
def test_durations_that_are_compared_have_one_unit(seconds, words):
    assert durations(seconds) == words
    assert [duration(one) for one in seconds] == [durations([one])[0] for one in seconds]
