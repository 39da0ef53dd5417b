"""What `inspect` must warn about: a frozen instrument, an action seen twice, a laboratory value."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neorl_core import Channel, Spec
from neorl_envs import Dataset, write_dataset
from neorl_envs.datasets import dataset_from_columns
from neorl_envs.inspection import dataset_report, report_html, report_text, standstills, trends
from neorl_envs.inspection._wording import figures

N, FIRST, STILL = 3000, 1000, 400
START = 1_700_000_000.0


@pytest.fixture
def plant() -> dict[str, np.ndarray]:
    """Twelve episodes of 250 rows a minute apart: the signals of a plant, two of them doubtful."""
    random = np.random.default_rng(5)
    valve = np.clip(50 + np.cumsum(random.normal(size=N)), 0, 100)
    temperature = 80 + random.normal(size=N)
    temperature[FIRST : FIRST + STILL + 1] = temperature[FIRST]
    laboratory = np.repeat(random.normal(size=N // 200), 200)
    return {
        "valve": valve,
        "temperature": temperature,
        "pressure": 5 + random.normal(size=N),
        "steam": 0.2 * valve + 0.001 * random.normal(size=N),
        "laboratory": laboratory,
        "target": np.repeat(random.normal(size=N // 500), 500),
    }


def log_of(plant: dict[str, np.ndarray], *, stamped: bool = True, lag: int = 0) -> Dataset:
    names = [name for name in plant if name != "valve"]
    obs = np.stack([plant[name] for name in names], axis=1)
    spec = Spec(
        obs=tuple(Channel(name, "m", -1000, 1000) for name in names),
        action=(Channel("valve", "%", 0, 100),),
        cost=(),
        dt=60,
        horizon=N,
    )
    ends = np.arange(N) % 250 == 249
    time = START + 60 * np.arange(N) + lag * (np.arange(N) >= FIRST + 250)
    columns: dict[str, Any] = {
        "obs": obs,
        "action": plant["valve"][:, None],
        "reward": -np.abs(plant["pressure"]),
        "next_obs": np.roll(obs, -1, axis=0),
        "terminated": np.zeros(N),
        "truncated": ends,
        "attributes": {
            "setpoints": [{"name": "target", "unit": "m"}],
            "time_origin": "1970-01-01T00:00:00Z",
        },
    }
    return dataset_from_columns(spec, **columns, **({"time": time} if stamped else {}))


def test_an_instrument_that_froze_is_reported(plant: dict[str, np.ndarray]) -> None:
    """It stood still across episodes; a setpoint and a laboratory value do so by nature."""
    report = dataset_report(log_of(plant))
    (still,) = report["frozen"]
    assert (still["name"], still["row"], still["duration_s"]) == ("temperature", FIRST, 60 * STILL)
    assert still["start"] == START + 60 * FIRST
    (warning,) = [d for d in report["warnings"] if "stood still" in d]
    assert warning.startswith(
        "temperature stood still for 6.67 h from 2023-11-15 14:53:20 UTC while other signals moved "
        "(it usually moves in every row): did the instrument freeze?"
    )
    entry = next(c for c in report["obs"] if c["name"] == "temperature")
    assert entry["longest_flat_s"] == 60 * STILL


def test_a_plant_that_stands_still_altogether_is_not_reported(plant: dict[str, np.ndarray]) -> None:
    rows = slice(FIRST, FIRST + STILL + 1)
    for name in ("pressure", "steam", "valve"):
        plant[name][rows] = plant[name][FIRST]
    assert dataset_report(log_of(plant))["frozen"] == []


def test_a_standstill_ends_where_the_stamps_do(plant: dict[str, np.ndarray]) -> None:
    """At a gap, and with its episode where there are no stamps."""
    gap = [s["duration_s"] / 60 for s in dataset_report(log_of(plant, lag=7200))["frozen"]]
    assert gap == [249, 150]
    without = [s["duration_s"] / 60 for s in dataset_report(log_of(plant, stamped=False))["frozen"]]
    assert without == [249, 150]


def test_standstills_are_those_of_a_loop(plant: dict[str, np.ndarray]) -> None:
    """Against a plain loop over the rows, and whatever the size of blocks."""
    random = np.random.default_rng(0)
    plant["pressure"] = random.integers(0, 2, N).astype(float)
    dataset = log_of(plant)
    columns: Any = dataset.transitions
    result = standstills(columns.obs, dataset)[1]
    runs, steps = [], 0
    for row in range(1, N):
        if columns.obs[row, 1] == columns.obs[row - 1, 1]:
            steps += 1
        else:
            runs.append((steps, row - 1 - steps))
            steps = 0
    runs.append((steps, N - 1 - steps))
    assert result.lengths.tolist() == np.bincount([s for s, _ in runs], minlength=1001).tolist()
    assert result.longest == sorted(runs, reverse=True)[:5]
    assert result.moves == len(runs) - 1
    assert result.usual_length == np.sort([s for s, _ in runs])[int(np.ceil(0.99 * len(runs))) - 1]


def test_an_observation_that_is_the_action_is_reported(plant: dict[str, np.ndarray]) -> None:
    """The flow behind the valve: a policy would read the action from its own effect."""
    warnings = dataset_report(log_of(plant))["warnings"]
    (warning,) = [d for d in warnings if "itself" in d]
    assert warning.startswith("steam is almost the action valve itself (correlation +1.000 in the")
    assert "give it the role auxiliary" in warning
    plant["steam"] = np.roll(plant["steam"], 200)
    assert not any("itself" in d for d in dataset_report(log_of(plant))["warnings"])


def test_a_laboratory_value_is_remarked(plant: dict[str, np.ndarray]) -> None:
    report = dataset_report(log_of(plant))
    (rare,) = report["rarely_sampled"]
    assert rare["name"] == "laboratory"
    assert rare["every_s"] == pytest.approx(60 * (N - 1) / 14)
    assert any(note.startswith("laboratory changes every 3.57 h") for note in report["notes"])


def test_values_have_four_digits_and_no_avoidable_exponent() -> None:
    numbers = (0.179312, 335.0412, 12345.6, -23456.7, 2e7, 0.0, float("nan"))
    assert [figures(x) for x in numbers] == [
        "0.1793", "335", "12346", "-23457", "2e+07", "0", "nan"
    ]  # fmt: skip


def test_warnings_stand_before_remarks(plant: dict[str, np.ndarray]) -> None:
    """Five faint notes stood there, all equally red."""
    report = dataset_report(log_of(plant))
    assert report["notes"][: len(report["warnings"])] == report["warnings"]
    text = report_text(report)
    assert text.startswith(f"log {report['name']}: {report['rows']} rows, ")
    assert "\nwarning: temperature stood still" in text
    assert "\nnote: no row is terminated" in text
    page = report_html(report)
    assert page.count('<li class="warning">') == len(report["warnings"]) == 2
    assert page.index("temperature stood still") < page.index("no row is terminated")


@pytest.mark.parametrize("block", [7, 10**6])
def test_trends_hold_the_extremes_of_every_interval(
    plant: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr("neorl_envs.datasets._checks.BLOCK", block)
    actual = trends(log_of(plant), 100)
    assert (actual.start, actual.end) == (START, START + 60 * N)
    for name, values in plant.items():
        parts = np.float32(values).reshape(100, -1)
        np.testing.assert_array_equal(actual.low[name], parts.min(axis=1))
        np.testing.assert_array_equal(actual.high[name], parts.max(axis=1))
    assert len(actual.low["reward"]) == 100
    rows = trends(log_of(plant, stamped=False), 10**9)
    assert (rows.start, rows.end, len(rows.low["valve"])) == (0, N, N)


def test_gaps_and_masked_rows_break_a_trend(plant: dict[str, np.ndarray]) -> None:
    dataset = log_of(plant, lag=60 * N)
    columns: Any = dataset.transitions
    columns.mask[100:200] = False
    result = trends(dataset, 2 * N)
    assert np.isnan(result.low["valve"][100:200]).all()
    assert int(np.isfinite(result.low["valve"]).sum()) == N - 100
    page = report_html(dataset_report(dataset), result)
    path = re.search(r'aria-label="valve over time"><path d="([^"]*)"', page)
    assert path is not None
    assert path[1].count("M") == path[1].count("Z") == 3


def test_the_page_shows_trends_and_the_frozen_stretch(
    command: Any, plant: dict[str, np.ndarray], tmp_path: Path
) -> None:
    path = write_dataset(tmp_path / "log.h5", log_of(plant))
    command("inspect", path, "--html", tmp_path / "log.html")
    page = (tmp_path / "log.html").read_text()
    assert page.count('over time"><') == len(plant) + 2  # the reward and the episodes too
    x, width = re.search(
        r'temperature over time"><rect x="([\d.]+)" width="([\d.]+)"', page
    ).groups()
    assert (float(x), float(width)) == (200.0, 80.0)  # of 600 intervals of five rows
    assert "http" not in page
    assert json.loads(command("inspect", path, "--json"))["frozen"][0]["name"] == "temperature"
