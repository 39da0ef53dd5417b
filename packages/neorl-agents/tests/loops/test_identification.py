"""The identification beside SciPy, beside the truth, and where it must refuse."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from scipy import signal

from neorl_agents.loops import LoopRecord, loop_model
from neorl_agents.loops._identification import MEMORY, REACH, moments


def test_moments_are_the_products_of_rows_with_their_whole_history() -> None:
    rng, rows, past = np.random.default_rng(0), 900, REACH + MEMORY
    y, u = np.cumsum(rng.standard_normal((2, rows)), axis=1)
    y[400], segment = np.nan, (np.arange(rows) >= 640).astype(int)
    found = moments(y, u, segment, blocks=2)
    one, other = (y - np.nanmean(y)) / np.nanstd(y), (u - u.mean()) / u.std()
    columns = np.array(
        [
            [*one[row + 1 - np.arange(MEMORY + 1)], *other[row - np.arange(past)], 1.0]
            for row in range(past - 1, rows - 1)
            if np.isfinite(y[row + 1 - past : row + 2]).all()
            and len({*segment[row + 1 - past : row + 2]}) == 1
        ]
    )
    parts = np.array_split(columns, 2)
    assert found.rows.tolist() == [len(part) for part in parts]
    for products, part in zip(found.products, parts, strict=True):
        np.testing.assert_allclose(products, part.T @ part, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize(("lag", "second", "dead"), [(8.0, 0.0, 3), (8.0, 6.0, 5), (300.0, 0.0, 9)])
def test_steps_by_hand_give_the_process_that_scipy_simulated(
    lag: float, second: float, dead: int
) -> None:
    """A lag of 300 rows is longer than the fit reaches, so that the rows are thinned."""
    rng, rows = np.random.default_rng(0), 9000
    output = 50 + 10 * np.repeat(rng.choice([-1.0, 1.0], rows // 20 + 1), 20)[:rows]
    denominator = np.convolve([lag, 1.0], [second, 1.0] if second else [1.0])
    numerator, sampled, _ = signal.cont2discrete(([1.5], denominator), 1.0, method="zoh")
    answer = signal.lfilter(np.ravel(numerator), sampled, np.append(np.zeros(dead), output - 50))
    record = LoopRecord(
        "TIC-2", 40 + answer[:rows] + rng.normal(0, 0.05, rows), output, np.full(rows, 40.0),
        np.zeros(rows, bool), np.zeros(rows, int), 10.0, "", "", (0.0, 100.0), (0.0, 100.0),
    )  # fmt: skip
    model = loop_model(record)
    assert model.usable, model.why_not
    assert "by hand" in " ".join(model.conditions)
    whole = model.dead_time.value + sum(one.value for one in model.time_constants)
    if not model.integrating:
        np.testing.assert_allclose(model.gain.value, 1.5, rtol=0.1)
        np.testing.assert_allclose(whole, 10 * (lag + second + dead), rtol=0.15)
    else:
        np.testing.assert_allclose(model.gain.value, 1.5 / (10 * lag), rtol=0.2)


def test_the_process_of_a_closed_loop_is_found(loop: Callable[..., LoopRecord]) -> None:
    model = loop_model(loop(5000, moves=25))
    assert model.usable, model.why_not
    assert not model.integrating
    assert abs(model.gain.value / 2.0 - 1) < 0.15
    assert abs(model.dead_time.value - 8.0) <= 4.0
    whole = sum(one.value for one in model.time_constants) + model.dead_time.value
    assert abs(whole / 28.0 - 1) < 0.2
    assert model.gain.low <= model.gain.value <= model.gain.high
    assert len(model.members) > 8
    assert all(len(one.denominator) == len(model.members[0].denominator) for one in model.members)


def test_a_model_does_not_depend_on_units(loop: Callable[..., LoopRecord]) -> None:
    record = loop(2500, moves=20)
    scaled = dataclasses.replace(
        record,
        measurement=1e3 * record.measurement,
        setpoint=1e3 * record.setpoint,
        measurement_range=(0.0, 1e5),
        period=60.0,
    )
    one, other = loop_model(record), loop_model(scaled)
    np.testing.assert_allclose(other.gain, 1e3 * np.asarray(one.gain), rtol=1e-6)
    np.testing.assert_allclose(other.dead_time, 30 * np.asarray(one.dead_time), rtol=1e-6)


def test_without_moves_from_outside_nothing_is_fitted(loop: Callable[..., LoopRecord]) -> None:
    model = loop_model(loop(2500, moves=0))
    assert not model.usable
    assert model.members == ()
    assert "moves of the setpoint" in model.why_not


def test_a_record_that_is_too_short_says_how_long_it_must_be(
    loop: Callable[..., LoopRecord],
) -> None:
    model = loop_model(loop(400, moves=20))
    assert not model.usable
    assert "h or more" in model.why_not


def test_a_process_faster_than_the_rows_is_not_retuned() -> None:
    rng = np.random.default_rng(0)
    output = 50 + 5 * rng.choice([-1.0, 1.0], 3000)
    measurement = 2 * np.append(50.0, output[:-1]) + rng.normal(0, 0.1, 3000)
    record = LoopRecord(
        "FIC-1", measurement, output, np.full(3000, 100.0), np.zeros(3000, bool),
        np.zeros(3000, int), 60.0, "", "", (0.0, 200.0), (0.0, 100.0),
    )  # fmt: skip
    model = loop_model(record)
    assert not model.usable
    assert "faster" in model.why_not
    assert abs(model.gain.value - 2) < 0.05


@pytest.mark.parametrize("late", [1.0, 0.3])
def test_a_process_that_is_another_late_in_each_batch_gets_no_gains(late: float) -> None:
    """Ten batches of 360 rows, in which the gain falls to a share after two thirds."""
    rng, rows, batches = np.random.default_rng(1), 360, 10
    output = 50 + 10 * np.repeat(rng.choice([-1.0, 1.0], (batches, rows // 20)), 20, axis=1)
    answer = signal.lfilter([0.0, 0.1], [1.0, -0.9], output - 50, axis=1)
    answer *= np.where(np.arange(rows) < 240, 1.0, late)
    record = LoopRecord(
        "TIC-3", 40 + (answer + rng.normal(0, 0.05, answer.shape)).ravel(), output.ravel(),
        np.full(batches * rows, 40.0), np.zeros(batches * rows, bool),
        np.repeat(np.arange(batches), rows), 10.0, "", "", (0.0, 100.0), (0.0, 100.0),
    )  # fmt: skip
    model = loop_model(record)
    assert model.usable == (late == 1.0)
    assert ("early and late in the stretches" in model.why_not) == (late < 1.0)


@pytest.mark.parametrize(
    ("lengths", "usable"),
    [([300] * 10, False), ([360] * 10, True), ([1260, *[195] * 9], True)],
    ids=["half of every batch", "most of every batch", "gaps at any time"],
)
def test_a_model_that_sees_half_of_every_batch_gets_no_gains(
    lengths: list[int], usable: bool
) -> None:
    """Rows count with the 150 rows before them: half of 3,000, 58 % of 3,600, and half of 3,015."""
    rng, rows = np.random.default_rng(1), sum(lengths)
    output = 50 + 10 * np.repeat(rng.choice([-1.0, 1.0], rows // 15), 15)
    answer = signal.lfilter([0.0, 0.1], [1.0, -0.9], output - 50)
    record = LoopRecord(
        "TIC-3", 40 + answer + rng.normal(0, 0.05, rows), output, np.full(rows, 40.0),
        np.zeros(rows, bool), np.repeat(np.arange(10), lengths), 10.0, "", "", (0.0, 100.0),
        (0.0, 100.0),
    )  # fmt: skip
    model = loop_model(record)
    assert model.usable == usable
    assert ("only 50% of the rows" in model.why_not) == (not usable)
