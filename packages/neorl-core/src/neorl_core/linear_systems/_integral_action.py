"""Integral action: a plant extended by integrators of its outputs, and the regulator for both."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_core._internal.checks import checked_positive
from neorl_core.linear_systems._checks import checked_matrix, checked_square
from neorl_core.linear_systems._regulators import lq_regulator


class IntegralRegulator(NamedTuple):
    """The regulator ``u = -gain x - integral_gain z`` with ``z_{k+1} = z_k + dt (C x_k - target)``.

    Attributes:
        gain: Gain of the state, shape ``(act, state)``.
        integral_gain: Gain of the integrated errors, shape ``(act, output)``.
        cost_to_go: Cost to go of state and integrals, shape ``(state + output, state + output)``.
    """

    gain: Float[Array, "act state"]
    integral_gain: Float[Array, "act output"]
    cost_to_go: Float[Array, "both both"]


def with_integrals(
    a: Float[Array, "state state"],
    b: Float[Array, "state act"],
    c: Float[Array, "output state"],
    *,
    dt: float | Float[Array, ""] = 1.0,
) -> tuple[Float[Array, "both both"], Float[Array, "both act"]]:
    """Extends a plant by the integrals of its outputs ``C x``.

    ``x_{k+1} = A x_k + B u_k``, ``z_{k+1} = z_k + dt C x_k``.

    Args:
        a: ``A``.
        b: ``B``.
        c: Rows of the outputs that should reach their targets without steady-state error.
        dt: Period in seconds, positive; 1 integrates per period. NaN results under ``jit`` if it is
            not positive.

    Returns:
        ``([[A, 0], [dt C, I]], [[B], [0]])``, states first.

    Raises:
        ValueError: If shapes disagree or a concrete ``dt`` is not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.ones((1, 1))
        >>> a, b = with_integrals(0.5 * one, one, 3 * one)
        >>> a.tolist(), b.tolist()
        ([[0.5, 0.0], [3.0, 1.0]], [[1.0], [0.0]])
    """
    a = checked_square("a", a)
    states = a.shape[0]
    b = checked_matrix("b", b, (states, None), "state, act")
    c = checked_matrix("c", c, (None, states), "output, state")
    dtype = jnp.result_type(a, b, c)
    a, b, c = (matrix.astype(dtype) for matrix in (a, b, c))
    dt = jnp.asarray(checked_positive("dt", dt)).astype(dtype)
    outputs, inputs = c.shape[0], b.shape[1]
    both = jnp.block(
        [[a, jnp.zeros((states, outputs), dtype)], [dt * c, jnp.eye(outputs).astype(dtype)]]
    )
    return both, jnp.concatenate([b, jnp.zeros((outputs, inputs), dtype)])


def integral_regulator(
    a: Float[Array, "state state"],
    b: Float[Array, "state act"],
    c: Float[Array, "output state"],
    q: Float[Array, "both both"],
    r: Float[Array, "act act"],
    *,
    dt: float | Float[Array, ""] = 1.0,
) -> IntegralRegulator:
    """The linear-quadratic regulator with integral action, which leaves no steady-state error.

    This is :func:`lq_regulator` of the plant extended by :func:`with_integrals`. There must be at
    most as many outputs as inputs, and the plant must have no zero at one; otherwise the integrals
    cannot be stabilised and the result is NaN.

    Args:
        a: ``A`` of ``x_{k+1} = A x_k + B u_k``.
        b: ``B``.
        c: Rows of the outputs to integrate.
        q: Cost of states and integrals, symmetric positive semidefinite; states first.
        r: Cost of the inputs, symmetric positive semidefinite.
        dt: Period in seconds, positive.

    Returns:
        The gains and the cost to go; NaN under the same conditions as :func:`lq_regulator`.

    Raises:
        ValueError: If shapes disagree or a concrete ``dt`` is not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.ones((1, 1))
        >>> gains = integral_regulator(0.5 * one, one, one, jnp.eye(2), one)
        >>> round(float(gains.gain[0, 0]), 3), round(float(gains.integral_gain[0, 0]), 3)
        (0.858, 0.468)

    Source: Young and Willems, An approach to the linear multivariable servomechanism problem, 1972.
    """
    wide_a, wide_b = with_integrals(a, b, c, dt=dt)
    regulator = lq_regulator(wide_a, wide_b, q, r)
    states = np.shape(a)[0]
    return IntegralRegulator(
        regulator.gain[:, :states], regulator.gain[:, states:], regulator.cost_to_go
    )
