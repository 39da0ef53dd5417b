"""Linear-quadratic regulators over an infinite and a finite horizon."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import checked_integer
from neorl_core._internal.matrix_products import product, symmetric
from neorl_core.linear_systems._checks import checked_matrix, is_semidefinite
from neorl_core.linear_systems._riccati import gain_of, is_cost, problem, stabilising_solution
from neorl_core.linear_systems._scaling import Costs


class Regulator(NamedTuple):
    """The linear-quadratic regulator ``u = -gain x``.

    Attributes:
        gain: Shape ``(act, state)``; for a finite horizon ``(time, act, state)``.
        cost_to_go: ``X`` of the remaining cost ``x^T X x`` from the state ``x``, shape ``(state,
            state)``; for a finite horizon ``(time + 1, state, state)``.
    """

    gain: Float[Array, "*time act state"]
    cost_to_go: Float[Array, "*times state state"]


def lq_regulator(
    a: Float[Array, "state state"],
    b: Float[Array, "state act"],
    q: Float[Array, "state state"],
    r: Float[Array, "act act"],
    *,
    cross: Float[Array, "state act"] | None = None,
) -> Regulator:
    """The gain that minimises ``sum_k x^T Q x + u^T R u + 2 x^T N u`` over an infinite horizon.

    ``K = (R + B^T X B)^{-1} (B^T X A + N^T)`` with ``X`` from :func:`discrete_riccati`. It is the
    best of all stabilising gains; an unstable plant is stabilised even if its states cost nothing.

    Args:
        a: ``A`` of ``x_{k+1} = A x_k + B u_k``.
        b: ``B``.
        q: ``Q``, symmetric positive semidefinite.
        r: ``R``, symmetric positive semidefinite.
        cross: ``N``; zero if ``None``.

    Returns:
        The gain and the cost to go; both are NaN wherever :func:`discrete_riccati` gives NaN. Only
        the gain is NaN if, in balanced units, rounding may change it by more than about 0.002 of
        its largest entry in float32, or 1e-6 in float64. In float32 this happens if nearly free
        inputs (costs below about 1e-4 of their effect) act on the same output, so that nothing
        determines which of them should move. float64 (``jax.config.update("jax_enable_x64",
        True)``) solves such cases, as well as slow modes and modes that are hardly reached.

    Raises:
        ValueError: See :func:`discrete_riccati`.

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.ones((1, 1))
        >>> round(float(lq_regulator(one, one, one, one).gain[0, 0]), 4)
        0.618

    Source: Anderson and Moore, Optimal control: linear quadratic methods, 1990.
    """
    solution = stabilising_solution(problem(a, b, q, r, cross))
    return Regulator(solution.gain, solution.x)


def finite_horizon_regulator(
    a: Float[Array, "state state"],
    b: Float[Array, "state act"],
    q: Float[Array, "state state"],
    r: Float[Array, "act act"],
    terminal: Float[Array, "state state"],
    *,
    horizon: int,
    cross: Float[Array, "state act"] | None = None,
) -> Regulator:
    """The gains that minimise the cost of ``horizon`` periods and of the state after them.

    Backwards from ``X_T = terminal``: ``X_k = Q + A^T X_{k+1} A - (A^T X_{k+1} B + N) K_k``.

    Args:
        a: ``A`` of ``x_{k+1} = A x_k + B u_k``.
        b: ``B``.
        q: ``Q``, symmetric positive semidefinite.
        r: ``R``, symmetric positive semidefinite; every ``R + B^T X_{k+1} B`` must be definite.
        terminal: Cost of the last state, symmetric positive semidefinite.
        horizon: Number of periods; may be zero.
        cross: ``N``; zero if ``None``.

    Returns:
        Gains of shape ``(horizon, act, state)``, first period first, and the costs to go of shape
        ``(horizon + 1, state, state)``; NaN if ``q``, ``r`` or ``terminal`` is not symmetric and
        semidefinite, and before a period whose input costs nothing.

    Raises:
        ValueError: If shapes disagree or ``horizon`` is not an integer >= 0.

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.ones((1, 1))
        >>> plan = finite_horizon_regulator(one, one, one, one, one, horizon=1)
        >>> round(float(plan.gain[0, 0, 0]), 5), float(plan.cost_to_go[0, 0, 0])
        (0.5, 1.5)

    Source: Anderson and Moore, Optimal control: linear quadratic methods, 1990.
    """
    costs = problem(a, b, q, r, cross)
    last = checked_matrix("terminal", terminal, costs.a.shape, "state, state")
    last = last.astype(costs.a.dtype)
    horizon = checked_integer("horizon", horizon, 0, "0 leaves the terminal cost alone")
    valid = is_cost(costs) & is_semidefinite(last)
    last = symmetric(last)
    _, (gains, previous) = jax.lax.scan(
        _step_back, (last, costs), None, length=horizon, reverse=True
    )
    previous = jnp.concatenate([previous, last[None]])
    return Regulator(jnp.where(valid, gains, jnp.nan), jnp.where(valid, previous, jnp.nan))


def _step_back(state: tuple[Array, Costs], _: None) -> tuple[tuple, tuple[Array, Array]]:
    x, costs = state
    gain = gain_of(costs, x)
    coupling = product(costs.a.T, x, costs.b) + costs.n
    previous = symmetric(costs.q + product(costs.a.T, x, costs.a) - product(coupling, gain))
    return (previous, costs), (gain, previous)
