"""The nearest point of a polytope by the interior-point solver of qpax."""

import jax
import jax.numpy as jnp
import qpax
from jaxtyping import Array, Float

from neorl_safety.filters._candidates import in_spans
from neorl_safety.filters._certify import Admissible

ITERATIONS = 30


def nearest_by_interior_point(
    admissible: Admissible, target: Float[Array, " act"], scale: Float[Array, " act"]
) -> Float[Array, " act"]:
    """The nearest point of a polytope by a primal-dual interior-point method.

    Minimises ``|z - g|^2 / 2`` in spans with every row of length one. A guard or filter takes it in
    place of the active-set method: ``filter_action(..., candidate=nearest_by_interior_point)``. It
    takes about the same number of iterations whatever the rows are, where the active-set method
    takes one for every row that comes to bind.
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
    polytope = in_spans(admissible, target, scale)
    n_action, dtype = target.shape[0], target.dtype
    with jax.numpy_dtype_promotion("standard"):  # the solver mixes types
        z, _, _, _, converged, _ = qpax.solve_qp(
            jnp.eye(n_action, dtype=dtype),
            -polytope.target,
            jnp.zeros((0, n_action), dtype),
            jnp.zeros(0, dtype),
            polytope.rows,
            polytope.right,
            backend="i",  # the other one does not converge in float32
            max_iter=ITERATIONS,
        )
    found = (converged == 1) & jnp.all(jnp.isfinite(z))
    return jnp.where(found, polytope.centre + scale * z, jnp.nan)
