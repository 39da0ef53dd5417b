"""Checks that actuators, instruments and initial states are physically possible."""

from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from neorl_envs.blocks._actuators import ActuatorParameters, Actuators
from neorl_envs.blocks._instruments import InstrumentParameters, Instruments


def check_actuators(actuators: Actuators, parameters: ActuatorParameters) -> None:
    """Raises a ``ValueError`` for rate limits, lags and dead times that are impossible."""
    for i, actuator in enumerate(actuators):
        unit, name = actuator.channel.unit, f"actuator {actuator.channel.name!r}"
        speed, lag = parameters.speed[..., i], parameters.lag[..., i]
        _require(f"speed of {name}", speed, lambda x: x > 0, f"above 0 {unit}/s")
        _require(f"lag of {name}", lag, _finite_not_negative, "finite and not negative, in s")
        _require_dead_time(name, parameters.dead_time[..., i], actuator.dead_time)


def check_instruments(instruments: Instruments, parameters: InstrumentParameters) -> None:
    """Raises a ``ValueError`` for impossible measurement errors, probabilities and dead times."""
    for i, instrument in enumerate(instruments):
        unit, name = instrument.channel.unit, f"instrument {instrument.channel.name!r}"
        for field in ("sd", "relative", "drift"):
            given = getattr(parameters, field)[..., i]
            allowed = f"finite and not negative ({unit if field != 'relative' else '1'})"
            _require(f"{field} of {name}", given, _finite_not_negative, allowed)
        freezes = parameters.freezes[..., i]
        _require(f"freezes of {name}", freezes, _is_probability, "a probability")
        _require_dead_time(name, parameters.dead_time[..., i], instrument.dead_time)
    _require("thaws of the instruments", parameters.thaws, _is_probability, "a probability")


def check_initial(declared: Any, start: Any, spread: Any) -> None:
    """Raises a ``ValueError`` for an initial state that is not finite, or a negative spread."""
    paths, structure = jax.tree_util.tree_flatten_with_path(declared)
    both = zip(paths, structure.flatten_up_to(start), structure.flatten_up_to(spread), strict=True)
    for (path, _), value, width in both:
        name = f"initial {jax.tree_util.keystr(path, simple=True, separator='.')}".rstrip()
        _require(name, value, np.isfinite, "finite")
        _require(f"spread of {name}", width, _finite_not_negative, "finite and not negative")


def _require_dead_time(name: str, given: Any, declared: int) -> None:
    _require(
        f"dead_time of {name}",
        given,
        lambda x: (x >= 0) & (x <= declared),
        f"from 0 to the declared {declared} periods",
    )


def _finite_not_negative(x: np.ndarray) -> np.ndarray:
    return np.isfinite(x) & (x >= 0)


def _is_probability(x: np.ndarray) -> np.ndarray:
    return (x >= 0) & (x <= 1)


def _require(name: str, given: Any, holds: Any, allowed: str) -> None:
    if isinstance(given, Tracer):
        return
    value = np.asarray(given)
    good = holds(value)
    if not good.all():
        worst = float(value[~good].ravel()[0])
        raise ValueError(f"{name} must be {allowed}, got {worst:g}")
