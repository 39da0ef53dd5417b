"""Simulated loops of known cause: sticking valves, outside oscillations, wrong tunings, noise.

Numbers of a case are in percent of the ranges and in rows. The process is two lags behind a dead
time, ``K exp(-theta s) / ((T s + 1) (T2 s + 1))``, sampled behind a hold; the controller is a PI in
its velocity form with the limits of the output; the load drifts at the entrance of the process.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from neorl_core.loops import choudhury_step, he_step, valve_state

CAUSES = {
    "stiction_choudhury": "mend", "stiction_he": "mend", "outside": "leave", "tight": "retune",
    "sluggish": "retune", "saturation": "mend", "noise": "mend", "healthy": "leave",
}  # fmt: skip
"""What ails the loops of a kind, and the right answer."""
DELAYS = 512
"""Longest dead time in rows."""


Numbers = Any
"""Arrays of NumPy while cases are drawn, of JAX where they are simulated."""


class Cases(NamedTuple):
    """Numbers of many loops, each of shape ``(case,)``."""

    gain: Numbers
    lag: Numbers
    second_lag: Numbers
    dead_time: Numbers
    kp: Numbers
    ki: Numbers
    load: Numbers
    load_pole: Numbers
    bias: Numbers
    noise: Numbers
    wave: Numbers
    wave_period: Numbers
    wave_jitter: Numbers
    stickband: Numbers
    slip_jump: Numbers
    he: Numbers
    quantum: Numbers
    moves: Numbers


class Rows(NamedTuple):
    """Rows of many loops, each of shape ``(case, time)``."""

    measurement: np.ndarray
    output: np.ndarray
    setpoint: np.ndarray


def gain_margin(gain, lag, second_lag, dead_time, kp, ki) -> np.ndarray:
    """Gain margins of PI loops, with the hold as half a row of dead time."""
    w = np.geomspace(1e-4, np.pi, 4000)[None, :]
    gain, lag, second_lag, dead_time, kp, ki = (
        np.asarray(x, float)[:, None] for x in (gain, lag, second_lag, dead_time, kp, ki)
    )
    s = 1j * w
    phase = -w * (dead_time + 0.5) - np.arctan(w * lag) - np.arctan(w * second_lag)
    phase = phase + np.arctan2(-ki / w, kp)
    size = np.abs(gain * (kp + ki / s) / (1 + s * lag) / (1 + s * second_lag))
    crossed = (phase[:, :-1] > -np.pi) & (phase[:, 1:] <= -np.pi)
    first = np.argmax(crossed, axis=1)
    return np.where(crossed.any(axis=1), 1 / size[np.arange(len(size)), first], np.inf)


def draw_cases(kind: str, count: int, seed: int) -> Cases:
    """Loops of one kind, drawn at random."""
    rng = np.random.default_rng([list(CAUSES).index(kind), seed])

    def between(low: float, high: float) -> np.ndarray:
        return rng.uniform(low, high, count)

    def of_size(low: float, high: float) -> np.ndarray:
        return np.exp(rng.uniform(np.log(low), np.log(high), count))

    ratio, whole = between(0, 5), of_size(6, 60)
    lag = whole / (1 + ratio)
    lag = np.maximum(lag, 1.0)
    dead_time = np.round(ratio * lag)
    second_lag = between(0, 0.5) * lag
    gain = of_size(0.5, 3.0)
    # The rule of SIMC with half of the second lag as dead time and a closed-loop time of 1 to 2.
    theta = dead_time + 0.5 + second_lag / 2
    first = lag + second_lag / 2
    closed = between(1, 2) * np.maximum(theta, 1.5)
    kp = first / (gain * (closed + theta))
    ti = np.minimum(first, 4 * (closed + theta))
    if kind == "sluggish":
        kp = kp / of_size(5, 12)
    if kind == "tight":
        margin = gain_margin(gain, lag, second_lag, dead_time, kp, kp / ti)
        kp = kp * margin / between(1.1, 1.4)
    ki = kp / ti
    none = np.zeros(count)
    spread = of_size(0.5, 2.0)  # of the load, in percent of the measurement
    scale = lag + dead_time
    sticks = kind.startswith("stiction")
    stickband = between(2, 8) if sticks else none
    load = spread / gain * (0.3 if sticks else 1.0)
    saturates = kind == "saturation"
    bias = 50.0 + (rng.choice([-1, 1], count) * between(48, 62) if saturates else between(-20, 20))
    waves = kind == "outside"
    noise = of_size(0.03, 0.3) if kind != "noise" else of_size(1.5, 4.0)
    return Cases(
        gain=gain * rng.choice([-1, 1], count), lag=lag, second_lag=second_lag,
        dead_time=dead_time, kp=kp, ki=ki, load=load,
        load_pole=np.exp(-1 / (scale * of_size(0.5, 10))),
        bias=bias, noise=noise,
        wave=between(1.5, 4) * spread / gain if waves else none,
        wave_period=scale * of_size(2.5, 20), wave_jitter=between(0, 0.2),
        stickband=stickband, slip_jump=stickband * between(0.4, 1.0),
        he=np.full(count, kind == "stiction_he"),
        quantum=np.where(rng.random(count) < 0.5, 0.05, 0.0),
        moves=rng.integers(4, 21, count),
    )  # fmt: skip


def simulate(cases: Cases, rows: int, seed: int, *, still: int = 0) -> Rows:
    """The rows of the loops, after they have settled for a fifth of as many rows.

    Set points move at random, not before row ``still`` of the settling.
    """
    rng = np.random.default_rng(seed)
    count, warm = len(cases.gain), rows // 5
    total = rows + warm
    setpoint = np.full((count, total), 50.0)
    for case, moves in enumerate(cases.moves):
        for start in np.sort(rng.integers(still, total, int(moves))):
            setpoint[case, start:] = 50 + rng.uniform(-5, 5)
    draws = rng.standard_normal((3, total, count))
    signs = np.sign(cases.gain)
    numbers = Cases(*(jnp.asarray(np.asarray(x, np.float32)) for x in cases))
    numbers = numbers._replace(kp=numbers.kp * signs, ki=numbers.ki * signs)
    y, u = _simulated(
        numbers, jnp.asarray(setpoint.T, jnp.float32), jnp.asarray(draws, jnp.float32)
    )
    y, u = (np.asarray(x, np.float64).T[:, warm:] for x in (y, u))
    return Rows(y, u, setpoint[:, warm:])


@jax.jit
def _simulated(cases: Cases, setpoint, draws):
    def of_case(case, setpoint, draws):
        step = functools.partial(_step, case)
        start = (
            jnp.zeros(2), jnp.zeros(DELAYS), case.bias, jnp.zeros(()), jnp.zeros(()),
            valve_state(case.bias), valve_state(case.bias), case.bias, jnp.zeros(()),
        )  # fmt: skip
        time = jnp.arange(setpoint.shape[0])
        return jax.lax.scan(step, start, (time, setpoint, *draws))[1]

    return jax.vmap(of_case, in_axes=(0, 1, 2), out_axes=1)(cases, setpoint, draws)


def _step(case: Cases, state, inputs):
    lags, held, u, load, phase, choudhury, he, filtered, e_before = state
    time, setpoint, w, v, jitter = inputs
    y = 50 + lags[1] + case.noise * v
    y = jnp.where(case.quantum > 0, jnp.round(y / 0.05) * 0.05, y)
    e = setpoint - y
    u = jnp.clip(u + case.kp * (e - e_before) + case.ki * e, 0, 100)
    # Positioners have a resolution; a noisy signal would hold this valve for ever.
    resolution = jnp.maximum(0.1, 6 * jnp.abs(case.kp) * case.noise)
    filtered = jnp.where(jnp.abs(u - filtered) > resolution, u, filtered)
    sticking = jnp.maximum(case.stickband, 2 * resolution)
    choudhury, at = choudhury_step(
        choudhury, filtered, stickband=sticking, slip_jump=case.slip_jump
    )
    fs, fd = (case.stickband + case.slip_jump) / 2, (case.stickband - case.slip_jump) / 2
    he, at_he = he_step(he, u, static=fs, dynamic=fd)
    position = jnp.where(case.he > 0, at_he, jnp.where(case.stickband > 0, at, u))
    load = case.load_pole * load + jnp.sqrt(1 - case.load_pole**2) * case.load * w
    phase = phase + (1 + case.wave_jitter * jitter) * 2 * jnp.pi / case.wave_period
    entering = position + load + case.wave * jnp.sin(phase)
    place = jnp.mod(time, DELAYS)
    held = held.at[place].set(entering - case.bias)
    late = held[jnp.mod(time - case.dead_time.astype(jnp.int32), DELAYS)]
    a, b = (jnp.exp(-1 / jnp.maximum(lag, 1e-3)) for lag in (case.lag, case.second_lag))
    first = a * lags[0] + (1 - a) * case.gain * late
    second = b * lags[1] + (1 - b) * first
    lags = jnp.stack([first, second])
    return (lags, held, u, load, phase, choudhury, he, filtered, e), (y, u)
