"""Penalties on distance from the log: COMBO's term and the MMD of BEAR."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_core._internal.checks import checked_positive, floats, like, require_choice
from neorl_core._internal.float_widths import narrowed, widened
from neorl_core.losses._masked_mean import masked_mean


def combo_regulariser(
    q_data: Float[Array, " batch"],
    q_rollout: Float[Array, " rollout"],
    mask: Bool[Array, " batch"] | None = None,
    rollout_mask: Bool[Array, " rollout"] | None = None,
) -> Float[Array, ""]:
    """Difference between a critic's values of steps of a learned model and of logged steps.

    ``mean(q_rollout) - mean(q_data)``, to be multiplied by a weight and added to the critic's loss:
    it lowers values in the states that the model visits and raises them in the log.

    Args:
        q_data: One critic's values of logged states and actions.
        q_rollout: The critic's values of states and actions of rollouts in the model. If actions
            are sampled as in CQL, the soft maximum over them.
        mask: Rows of the log to include; all if ``None``.
        rollout_mask: Rows of the rollouts to include; all if ``None``.

    Returns:
        Scalar.

    Raises:
        ValueError: If a mask consists of floats or does not have the shape of its values.

    Example:
        >>> import jax.numpy as jnp
        >>> float(combo_regulariser(jnp.array([1.0]), jnp.array([4.0, 6.0])))
        4.0

    Source: Yu et al., COMBO: conservative offline model-based policy optimization,
    arXiv 2102.08363.
    """
    return masked_mean(q_rollout, rollout_mask) - masked_mean(q_data, mask)


def squared_mmd(
    samples: Float[Array, "sample act"],
    logged: Float[Array, "logged act"],
    *,
    bandwidth: float | Float[Array, ""],
    kernel: str = "gaussian",
) -> Float[Array, ""]:
    """The squared maximum mean discrepancy of two samples, including pairs within each sample.

    ``mean k(x, x') - 2 mean k(x, y) + mean k(y, y')`` over all pairs, with ``k = exp(-||x - y||_2^2
    / (2 bandwidth))`` (Gaussian) or ``exp(-||x - y||_1 / bandwidth)`` (Laplacian), scaled as in
    BEAR's code.

    Args:
        samples: Actions of the policy in one state.
        logged: Actions of the logged behaviour in that state.
        bandwidth: Scale of the kernel, positive; for the Gaussian, in squared units of the action.
            NaN results under ``jit`` if it is not.
        kernel: ``"gaussian"`` or ``"laplacian"``; static.

    Returns:
        Scalar, not negative except for rounding; zero for equal samples.

    Raises:
        ValueError: If an argument is not two-dimensional or is empty, the channels differ,
            ``kernel`` is unknown or a concrete ``bandwidth`` is not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> float(squared_mmd(jnp.zeros((3, 2)), jnp.zeros((5, 2)), bandwidth=10.0))
        0.0

    Source: Kumar et al., Stabilizing off-policy Q-learning via bootstrapping error reduction,
    arXiv 1906.00949.
    """
    require_choice("kernel", kernel, ("gaussian", "laplacian"))
    bandwidth = checked_positive("bandwidth", bandwidth)
    samples, logged = floats(samples), floats(logged)
    shapes = samples.shape, logged.shape
    if (
        samples.ndim != 2
        or logged.ndim != 2
        or shapes[0][1:] != shapes[1][1:]
        or 0 in shapes[0][:1] + shapes[1][:1]
    ):
        raise ValueError(
            "samples and logged must hold one action per row, with equal channels and one row at "
            f"least, got shapes {shapes[0]} and {shapes[1]}; for a batch of states use jax.vmap"
        )
    dtype = jnp.result_type(samples, logged)
    x, y = widened(samples), widened(logged)

    def similarity(one: Array, other: Array) -> Array:
        gap = one[:, None] - other[None, :]
        if kernel == "gaussian":
            distance = jnp.sum(jnp.square(gap), axis=-1) / (2 * like(bandwidth, gap))
        else:
            distance = jnp.sum(jnp.abs(gap), axis=-1) / like(bandwidth, gap)
        return jnp.mean(jnp.exp(-distance))

    return narrowed(similarity(x, x) - 2 * similarity(x, y) + similarity(y, y), dtype)
