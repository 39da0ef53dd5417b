"""How often the intervals of a loop's model hold the truth, on a hundred simulated loops."""

import numpy as np
import pytest

from neorl_agents.loops import LoopRecord, loop_model

LOOPS, ROWS = 100, 4000


def simulated(seed: int) -> tuple[list[LoopRecord], np.ndarray]:
    """Records of random loops under a PI, and gain, lag and dead time of each in rows."""
    rng = np.random.default_rng(seed)
    gain, lag = rng.uniform(0.5, 2.0, LOOPS), rng.uniform(6, 20, LOOPS)
    delay = rng.integers(2, 9, LOOPS)
    # The rule of SIMC, and up to four times as sluggish.
    kp = lag / (gain * 2 * (delay + 0.5)) / np.exp(rng.uniform(0, np.log(4), LOOPS))
    ki = kp / np.minimum(lag, 8 * (delay + 0.5))
    load_size = rng.uniform(0.2, 1.0, LOOPS) / gain
    setpoint = np.full((ROWS, LOOPS), 50.0)
    for start in range(0, ROWS, ROWS // 16):
        setpoint[start:] = 50 + rng.uniform(-5, 5, LOOPS)
    pole = np.exp(-1 / lag)
    inside, load, before = np.zeros((3, LOOPS))
    output, sent = np.full(LOOPS, 50.0), np.full((ROWS + 10, LOOPS), 50.0)
    measured, each = np.zeros((ROWS, LOOPS)), np.arange(LOOPS)
    for t in range(ROWS):
        y = 50 + inside + 0.05 * rng.standard_normal(LOOPS)
        e = setpoint[t] - y
        output = output + kp * (e - before) + ki * e
        before, measured[t], sent[t + 10] = e, y, output
        load = 0.98 * load + np.sqrt(1 - 0.98**2) * load_size * rng.standard_normal(LOOPS)
        late = sent[t + 10 - delay, each] - 50 + load
        inside = pole * inside + (1 - pole) * gain * late
    records = [
        LoopRecord(
            f"TIC-{i}", measured[:, i], sent[10:, i], setpoint[:, i], np.ones(ROWS, bool),
            np.zeros(ROWS, int), 1.0, "", "", (0.0, 100.0), (0.0, 100.0),
        )
        for i in range(LOOPS)
    ]  # fmt: skip
    return records, np.stack([gain, lag, delay], axis=1)


@pytest.mark.nightly
def test_intervals_of_nine_in_ten_hold_the_truth() -> None:
    records, truth = simulated(1)
    models = [loop_model(record) for record in records]
    assert all(model.members for model in models)
    gain, dead_time, lag = (
        np.array([[x.low, x.high] for x in every])
        for every in (
            [model.gain for model in models],
            [model.dead_time for model in models],
            [model.time_constants[0] for model in models],
        )
    )
    held = [
        float(np.mean((ends[:, 0] <= true) & (true <= ends[:, 1])))
        for ends, true in zip((gain, lag, dead_time), truth.T, strict=True)
    ]
    # Meant are 0.9. On loops with stronger loads 0.83 was measured for the gain, and a hundred
    # draws of it have a standard deviation of 0.04.
    assert min(held) >= 0.75, held
    # An interval that held everything would say nothing.
    assert np.median(gain[:, 1] / gain[:, 0]) < 2.0
