"""Models of a process, and a continuous one as its sampled loop sees it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from neorl_core._internal.checks import (
    checked_positive,
    floats,
    is_concrete,
    like,
    nan_unless,
    require_integers,
    require_length,
    require_rank,
    require_scalar,
)
from neorl_core._internal.precision import product, widen
from neorl_core.linear_systems import zero_order_hold
from neorl_core.loops._pid_forms import PIDGains


class TransferFunction(NamedTuple):
    """A continuous process ``N(s) / D(s) exp(-dead_time s)`` from output to measurement.

    Attributes:
        numerator: Coefficients of ``N``, highest power first, in measured units per output unit and
            powers of seconds, shape ``(numerator,)``; no longer than the denominator.
        denominator: Coefficients of ``D``, highest power first and the first not zero, shape
            ``(denominator,)``.
        dead_time: Seconds, not negative, scalar.
    """

    numerator: Float[Array, " numerator"]
    denominator: Float[Array, " denominator"]
    dead_time: Float[Array, ""]


class SampledModel(NamedTuple):
    """A sampled process ``y_{t+1} = sum_i a_i y_{t-i} + sum_j b_j u_{t-delay-j}``.

    One loop of an :class:`neorl_core.linear_systems.ArxModel` is ``SampledModel(model.a[:, i, i],
    model.b[:, i, j], delay)``.

    Attributes:
        a: Weights of past measurements, shape ``(output_lag,)``.
        b: Weights of past outputs in measured units per output unit, shape ``(input_lag,)``.
        delay: Further dead time in periods, a scalar integer, not negative.
    """

    a: Float[Array, " output_lag"]
    b: Float[Array, " input_lag"]
    delay: Int[Array, ""]


Process = TransferFunction | SampledModel


class SampledPlant(NamedTuple):
    """A transfer function behind a hold, with differences in place of derivatives.

    ``(x_{t+1} - x_t) / dt = a x_t + now u_{t-delay} + before u_{t-delay-1}`` and ``y_t = c x_t``.
    For short periods, ``a`` keeps the digits that ``x_{t+1} = exp(A dt) x_t`` would lose.
    """

    a: Array
    now: Array
    before: Array
    c: Array
    delay: Array


def checked_loop(process: Any, gains: Any, dt: Any) -> tuple[Any, PIDGains, Any, Any]:
    """Process, gains and period in one dtype, at least float32, and the dtype to return.

    Raises:
        ValueError: If a shape or a concrete number is out of its stated range.
    """
    if not isinstance(process, TransferFunction | SampledModel):
        raise TypeError(
            f"process must be a TransferFunction or a SampledModel, got {type(process).__name__}; "
            "make one of its coefficients"
        )
    gains = PIDGains(*gains)
    for name, number in zip(PIDGains._fields, gains, strict=True):
        require_scalar(name, number)
    gains = gains._replace(tau=checked_positive("tau", gains.tau, or_zero=True))
    if dt is not None:
        dt = checked_positive("dt", dt)
    elif isinstance(process, SampledModel):
        raise ValueError("dt must be the period of a SampledModel, got None; give its seconds")
    lags = process if isinstance(process, TransferFunction) else process[:2]
    dtype = jnp.result_type(*(floats(number) for number in (*lags, *gains)))
    if isinstance(process, TransferFunction):
        process = _checked_transfer_function(process, sampled=dt is not None)
    else:
        process = _checked_sampled_model(process)
    one = widen(jnp.zeros((), dtype))
    delay = process.delay if isinstance(process, SampledModel) else None
    process = type(process)(*(like(widen(floats(leaf)), one) for leaf in process))
    if delay is not None:
        process = process._replace(delay=jnp.asarray(delay).astype(jnp.int32))
    gains = PIDGains(*(like(widen(floats(leaf)), one) for leaf in gains))
    return process, gains, None if dt is None else like(dt, one), dtype


def _checked_transfer_function(process: TransferFunction, sampled: bool) -> TransferFunction:
    for name in ("numerator", "denominator"):
        require_rank(name, getattr(process, name), 1, name)
        require_length(name, getattr(process, name), 1)
    require_scalar("dead_time", process.dead_time)
    zeros, poles = np.shape(process.numerator)[0], np.shape(process.denominator)[0]
    if zeros > poles or (sampled and zeros == poles):
        bound = "shorter than" if sampled else "no longer than"
        raise ValueError(
            f"numerator must be {bound} denominator, got {zeros} and {poles} coefficients; a "
            "process cannot answer a change before or, when sampled, at the same instant"
        )
    leading = widen(floats(process.denominator))
    if is_concrete(leading) and not np.asarray(leading)[0] != 0:
        raise ValueError(
            f"denominator must begin with a number that is not zero, got {process.denominator}; "
            "leave the zero out"
        )
    dead_time = checked_positive("dead_time", process.dead_time, or_zero=True)
    leading = leading.at[0].set(nan_unless(leading[0] != 0, leading[0]))
    return TransferFunction(process.numerator, leading, dead_time)


def _checked_sampled_model(process: SampledModel) -> SampledModel:
    require_rank("a", process.a, 1, "output_lag")
    require_rank("b", process.b, 1, "input_lag")
    require_length("b", process.b, 1)
    require_scalar("delay", process.delay)
    require_integers("delay", process.delay)
    if is_concrete(process.delay) and np.asarray(process.delay) < 0:
        raise ValueError(
            f"delay must not be negative, got {process.delay}; give the periods of dead time"
        )
    return process


def sampled_plant(process: TransferFunction, dt: Array) -> SampledPlant:
    """The process behind a hold of period ``dt``; its dead time need not be a multiple of it."""
    leading, order = process.denominator[0], process.denominator.shape[0] - 1
    rest = process.denominator[1:] / leading
    a = jnp.eye(order, k=1, dtype=rest.dtype).at[-1].set(-rest[::-1])
    whole = jnp.floor(process.dead_time / dt)
    late = process.dead_time - whole * dt
    eye = jnp.eye(order, dtype=rest.dtype)
    # The integrals of exp(A t) over the period, and over what is left of it after the dead time.
    # A part of length zero would not be a period.
    left = jnp.maximum(dt - late, dt * jnp.finfo(rest.dtype).eps)

    def held(time: Array) -> Array:
        return zero_order_hold(a, eye, dt=time)[1] / dt

    # Together the two exponentials are one program of half the size.
    period, after = jax.vmap(held)(jnp.stack([dt, left]))
    now, both = after[:, -1], period[:, -1]
    c = jnp.zeros(order, rest.dtype)
    c = c.at[: process.numerator.shape[0]].set(process.numerator[::-1] / leading)
    return SampledPlant(product(a, period), now, both - now, c, whole)


def difference_polynomials(plant: SampledPlant) -> tuple[Array, Array, Array]:
    """``det(d - a)``, ``c adj(d - a) now`` and ``c adj(d - a) before``, highest power first.

    By the recurrence of Faddeev and LeVerrier.
    """
    order = plant.a.shape[0]
    eye = jnp.eye(order, dtype=plant.a.dtype)
    adjoint, coefficients, now, before = eye, [jnp.ones((), plant.a.dtype)], [], []
    for power in range(1, order + 1):
        now.append(jnp.sum(plant.c * product(adjoint, plant.now)))
        before.append(jnp.sum(plant.c * product(adjoint, plant.before)))
        step = product(plant.a, adjoint)
        coefficients.append(-jnp.trace(step) / power)
        adjoint = step + coefficients[-1] * eye
    return jnp.stack(coefficients), jnp.stack(now), jnp.stack(before)


def in_unit(process: TransferFunction, unit: Array) -> TransferFunction:
    """The process with ``unit`` seconds as its unit of time."""

    def scaled(polynomial: Array) -> Array:
        powers = jnp.arange(polynomial.shape[0])[::-1].astype(polynomial.dtype)
        return polynomial * unit**-powers

    return TransferFunction(
        scaled(process.numerator), scaled(process.denominator), process.dead_time / unit
    )


def gains_in_unit(gains: PIDGains, unit: Array) -> PIDGains:
    """The gains with ``unit`` seconds as the unit of time."""
    return PIDGains(gains.kp, gains.ki * unit, gains.kd / unit, gains.tau / unit)


def corner_frequencies(polynomials: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Lowest and highest frequency at which two terms of the polynomials are equally large.

    Args:
        polynomials: Coefficients, each with its powers; powers may repeat between polynomials.
    """
    sizes = jnp.concatenate([jnp.abs(numbers) for numbers, _ in polynomials])
    powers = jnp.concatenate([powers for _, powers in polynomials])
    present = sizes > 0
    logs = jnp.log(jnp.where(present, sizes, 1))
    apart = powers[None, :] - powers[:, None]
    corners = (logs[:, None] - logs[None, :]) / jnp.where(apart == 0, 1, apart)
    real = present[:, None] & present[None, :] & (apart != 0)
    low = jnp.min(jnp.where(real, corners, jnp.inf))
    high = jnp.max(jnp.where(real, corners, -jnp.inf))
    return low, high


def convolve(first: Array, second: Array) -> Array:
    """The coefficients of a product of polynomials."""
    return jnp.convolve(first, second, precision=jax.lax.Precision.HIGHEST)
