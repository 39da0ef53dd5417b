import itertools

import jax
import numpy as np
from hypothesis import strategies as st

from neorl_core.loops import (
    StictionCorrelation,
    StictionFit,
    choudhury_step,
    he_step,
    stiction_correlation,
    stiction_curve_fit,
    valve_state,
)
from neorl_core.testing import ROWS as DRAWS
from neorl_core.testing import Refusal, Row, assert_close, mapped, seeds

FLOATS = ("float32", "float64")


def valve_signal(seed):
    """A walk in whole numbers, so that nothing rounds, with pauses and one lost value."""
    rng = np.random.default_rng(seed)
    moves = rng.choice([-2, -1, -1, 0, 1, 1, 1, 2], size=(DRAWS, 60))
    signal = 50.0 + np.cumsum(moves, axis=1)
    signal[:, 20] = np.nan
    return (signal.astype(np.float32),)


def choudhury(signal, *, stickband, slip_jump):
    def step(state, one):
        return choudhury_step(state, one, stickband=stickband, slip_jump=slip_jump)

    return jax.lax.scan(step, valve_state(signal[0]), signal)[1]


def he(signal, *, static, dynamic):
    def step(state, one):
        return he_step(state, one, static=static, dynamic=dynamic)

    return jax.lax.scan(step, valve_state(signal[0]), signal)[1]


def known(signal):
    """A lost value repeats the one before."""
    return [next(x for x in signal[t::-1] if np.isfinite(x)) for t in range(len(signal))]


def choudhury_by_the_chart(signal, *, stickband, slip_jump):
    """The chart of the paper, which remembers the signal at which the valve stuck."""
    signal = known(signal)
    position, stuck_at, moving, paused, way = signal[0], signal[0], False, False, 0
    positions = []
    for t, x in enumerate(signal):
        before = signal[max(t - 1, 0)]
        sign = np.sign(x - before)
        if sign == 0:
            if moving:
                stuck_at, paused = before, True
            moving = False
        else:
            if sign * way < 0:
                stuck_at, paused, moving = before, False, False
            way = sign
            needed = slip_jump if paused else stickband
            if moving or abs(x - stuck_at) > needed:
                position, moving, paused = x - sign * (stickband - slip_jump) / 2, True, False
        positions.append(position)
    return np.asarray(positions)


def he_by_the_chart(signal, *, static, dynamic):
    signal = known(signal)
    position, residual, positions = signal[0], 0.0, []
    for t, x in enumerate(signal):
        force = residual + x - signal[max(t - 1, 0)]
        if abs(force) > static:
            position += force - np.sign(force) * dynamic
            residual = np.sign(force) * dynamic
        else:
            residual = force
        positions.append(position)
    return np.asarray(positions)


def valves_have_no_unit(function):
    def law(signal, **options):
        plain = mapped(function, signal, **options)
        other = mapped(function, -4 * signal, **{k: 4 * v for k, v in options.items()})
        assert_close(other, -4 * np.asarray(plain))

    return law


def swings(seed):
    """Skewed triangles and sines with little noise, a gap, and a lost row."""
    rng = np.random.default_rng(seed)
    time = np.arange(220)
    period = rng.uniform(35, 45, (DRAWS, 1))
    sine = np.sin(2 * np.pi * (time / period + rng.random((DRAWS, 1))))
    triangle = 2 / np.pi * np.arcsin(sine)
    share = rng.random((DRAWS, 1))
    wave = share * sine + (1 - share) * triangle + 0.02 * rng.normal(size=sine.shape)
    wave[:, 130] = np.nan
    valid = np.ones(wave.shape, bool)
    valid[:, 100:105] = False
    return (5 * wave + 30).astype(np.float32), valid


def halves(signal, hysteresis):
    """Crossings that lead from one swing to one of the other sign, by walking along the rows."""
    begins, last, crossing = [], 0, None
    for t, value in enumerate(signal):
        if t and (value > 0) != (signal[t - 1] > 0):
            crossing = t - 1
        if abs(value) > hysteresis:
            if last * value < 0:
                begins.append(crossing)
            last = value
    return begins


def misfit(shape, values):
    return np.sum((values - shape * (shape @ values) / (shape @ shape)) ** 2)


def curve_fit_by_halves(signal, valid, *, half_periods, hysteresis):
    valid = valid & np.isfinite(signal)
    wave = (signal - signal[valid].mean()) / signal[valid].std()
    for t in np.flatnonzero(~valid):
        wave[t] = wave[t - 1]
    begins = halves(wave, hysteresis)
    sine = triangle = used = 0
    for first, second in list(itertools.pairwise(begins))[:half_periods]:
        inside = np.arange(first + 1, second + 1)
        if not valid[[first, *inside, second + 1]].all():
            continue
        assert second - first > 7
        start, end = (k + wave[k] / (wave[k] - wave[k + 1]) for k in (first, second))
        phase = np.clip((inside - start) / (end - start), 0, 1)
        sine += misfit(np.sin(np.pi * phase), wave[inside])
        peaks = np.arange(1, 20) / 20
        shapes = [np.minimum(phase / p, (1 - phase) / (1 - p)) for p in peaks]
        triangle += min(misfit(shape, wave[inside]) for shape in shapes)
        used += 1
    return StictionFit(np.asarray(sine / (sine + triangle)), np.asarray(used, np.int32))


def curve_fit_has_no_unit(signal, valid, **options):
    plain = mapped(stiction_curve_fit, signal, valid, **options)
    other = mapped(stiction_curve_fit, 3 - 0.5 * signal, valid, **options)
    assert_close(other.index, plain.index, rtol=1e-2)


def loop_swings(seed):
    """Output and measurement of one period, some angle apart."""
    rng = np.random.default_rng(seed)
    angle = 2 * np.pi * np.arange(200) / rng.uniform(30, 40, (DRAWS, 1))
    apart = rng.uniform(np.pi / 2, np.pi, (DRAWS, 1))
    output = np.sin(angle) + 0.05 * rng.normal(size=angle.shape)
    measurement = np.sin(angle - apart) + 0.05 * rng.normal(size=angle.shape)
    output[:, 60] = np.nan
    valid = np.ones(angle.shape, bool)
    valid[:, 80:85] = False
    return output.astype(np.float32), measurement.astype(np.float32), valid


def correlation_by_sums(output, measurement, valid, *, max_lag):
    valid = valid & np.isfinite(output)
    u = (output - output[valid].mean()) / output[valid].std()
    y = (measurement - measurement[valid].mean()) / measurement[valid].std()
    lags = np.arange(-max_lag, max_lag + 1)
    values = np.asarray(
        [
            np.mean(
                [
                    u[t] * y[t + lag]
                    for t in range(len(u))
                    if 0 <= t + lag < len(u) and valid[t] and valid[t + lag]
                ]
            )
            for lag in lags
        ]
    )
    places = np.asarray(
        [
            lags[k] + values[k] / (values[k] - values[k + 1])
            for k in range(len(lags) - 1)
            if (values[k] > 0) != (values[k + 1] > 0)
        ]
    )
    right, left = places[places > 0].min(), -places[places <= 0].max()
    between = values[(lags >= -left) & (lags <= right)]
    middle = values[max_lag]
    extreme = np.abs(between).max() * np.sign(middle)
    return StictionCorrelation(
        np.asarray(abs(left - right) / (left + right)),
        np.asarray(abs(middle - extreme) / abs(middle + extreme)),
    )


def correlation_has_no_unit(output, measurement, valid, **options):
    plain = mapped(stiction_correlation, output, measurement, valid, **options)
    other = mapped(stiction_correlation, 4 * output, 7 - measurement, valid, **options)
    assert_close(other, plain, rtol=1e-3, atol=1e-4)


THREE, ON = np.ones(3, np.float32), np.ones(3, bool)
CHOUDHURY = {"stickband": 3.0, "slip_jump": 1.0}
HE = {"static": 2.0, "dynamic": 1.0}
FIT = {"half_periods": 6, "hysteresis": 0.25}

ROWS = [
    Row(
        choudhury,
        seeds().map(valve_signal),
        choudhury_by_the_chart,
        options=st.sampled_from(
            [
                {"stickband": s, "slip_jump": j}
                for s, j in ((3.0, 1.0), (4.0, 0.0), (2.0, 2.0), (1.0, 3.0))
            ]
        ),
        laws=[valves_have_no_unit(choudhury)],
        refuses=[
            Refusal(
                "stickband must be finite and not negative",
                (THREE,),
                CHOUDHURY | {"stickband": -1.0},
            ),
            Refusal(
                "slip_jump must be finite and not negative",
                (THREE,),
                CHOUDHURY | {"slip_jump": -1.0},
            ),
        ],
        differentiable=False,
        exempt={
            "batch": "a signal that is not finite counts as a pause",
            "sums": "the position is a state, not a sum",
            "everywhere": "the scan of the test is a new one in every eager call",
        },
        name="choudhury_step",
    ),
    Row(
        he,
        seeds().map(valve_signal),
        he_by_the_chart,
        options=st.sampled_from(
            [{"static": s, "dynamic": d} for s, d in ((2.0, 1.0), (2.0, 2.0), (1.0, 0.0))]
        ),
        laws=[valves_have_no_unit(he)],
        refuses=[
            Refusal("static must be finite and not negative", (THREE,), HE | {"static": -1.0}),
            Refusal("dynamic must not be above static", (THREE,), HE | {"dynamic": 3.0}),
        ],
        differentiable=False,
        exempt={
            "batch": "a signal that is not finite counts as a pause",
            "sums": "the position is a state, not a sum",
            "everywhere": "the scan of the test is a new one in every eager call",
        },
        name="he_step",
    ),
    Row(
        stiction_curve_fit,
        seeds().map(swings),
        curve_fit_by_halves,
        options=FIT,
        laws=[curve_fit_has_no_unit],
        refuses=[
            Refusal("half_periods must be 1 or more", (THREE, ON), FIT | {"half_periods": 0}),
            Refusal("hysteresis must be in (0, 1)", (THREE, ON), FIT | {"hysteresis": 1.0}),
        ],
        differentiable=False,
        dtypes=FLOATS,
        rtol=1e-3,  # small differences of curves
    ),
    Row(
        stiction_correlation,
        seeds().map(loop_swings),
        correlation_by_sums,
        options={"max_lag": 60},
        laws=[correlation_has_no_unit],
        refuses=[Refusal("max_lag must be below", (THREE, THREE, ON), {"max_lag": 3})],
        differentiable=False,
        dtypes=FLOATS,
        rtol=1e-3,  # places of crossings
        atol=1e-4,
    ),
]
