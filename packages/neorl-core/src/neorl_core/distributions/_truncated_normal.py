"""The Gaussian truncated to a box, with independent channels.

All quantities are relative to the mode ``c``, the point of the box nearest to the mean. With ``t``
the distance from it in standard deviations, the density is ``exp(-t (t + 2 c) / 2)``. It loses no
digits however far outside the box the mean lies and however wide the Gaussian is.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special
from jaxtyping import Array, DTypeLike, Float, PRNGKeyArray

from neorl_core._internal.checks import like, require_same_shape
from neorl_core._internal.float_widths import narrowed, widened
from neorl_core.distributions._box import box, in_box
from neorl_core.distributions._diagonal_gaussian import gaussian_parameters

Bound = float | Float[Array, "*#batch #channel"]
REACH = 8.5
DECAY = 37.0
FAR = 10.0
NARROW = 0.01


class _Cut(NamedTuple):
    """The box relative to its point nearest to the mean, in standard deviations."""

    mode: Array
    std: Array
    centre: Array
    start: Array
    stop: Array


def truncated_normal_log_prob(
    x: Float[Array, "*batch channel"],
    mean: Float[Array, "*batch channel"],
    log_std: Float[Array, "*#batch channel"],
    *,
    low: Bound = -1.0,
    high: Bound = 1.0,
) -> Float[Array, " *batch"]:
    """Log-density of a Gaussian truncated to ``[low, high]``, summed over the channels.

    ``sum_i log N(x_i; mean_i, s_i) - log(Phi(b_i) - Phi(a_i))`` with ``s = exp(log_std)``, ``a =
    (low - mean) / s`` and ``b = (high - mean) / s``. Unlike the log-density of a squashed Gaussian
    it is finite at the bounds.

    Args:
        x: Point of evaluation; the last axis is the channels. A point outside the box gives NaN.
        mean: Mean before truncation, same shape; may lie outside the box.
        log_std: Logarithms of the standard deviations before truncation; broadcasts against
            ``mean``.
        low: Lower end; broadcasts against ``mean``.
        high: Upper end; broadcasts against ``mean``.

    Returns:
        The log-density, without the last axis.

    Raises:
        ValueError: If the shapes disagree, an end does not broadcast or concrete ends are not in
            order.

    Example:
        >>> import jax.numpy as jnp
        >>> zero = jnp.zeros(1)
        >>> round(float(truncated_normal_log_prob(zero, zero, zero + 9)), 4)  # Nearly uniform.
        -0.6931

    Source: Johnson, Kotz and Balakrishnan, Continuous univariate distributions, volume 1, 1994,
    section 13.10.1.
    """
    mean, log_std, dtype = _wide(mean, log_std)
    x = widened(x)
    require_same_shape("x", x, "mean", mean)
    below, above = box(low, high, mean)
    cut = _cut(mean, log_std, below, above)
    t = (x - cut.mode) / cut.std
    log_density = -t * (t + 2 * cut.centre) / 2 - jnp.log(_moments(cut)[0]) - log_std
    total = jnp.sum(jnp.where(in_box(x, below, above), log_density, jnp.nan), axis=-1)
    return narrowed(total, dtype)


def truncated_normal_sample(
    mean: Float[Array, "*batch channel"],
    log_std: Float[Array, "*#batch channel"],
    key: PRNGKeyArray,
    *,
    low: Bound = -1.0,
    high: Bound = 1.0,
) -> Float[Array, "*batch channel"]:
    """A sample by the inverse distribution function, with gradients to both parameters.

    Args:
        mean: Mean before truncation; the last axis is the channels.
        log_std: Logarithms of the standard deviations before truncation; broadcasts against
            ``mean``.
        key: Used once.
        low: Lower end; broadcasts against ``mean``.
        high: Upper end; broadcasts against ``mean``.

    Returns:
        The sample in ``[low, high]``, with the shape of ``mean``. If the mean lies more than ten
        standard deviations outside, it is sampled from the exponential tail, whose density is
        within two per cent.

    Raises:
        ValueError: If the shapes disagree, an end does not broadcast or concrete ends are not in
            order.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> far = jnp.array([-1e6, 1e6])
        >>> truncated_normal_sample(far, jnp.zeros(2), jax.random.key(0)).round(3).tolist()
        [-1.0, 1.0]
    """
    mean, log_std, dtype = _wide(mean, log_std)
    below, above = box(low, high, mean)
    cut = _cut(mean, log_std, below, above)
    u = jax.random.uniform(key, mean.shape, mean.dtype)
    width = cut.stop - cut.start
    far = jnp.abs(cut.centre) > FAR
    narrow = (width < NARROW) & ~far
    # Each inversion method gets only the inputs it is meant for, and a harmless number elsewhere.
    plain = jax.tree.map(lambda values: jnp.where(far | narrow, 0, values), cut)
    short, long = jnp.where(narrow, width, 0), jnp.where(far, width, 0)
    tilt = (cut.centre + cut.start + short / 2) * short
    t = jnp.where(narrow, cut.start + short * _tilted(u, tilt), _inverse(u, plain))
    t = jnp.where(far, _tail(u, jnp.where(far, cut.centre, FAR), long), t)
    return narrowed(jnp.clip(cut.mode + cut.std * t, below, above), dtype)


def truncated_normal_entropy(
    mean: Float[Array, "*batch channel"],
    log_std: Float[Array, "*#batch channel"],
    *,
    low: Bound = -1.0,
    high: Bound = 1.0,
) -> Float[Array, " *batch"]:
    """Differential entropy in nats, summed over the channels.

    Args:
        mean: Mean before truncation; the last axis is the channels.
        log_std: Logarithms of the standard deviations before truncation; broadcasts against
            ``mean``.
        low: Lower end; broadcasts against ``mean``.
        high: Upper end; broadcasts against ``mean``.

    Returns:
        The entropy, without the last axis, at most ``sum_i log(high_i - low_i)``.

    Raises:
        ValueError: If the shapes disagree, an end does not broadcast or concrete ends are not in
            order.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(truncated_normal_entropy(jnp.zeros(1), jnp.full(1, 9.0))), 4)
        0.6931
    """
    mean, log_std, dtype = _wide(mean, log_std)
    cut = _cut(mean, log_std, *box(low, high, mean))
    mass, first, second = _moments(cut)
    each = second / 2 + cut.centre * first + jnp.log(mass) + log_std
    return narrowed(jnp.sum(each, axis=-1), dtype)


def truncated_normal_mean(
    mean: Float[Array, "*batch channel"],
    log_std: Float[Array, "*#batch channel"],
    *,
    low: Bound = -1.0,
    high: Bound = 1.0,
) -> Float[Array, "*batch channel"]:
    """The mean after truncation, channel by channel.

    Args:
        mean: Mean before truncation; the last axis is the channels.
        log_std: Logarithms of the standard deviations before truncation; broadcasts against
            ``mean``.
        low: Lower end; broadcasts against ``mean``.
        high: Upper end; broadcasts against ``mean``.

    Returns:
        The mean, with the shape of ``mean``, inside the box.

    Raises:
        ValueError: If the shapes disagree, an end does not broadcast or concrete ends are not in
            order.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(truncated_normal_mean(jnp.full(1, 9.0), jnp.zeros(1))[0]), 2)
        0.88
    """
    mean, log_std, dtype = _wide(mean, log_std)
    below, above = box(low, high, mean)
    cut = _cut(mean, log_std, below, above)
    return narrowed(jnp.clip(cut.mode + cut.std * _moments(cut)[1], below, above), dtype)


def truncated_normal_mode(
    mean: Float[Array, "*batch channel"], *, low: Bound = -1.0, high: Bound = 1.0
) -> Float[Array, "*batch channel"]:
    """The mode of the distribution: the point of the box nearest to the mean.

    Args:
        mean: Mean before truncation; the last axis is the channels.
        low: Lower end; broadcasts against ``mean``.
        high: Upper end; broadcasts against ``mean``.

    Returns:
        The mode, with the shape of ``mean``.

    Raises:
        ValueError: If an end does not broadcast or concrete ends are not in order.

    Example:
        >>> import jax.numpy as jnp
        >>> truncated_normal_mode(jnp.array([0.5, 7.0])).tolist()
        [0.5, 1.0]
    """
    mean, _ = gaussian_parameters(mean, jnp.zeros(()))
    return jnp.clip(mean, *box(low, high, mean))


def _wide(mean: Array, log_std: Array) -> tuple[Array, Array, DTypeLike]:
    """Both parameters in float32 or wider, and the original dtype."""
    mean, log_std = gaussian_parameters(mean, log_std)
    return widened(mean), widened(log_std), mean.dtype


def _cut(mean: Array, log_std: Array, low: Array, high: Array) -> _Cut:
    std, mode = jnp.exp(log_std), jnp.clip(mean, low, high)
    return _Cut(mode, std, (mode - mean) / std, (low - mode) / std, (high - mode) / std)


@functools.cache
def _legendre(axes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [-1, 1], with ``axes`` axes of length one in front."""
    nodes, weights = np.polynomial.legendre.leggauss(32)
    shape = (1,) * axes + (-1,)
    return nodes.reshape(shape), weights.reshape(shape)


def _moments(cut: _Cut) -> tuple[Array, Array, Array]:
    """The mass relative to the density at the mode, and the means of ``t`` and ``t^2``.

    Gauss-Legendre quadrature over the part of the box with at least 1e-16 of that density.
    """
    reach = DECAY / jnp.maximum(jnp.abs(cut.centre), DECAY / REACH)
    start, stop = jnp.maximum(cut.start, -reach), jnp.minimum(cut.stop, reach)
    half = (stop - start)[..., None] / 2
    nodes, weights = (like(values, half) for values in _legendre(half.ndim - 1))
    t = start[..., None] + half * (1 + nodes)
    density = weights * jnp.exp(-t * (t + 2 * cut.centre[..., None]) / 2)
    total = jnp.sum(density, axis=-1)
    first, second = (jnp.sum(density * t**power, axis=-1) / total for power in (1, 2))
    return half[..., 0] * total, first, second


def _inverse(u: Array, cut: _Cut) -> Array:
    """``t`` at probability ``u`` by the normal quantile, mirrored to the tail with more digits."""
    flip = cut.centre > 0
    start, stop = cut.centre + cut.start, cut.centre + cut.stop
    below, above = jnp.where(flip, -stop, start), jnp.where(flip, -start, stop)
    share = jnp.where(flip, 1 - u, u)
    least, most = special.ndtr(below), special.ndtr(above)
    limits = jnp.finfo(u.dtype)
    inner = jnp.clip(least + share * (most - least), limits.tiny, 1 - limits.epsneg)
    z = jnp.clip(special.ndtri(inner), below, above)
    return jnp.where(flip, -z, z) - cut.centre


def _tilted(u: Array, slope: Array) -> Array:
    """The quantile of the density ``exp(-slope s)`` on [0, 1]."""
    steep = jnp.abs(slope) > 1e-3
    safe = jnp.where(steep, slope, 1)
    return jnp.where(steep, -jnp.log1p(u * jnp.expm1(-safe)) / safe, u * (1 - slope * (1 - u) / 2))


def _tail(u: Array, centre: Array, width: Array) -> Array:
    """``t`` at probability ``u`` if ``t (t + 2 c) / 2`` is exponential, cut at the far end."""
    size = jnp.abs(centre)
    most = width * (width + 2 * size) / 2
    excess = -jnp.log1p(u * jnp.expm1(-most))
    return jnp.sign(centre) * 2 * excess / (jnp.sqrt(jnp.square(size) + 2 * excess) + size)
