"""Conversion of a continuous linear plant to a discrete one by the trapezoidal rule."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import checked_positive
from neorl_core._internal.matrix_products import product
from neorl_core.linear_systems._checks import checked_matrix, checked_square


def tustin(
    a: Float[Array, "state state"],
    b: Float[Array, "state act"],
    c: Float[Array, "measurement state"],
    d: Float[Array, "measurement act"],
    *,
    dt: float | Float[Array, ""],
) -> tuple[
    Float[Array, "state state"],
    Float[Array, "state act"],
    Float[Array, "measurement state"],
    Float[Array, "measurement act"],
]:
    """Bilinear discretisation: ``s = (2 / dt) (z - 1) / (z + 1)`` in the transfer function.

    With ``M = (I - A dt / 2)^{-1}``: ``Ad = M (I + A dt / 2)``, ``Bd = M B dt``, ``Cd = C M``, ``Dd
    = D + C Bd / 2``. Stable plants stay stable and unstable ones unstable at any ``dt``, and the
    steady-state gain is preserved. Use it for filters and controllers, and :func:`zero_order_hold`
    for a plant after an actuator that holds its value. The state differs from that of the
    continuous plant.

    Args:
        a: ``A`` of ``x' = A x + B u``, per second.
        b: ``B``, per second and unit of the input.
        c: ``C`` of ``y = C x + D u``.
        d: ``D``.
        dt: Period in seconds, positive; NaN results under ``jit`` if it is not.

    Returns:
        ``(Ad, Bd, Cd, Dd)``; not finite where ``2 / dt`` is an eigenvalue of ``A``.

    Raises:
        ValueError: If shapes disagree or a concrete ``dt`` is not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> one, zero = jnp.ones((1, 1)), jnp.zeros((1, 1))
        >>> [round(float(part[0, 0]), 4) for part in tustin(-one, one, one, zero, dt=2.0)]
        [0.0, 1.0, 0.5, 0.5]

    Source: Tustin, A method of analysing the behaviour of linear systems in terms of time series,
    1947.
    """
    a = checked_square("a", a)
    states = a.shape[0]
    b = checked_matrix("b", b, (states, None), "state, act")
    c = checked_matrix("c", c, (None, states), "measurement, state")
    d = checked_matrix("d", d, (c.shape[0], b.shape[1]), "measurement, act")
    dtype = jnp.result_type(a, b, c, d)
    a, b, c, d = (matrix.astype(dtype) for matrix in (a, b, c, d))
    dt = jnp.asarray(checked_positive("dt", dt)).astype(dtype)
    identity = jnp.eye(states, dtype=dtype)
    forward, backward = identity + a * (dt / 2), identity - a * (dt / 2)
    solved = jnp.linalg.solve(backward, jnp.concatenate([forward, b * dt], axis=1))
    bd = solved[:, states:]
    return solved[:, :states], bd, jnp.linalg.solve(backward.T, c.T).T, d + product(c, bd) / 2
