"""Whether a model of a sticking valve explains a loop's rows better than a straight one."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.loops._identification import (
    REACH,
    best_fit,
    centred,
    fit,
    grid,
    moments,
    starts,
)
from neorl_agents.loops._record import LoopRecord
from neorl_core.loops import choudhury_step, he_step, valve_state

BANDS = (0.4, 0.7, 1.0, 1.5, 2.2, 3.3)
"""Stickbands that are tried, in standard deviations of the output without its trend."""
JUMPS = (0.3, 0.8, 0.5)
"""Slip-jumps, as shares of the stickband, of the valves that are tried: two of He, and that of
Choudhury behind a deadband."""
REFINED = 3
"""Valves whose fit is refined, of those that fit best on the grid."""
EXACT = 1e-10
"""Error, as a share of the measurement's variance, that is small enough for any valve."""
RESOLUTION = 0.05
"""Deadband of a positioner, as a share of the stickband."""


class ValveTest(NamedTuple):
    """How much better the best valve model predicts than a valve that follows its signal.

    Attributes:
        gain: Logarithm of the ratio of the likelihoods; a sticking valve gives tens.
        stickband: ``S`` of the best one, in output units.
        slip_jump: ``J`` of the best one.
    """

    gain: float
    stickband: float
    slip_jump: float


def valve_test(record: LoopRecord, swing: float) -> ValveTest:
    """Fits the process behind valves that stick by different amounts.

    Args:
        record: Rows of the loop.
        swing: Standard deviation of the output without its slow trend, in output units.

    Source: Jelali, Estimation of valve stiction in control loops using separable least-squares and
    global search algorithms, J. Process Control 18 (2008) 632.
    """
    none = ValveTest(0.0, 0.0, 0.0)
    output = record.output.copy()
    known = np.isfinite(output) & np.isfinite(record.measurement)
    if not (swing > 0 and known.sum() > 4 * REACH and np.std(record.measurement[known]) > 0):
        return none
    output = np.interp(np.arange(len(output)), np.flatnonzero(known), output[known])
    tried, delays = grid(np.geomspace(0.5, 48, 10), (0.0, 1.0)), np.arange(0, 61, 2)
    rows = int(moments(record.measurement, record.output, record.segment, blocks=1).rows.sum())
    if rows < REACH:
        return none

    def covariance_of(column: np.ndarray) -> np.ndarray:
        column = np.where(known, column, np.nan)
        # Only rows with their whole history count: where a record begins and ends, and at a gap,
        # what is taken for zero makes errors as large as the signals, and a valve that smooths
        # them looks better than it is.
        data = moments(record.measurement, column, record.segment, blocks=1)
        return centred(data, np.ones(1))[0]

    covariance = covariance_of(output)
    straight = best_fit(covariance, tried, delays, starts(covariance))
    bands = swing * np.asarray(BANDS)
    positions = np.asarray(_positions(jnp.asarray(output - output[0]), jnp.asarray(bands)))
    coarse = []
    for form in range(len(JUMPS)):
        for band, position in zip(bands, positions[form], strict=True):
            if np.std(position) < 0.05 * swing:
                continue
            covariance = covariance_of(position.astype(float))
            found = fit(covariance, tried, delays, straight.noise, rounds=2)
            coarse.append((found.error, form, float(band), covariance))
    best = none
    # Refining takes most of the time, and moves the order of the valves by a few places at most.
    for _, form, band, covariance in sorted(coarse, key=lambda one: one[0])[:REFINED]:
        bent = best_fit(covariance, tried, delays, [straight.noise])
        errors = [max(one.error, EXACT) for one in (straight, bent)]
        gain = rows / 2 * float(np.log(errors[0] / errors[1]))
        if gain > best.gain:
            best = ValveTest(gain, band, JUMPS[form] * band)
    return best


@jax.jit
def _positions(signal: jax.Array, bands: jax.Array) -> jax.Array:
    """Positions of every form of valve with every stickband, shape ``(form, band, time)``."""

    def he(jump: float, band: jax.Array) -> jax.Array:
        static, dynamic = (1 + jump) / 2 * band, (1 - jump) / 2 * band
        step = functools.partial(he_step, static=static, dynamic=dynamic)
        return jax.lax.scan(step, valve_state(signal[0]), signal)[1]

    def choudhury(band: jax.Array) -> jax.Array:
        def step(state: Any, value: jax.Array) -> tuple[Any, jax.Array]:
            valve, last = state
            last = jnp.where(jnp.abs(value - last) > RESOLUTION * band, value, last)
            valve, position = choudhury_step(valve, last, stickband=band, slip_jump=JUMPS[2] * band)
            return (valve, last), position

        return jax.lax.scan(step, (valve_state(signal[0]), signal[0]), signal)[1]

    return jnp.stack(
        [
            jax.vmap(functools.partial(he, JUMPS[0]))(bands),
            jax.vmap(functools.partial(he, JUMPS[1]))(bands),
            jax.vmap(choudhury)(bands),
        ]
    )
