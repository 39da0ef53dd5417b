"""Two periods compared: coverage of the intervals, and how often an answer is wrong."""

import numpy as np
import pytest
from scipy.signal import lfilter

from neorl_agents.loops import LoopRecord, compare_periods, correlated_mean, days_for
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


@pytest.mark.parametrize(("pole", "n"), [(0.0, 400), (0.9, 2000), (0.98, 4000)])
def test_an_interval_covers_the_mean_of_an_autoregression(pole, n):
    rng = np.random.default_rng(1)
    series = [wandering(rng, pole, n) for _ in range(300)]
    means = [correlated_mean(one) for one in series]
    sizes = [correlated_mean(np.abs(one)).interval() for one in series]
    intervals = [mean.interval() for mean in means]
    # 300 draws of 0.95 have a standard deviation of 0.013.
    assert np.mean([one.low <= 0 <= one.high for one in intervals]) > 0.91
    assert np.mean([one.low <= np.sqrt(2 / np.pi) <= one.high for one in sizes]) > 0.90
    time = np.mean([mean.time for mean in means])
    assert time == pytest.approx((1 + pole) / (1 - pole), rel=0.2)
    variance = np.var([mean.mean for mean in means])
    # A few of the errors are too large, so their mean square is above the variance.
    assert 0.8 < np.nanmean([mean.error**2 for mean in means]) / variance < 1.8


def test_the_usual_interval_would_not_cover_it():
    rng = np.random.default_rng(2)
    one = wandering(rng, 0.98, 4000)
    mean = correlated_mean(one)
    assert mean.error > 5 * np.std(one) / np.sqrt(len(one))
    assert mean.independent < 100


def test_a_short_series_has_no_interval():
    rng = np.random.default_rng(3)
    mean = correlated_mean(wandering(rng, 0.995, 500))
    assert np.isnan(mean.interval().low)
    assert correlated_mean(np.full(50, 3.0)).interval() == (3.0, 3.0, 3.0)
    assert np.isnan(correlated_mean(np.asarray([np.nan])).mean)


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
