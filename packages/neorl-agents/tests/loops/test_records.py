"""The rows of a loop: what a record refuses, and what it makes of some of its rows."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from neorl_agents.loops import LoopRecord, logged_controller, without_spikes
from neorl_core import InputError


def test_rows_that_are_left_out_become_a_gap(loop: Callable[..., LoopRecord]) -> None:
    record = loop(100)
    kept = record.rows([0, 1, 2, 10, 11, 50])
    assert kept.segment.tolist() == [0, 0, 0, 1, 1, 2]
    assert kept.measurement[3] == record.measurement[10]
    assert record.rows(slice(10, 20)).segment.tolist() == [0] * 10


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"output": np.zeros(3)}, "one length"),
        ({"period": 0.0}, "period must be positive"),
        ({"output_range": (100.0, 0.0)}, "output_range must ascend"),
        ({"segment": np.arange(50)[::-1]}, "must not descend"),
    ],
)
def test_a_record_that_is_none_is_refused(
    loop: Callable[..., LoopRecord], change: dict, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        dataclasses.replace(loop(50), **change)


def test_the_controller_is_read_from_its_moves(loop: Callable[..., LoopRecord]) -> None:
    found = logged_controller(loop(1000, kp=0.7, ti=12.0))
    assert found.known
    np.testing.assert_allclose(found.kp, 0.7, rtol=1e-6)
    np.testing.assert_allclose(found.integral_time, 12.0 * 2.0, rtol=1e-6)


def test_a_change_of_the_controller_is_seen(loop: Callable[..., LoopRecord]) -> None:
    first, second = loop(1000, kp=0.9), loop(1000, kp=0.5, seed=1)
    both = dataclasses.replace(
        first,
        **{
            field: np.concatenate([getattr(first, field), getattr(second, field)])
            for field in ("measurement", "output", "setpoint", "automatic")
        },
        segment=np.repeat([0, 1], 1000),
    )
    assert logged_controller(first).changes == 0
    assert logged_controller(both).changes == 1


def test_moves_by_hand_are_no_controller(loop: Callable[..., LoopRecord]) -> None:
    record = loop(500)
    hand = np.random.default_rng(0).normal(size=500).cumsum() + 50
    assert not logged_controller(dataclasses.replace(record, output=hand)).known


def test_a_transmitter_that_fails_is_left_out(loop: Callable[..., LoopRecord]) -> None:
    record = loop(1000)
    assert without_spikes(record).valid.all()
    measurement = record.measurement.copy()
    measurement[[300, 301, 305]] = [0.0, 0.0, np.nan]
    left = without_spikes(dataclasses.replace(record, measurement=measurement))
    assert np.flatnonzero(~left.valid).tolist() == list(range(298, 308))
    kept = left.valid
    np.testing.assert_array_equal(left.measurement[kept], record.measurement[kept])
