import json

import numpy as np
import pytest

from neorl_core import Spec
from neorl_envs import Dataset
from neorl_envs.datasets import dataset_from_columns
from neorl_envs.inspection import dataset_report, report_text


def test_the_report_counts(toy_spec: Spec, toy_columns: dict) -> None:
    toy_columns["action"] = np.float32([0, 0, 50, 100, 100, 100, 100, 100])[:, None]
    toy_columns["obs"][5:7] = toy_columns["obs"][4]
    mask = np.arange(8) != 0
    report = dataset_report(
        dataset_from_columns(
            toy_spec,
            **toy_columns,
            mask=mask,
            behaviour=np.array([0, 1, 0]),
            attributes={"behaviours": ["slow", "fast", "idle"]},
        )
    )
    assert json.loads(json.dumps(report)) == report
    assert (report["rows"], report["masked_rows"], report["episodes"]) == (8, 1, 3)
    assert report["duplicate_rows"] == 2
    assert (report["terminated"], report["truncated"]) == (2, 1)
    (action,) = report["action"]
    assert action["saturated"] == pytest.approx(6 / 7)
    # Steps inside an episode between used rows: 0 to 50, then nothing in the last episode.
    assert action["moved"] == pytest.approx(1 / 4)
    assert action["step_std"] == pytest.approx(np.std([50, 0, 0, 0]))
    (cost,) = report["costs"]
    assert cost["beyond_limit"] == pytest.approx(1 / 3)
    assert [b["name"] for b in report["behaviours"]] == ["slow", "fast"]
    assert report["behaviours"][0]["mean_return"] == pytest.approx((0 + 1 + 3 + 4 + 5 + 6) / 2)
    assert any("1 rows are masked" in note for note in report["notes"])
    assert any("2 rows repeat" in note for note in report["notes"])
    assert any("at an end of its range in 86%" in note for note in report["notes"])


def test_still_channels_are_noted(toy_spec: Spec, toy_columns: dict) -> None:
    toy_columns["action"] = np.full((8, 1), 50.0)
    toy_columns["terminated"] = np.zeros(8, np.bool_)
    report = dataset_report(dataset_from_columns(toy_spec, **toy_columns))
    assert "constant: action valve" in report["notes"]
    assert "action valve hardly moves: nothing can be learned about it" in report["notes"]
    assert "no row is terminated: a log without a single trip is valid" in report["notes"]


def test_no_share_of_a_variance_is_negative(toy_spec: Spec, toy_columns: dict) -> None:
    """A prediction that is worse than the mean was said to recur by -39%."""
    report = dataset_report(dataset_from_columns(toy_spec, **toy_columns))
    behaviour = [{"action": "valve", "explained": 0.05, "repeatable": -0.39}]
    assert (
        "behaviour of valve: 5% of its variance is linear in the observation, and none recurs in "
        "similar situations"
    ) in report_text({**report, "behaviour": behaviour})


def test_the_text_says_units_and_notes(log: Dataset) -> None:
    text = report_text(dataset_report(log))
    for words in ("period 50 s", "T_R ", " K ", "kg/h", "106/1500", "limit 20 K min per episode"):
        assert words in text
    assert max(map(len, text.splitlines())) <= 140
    assert "note: " in text
