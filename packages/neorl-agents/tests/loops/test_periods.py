"""Two periods compared: coverage of the intervals, and how often an answer is wrong."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.signal import lfilter

from neorl_agents.loops import LoopRecord, compare_periods, days_for
from neorl_core import InputError


def wandering(rng, pole: float, n: int) -> np.ndarray:
    """An autoregression of order one with variance one."""
    start = 2000
    noise = rng.normal(size=n + start)
    return lfilter([1.0], [1.0, -pole], noise)[start:] * np.sqrt(1 - pole**2)


def record(error: np.ndarray, output: np.ndarray | None = None, **fields) -> LoopRecord:
    n = len(error)
    columns = {
        "measurement": 50.0 - error, "output": error if output is None else output,
        "setpoint": np.full(n, 50.0), "automatic": np.ones(n, bool),
        "segment": np.zeros(n, int), **fields,
    }  # fmt: skip
    return LoopRecord(
        "TIC-201", **columns, period=60.0, measurement_unit="°C", output_unit="%",
        measurement_range=(0.0, 100.0), output_range=(0.0, 100.0),
    )  # fmt: skip


def answers(pole: float, factor: float, n: int, count: int) -> list[str]:
    rng = np.random.default_rng(4)
    pairs = [(wandering(rng, pole, n), factor * wandering(rng, pole, n)) for _ in range(count)]
    return [compare_periods(record(old), record(new), band=1.0).answer for old, new in pairs]


def test_no_change_is_rarely_called_one():
    found = answers(0.95, 1.0, 3000, 100)
    assert sum(answer != "no difference shown" for answer in found) <= 12


def test_a_change_is_found_and_its_direction_is_right():
    better = answers(0.95, 0.7, 3000, 40)
    assert better.count("better") >= 32
    assert "worse" not in better
    worse = answers(0.95, 1.5, 3000, 40)
    assert worse.count("worse") >= 32
    assert "better" not in worse


def test_the_indices_are_those_of_the_rows():
    rng = np.random.default_rng(5)
    old, new = wandering(rng, 0.9, 2000), 0.6 * wandering(rng, 0.9, 2000)
    found = compare_periods(record(old), record(new, 3 * new), band=1.0, dead_time=120.0)
    error = found.indices["absolute_error"]
    assert error.before.value == pytest.approx(np.mean(np.abs(old)))
    assert error.after.value == pytest.approx(np.mean(np.abs(new)))
    assert error.ratio.low < 0.6 < error.ratio.high
    deviation = found.indices["error_deviation"]
    assert deviation.before.value == pytest.approx(np.std(old))
    assert deviation.ratio.low < 0.6 < deviation.ratio.high
    travel = found.indices["travel"]
    assert travel.after.value == pytest.approx(60 * np.mean(np.abs(np.diff(3 * new))))
    assert travel.better is False
    assert found.indices["outside"].before.value == pytest.approx(np.mean(np.abs(old) > 1))
    # Both errors leave the same share to a controller that knows the past.
    assert found.indices["harris"].better is None
    assert found.indices["harris"].before.low < 1 - 0.9**6 < found.indices["harris"].before.high
    assert found.answer == "better"
    assert "times as much" in found.reason[-1]


def test_an_oscillation_that_begins_is_worse():
    rng = np.random.default_rng(6)
    calm = rng.normal(size=3000)
    wave = 1.2 * np.sin(2 * np.pi * np.arange(3000) / 40) + 0.7 * rng.normal(size=3000)
    found = compare_periods(record(calm), record(wave), band=1.0)
    assert found.answer == "worse"
    assert "oscillates with a period of 2.4e+03 s" in " ".join(found.reason)


def test_periods_with_other_loads_say_so():
    rng = np.random.default_rng(7)
    moves = np.where(np.arange(3000) // 100 % 2, 50.0, 55.0)
    old, new = rng.normal(size=3000), 3 * rng.normal(size=3000)
    moved = record(new, setpoint=moves, measurement=moves - new)
    found = compare_periods(record(old), moved, band=1.0)
    assert "the loads were not the same" in found.cautions[0]
    assert "the setpoint moved 0 times a day before" in found.cautions[1]


def test_a_loop_whose_controller_did_not_change_is_not_rolled_back(
    loop: Callable[..., LoopRecord],
) -> None:
    """Its load doubled, as that of an inner loop whose master was made faster."""
    calm, driven = loop(6000, load=0.3), loop(6000, load=0.9, seed=1)
    found = compare_periods(calm, driven, band=0.5)
    assert found.indices["absolute_error"].better is False
    assert found.answer == "no difference shown"
    assert "the same gains before and after" in found.reason[0]
    changed = loop(6000, kp=0.5, load=0.9, seed=1)
    assert compare_periods(calm, changed, band=0.5).answer == "worse"


def test_days_are_asked_for_where_nothing_is_shown():
    rng = np.random.default_rng(8)
    old, new = wandering(rng, 0.95, 2000), 0.93 * wandering(rng, 0.95, 2000)
    found = compare_periods(record(old), record(new), band=1.0)
    assert found.answer == "no difference shown"
    assert found.days_needed >= 2000 / 1440
    short = compare_periods(record(old[:200]), record(new), band=1.0)
    assert "the period before the change has only" in short.reason[0]
    slow = compare_periods(record(old), record(0.5 * new), band=1.0, settling_time=4 * 3600.0)
    assert slow.answer == "no difference shown"
    assert "has 33.3 h in automatic; at least 10 settling times" in slow.reason[0]
    days = np.median([days_for(record(wandering(rng, 0.9, 4000)), 0.8) for _ in range(9)])
    shown = answers(0.9, 0.8, int(days * 1440), 60).count("better") / 60
    assert 0.6 < shown < 0.95  # Planned for 0.8.
    assert np.isnan(days_for(record(old), 1.0))


def test_what_cannot_be_compared_is_refused():
    rows = record(np.random.default_rng(9).normal(size=100))
    with pytest.raises(InputError, match="band must be positive"):
        compare_periods(rows, rows, band=0.0)
    manual = record(np.zeros(100), automatic=np.zeros(100, bool))
    with pytest.raises(InputError, match="0 rows in automatic"):
        compare_periods(rows, manual, band=1.0)
    unknown = record(np.zeros(100), setpoint=np.full(100, np.nan))
    with pytest.raises(InputError, match="takes a logged setpoint"):
        compare_periods(rows, unknown, band=1.0)
