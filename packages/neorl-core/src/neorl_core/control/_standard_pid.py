"""PID loops from the parameters shown on a controller's faceplate."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from neorl_core._internal.checks import checked_positive
from neorl_core.control._pid import PID

Numbers = float | Sequence[float]


def standard_pid(
    *,
    gain: Numbers,
    integral_time: Numbers = float("inf"),
    derivative_time: Numbers = 0.0,
    setpoint: Numbers,
    bias: Numbers = 0.0,
    low: Numbers,
    high: Numbers,
    dt: float,
    measured: int | Sequence[int] = 0,
    derivative_filter: float = 10.0,
) -> PID:
    """PID loops in standard form, from plain numbers, in float32.

    ``u = bias + Kc (e + 1/Ti integral(e) dt - Td dy/dt)`` with the error ``e = setpoint - y``. In
    the parallel form of :class:`PID` this is ``kp = Kc``, ``ki = Kc / Ti`` and ``kd = Kc Td``; the
    derivative is filtered with the time constant ``Td / derivative_filter``.

    A single number applies to every loop; a sequence has one number for each loop. The longest
    sequence, or ``measured``, gives the number of loops. Times are in seconds. Many control systems
    show minutes, and some show resets per minute, which are ``60 / integral_time``.

    Args:
        gain: ``Kc`` in output units per measured unit; negative if a larger output lowers the
            measurement. To convert a gain in percent per percent, multiply it by the output range
            and divide it by the measurement range.
        integral_time: ``Ti`` in seconds, positive; infinite for a loop without an integral.
        derivative_time: ``Td`` in seconds, not negative.
        setpoint: Setpoint in the unit of the measurement.
        bias: Output at zero error and zero integral.
        low: Lower limits of the outputs.
        high: Upper limits of the outputs, not below ``low``.
        dt: Control period in seconds, positive.
        measured: Index of the observation that each loop controls.
        derivative_filter: ``N``, positive; usually from 5 to 20.

    Returns:
        The loops as a policy.

    Raises:
        ValueError: If two sequences differ in length, a number is not finite (``integral_time`` may
            be infinite) or is outside its stated range, or ``low`` is above ``high``.

    Example:
        >>> pid = standard_pid(gain=2.0, integral_time=50.0, setpoint=70.0, low=0, high=100, dt=1.0)
        >>> carry, action = pid(pid.initial_carry(), jnp.array([65.0]))
        >>> [round(float(u), 2) for u in action]  # 2 * 5, and 2 / 50 * 5 of the integral
        [10.2]

    Source: Astrom and Hagglund, PID controllers: theory, design, and tuning, 1995, section 3.4.
    """
    numbers = {
        "gain": gain,
        "integral_time": integral_time,
        "derivative_time": derivative_time,
        "setpoint": setpoint,
        "bias": bias,
        "low": low,
        "high": high,
        "measured": measured,
    }
    columns = _columns(numbers)
    ti, td = columns["integral_time"], columns["derivative_time"]
    for name, column in columns.items():
        if not np.all(np.isfinite(column) | ((name == "integral_time") & (column == np.inf))):
            raise ValueError(
                f"{name} must be finite, got {column.tolist()}; check how it was copied"
            )
    if np.any(ti <= 0):
        raise ValueError(
            f"integral_time must be positive, got {ti.tolist()}; leave it out for a loop without "
            "an integral"
        )
    if np.any(td < 0):
        raise ValueError(
            f"derivative_time must not be negative, got {td.tolist()}; where a larger output "
            "lowers the measurement, make the gain negative"
        )
    if np.any(columns["low"] > columns["high"]):
        raise ValueError(
            f"low must not be above high, got {columns['low'].tolist()} and "
            f"{columns['high'].tolist()}; swap them"
        )
    checked_positive("dt", dt)
    checked_positive("derivative_filter", derivative_filter)
    leaves = {
        "kp": columns["gain"],
        "ki": columns["gain"] / ti,
        "kd": columns["gain"] * td,
        "tau": td / derivative_filter,
        **{name: columns[name] for name in ("setpoint", "bias", "low", "high")},
        "dt": np.asarray(dt),
        "override_below": np.zeros(0),
        "override_cap": np.zeros(0),
    }
    fields: dict[str, Any] = {k: jnp.asarray(v, jnp.float32) for k, v in leaves.items()}
    return PID(**fields, measured=tuple(int(index) for index in columns["measured"]))


def _columns(numbers: dict[str, object]) -> dict[str, np.ndarray]:
    """One number for each loop; single numbers are repeated."""
    arrays = {name: np.atleast_1d(np.asarray(value, np.float64)) for name, value in numbers.items()}
    loops = max(len(array) for array in arrays.values())
    for name, array in arrays.items():
        if array.shape not in ((1,), (loops,)):
            raise ValueError(
                f"{name} must be one number or one for each of the {loops} loops, got "
                f"{array.tolist()}; give as many numbers as there are loops"
            )
    return {name: np.broadcast_to(array, (loops,)) for name, array in arrays.items()}
