"""A simulated loop, small enough to be run in a test."""

from collections.abc import Callable

import numpy as np
import pytest

from neorl_agents.loops import LoopRecord

LAG, DELAY, GAIN = 10.0, 4, 2.0


def simulated(
    rows: int = 4000,
    *,
    kp: float = 0.6,
    ti: float = 10.0,
    moves: int = 12,
    noise: float = 0.05,
    load: float = 0.4,
    bias: float = 50.0,
    band: float = 0.0,
    wave: float = 0.0,
    clock: int = 0,
    seed: int = 0,
) -> LoopRecord:
    """A lag of 10 rows behind a dead time of 4 under a PI; the valve may stick over ``band``.

    With ``clock`` the setpoint goes up and down after every so many rows, and not at random.
    """
    rng = np.random.default_rng(seed)
    pole, a = np.exp(-1 / LAG), np.exp(-1 / 60)
    setpoint = np.full(rows, 50.0)
    for start in np.sort(rng.integers(0, rows, moves)):
        setpoint[start:] = 50 + rng.uniform(-5, 5)
    if clock:
        setpoint = 50 + 4.0 * (np.arange(rows) // clock % 2)
    w, v = rng.standard_normal((2, rows))
    x, drift, u, position, before = 0.0, 0.0, bias, bias, 0.0
    held, late = 0.0, np.zeros(DELAY + 1)
    measurement, output = np.zeros(rows), np.zeros(rows)
    for t in range(rows):
        y = 50 + x + noise * v[t]
        e = setpoint[t] - y
        last, u = u, min(max(u + kp * (e - before) + kp / ti * e, 0.0), 100.0)
        before = e
        # The valve of He: it moves by what friction does not hold.
        held += u - last
        if abs(held) > 0.85 * band:
            position += held - np.sign(held) * 0.15 * band
            held = np.sign(held) * 0.15 * band
        drift = a * drift + np.sqrt(1 - a**2) * load * w[t]
        late = np.append(late[1:], position - bias + drift + wave * np.sin(2 * np.pi * t / 90))
        x = pole * x + (1 - pole) * GAIN * late[0]
        measurement[t], output[t] = y, u
    return LoopRecord(
        "TIC-1", measurement, output, setpoint, np.ones(rows, bool), np.zeros(rows, int), 2.0,
        "°C", "%", (0.0, 100.0), (0.0, 100.0),
    )  # fmt: skip


@pytest.fixture(scope="session")
def loop() -> Callable[..., LoopRecord]:
    """Simulates a loop."""
    return simulated
