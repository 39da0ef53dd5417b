"""What a PID loop does after a step of its setpoint or of its load."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from neorl_core._internal.checks import (
    checked_integer,
    checked_positive,
    checked_probability,
    floats,
    like,
    require_scalar,
    require_series,
)
from neorl_core._internal.precision import narrow, product, widen
from neorl_core.loops._pid_forms import PIDGains
from neorl_core.loops._processes import (
    Process,
    SampledModel,
    TransferFunction,
    checked_loop,
    gains_in_unit,
    in_unit,
    sampled_plant,
)


class StepResponse(NamedTuple):
    """A loop's answer to a step, as deviations from its state of rest.

    Attributes:
        measurement: Measurement at every period, in measured units, shape ``(time,)``.
        output: Output from that instant until the next one, in output units, shape ``(time,)``.
    """

    measurement: Float[Array, " time"]
    output: Float[Array, " time"]


class StepFigures(NamedTuple):
    """The numbers by which an engineer compares step responses.

    Attributes:
        overshoot: How far the measurement goes beyond the setpoint, as a fraction of the setpoint's
            step; NaN for a step of the load.
        peak: Largest distance from the setpoint after the step, in measured units; for a step of
            the load the largest disturbance.
        settling_time: Seconds until the distance from the setpoint stays within ``band`` of
            ``peak``; infinite if it does not within the record.
        absolute_error: Integral of the distance from the setpoint, in measured units times seconds.
        travel: Sum of all moves of the output, the first from rest included, in output units.
    """

    overshoot: Float[Array, ""]
    peak: Float[Array, ""]
    settling_time: Float[Array, ""]
    absolute_error: Float[Array, ""]
    travel: Float[Array, ""]


class _State(NamedTuple):
    """Plant state or past measurements, sent outputs, and integral and derivative of the PID."""

    plant: Array
    sent: Array
    integral: Array
    derivative: Array
    last: Array


def step_response(
    process: Process,
    gains: PIDGains,
    *,
    dt: float | Float[Array, ""],
    steps: int,
    setpoint: float | Float[Array, ""] = 0.0,
    load: float | Float[Array, ""] = 0.0,
) -> StepResponse:
    """Simulates a linear loop from rest, with steps of the setpoint and the load at time zero.

    The controller is :class:`neorl_core.control.PID` without limits: ``u = kp e + I - kd y'``, ``I
    += ki e dt``, with the filtered backward difference ``y'`` of the measurement. The load adds to
    the output at the entrance of the process, before its dead time. A continuous process is sampled
    exactly behind a hold.

    Args:
        process: From output to measurement.
        gains: The controller.
        dt: Period in seconds, positive; for a :class:`SampledModel` its period. A small one stands
            for a continuous controller.
        steps: Number of periods to simulate, one or more.
        setpoint: Size of the setpoint's step in measured units.
        load: Size of the load's step in output units.

    Returns:
        The response. Differentiable in everything but the dead time.

    Raises:
        ValueError: If a shape is not as stated, a concrete ``dt`` is not positive, or a concrete
            ``tau`` or dead time is negative.
        TypeError: If ``process`` is no model of a process.

    Example:
        >>> from neorl_core.loops import PIDGains, SampledModel, step_response
        >>> process, gains = SampledModel([0.5], [0.5], 0), PIDGains(1.0, 0.0, 0.0, 0.0)
        >>> response = step_response(process, gains, dt=1.0, steps=3, load=1.0)
        >>> response.measurement.tolist()
        [0.0, 0.5, 0.5]

    Source: Astrom and Wittenmark, Computer-controlled systems, 1997, section 2.3 (sampling).
    """
    process, gains, dt, dtype = checked_loop(process, gains, dt)
    steps = checked_integer("steps", steps, 1, "give the number of periods")
    require_scalar("setpoint", setpoint)
    require_scalar("load", load)
    kp = jnp.asarray(gains.kp)
    setpoint, load = like(setpoint, kp), like(load, kp)
    return narrow(_simulate(process, gains, dt, setpoint, load, steps=steps), dtype)


@functools.partial(jax.jit, static_argnames="steps")
def _simulate(
    process: Any, gains: PIDGains, dt: Array, setpoint: Array, load: Array, *, steps: int
) -> StepResponse:
    zero = jnp.zeros_like(dt)
    if isinstance(process, TransferFunction):
        # Periods as the unit of time keep the digits of slow processes.
        gains = gains_in_unit(gains, dt)
        model = sampled_plant(in_unit(process, dt), jnp.ones_like(dt))
        plant = jnp.zeros_like(model.c)
    else:
        gains = gains_in_unit(gains, dt)
        model = process
        plant = jnp.zeros_like(process.a)
    state = _State(plant, jnp.zeros(steps, dt.dtype), zero, zero, zero)
    step = functools.partial(_step, model, gains, setpoint, load)
    _, (measurement, output) = jax.lax.scan(step, state, jnp.arange(steps, dtype=jnp.int32))
    return StepResponse(measurement, output)


def _step(
    model: Any, gains: PIDGains, setpoint: Array, load: Array, state: _State, time: Array
) -> tuple[_State, tuple[Array, Array]]:
    """One period, which is the unit of time."""
    sampled = isinstance(model, SampledModel)
    measurement = _next_measurement(model, state, time) if sampled else _sum(model.c, state.plant)
    weight = 1 / (gains.tau + 1)
    derivative = state.derivative + weight * (measurement - state.last - state.derivative)
    error = setpoint - measurement
    integral = state.integral + gains.ki * error
    output = gains.kp * error + integral - gains.kd * derivative
    sent = state.sent.at[time].set(output + load)
    if sampled:
        plant = jnp.roll(state.plant, 1).at[:1].set(measurement)
    else:
        delay = model.delay.astype(jnp.int32)
        now, before = _sent(sent, time - delay), _sent(sent, time - delay - 1)
        change = product(model.a, state.plant) + model.now * now + model.before * before
        plant = state.plant + change
    return _State(plant, sent, integral, derivative, measurement), (measurement, output)


def _next_measurement(model: SampledModel, state: _State, time: Array) -> Array:
    """The measurement of a sampled model at a time, from what was before it."""
    lags = range(model.b.shape[0])
    past = [_sent(state.sent, time - 1 - model.delay - lag) for lag in lags]
    return _sum(model.a, state.plant) + _sum(model.b, jnp.stack(past))


def _sent(sent: Array, time: Array) -> Array:
    """Output plus load at a time, zero before the first."""
    return jnp.where(time >= 0, sent[jnp.maximum(time, 0)], 0)


def _sum(weights: Array, values: Array) -> Array:
    return jnp.sum(weights * values)


def step_figures(
    measurement: Float[ArrayLike, " time"],
    output: Float[ArrayLike, " time"],
    *,
    setpoint: float | Float[Array, ""],
    dt: float | Float[Array, ""],
    band: float | Float[Array, ""] = 0.05,
) -> StepFigures:
    """Overshoot, settling time, integrated absolute error and valve travel of a step response.

    Args:
        measurement: Deviations from rest, as in :class:`StepResponse`.
        output: Deviations from rest, of the same length.
        setpoint: Size of the setpoint's step in measured units; zero for a step of the load.
        dt: Period in seconds, positive.
        band: Fraction of the peak within which the loop counts as settled, in (0, 1).

    Returns:
        The figures.

    Raises:
        ValueError: If the two are not of one length, ``dt`` is not positive, or ``band`` is outside
            (0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> y, u = jnp.array([0.0, 1.2, 0.9, 1.0]), jnp.array([2.0, 1.0, 1.0, 1.0])
        >>> figures = step_figures(y, u, setpoint=1.0, dt=2.0, band=0.05)
        >>> [round(float(number), 3) for number in figures]
        [0.2, 1.0, 6.0, 2.6, 3.0]

    Source: Seborg, Edgar, Mellichamp and Doyle, Process dynamics and control, 2016, section 5.4.
    """
    require_series(measurement=measurement, output=output)
    require_scalar("setpoint", setpoint)
    dt, band = checked_positive("dt", dt), checked_probability("band", band)
    dtype = jnp.result_type(floats(measurement), floats(output))
    measurement, output = widen(measurement), widen(output)
    one = jnp.result_type(measurement, output)
    measurement, output = measurement.astype(one), output.astype(one)
    setpoint, dt, band = (like(number, measurement) for number in (setpoint, dt, band))
    error = jnp.abs(measurement - setpoint)
    beyond = jnp.max((measurement - setpoint) * jnp.sign(setpoint))
    overshoot = jnp.maximum(beyond, 0) / jnp.where(setpoint == 0, jnp.nan, jnp.abs(setpoint))
    peak = jnp.max(error)
    outside = ~(error <= band * peak)
    count = jnp.arange(1, error.shape[0] + 1, dtype=jnp.int32)
    settled = jnp.max(jnp.where(outside, count, 0)).astype(one) * dt
    settled = jnp.where(outside[-1], jnp.inf, settled)
    travel = jnp.sum(jnp.abs(jnp.diff(output, prepend=jnp.zeros_like(output[:1]))))
    known = jnp.isfinite(band)
    settled = jnp.where(known, settled, jnp.nan)
    return narrow(StepFigures(overshoot, peak, settled, jnp.sum(error) * dt, travel), dtype)
