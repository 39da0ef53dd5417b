"""The nearest point of a polytope by the interior-point solver of qpax."""

import jax
import jax.numpy as jnp
import qpax
from jaxtyping import Array, Float

from neorl_safety.filters._candidates import scaled
from neorl_safety.filters._certify import Admissible

ITERATIONS = 30


def nearest_by_interior_point(
    admissible: Admissible, target: Float[Array, " act"], scale: Float[Array, " act"]
) -> Float[Array, " act"]:
    """The nearest point of a polytope by a primal-dual interior-point method.

    Minimises ``|z|^2 / 2`` over ``z = (u - target) / scale`` with every row of length one. A guard
    or filter takes it in place of enumeration and dual ascent: ``filter_action(..., candidate=
    nearest_by_interior_point)``. It costs the same for rows at any angle to one another, where
    dual ascent slows down; for few rows and at most four actions enumeration is exact and faster.
    The guarantee does not rest on it: what it proposes passes
    :func:`neorl_safety.filters.certify` like any other proposal.

    Args:
        admissible: The set.
        target: Any point.
        scale: Size of each channel, positive.

    Returns:
        A point near the nearest one; NaN where the solver did not converge to a finite one, as on
        an empty set.

    Example:
        >>> import jax.numpy as jnp
        >>> from neorl_safety.filters import Admissible
        >>> from neorl_safety.interior_point import nearest_by_interior_point
        >>> half = Admissible(-jnp.ones(2), jnp.ones(2), jnp.ones((1, 2)), jnp.array([1.0]))
        >>> found = nearest_by_interior_point(half, jnp.ones(2), jnp.ones(2))
        >>> bool(jnp.allclose(found, 0.5, atol=1e-3))
        True

    Source: Tracy and Manchester, On the Differentiability of the Primal-Dual Interior-Point Method,
    2024 (qpax).
    """
    rows, right = scaled(admissible, target, scale)
    n_action, dtype = target.shape[0], target.dtype
    with jax.numpy_dtype_promotion("standard"):  # the solver mixes types
        z, _, _, _, converged, _ = qpax.solve_qp(
            jnp.eye(n_action, dtype=dtype),
            jnp.zeros(n_action, dtype),
            jnp.zeros((0, n_action), dtype),
            jnp.zeros(0, dtype),
            rows,
            right,
            backend="i",  # the other one does not converge in float32
            max_iter=ITERATIONS,
        )
    found = (converged == 1) & jnp.all(jnp.isfinite(z))
    return jnp.where(found, target + scale * z, jnp.nan)
