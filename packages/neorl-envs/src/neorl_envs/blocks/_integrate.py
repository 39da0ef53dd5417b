"""Fixed-step integrators over any PyTree; the loops stay loops, since unrolled ones compile long.

States made of scalars (a ``NamedTuple``) compile to faster loops than one array of them.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

Tree = TypeVar("Tree")


def runge_kutta(rates: Callable[[Tree], Tree], state: Tree, *, width: float, substeps: int) -> Tree:
    """The state after ``width`` by the classical Runge-Kutta method of fourth order.

    Args:
        rates: Time derivatives of the state, inputs held.
        state: At the start.
        width: Length of the interval, in the time unit of the rates.
        substeps: Number of equal steps.

    Returns:
        The state at the end. The change is summed apart from the state, so that in float32 a
        slow state does not round once a substep.

    Example:
        >>> import jax.numpy as jnp
        >>> end = runge_kutta(lambda x: -x, jnp.float32(1), width=1.0, substeps=20)
        >>> bool(abs(end - jnp.exp(-1)) < 1e-6)
        True
    """
    h = width / substeps

    def one(_: jax.Array, change: Tree) -> Tree:
        here = _sum(state, change)
        k1 = rates(here)
        k2 = rates(_moved(here, h / 2, k1))
        k3 = rates(_moved(here, h / 2, k2))
        k4 = rates(_moved(here, h, k3))
        return jax.tree.map(
            lambda c, a, b, d, e: c + h / 6 * (a + 2 * (b + d) + e), change, k1, k2, k3, k4
        )

    return _sum(state, jax.lax.fori_loop(0, substeps, one, jax.tree.map(jnp.zeros_like, state)))


def euler(rates: Callable[[Tree], Tree], state: Tree, *, width: float, substeps: int) -> Tree:
    """The state after ``width`` by the explicit Euler method; arguments as :func:`runge_kutta`.

    Example:
        >>> import jax.numpy as jnp
        >>> float(euler(lambda x: -x, jnp.float32(1), width=1.0, substeps=1))
        0.0
    """
    h = width / substeps

    def one(_: jax.Array, change: Tree) -> Tree:
        return _moved(change, h, rates(_sum(state, change)))

    return _sum(state, jax.lax.fori_loop(0, substeps, one, jax.tree.map(jnp.zeros_like, state)))


def _sum(state: Tree, change: Tree) -> Tree:
    return jax.tree.map(jnp.add, state, change)


def _moved(state: Tree, width: float, slopes: Tree) -> Tree:
    return jax.tree.map(lambda x, slope: x + width * slope, state, slopes)
