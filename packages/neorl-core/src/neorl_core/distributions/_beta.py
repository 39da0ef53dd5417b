"""The Beta distribution on a box, with independent channels."""

import jax
import jax.numpy as jnp
from jax.scipy import special
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from neorl_core._internal.checks import (
    checked_probability,
    floats,
    like,
    require_broadcast,
    require_same_shape,
)
from neorl_core.distributions._box import box, in_box

Bound = float | Float[Array, "*#batch #channel"]


def beta_log_prob(
    x: Float[Array, "*batch channel"],
    a: Float[Array, "*batch channel"],
    b: Float[Array, "*#batch channel"],
    *,
    low: Bound = -1.0,
    high: Bound = 1.0,
    margin: float | Float[Array, ""] = 1e-5,
) -> Float[Array, " *batch"]:
    """Log-density of a Beta distribution on ``[low, high]``, summed over the channels.

    ``sum_i (a_i - 1) log t_i + (b_i - 1) log(1 - t_i) - log B(a_i, b_i) - log(high_i - low_i)``
    with ``t = (x - low) / (high - low)``. Unlike a squashed Gaussian it may have its mode at a
    bound, which suits saturated actuators.

    Args:
        x: Point of evaluation; the last axis is the channels. At a bound the density may be zero or
            infinite, so ``t`` is first moved ``margin`` inside. A point outside the box gives NaN.
        a: Positive concentration towards ``high``, same shape; NaN where it is not positive.
        b: Positive concentration towards ``low``; broadcasts against ``a``.
        low: Lower end; broadcasts against ``a``.
        high: Upper end; broadcasts against ``a``.
        margin: Distance kept from both ends as a fraction of the box, in (0, 1); at least the
            rounding unit of the dtype. NaN results under ``jit`` if it is outside.

    Returns:
        The log-density, without the last axis; finite inside the box.

    Raises:
        ValueError: If the shapes disagree, an end does not broadcast, concrete ends are not in
            order or a concrete ``margin`` is outside (0, 1).

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.ones(1)
        >>> round(float(beta_log_prob(0 * one, one, one)), 4)  # Uniform on [-1, 1].
        -0.6931

    Source: Chou, Maturana and Scherer, Improving stochastic policy gradients in continuous control
    with deep reinforcement learning using the Beta distribution, 2017.
    """
    margin = checked_probability("margin", margin)
    a, b = _concentrations(a, b)
    x = floats(x)
    require_same_shape("x", x, "a", a)
    low, high = box(low, high, a)
    least = jnp.maximum(like(margin, a), jnp.finfo(a.dtype).eps)
    below = jnp.clip((x - low) / (high - low), least, 1 - least)
    above = jnp.clip((high - x) / (high - low), least, 1 - least)
    log_density = (a - 1) * jnp.log(below) + (b - 1) * jnp.log(above) - special.betaln(a, b)
    log_density = jnp.where(in_box(x, low, high), log_density, jnp.nan)
    return jnp.sum(log_density - jnp.log(high - low), axis=-1)


def beta_sample(
    a: Float[Array, "*batch channel"],
    b: Float[Array, "*#batch channel"],
    key: PRNGKeyArray,
    *,
    low: Bound = -1.0,
    high: Bound = 1.0,
) -> Float[Array, "*batch channel"]:
    """A sample, with implicit gradients to both concentrations.

    Args:
        a: Positive concentration towards ``high``, last axis the channels.
        b: Positive concentration towards ``low``; broadcasts against ``a``.
        key: Used once.
        low: Lower end; broadcasts against ``a``.
        high: Upper end; broadcasts against ``a``.

    Returns:
        The sample in ``[low, high]``, with the shape of ``a``.

    Raises:
        ValueError: If the shapes disagree, an end does not broadcast or concrete ends are not in
            order.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> large = jnp.full(2, 1e6)
        >>> beta_sample(large, large, jax.random.key(0), high=3.0).round(1).tolist()
        [1.0, 1.0]

    Source: the gradients as in Figurnov, Mohamed and Mnih, Implicit reparameterization gradients,
    arXiv 1805.08498.
    """
    a, b = _concentrations(a, b)
    low, high = box(low, high, a)
    # A Beta from the logarithms of two Gammas, which do not underflow for small concentrations.
    both = jax.random.loggamma(key, jnp.stack([a, b]), dtype=a.dtype)
    logit = both[0] - both[1]
    return low + (high - low) * jax.nn.sigmoid(logit)


def beta_entropy(
    a: Float[Array, "*batch channel"],
    b: Float[Array, "*#batch channel"],
    *,
    low: Bound = -1.0,
    high: Bound = 1.0,
) -> Float[Array, " *batch"]:
    """Differential entropy in nats, summed over the channels.

    ``sum_i log B(a_i, b_i) - (a_i - 1) psi(a_i) - (b_i - 1) psi(b_i) + (a_i + b_i - 2)
    psi(a_i + b_i) + log(high_i - low_i)`` with the digamma function ``psi``.

    Args:
        a: Positive concentration towards ``high``, last axis the channels.
        b: Positive concentration towards ``low``; broadcasts against ``a``.
        low: Lower end; broadcasts against ``a``.
        high: Upper end; broadcasts against ``a``.

    Returns:
        The entropy, without the last axis. The terms cancel for large concentrations: in float32
        the error is about 1e-6 times their sum.

    Raises:
        ValueError: If the shapes disagree, an end does not broadcast or concrete ends are not in
            order.

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.ones(1)
        >>> round(float(beta_entropy(one, one)), 4)
        0.6931
    """
    a, b = _concentrations(a, b)
    low, high = box(low, high, a)
    total = (a + b - 2) * special.digamma(a + b)
    each = (a - 1) * special.digamma(a) + (b - 1) * special.digamma(b)
    return jnp.sum(special.betaln(a, b) - each + total + jnp.log(high - low), axis=-1)


def beta_mean(
    a: Float[Array, "*batch channel"],
    b: Float[Array, "*#batch channel"],
    *,
    low: Bound = -1.0,
    high: Bound = 1.0,
) -> Float[Array, "*batch channel"]:
    """The mean ``low + (high - low) a / (a + b)``, channel by channel.

    Args:
        a: Positive concentration towards ``high``, last axis the channels.
        b: Positive concentration towards ``low``; broadcasts against ``a``.
        low: Lower end; broadcasts against ``a``.
        high: Upper end; broadcasts against ``a``.

    Returns:
        The mean, with the shape of ``a``.

    Raises:
        ValueError: If the shapes disagree, an end does not broadcast or concrete ends are not in
            order.

    Example:
        >>> import jax.numpy as jnp
        >>> beta_mean(jnp.array([3.0]), jnp.array([1.0])).tolist()
        [0.5]
    """
    a, b = _concentrations(a, b)
    low, high = box(low, high, a)
    return low + (high - low) * (a / (a + b))


def beta_mode(
    a: Float[Array, "*batch channel"],
    b: Float[Array, "*#batch channel"],
    *,
    low: Bound = -1.0,
    high: Bound = 1.0,
) -> Float[Array, "*batch channel"]:
    """The mode of every channel: the point of largest density.

    ``low + (high - low) (a - 1) / (a + b - 2)`` if both concentrations exceed one. Otherwise it is
    the end of the larger concentration, or the middle if both are equal; for ``a = b < 1`` the
    middle is the point of smallest density.

    Args:
        a: Positive concentration towards ``high``, last axis the channels.
        b: Positive concentration towards ``low``; broadcasts against ``a``.
        low: Lower end; broadcasts against ``a``.
        high: Upper end; broadcasts against ``a``.

    Returns:
        The mode, with the shape of ``a``.

    Raises:
        ValueError: If the shapes disagree, an end does not broadcast or concrete ends are not in
            order.

    Example:
        >>> import jax.numpy as jnp
        >>> beta_mode(jnp.array([4.0, 0.5]), jnp.array([2.0, 2.0])).tolist()
        [0.5, -1.0]
    """
    a, b = _concentrations(a, b)
    low, high = box(low, high, a)
    peak = (a > 1) & (b > 1)
    share = jnp.where(peak, a - 1, 1) / jnp.where(peak, a + b - 2, 2)
    end = jnp.where(a == b, 0.5, jnp.where(a > b, 1.0, 0.0)).astype(a.dtype)
    return low + (high - low) * jnp.where(peak, share, end)


def _concentrations(a: ArrayLike, b: ArrayLike) -> tuple[Array, Array]:
    a, b = floats(a), floats(b)
    if a.ndim == 0:
        raise ValueError(
            "a needs a last axis of channels, got a scalar; for one channel give it shape (1,)"
        )
    require_broadcast("b", b, "a", a.shape)
    b = jnp.broadcast_to(b, a.shape)
    valid = (a > 0) & (b > 0)
    return jnp.where(valid, a, jnp.nan), jnp.where(valid, b, jnp.nan)
