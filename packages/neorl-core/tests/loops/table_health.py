import numpy as np
from scipy import special, stats

from neorl_core.loops import (
    HarrisIndex,
    LoopHealth,
    Oscillation,
    harris_index,
    loop_health,
    oscillation,
)
from neorl_core.testing import ROWS as DRAWS
from neorl_core.testing import Refusal, Row, assert_close, mapped, seeds

FLOATS = ("float32", "float64")
DAY = 86_400.0


def loop_rows(seed):
    """Rounded rows with gaps, a lost measurement, hand operation and touched limits."""
    rng = np.random.default_rng(seed)
    shape = (DRAWS, 40)
    setpoint = np.full(shape, 20.0)
    measurement = np.round(setpoint + rng.normal(size=shape), 1)
    output = np.clip(50 + 30 * np.round(rng.normal(size=shape), 1), 0, 100)
    measurement[:, 7] = np.nan
    columns = [column.astype(np.float32) for column in (setpoint, measurement, output)]
    return (*columns, rng.random(shape) < 0.85, rng.random(shape) < 0.9)


def turns(values, mask):
    """Changes of sign between nonzero values, with nothing remembered over a gap."""
    count, last = 0, 0.0
    for value, on in zip(values, mask, strict=True):
        if not on:
            last = 0.0
        elif value != 0:
            count += value * last < 0
            last = value
    return count


def health_by_rows(setpoint, measurement, output, automatic, valid, *, dt, low, high, tolerance):
    valid = valid & np.isfinite(measurement)
    on = valid & automatic
    slack = tolerance * (high - low)
    limited = (output <= low + slack) | (output >= high - slack)
    error = setpoint - measurement
    pairs = on[1:] & on[:-1]
    days = pairs.sum() * dt / DAY
    bends = [
        measurement[t - 1] - 2 * measurement[t] + measurement[t + 1]
        for t in range(1, len(error) - 1)
        if valid[t - 1 : t + 2].all()
    ]
    gaps = np.diff(np.sort(measurement[valid]))
    moves = np.diff(output)
    numbers = (
        on.sum() / valid.sum(),
        (on & limited).sum() / on.sum(),
        (on & ~limited).sum() / len(on),
        error[on].mean(),
        error[on].std(),
        np.abs(error[on]).mean(),
        2 * measurement[on].std() / abs(measurement[on].mean()),
        np.sqrt(np.mean(np.square(bends)) / 6),
        gaps[gaps > 1e-5 * np.abs(measurement[valid]).max()].min(),
        turns(np.where(on, error, 0), on) / days,
        np.abs(moves[pairs]).sum() / days,
        turns(moves, pairs) / days,
    )
    return LoopHealth(*(np.asarray(n) for n in numbers), np.asarray(on.sum(), np.int32))


def what_is_masked_does_not_matter(setpoint, measurement, output, automatic, valid, **options):
    plain = mapped(loop_health, setpoint, measurement, output, automatic, valid, **options)
    spoiled = np.where(valid, measurement, np.float32(np.inf))
    other = mapped(loop_health, setpoint, spoiled, output, ~valid | automatic, valid, **options)
    assert_close(other, plain)


def smooth_error(seed):
    """An autoregression of order two with a gap and a lost row."""
    rng = np.random.default_rng(seed)
    error = np.zeros((DRAWS, 400))
    noise = rng.normal(size=error.shape)
    for t in range(2, 400):
        error[:, t] = 0.9 * error[:, t - 1] - 0.3 * error[:, t - 2] + noise[:, t]
    error[:, 50] = np.nan
    valid = np.ones(error.shape, bool)
    valid[:, 200:210] = False
    return (3 * error + 5).astype(np.float32), valid


def share_by_least_squares(error, usable, delay, order):
    design = np.stack([error[t - delay - np.arange(order)] for t in usable])
    now = error[usable]
    weights, *_ = np.linalg.lstsq(design, now, rcond=None)
    left = np.sum((now - design @ weights) ** 2) / (len(usable) - order)
    return left / np.mean(now**2), np.sqrt(left)


def harris_by_regression(error, valid, *, delay, order, blocks, level):
    valid = valid & np.isfinite(error)
    error = error - error[valid].mean()
    lags = np.r_[0, delay + np.arange(order)]
    usable = np.asarray([t for t in range(lags[-1], len(error)) if valid[t - lags].all()])
    index, least = share_by_least_squares(error, usable, delay, order)
    block = usable // -(-len(error) // blocks)
    without = [
        share_by_least_squares(error, usable[block != b], delay, order)[0] for b in range(blocks)
    ]
    odds = special.logit(without)
    spread = np.sqrt((blocks - 1) / blocks * np.sum((odds - odds.mean()) ** 2))
    reach = stats.t.ppf((1 + level) / 2, blocks - 1) * spread
    middle = special.logit(index)
    ends = special.expit([middle - reach, middle + reach])
    numbers = (np.asarray(n) for n in (index, *ends, least))
    return HarrisIndex(*numbers, np.asarray(len(usable), np.int32))


def harris_has_no_unit(error, valid, **options):
    plain = mapped(harris_index, error, valid, **options)
    other = mapped(harris_index, -8 * error, valid, **options)
    assert_close(other[:3], plain[:3], rtol=1e-4)
    assert_close(other.least_deviation, 8 * plain.least_deviation, rtol=1e-4)


def noisy_wave(seed):
    rng = np.random.default_rng(seed)
    period = rng.uniform(15, 25, (DRAWS, 1))
    wave = np.sin(2 * np.pi * np.arange(240) / period) + 0.5 * rng.normal(size=(DRAWS, 240))
    wave[:, 30] = np.nan
    valid = np.ones(wave.shape, bool)
    valid[:, 100:105] = False
    return wave.astype(np.float32), valid


def correlations_by_sums(first, second, valid, lags):
    valid = valid & np.isfinite(first) & np.isfinite(second)
    a = (first - first[valid].mean()) / first[valid].std()
    b = (second - second[valid].mean()) / second[valid].std()
    result = []
    for lag in lags:
        pairs = [
            (t, t + lag)
            for t in range(len(a))
            if 0 <= t + lag < len(a) and valid[t] and valid[t + lag]
        ]
        result.append(np.mean([a[t] * b[s] for t, s in pairs]))
    return np.asarray(result)


def oscillation_by_sums(signal, valid, *, dt, max_lag):
    values = correlations_by_sums(signal, signal, valid, range(max_lag + 1))
    places = [
        k + values[k] / (values[k] - values[k + 1])
        for k in range(max_lag)
        if (values[k] > 0) != (values[k + 1] > 0)
    ][:11]
    intervals = np.diff(places)
    return Oscillation(
        np.asarray(2 * intervals.mean() * dt),
        np.asarray(intervals.mean() / (3 * intervals.std(ddof=1))),
        np.asarray(len(places), np.int32),
    )


def oscillation_has_no_unit(signal, valid, *, dt, max_lag):
    plain = mapped(oscillation, signal, valid, dt=dt, max_lag=max_lag)
    other = mapped(oscillation, 10 - 4 * signal, valid, dt=3 * dt, max_lag=max_lag)
    assert_close(other.period, 3 * plain.period, rtol=1e-3)
    assert_close(other.regularity, plain.regularity, rtol=1e-2)


HEALTH = {"dt": 60.0, "low": 0.0, "high": 100.0, "tolerance": 1e-3}
HARRIS = {"delay": 2, "order": 4, "blocks": 5, "level": 0.9}
LAGS = {"dt": 2.0, "max_lag": 120}
THREE, ON = np.ones(3, np.float32), np.ones(3, bool)

ROWS = [
    Row(
        loop_health,
        seeds().map(loop_rows),
        health_by_rows,
        options=HEALTH,
        laws=[what_is_masked_does_not_matter],
        refuses=[
            Refusal(
                "low must not be above high", (THREE, THREE, THREE, ON, ON), HEALTH | {"low": 200.0}
            ),
            Refusal("valid must be boolean", (THREE, THREE, THREE, ON, THREE), HEALTH),
            Refusal("must have one shape", (THREE, THREE[:2], THREE, ON, ON), HEALTH),
        ],
        differentiable=False,
        exempt={
            "batch": "a row that is not finite counts as masked, and so as no row",
            "size": "differences of rounded readings near 20",
        },
    ),
    Row(
        harris_index,
        seeds().map(smooth_error),
        harris_by_regression,
        options=HARRIS,
        laws=[harris_has_no_unit],
        refuses=[
            Refusal("delay must be 1 or more", (THREE, ON), HARRIS | {"delay": 0}),
            Refusal("level must be in (0, 1)", (THREE, ON), HARRIS | {"level": 1.5}),
            Refusal("float32 or float64", (THREE.astype("float16"), ON), HARRIS),
        ],
        differentiable=False,
        dtypes=FLOATS,
        rtol=2e-4,  # products of columns lose more digits than a regression on them
    ),
    Row(
        oscillation,
        seeds().map(noisy_wave),
        oscillation_by_sums,
        options=LAGS,
        laws=[oscillation_has_no_unit],
        refuses=[
            Refusal("max_lag must be 2 or more", (THREE, ON), LAGS | {"max_lag": 1}),
            Refusal("max_lag must be below the number of rows", (THREE, ON), LAGS),
        ],
        differentiable=False,
        dtypes=FLOATS,
        rtol=1e-3,  # the spread of intervals is a difference of crossings
    ),
]
