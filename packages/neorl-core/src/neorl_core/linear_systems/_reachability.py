"""Whether inputs reach, and measurements reveal, every mode of a linear system."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import checked_positive
from neorl_core._internal.matrix_products import product
from neorl_core.linear_systems._checks import checked_matrix, checked_square
from neorl_core.linear_systems._scaling import powers_of_two, state_weights
from neorl_core.linear_systems._stability import rounding

_REFINEMENTS = 2


def controllability_matrix(
    a: Float[Array, "state state"], b: Float[Array, "state act"]
) -> Float[Array, "state reach"]:
    """``[B, A B, ..., A^{n-1} B]``, which spans the states that ``n`` periods of inputs can reach.

    Args:
        a: ``A`` of ``x_{k+1} = A x_k + B u_k``.
        b: ``B``.

    Returns:
        Shape ``(state, state * act)``.

    Raises:
        ValueError: If shapes disagree.

    Example:
        >>> import jax.numpy as jnp
        >>> shift = jnp.array([[0.0, 1.0], [0.0, 0.0]])
        >>> controllability_matrix(shift, jnp.array([[0.0], [1.0]])).tolist()
        [[0.0, 1.0], [1.0, 0.0]]

    Source: Kalman, On the general theory of control systems, 1960.
    """
    a, b = _pair(a, b, "b", "state, act")
    blocks = [b]
    for _ in range(a.shape[0] - 1):
        blocks.append(product(a, blocks[-1]))
    return jnp.concatenate(blocks, axis=1)


def controllable(
    a: Float[Array, "state state"],
    b: Float[Array, "state act"],
    *,
    tolerance: float | Float[Array, ""] | None = None,
) -> Bool[Array, ""]:
    """Whether the inputs can bring the state anywhere: the test of Popov, Belevitch and Hautus.

    ``[A - lambda I, B]`` must have full rank at every eigenvalue ``lambda``. States are scaled
    first, and every input is scaled to the size of ``A``, so that units do not matter. A pair is
    judged by its distance to the nearest pair with a mode that no input reaches. In float64 this
    works for rotated and rescaled pairs of ten states; in float32 pairs closer than ``1e-5 *
    state`` to such a pair are judged not controllable.

    Args:
        a: ``A`` of ``x_{k+1} = A x_k + B u_k``.
        b: ``B``; without inputs nothing is controllable.
        tolerance: Smallest accepted distance relative to ``A``, not negative; by default ``64 *
            state`` rounding units.

    Returns:
        True or false; false if an entry is not finite, or under ``jit`` if ``tolerance`` is
        negative. Uses eigenvalues, which are available on CPU and GPU.

    Raises:
        ValueError: If shapes disagree or a concrete ``tolerance`` is negative.

    Example:
        >>> import jax.numpy as jnp
        >>> bool(controllable(jnp.eye(2), jnp.ones((2, 1))))
        False

    Source: Hautus, Controllability and observability conditions of linear autonomous systems, 1969.
    """
    a, b = _pair(a, b, "b", "state, act")
    _, reachable = _modes(a, b, _threshold(a, tolerance))
    return jnp.all(reachable)


def observable(
    a: Float[Array, "state state"],
    c: Float[Array, "measurement state"],
    *,
    tolerance: float | Float[Array, ""] | None = None,
) -> Bool[Array, ""]:
    """Whether the measurements determine the state: :func:`controllable` of the dual pair.

    Args:
        a: ``A`` of ``x_{k+1} = A x_k``.
        c: ``C`` of ``y_k = C x_k``.
        tolerance: See :func:`controllable`.

    Returns:
        True or false, as for :func:`controllable`.

    Raises:
        ValueError: If shapes disagree or a concrete ``tolerance`` is negative.

    Example:
        >>> import jax.numpy as jnp
        >>> integrator = jnp.array([[1.0, 1.0], [0.0, 1.0]])
        >>> bool(observable(integrator, jnp.array([[1.0, 0.0]])))
        True

    Source: Hautus, Controllability and observability conditions of linear autonomous systems, 1969.
    """
    a, c = _pair(a, c, "c", "measurement, state")
    _, reachable = _modes(a.T, c.T, _threshold(a, tolerance))
    return jnp.all(reachable)


def stabilisable(
    a: Float[Array, "state state"],
    b: Float[Array, "state act"],
    *,
    tolerance: float | Float[Array, ""] | None = None,
) -> Bool[Array, ""]:
    """Whether some gain stabilises the loop: the inputs reach every mode that does not decay.

    Args:
        a: ``A`` of ``x_{k+1} = A x_k + B u_k``.
        b: ``B``.
        tolerance: See :func:`controllable`.

    Returns:
        True or false, as for :func:`controllable`; a mode on the unit circle does not decay.

    Raises:
        ValueError: If shapes disagree or a concrete ``tolerance`` is negative.

    Example:
        >>> import jax.numpy as jnp
        >>> first = jnp.array([[1.0], [0.0]])
        >>> bool(stabilisable(jnp.diag(jnp.array([2.0, 0.5])), first))
        True
        >>> bool(stabilisable(jnp.diag(jnp.array([0.5, 2.0])), first))
        False

    Source: Hautus, Stabilization, controllability and observability of linear autonomous systems,
    1970.
    """
    a, b = _pair(a, b, "b", "state, act")
    decays, reachable = _modes(a, b, _threshold(a, tolerance))
    return jnp.all(decays | reachable)


def detectable(
    a: Float[Array, "state state"],
    c: Float[Array, "measurement state"],
    *,
    tolerance: float | Float[Array, ""] | None = None,
) -> Bool[Array, ""]:
    """Whether a filter can track the state: :func:`stabilisable` of the dual pair.

    Args:
        a: ``A`` of ``x_{k+1} = A x_k``.
        c: ``C`` of ``y_k = C x_k``.
        tolerance: See :func:`controllable`.

    Returns:
        True or false, as for :func:`stabilisable`.

    Raises:
        ValueError: If shapes disagree or a concrete ``tolerance`` is negative.

    Example:
        >>> import jax.numpy as jnp
        >>> bool(detectable(jnp.eye(2), jnp.array([[1.0, 0.0]])))
        False

    Source: Hautus, Stabilization, controllability and observability of linear autonomous systems,
    1970.
    """
    a, c = _pair(a, c, "c", "measurement, state")
    decays, reachable = _modes(a.T, c.T, _threshold(a, tolerance))
    return jnp.all(decays | reachable)


def _pair(a: Array, other: Array, name: str, axes: str) -> tuple[Array, Array]:
    a = checked_square("a", a)
    shape = (a.shape[0], None) if name == "b" else (None, a.shape[0])
    return a, checked_matrix(name, other, shape, axes).astype(a.dtype)


def _threshold(a: Array, tolerance: float | Array | None) -> Array:
    if tolerance is None:
        return jnp.asarray(8 * rounding(a), a.dtype)
    value = checked_positive("tolerance", tolerance, or_zero=True)
    return jnp.asarray(value).astype(a.dtype)


@jax.jit
def _modes(a: Array, b: Array, threshold: Array) -> tuple[Array, Array]:
    """For every mode, whether it decays by itself and whether the inputs reach it."""
    finite = jnp.all(jnp.isfinite(a)) & jnp.all(jnp.isfinite(b))
    a, b = (jnp.where(finite, matrix, 0) for matrix in (a, b))
    a, b = _in_even_units(a, b)
    size = jnp.sqrt(jnp.sum(jnp.square(a)))
    size = jnp.where(size > 0, size, 1)
    column_norm = jnp.sqrt(jnp.sum(jnp.square(b), axis=0))
    b = b * (size / jnp.where(column_norm > 0, column_norm, 1))[None, :]
    modes = jnp.linalg.eigvals(a)
    nearest = jax.vmap(lambda mode: _nearest(a.astype(mode.dtype), b.astype(mode.dtype), mode))
    modes, gap = nearest(modes)
    return finite & (jnp.abs(modes) < 1 - rounding(a)), finite & (gap > threshold * size)


def _in_even_units(a: Array, b: Array) -> tuple[Array, Array]:
    states, inputs = b.shape
    nothing = jnp.zeros(states + inputs, a.dtype)
    weight = state_weights(a, b, nothing[:states], nothing[states:])
    unit = powers_of_two(1 / jnp.sqrt(weight))
    return a / unit[:, None] * unit[None, :], b / unit[:, None]


def _nearest(a: Array, b: Array, mode: Array) -> tuple[Array, Array]:
    """The unreached mode nearest to ``mode``, and the distance to a pair that has such a mode."""

    def pencil(mode: Array) -> Array:
        return jnp.concatenate([a - mode * jnp.eye(a.shape[0], dtype=a.dtype), b], axis=1)

    for _ in range(_REFINEMENTS):
        left, _, _ = jnp.linalg.svd(pencil(mode), full_matrices=False)
        unreachable = left[:, -1]
        # Rounding moves an ill-conditioned eigenvalue; this estimate is exact.
        mode = product(product(unreachable.conj(), a), unreachable)
    return mode, jnp.linalg.svd(pencil(mode), compute_uv=False)[-1]
