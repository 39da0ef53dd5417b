"""A formula watched while the plant runs."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from neorl_core import Spec
from neorl_safety.monitoring._monitor import Score, Seen
from neorl_safety.monitoring._stl import Formula, robustness


class FormulaCarry(NamedTuple):
    """What a :class:`FormulaMonitor` remembers.

    Attributes:
        window: The last observations, the latest last, shape ``(horizon + 1, obs)``.
        seen: Number of observations so far, at most as many as fit.
    """

    window: Float[Array, "step obs"]
    seen: Int[Array, ""]


class FormulaMonitor(eqx.Module):
    """Alarms once a formula has been violated; see :func:`formula_monitor`.

    Attributes:
        formula: The formula.
        names: Names of the observed channels.
    """

    formula: Formula = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def initial_carry(self) -> FormulaCarry:
        """Nothing seen yet."""
        shape = self.formula.horizon + 1, len(self.names)
        return FormulaCarry(jnp.zeros(shape), jnp.zeros((), jnp.int32))

    def __call__(self, carry: FormulaCarry, seen: Seen) -> tuple[FormulaCarry, Score]:
        """The robustness from the oldest step of the window on, with the sign turned.

        While the window is not full nothing is decided: the value is minus infinity, without alarm.
        """
        latest = seen.obs.astype(carry.window.dtype)[None]
        window = jnp.concatenate([carry.window[1:], latest])
        count = jnp.minimum(carry.seen + 1, len(window))
        value = -robustness(self.formula, window, self.names).value[0]
        full = count == len(window)
        score = Score(jnp.where(full, value, -jnp.inf), full & (value > 0))
        return FormulaCarry(window, count), score


def formula_monitor(formula: Formula, spec: Spec) -> FormulaMonitor:
    """Watches a formula over the observed channels, decided as late as it looks ahead.

    Args:
        formula: Its windows are counted in control periods.
        spec: Specification that names the channels.

    Returns:
        The monitor.

    Raises:
        InputError: If the formula names a channel that is not observed.
    """
    names = tuple(channel.name for channel in spec.obs)
    robustness(formula, jnp.zeros((1, len(names))), names)
    return FormulaMonitor(formula, names)
