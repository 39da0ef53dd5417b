"""Fixed-step integrators over any PyTree; loops are not unrolled, which would compile slowly.

States made of scalars (a ``NamedTuple``) compile to faster loops than arrays of the same numbers.
If ``rates`` is a module-level function that receives all it needs in ``args``, eager calls compile
it only once; a closure is compiled again at every eager call.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

Tree = TypeVar("Tree")


def runge_kutta(
    rates: Callable[..., Tree], state: Tree, *args: Any, width: float, substeps: int
) -> Tree:
    """Integrates over ``width`` by the classical fourth-order Runge-Kutta method.

    Args:
        rates: Time derivatives ``rates(state, *args)``, in the structure of the state.
        state: State at the start.
        *args: Further arguments of ``rates``, such as constants and inputs held over the interval.
        width: Length of the interval, in the time unit of the rates.
        substeps: Number of equal steps.

    Returns:
        The state at the end. The change is accumulated separately from the state, so that in
        float32 a slow state is not rounded in every substep.

    Example:
        >>> end = runge_kutta(lambda x: -x, jnp.float32(1), width=1.0, substeps=20)
        >>> bool(abs(end - jnp.exp(-1)) < 1e-6)
        True
    """
    return _integrate(_step(_runge_kutta_step, rates, width / substeps), state, args, substeps)


def _integrate(step: Callable, state: Tree, args: tuple, substeps: int) -> Tree:
    change = jax.tree.map(jnp.zeros_like, state)
    change, *_ = jax.lax.fori_loop(0, substeps, step, (change, state, args))
    return _sum(state, change)


def _step(kind: Callable, rates: Callable, h: float) -> Callable:
    """The body of the loop, which is the same object for the same module-level function."""
    # A closure may hold traced values, which must not outlive their trace in a cache.
    closed = getattr(rates, "__closure__", ()) is not None
    return kind(rates, h) if closed else _cached_step(kind, rates, h)


@functools.lru_cache(maxsize=256)
def _cached_step(kind: Callable, rates: Callable, h: float) -> Callable:
    return kind(rates, h)


def _runge_kutta_step(rates: Callable, h: float) -> Callable:
    def step(_: jax.Array, carry: tuple) -> tuple:
        change, state, args = carry
        here = _sum(state, change)
        k1 = rates(here, *args)
        if jax.tree.structure(k1) != jax.tree.structure(here):
            raise ValueError(
                "rates must have the form of the state, "
                f"{jax.tree.structure(here)}, got {jax.tree.structure(k1)}"
            )
        k2 = rates(_advance(here, h / 2, k1), *args)
        k3 = rates(_advance(here, h / 2, k2), *args)
        k4 = rates(_advance(here, h, k3), *args)
        slopes = jax.tree.map(lambda a, b, c, d: a + 2 * (b + c) + d, k1, k2, k3, k4)
        return _advance(change, h / 6, slopes), state, args

    return step


def _sum(state: Tree, change: Tree) -> Tree:
    return jax.tree.map(jnp.add, state, change)


def _advance(state: Tree, width: float, slopes: Tree) -> Tree:
    return jax.tree.map(lambda x, slope: x + width * slope, state, slopes)
