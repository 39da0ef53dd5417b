"""The nearest point of a set: boxes and rate limits."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from neorl_core._internal.checks import (
    checked_positive,
    floats,
    is_concrete,
    like,
    require_order,
    require_same_shape,
)
from neorl_core._internal.missing_names import missing_name

__all__ = [
    "limit_rate",
    "project_box",
]
globals()["__getattr__"] = missing_name(__name__, __all__)

# The two limits of every actuator: its range and its rate of change.


def project_box(
    x: Float[Array, " act"], low: Float[Array, " act"], high: Float[Array, " act"]
) -> Float[Array, " act"]:
    """The point of the box ``[low, high]`` nearest to ``x``, channel by channel.

    ``min(max(x, low), high)``.

    Args:
        x: Any point; NaN stays NaN.
        low: Lower ends, may be minus infinity.
        high: Upper ends, may be infinity.

    Returns:
        The projection. It is idempotent and does not increase the distance between points. NaN
        under ``jit`` if the ends cross.

    Raises:
        ValueError: If the shapes differ, or concrete ends cross.

    Example:
        >>> import jax.numpy as jnp
        >>> project_box(jnp.array([-2.0, 0.5]), jnp.zeros(2), jnp.ones(2)).tolist()
        [0.0, 0.5]
    """
    require_same_shape("x", x, "low", low)
    require_same_shape("x", x, "high", high)
    require_order(low, high)
    x = floats(x)
    low, high = like(low, x), like(high, x)
    nearest = jnp.minimum(jnp.maximum(x, low), high)
    return jnp.where(low > high, jnp.nan, nearest)


def limit_rate(
    x: Float[Array, " act"],
    previous: Float[Array, " act"],
    rate: Float[Array, " act"],
    *,
    dt: float | Float[Array, ""],
) -> Float[Array, " act"]:
    """The point nearest to ``x`` that can be reached from ``previous`` in ``dt`` seconds.

    ``min(max(x, previous - rate dt), previous + rate dt)``, channel by channel.

    Args:
        x: Requested value.
        previous: Value at the previous step.
        rate: Largest rate of change in units per second, not negative; infinity for no limit. NaN
            results under ``jit`` if it is negative.
        dt: Period in seconds, positive; NaN results under ``jit`` if it is not.

    Returns:
        The next point; exactly ``x``, to the last bit, if it can be reached.

    Raises:
        ValueError: If the shapes differ, a concrete rate is negative or NaN, ``dt`` is not a
            scalar, or a concrete ``dt`` is not positive.

    Example:
        >>> import jax.numpy as jnp
        >>> speed = jnp.array([0.5, jnp.inf])
        >>> limit_rate(jnp.ones(2), jnp.zeros(2), speed, dt=0.5).tolist()
        [0.25, 1.0]
    """
    require_same_shape("x", x, "previous", previous)
    require_same_shape("x", x, "rate", rate)
    dt = checked_positive("dt", dt)
    if is_concrete(rate) and not np.all(np.asarray(rate) >= 0):
        raise ValueError(
            f"rate must not be negative, got {rate}; "
            "give a speed without sign, jnp.inf for no limit"
        )
    x, previous = floats(x), floats(previous)
    speed = like(rate, x)
    largest_step = jnp.where(speed >= 0, speed, jnp.nan) * like(dt, x)
    return jnp.minimum(jnp.maximum(x, previous - largest_step), previous + largest_step)
