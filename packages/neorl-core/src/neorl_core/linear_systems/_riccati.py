"""Riccati's equation, solved by doubling and Newton's method."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.matrix_products import product, symmetric
from neorl_core.linear_systems._checks import checked_matrix, checked_square, is_semidefinite
from neorl_core.linear_systems._lyapunov import rounded, smith, stein, tolerance
from neorl_core.linear_systems._scaling import Costs, distance, in_units, solve_definite, units_of

_DOUBLINGS = 40
_NEWTON_STEPS = 12
_END_WEIGHT = 0.125


def discrete_riccati(
    a: Float[Array, "state state"],
    b: Float[Array, "state act"],
    q: Float[Array, "state state"],
    r: Float[Array, "act act"],
    *,
    cross: Float[Array, "state act"] | None = None,
) -> Float[Array, "state state"]:
    """The stabilising solution of the discrete algebraic Riccati equation.

    ``X = A^T X A - (A^T X B + N)(R + B^T X B)^{-1}(B^T X A + N^T) + Q``. The problem is first
    scaled to numbers of size one. Structure-preserving doubling from a positive weight on the last
    state gives a stabilising gain (step ``k`` covers ``2^k`` periods). Newton's method, each step
    of which is a Lyapunov equation of a closed loop, then gives ``X``. ``Q`` and ``R`` may be
    singular or zero: modes that do not decay and cost nothing are mirrored at the unit circle.
    Differentiable once.

    Args:
        a: ``A`` of ``x_{k+1} = A x_k + B u_k``.
        b: ``B``.
        q: ``Q``, symmetric positive semidefinite.
        r: ``R``, symmetric positive semidefinite; ``R + B^T X B`` must be definite.
        cross: ``N`` of the cost ``x^T Q x + u^T R u + 2 x^T N u``; zero if ``None``.

    Returns:
        ``X``, symmetric. NaN if ``q`` or ``r`` is not symmetric and semidefinite, if no stabilising
        solution was reached, or if the residual or rounding may change ``X_ij / sqrt(X_ii X_jj)``
        by more than about 0.001 in float32, 1e-6 in float64. In float32 that can happen for modes
        slower than about 1e-5 per period, and for unstable modes that the inputs hardly reach;
        float64 (``jax.config.update("jax_enable_x64", True)``) solves them.

    Raises:
        ValueError: If shapes disagree.

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.ones((1, 1))
        >>> round(float(discrete_riccati(one, one, one, one)[0, 0]), 4)
        1.618

    Source: Chu, Fan, Lin and Wang, Structure-preserving algorithms for periodic discrete-time
    algebraic Riccati equations, 2004; Hewer, An iterative technique for the computation of the
    steady state gains for the discrete optimal regulator, 1971.
    """
    return stabilising_solution(problem(a, b, q, r, cross)).x


def problem(a, b, q, r, cross) -> Costs:
    """The matrices in one dtype; raises an error if shapes disagree."""
    a = checked_square("a", a)
    b = checked_matrix("b", b, (a.shape[0], None), "state, act")
    q = checked_matrix("q", q, a.shape, "state, state")
    r = checked_matrix("r", r, (b.shape[1], b.shape[1]), "act, act")
    n = jnp.zeros_like(b) if cross is None else cross
    n = checked_matrix("cross", n, b.shape, "state, act")
    dtype = jnp.result_type(a, b, q, r, n)
    return Costs(*(matrix.astype(dtype) for matrix in (a, b, q, r, n)))


def is_cost(costs: Costs) -> Array:
    """Whether both costs are symmetric and positive semidefinite."""
    return is_semidefinite(costs.q) & is_semidefinite(costs.r)


def gain_of(costs: Costs, x: Array) -> Array:
    """The best gain for one period, given the cost to go ``x`` after it."""
    weight = symmetric(costs.r + product(costs.b.T, x, costs.b))
    return solve_definite(weight, product(costs.b.T, x, costs.a) + costs.n.T)


class Solution(NamedTuple):
    """``X``, the regulator gain and, for filters, the gain of the same problem with ``A = I``.

    Attributes:
        x: The solution.
        gain: ``(R + B^T X B)^{-1} (B^T X A + N^T)``.
        update: ``(R + B^T X B)^{-1} B^T X``, of which the Kalman filter's gain is the transpose.
    """

    x: Array
    gain: Array
    update: Array


@jax.jit
def stabilising_solution(costs: Costs) -> Solution:
    """``X`` and the gains, each NaN if it does not exist or rounding may spoil it."""
    state, act = units_of(costs)
    scaled = in_units(costs, state, act)
    fixed = jax.lax.stop_gradient(scaled)
    solution = _newton(fixed, _doubled(fixed))
    # At the solution the derivative of a Newton step with respect to its start is zero, so one more
    # step gives the derivatives with respect to the matrices.
    x = _cost_of(scaled, gain_of(scaled, solution), stein)
    gain, update = gain_of(scaled, x), gain_of(_still(scaled), x)
    evaluated = jax.lax.stop_gradient((x, gain, update))
    moves = _moves(fixed, solution, *evaluated[:2])
    near = [distance(evaluated[0] + move, evaluated[0]) <= tolerance(x) for move in moves]
    valid = is_cost(fixed) & _all(near)
    gains = valid & _is_gain(fixed, evaluated[0], evaluated[1], moves)
    updates = valid & _is_gain(_still(fixed), evaluated[0], evaluated[2], moves)
    x = jnp.where(valid, x, jnp.nan) / state[:, None] / state[None, :]
    gain = jnp.where(gains, gain, jnp.nan) / state[None, :] * act[:, None]
    update = jnp.where(updates, update, jnp.nan) / state[None, :] * act[:, None]
    return Solution(x, gain, update)


def _doubled(costs: Costs) -> Array:
    """The cost to go of a very long horizon whose last state costs ``_END_WEIGHT``.

    Written as ``X = weight + H``. The equation of ``H`` has ``R + B^T weight B`` in place of ``R``,
    so that ``R`` may be zero. It starts above zero, so that unstable modes are not overlooked.
    """
    a, b, q, r, n = costs
    weight = _END_WEIGHT * jnp.eye(a.shape[0], dtype=a.dtype)
    input_weight = symmetric(r + _END_WEIGHT * product(b.T, b))
    coupling = _END_WEIGHT * product(a.T, b) + n
    inner = solve_definite(input_weight, jnp.concatenate([coupling.T, b.T], axis=1))
    gain, input_part = inner[:, : a.shape[0]], inner[:, a.shape[0] :]
    h = q + _END_WEIGHT * product(a.T, a) - weight - product(coupling, gain)
    start = a - product(b, gain), symmetric(product(b, input_part)), symmetric(h)
    first = (start, start[2], jnp.zeros((), jnp.int32))
    _, h, _ = jax.lax.while_loop(_unsettled, _double, first)
    return weight + h


def _unsettled(state: tuple) -> Array:
    (a, g, h), _, count = state
    finite = jnp.all(jnp.isfinite(a)) & jnp.all(jnp.isfinite(g)) & jnp.all(jnp.isfinite(h))
    return (count < _DOUBLINGS) & finite & (jnp.max(jnp.abs(a)) > jnp.finfo(a.dtype).eps)


def _double(state: tuple) -> tuple:
    (a, g, h), best, count = state
    identity = jnp.eye(a.shape[0], dtype=a.dtype)
    both = jnp.linalg.solve(identity + product(g, h), jnp.concatenate([a, g], axis=1))
    a_part, g_part = both[:, : a.shape[0]], both[:, a.shape[0] :]
    g = symmetric(g + product(a, g_part, a.T))
    h = symmetric(h + product(a.T, h, a_part))
    # If ``h`` overflows, the last finite value may still give a stabilising gain.
    best = jnp.where(jnp.all(jnp.isfinite(h)), h, best)
    return (product(a, a_part), g, h), best, count + 1


def _newton(costs: Costs, x: Array) -> Array:
    """Hewer's iteration; NaN if the gain of ``x`` does not stabilise."""
    smallest_change = 4 * _rounding(costs) * costs.a.shape[0]

    def unsettled(state: tuple[Array, Array, Array]) -> Array:
        _, change, count = state
        return (count < _NEWTON_STEPS) & (change > smallest_change)

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, _, count = state
        improved = _cost_of(costs, gain_of(costs, x), smith)
        return improved, distance(x, improved), count + 1

    infinite = jnp.full((), jnp.inf, x.dtype)
    x, _, _ = jax.lax.while_loop(unsettled, step, (x, infinite, jnp.zeros((), jnp.int32)))
    return x


def _rounding(costs: Costs) -> float:
    return float(jnp.finfo(costs.a.dtype).eps)


def _cost_of(costs: Costs, gain: Array, solve: Callable[[Array, Array], Array]) -> Array:
    """The infinite-horizon cost of a gain: a sum of squares, in which nothing cancels."""
    return symmetric(solve(_complement(costs, gain).T, _stage_cost(costs, gain)))


def _complement(costs: Costs, gain: Array) -> Array:
    """The identity minus the closed loop, which is small for slow modes."""
    identity = jnp.eye(costs.a.shape[0], dtype=costs.a.dtype)
    return identity - costs.a + product(costs.b, gain)


def _stage_cost(costs: Costs, gain: Array) -> Array:
    both = product(costs.n, gain)
    return symmetric(costs.q + product(gain.T, costs.r, gain) - both - both.T)


def _moves(costs: Costs, previous: Array, x: Array, gain: Array) -> list[Array]:
    """The possible errors of ``x``: its residual, the last Newton step and rounding."""
    complement, stage_cost = _complement(costs, gain).T, _stage_cost(costs, gain)
    product_x = product(complement, x)
    residual = stage_cost - product_x - product_x.T + product(product_x, complement.T)
    identity = jnp.eye(costs.a.shape[0], dtype=x.dtype)
    terms = jnp.abs(identity - costs.a) + product(jnp.abs(costs.b), jnp.abs(gain))
    return [residual, previous - x, smith(rounded(complement, terms.T), stage_cost) - x]


def _is_gain(costs: Costs, x: Array, gain: Array, moves: list[Array]) -> Array:
    """Whether ``gain`` is reliable: free inputs with nearly equal effects make it ill-conditioned.

    A change ``D`` of ``x`` changes the gain by ``W^{-1} B^T D (A - B K)`` with ``W = R + B^T X B``.
    Rounding errors in ``W`` and in the right-hand side change it by at most ``|W^{-1}|`` times
    their size.
    """
    a, b, _, r, n = costs
    weight = symmetric(r + product(b.T, x, b))
    closed = a - product(b, gain)
    coupling = product(jnp.abs(b).T, jnp.abs(x))
    terms = product(jnp.abs(r) + product(coupling, jnp.abs(b)), jnp.abs(gain))
    terms = terms + product(coupling, jnp.abs(a)) + jnp.abs(n).T
    inverse = solve_definite(weight, jnp.eye(b.shape[1], dtype=x.dtype))
    eps = jnp.finfo(x.dtype).eps
    changes = [eps * product(jnp.abs(inverse), terms)]
    changes += [solve_definite(weight, product(b.T, move, closed)) for move in moves]
    # In these units no input moves a state by more than its size, about what rounding ``A`` does.
    allowed = tolerance(x) * jnp.max(jnp.abs(gain), initial=0) + 4 * eps
    return _all([jnp.max(jnp.abs(each), initial=0) <= allowed for each in changes])


def _still(costs: Costs) -> Costs:
    """The same problem with ``A = I`` and without cross cost, for the Kalman update."""
    identity = jnp.eye(costs.a.shape[0], dtype=costs.a.dtype)
    return costs._replace(a=identity, n=jnp.zeros_like(costs.n))


def _all(conditions: list[Array]) -> Array:
    return jnp.all(jnp.stack(conditions))
