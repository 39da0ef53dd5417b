"""Gains by level beside the slopes of titration curves and valves, and linear loops without any."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from scipy import optimize, signal

from neorl_agents.loops import LoopModel, LoopRecord, loop_model

LAG, DEAD = 8.0, 3
Curve = Callable[[np.ndarray], np.ndarray]


def ph_of(base: np.ndarray) -> np.ndarray:
    """PH of 1 mmol/L of an acid of pK 6.35 with a base in mmol/L, from the balance of charges."""

    def charge(ph: float, one: float) -> float:
        acid, carbonic = 1e3 * 10.0**-ph, 10.0**-6.35 / (10.0**-6.35 + 10.0**-ph)
        return float(one + acid - 1e3 * 10.0 ** (ph - 14) - carbonic)

    grid = np.linspace(0.0, 1.2, 241)
    known = [optimize.brentq(charge, 2.0, 13.0, args=(one,)) for one in grid]
    return np.interp(base, grid, known)


def equal_percentage(opening: np.ndarray) -> np.ndarray:
    """Flow in percent through a valve of rangeability 30."""
    return 100 * 30 ** (opening / 100 - 1)


def by_hand(
    *, valve: Curve | None = None, sensor: Curve | None = None, size: float = 10.0, seed: int = 0
) -> LoopRecord:
    """Steps of the output around 50 %, a lag behind a dead time, and what is measured of it."""
    rng, rows = np.random.default_rng(seed), 6000
    output = 50 + np.repeat(rng.uniform(-size, size, rows // 25), 25)
    entering = output if valve is None else valve(output)
    pole, start = np.exp(-1 / LAG), entering.mean()
    late = np.append(np.full(DEAD, start), entering)[:rows] - start
    drift = signal.lfilter([0.02], [1.0, -0.98], rng.standard_normal(rows))
    inside = start + signal.lfilter([0.0, 1 - pole], [1.0, -pole], late + drift)
    measurement = inside if sensor is None else sensor(inside)
    measurement = measurement + 0.002 * np.ptp(measurement) * rng.standard_normal(rows)
    return LoopRecord(
        "AIC-1", measurement, output, np.full(rows, np.nan), np.zeros(rows, bool),
        np.zeros(rows, int), 10.0, "", "%", (0.0, 100.0), (0.0, 100.0),
    )  # fmt: skip


def slopes(curve: Curve, levels: np.ndarray) -> np.ndarray:
    return (curve(levels + 0.5) - curve(levels - 0.5)) / 1.0


def titration_slopes(levels: tuple[float, ...]) -> np.ndarray:
    """Slopes of the titration of :func:`titrated` at some values of the pH, per percent."""
    base = np.linspace(0, 1.2, 999)
    at = (np.interp(levels, ph_of(base), base) - 0.27) / 0.011
    return slopes(lambda x: ph_of(0.011 * x + 0.27), at)


@pytest.fixture(scope="module")
def titrated() -> tuple[LoopRecord, LoopModel]:
    """A pH, one percent of the output being 0.011 mmol/L of base."""
    record = by_hand(sensor=lambda x: ph_of(0.011 * x + 0.27), size=9.0)
    return record, loop_model(record)


def test_the_gains_of_a_ph_are_the_slopes_of_its_titration_curve(
    titrated: tuple[LoopRecord, LoopModel],
) -> None:
    _, model = titrated
    assert model.curve is not None
    assert model.curve.of == "measurement"
    true = titration_slopes(model.curve.levels)
    assert true.max() / true.min() > 1.5
    found = np.asarray(model.curve.gains) * model.gain.value
    np.testing.assert_allclose(found, true, rtol=0.2)
    assert "depends on its measurement" in model.conditions[-1]


def test_the_gains_of_a_valve_are_the_slopes_of_its_characteristic() -> None:
    model = loop_model(by_hand(valve=equal_percentage))
    assert model.curve is not None
    assert model.curve.of == "output"
    true = slopes(equal_percentage, np.asarray(model.curve.levels))
    np.testing.assert_allclose(np.asarray(model.curve.gains) * model.gain.value, true, rtol=0.15)


def test_the_members_hold_the_gains_where_the_titration_curve_is_steep_and_flat(
    titrated: tuple[LoopRecord, LoopModel],
) -> None:
    """The worst member decides of a proposal; its reserve is more than a tenth of the gain."""
    _, model = titrated
    assert model.usable, model.why_not
    assert model.curve is not None
    gains = [float(member.numerator[-1]) for member in model.members]
    true = titration_slopes(model.curve.levels)
    assert max(gains) >= 0.9 * true.max()
    assert min(gains) <= 1.1 * true.min()


def test_a_curve_beyond_one_set_of_gains_gets_none() -> None:
    """A valve that is closed below half of its travel."""
    model = loop_model(by_hand(valve=lambda u: np.where(u > 50, u, 50 + 0.02 * (u - 50))))
    assert not model.usable
    assert "characteriser on the output" in model.why_not


@pytest.mark.parametrize("seed", range(3))
def test_a_linear_process_has_one_gain(seed: int, loop: Callable[..., LoopRecord]) -> None:
    for record in (by_hand(seed=seed), loop(4000, moves=15, seed=seed)):
        model = loop_model(record)
        assert model.members
        assert model.curve is None


def test_gains_by_level_do_not_depend_on_units(titrated: tuple[LoopRecord, LoopModel]) -> None:
    record, model = titrated
    scaled = dataclasses.replace(
        record, measurement=3 + 100 * record.measurement, measurement_range=(0.0, 2000.0)
    )
    other = loop_model(scaled)
    assert model.curve is not None
    assert other.curve is not None
    np.testing.assert_allclose(other.curve.gains, model.curve.gains, rtol=1e-6)
    np.testing.assert_allclose(other.curve.levels, 3 + 100 * np.asarray(model.curve.levels))
