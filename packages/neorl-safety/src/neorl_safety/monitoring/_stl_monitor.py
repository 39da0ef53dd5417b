"""A formula monitored while the plant runs."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from neorl_core import InputError, Spec
from neorl_safety.monitoring._monitor import MonitorInput, Score
from neorl_safety.monitoring._stl import Formula
from neorl_safety.monitoring._stl_stream import LARGEST, Stream, worst

MOST_HORIZON = 100_000
"""Largest number of steps that a formula may look ahead, all its windows together."""


class FormulaCarry(NamedTuple):
    """Carry of a :class:`FormulaMonitor`.

    Attributes:
        streams: State of the parts of the formula: at most two numbers for every step of a window.
    """

    streams: Any


class FormulaMonitor(eqx.Module):
    """Alarms once a formula has been violated; see :func:`formula_monitor`.

    Attributes:
        formula: The formula.
        names: Names of the observed channels.
    """

    formula: Formula = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def initial_carry(self) -> FormulaCarry:
        """A carry before the first observation."""
        return FormulaCarry(_stream(self.formula, self.names).initial())

    def __call__(self, carry: FormulaCarry, inputs: MonitorInput) -> tuple[FormulaCarry, Score]:
        """Minus the smallest robustness from any step within the horizon.

        Steps that are not decided yet count as satisfied. If no step is decided, the value is minus
        infinity, without an alarm.
        """
        streams, worst_margin = _stream(self.formula, self.names)(carry.streams, inputs.obs)
        value = jnp.where(
            jnp.abs(worst_margin) < LARGEST,
            -worst_margin,
            jnp.where(worst_margin > 0, -jnp.inf, jnp.inf),
        )
        return FormulaCarry(streams), Score(value, worst_margin < 0)


def formula_monitor(formula: Formula, spec: Spec) -> FormulaMonitor:
    """Monitors a formula over the observed channels, starting from every step.

    It alarms in the first step which decides that the formula is violated from some earlier step,
    and as long as that earlier step lies within the formula's horizon. ``always`` is violated
    immediately, ``eventually`` when its time is over. The average cost of a step does not depend on
    the length of the windows.

    Args:
        formula: Formula with windows in control periods.
        spec: Specification that provides the channels.

    Returns:
        The monitor.

    Raises:
        InputError: If the formula names a channel that is not observed, or looks ahead by more than
            100,000 steps.
    """
    if formula.horizon > MOST_HORIZON:
        raise InputError(
            f"a formula may look at most {MOST_HORIZON} control periods ahead, got "
            f"{formula.horizon}; shorten its windows"
        )
    names = tuple(channel.name for channel in spec.obs)
    _stream(formula, names)
    return FormulaMonitor(formula, names)


@functools.lru_cache(maxsize=64)
def _stream(formula: Formula, names: tuple[str, ...]) -> Stream:
    return worst(formula, names, formula.horizon)
