"""What ails simulated loops of known cause; the study of causes asks the same of many."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from neorl_agents.loops import (
    LoopRecord,
    LoopReport,
    Swing,
    health_figures,
    loop_figures,
    loop_reports,
    shared_swings,
    valve_test,
)
from neorl_agents.loops._cause import Tuning, _oscillates, _without_trend
from neorl_core import InputError


def judged(record: LoopRecord) -> LoopReport:
    (report,) = loop_reports([record])
    return report


@pytest.mark.parametrize(
    ("settings", "kind", "answer"),
    [
        ({"moves": 25}, "healthy", "leave it"),
        ({"band": 6.0, "load": 0.1}, "stiction", "mend the valve or sensor"),
        ({"wave": 2.0}, "outside", "leave it"),
        ({"kp": 1.5, "moves": 25}, "tight", "retune"),
        ({"kp": 0.05, "moves": 25, "noise": 0.02, "load": 0.1}, "sluggish", "retune"),
        ({"bias": 108.0}, "saturation", "mend the valve or sensor"),
        ({"noise": 3.0, "kp": 0.3}, "noise", "mend the valve or sensor"),
        ({"moves": 0}, "excitation", "cannot tell"),
    ],
)
def test_the_cause_of_a_simulated_loop(
    loop: Callable[..., LoopRecord], settings: dict, kind: str, answer: str
) -> None:
    report = judged(loop(5000, **settings))
    assert (report.cause.kind, report.cause.answer) == (kind, answer), report.cause
    assert report.cause.reason.endswith(".")
    figures = health_figures(report)
    assert len({figure.name for figure in figures}) == 13
    assert all("nan" not in figure.value for figure in figures)


def test_a_loop_in_manual_is_not_judged(loop: Callable[..., LoopRecord]) -> None:
    record = loop(2000)
    manual = dataclasses.replace(record, automatic=np.arange(2000) < 600)
    assert judged(manual).cause.kind == "manual"


def test_a_frozen_measurement_is_the_sensor(loop: Callable[..., LoopRecord]) -> None:
    record = loop(2000)
    measurement = record.measurement.copy()
    measurement[800:1300] = measurement[800]
    report = judged(dataclasses.replace(record, measurement=measurement))
    assert report.cause.kind == "frozen"
    assert abs(report.figures.frozen - 500 * record.period) <= 2 * record.period


def test_missing_cells_and_gaps_change_no_figure_much(loop: Callable[..., LoopRecord]) -> None:
    record = loop(3000, wave=2.0)
    measurement = record.measurement.copy()
    measurement[np.random.default_rng(0).integers(0, 3000, 60)] = np.nan
    holes = dataclasses.replace(record, measurement=measurement)
    one, other = loop_figures(record), loop_figures(holes)
    assert abs(other.swing.period / one.swing.period - 1) < 0.05
    assert abs(other.stiction.fit - one.stiction.fit) < 0.15
    np.testing.assert_allclose(other.figures.travel, one.figures.travel, rtol=0.2)


def test_loops_that_swing_together_are_named(loop: Callable[..., LoopRecord]) -> None:
    records = [
        dataclasses.replace(loop(3000, wave=3.0, seed=seed, moves=0), name=f"TIC-{seed}")
        for seed in (1, 2)
    ]
    alone = dataclasses.replace(loop(3000, seed=3, moves=0), name="TIC-3")
    records.append(alone)
    found = shared_swings(records)
    assert [one.shared for one in found] == [("TIC-2",), ("TIC-1",), ()]
    # Figures find the same by themselves, and nothing twice where it is known.
    one, other = loop_figures(alone), loop_figures(alone, swing=found[2])
    np.testing.assert_equal((*one.swing, one.stiction), (*other.swing, other.stiction))
    assert other.swing is found[2]


def test_a_ramp_of_the_setpoint_counts_as_moves(loop: Callable[..., LoopRecord]) -> None:
    record = loop(1000, moves=0)
    assert loop_figures(record).moves == 0
    ramp = record.setpoint + np.clip(np.arange(1000) - 500, 0, 100) * 0.05
    assert 10 < loop_figures(dataclasses.replace(record, setpoint=ramp)).moves <= 50


@pytest.mark.parametrize(("every", "kp"), [(60, 0.6), (100, 0.1)])
def test_moves_of_the_setpoint_by_the_clock_are_no_oscillation(
    loop: Callable[..., LoopRecord], every: int, kp: float
) -> None:
    alone = loop_figures(loop(5000, clock=every, kp=kp)).swing
    assert not alone.regular
    # What comes from outside is still seen beside them, with its own period of 90 rows.
    record = loop(5000, clock=every, kp=kp, wave=1.0)
    driven = loop_figures(record).swing
    assert driven.regular
    assert driven.lasts
    assert abs(driven.period / (90 * record.period) - 1) < 0.05


def test_a_clean_loop_that_ends_away_from_its_mean_blames_no_valve(
    loop: Callable[..., LoopRecord],
) -> None:
    gains = []
    for band in (0.0, 3.0):
        record = loop(4000, load=0.2, seed=4, band=band)
        gains.append(valve_test(record, float(np.std(_without_trend(record.output)))).gain)
    clean, sticks = gains
    # Counted with zeros before and after the record, the clean one sticks by 23.
    assert clean < 3
    assert sticks > 15


def test_few_rows_are_refused(loop: Callable[..., LoopRecord]) -> None:
    with pytest.raises(InputError, match="200 are needed"):
        loop_figures(loop(150))


@pytest.mark.parametrize(
    ("often", "peak", "kind"),
    [(0.75, 8.0, "outside"), (0.35, 8.0, "tight"), (0.75, np.inf, "tight"), (0.35, 1.5, "outside")],
)
def test_a_tuning_is_blamed_only_for_swings_that_die_away(
    loop: Callable[..., LoopRecord], often: float, peak: float, kind: str
) -> None:
    """A fit takes what drives a loop for its resonance, and a stable loop rings down."""
    record = loop(400)
    figures = loop_figures(record)
    figures = figures._replace(swing=Swing(180.0, 20.0, 0.85, often))
    cause = _oscillates(record, figures, Tuning(np.full(16, peak), np.ones(16)))
    assert cause is not None
    assert cause.kind == kind
