"""Distributions of returns on a fixed support: two-hot codes and the projection of C51."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float

from neorl_core._internal.checks import booleans, checked_probability, floats, like
from neorl_core._internal.float_widths import narrowed, widened


def two_hot(
    x: Float[Array, "*batch"], support: Float[Array, " atom"]
) -> Float[Array, "*batch atom"]:
    """Weights on two neighbouring points of a support such that their mean is ``x``.

    Args:
        x: Any shape; a value beyond an end of the support is moved to that end.
        support: At least two increasing points, not necessarily evenly spaced. For targets over
            many orders of magnitude, as in DreamerV3: ``symexp(linspace(-20, 20, 255))``, or
            ``linspace(-20, 20, 255)`` and ``two_hot(symlog(x), support)``.

    Returns:
        Weights that sum to one, along a last axis; NaN if the support does not increase.

    Raises:
        ValueError: If ``support`` is not one-dimensional or has fewer than two points.

    Example:
        >>> import jax.numpy as jnp
        >>> two_hot(jnp.array(1.5), jnp.array([0.0, 1.0, 3.0])).tolist()
        [0.0, 0.75, 0.25]

    Source: Hafner et al., Mastering diverse domains through world models, arXiv 2301.04104.
    """
    x = floats(x)
    support = _support(support, x)
    clipped = jnp.clip(x, support[0], support[-1])[..., None]
    increases = jnp.all(jnp.diff(support) > 0)
    points = _last(support, clipped)
    # Relative position between each point and the next, clipped to [0, 1]: one below, zero above.
    relative = jnp.clip((clipped - points[..., :-1]) / jnp.diff(points), 0, 1)
    ones, zeros = jnp.ones_like(clipped), jnp.zeros_like(clipped)
    steps = jnp.concatenate([ones, relative, zeros], axis=-1)
    weights = steps[..., :-1] - steps[..., 1:]
    return jnp.where(increases, weights, jnp.nan)


def support_mean(
    probability: Float[Array, "*batch atom"], support: Float[Array, " atom"]
) -> Float[Array, "*batch"]:
    """The mean of a distribution on a support; the inverse of :func:`two_hot`.

    ``sum_i probability_i support_i``, summed from both ends inwards, so that a symmetric
    distribution on a symmetric support has mean zero, however wide the support is.

    Args:
        probability: Probabilities along the last axis.
        support: Points to which the probabilities belong.

    Returns:
        The mean, without the last axis.

    Raises:
        ValueError: If the lengths differ, ``support`` is not one-dimensional or has fewer than two
            points.

    Example:
        >>> import jax.numpy as jnp
        >>> float(support_mean(jnp.array([0.0, 0.75, 0.25]), jnp.array([0.0, 1.0, 3.0])))
        1.5

    Source: as :func:`two_hot`.
    """
    probability = floats(probability)
    support = _support(support, probability)
    _require_atoms("probability", probability, support)
    terms = probability * _last(support, probability)
    pairs = terms + jnp.flip(terms, axis=-1)
    return jnp.sum(pairs, axis=-1) / 2


def categorical_td_target(
    reward: Float[Array, "*batch"],
    next_probability: Float[Array, "*batch atom"],
    terminated: Bool[Array, "*batch"],
    support: Float[Array, " atom"],
    *,
    discount: float | Float[Array, ""],
) -> Float[Array, "*batch atom"]:
    """The distribution of ``reward + discount (1 - terminated) Z'``, projected on the support.

    Every atom moves to ``reward + discount (1 - terminated) support_j``, and its probability is
    divided between the two points around it (:func:`two_hot`), which keeps the mean. An atom beyond
    an end of the support is moved to that end.

    Args:
        reward: Any shape.
        next_probability: Distribution of the return from the next observation, along a last axis.
        terminated: Shape of ``reward``; ``next_probability`` is ignored where it is true.
        support: Increasing points, the same for both distributions.
        discount: Discount factor in [0, 1]; NaN results under ``jit`` if it is outside.

    Returns:
        The target distribution, for use with :func:`~neorl_core.losses.cross_entropy_loss`.
        Gradients are not stopped.

    Raises:
        ValueError: If the shapes disagree, ``support`` is not one-dimensional or has fewer than two
            points, or a concrete ``discount`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> support = jnp.array([0.0, 1.0, 2.0])
        >>> categorical_td_target(
        ...     jnp.array(0.5), jnp.array([0.0, 0.0, 1.0]), jnp.array(False), support, discount=0.5
        ... ).tolist()
        [0.0, 0.5, 0.5]

    Source: Bellemare, Dabney and Munos, A distributional perspective on reinforcement learning,
    arXiv 1707.06887, equation 7.
    """
    dtype = jnp.result_type(floats(reward), floats(next_probability))
    reward, probability = widened(reward), widened(next_probability)
    support = _support(support, reward)
    _require_atoms("next_probability", probability, support)
    ended = booleans(terminated)
    if probability.shape[:-1] != reward.shape or ended.shape != reward.shape:
        raise ValueError(
            "next_probability needs the axes of reward and a last axis of atoms, and terminated "
            f"the shape of reward, got {probability.shape} and {ended.shape} for {reward.shape}; "
            "put the atoms last"
        )
    discount = checked_probability("discount", discount, closed=True)
    ended = ended[..., None]
    positions = jnp.where(ended, 0, _last(support, probability))
    shifted = reward[..., None] + like(discount, reward) * positions
    first = jnp.zeros_like(probability).at[..., 0].set(1)
    source_probability = jnp.where(ended, first, probability)
    return narrowed(
        jnp.sum(source_probability[..., None] * _hat_weights(shifted, support), axis=-2), dtype
    )


def _hat_weights(x: Array, support: Array) -> Array:
    """:func:`two_hot` with one formula for each weight, so that a sum over ``x`` stores none."""
    gaps = jnp.diff(support)
    # One more gap at either end, which no position within the support enters.
    gaps = jnp.concatenate([gaps[:1], gaps, gaps[-1:]])
    clipped = jnp.clip(x, support[0], support[-1])[..., None]
    distance = clipped - _last(support, clipped)
    left, right = _last(gaps[:-1], clipped), _last(gaps[1:], clipped)
    weights = jnp.clip(1 - jnp.where(distance < 0, -distance / left, distance / right), 0, 1)
    return jnp.where(jnp.all(gaps > 0), weights, jnp.nan)


def _support(support: ArrayLike, data: Array) -> Array:
    points = like(support, data)
    if points.ndim != 1 or points.shape[0] < 2:
        raise ValueError(
            "support must be one axis of two points or more, got shape "
            f"{points.shape}; give the positions of the atoms in increasing order"
        )
    return points


def _last(support: Array, data: Array) -> Array:
    """The support, broadcast along the last axis of the data."""
    return support.reshape((1,) * (data.ndim - 1) + support.shape)


def _require_atoms(name: str, probability: Array, support: Array) -> None:
    if probability.shape[-1:] != support.shape:
        raise ValueError(
            f"{name} needs one number for each of the {support.shape[0]} points of support along "
            f"its last axis, got shape {probability.shape}; put the atoms last"
        )
