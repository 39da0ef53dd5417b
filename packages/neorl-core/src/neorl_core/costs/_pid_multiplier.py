"""The Lagrange multiplier of a cost limit as a PID controller with a clamped integrator."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core._internal.checks import (
    checked_integer,
    checked_positive,
    checked_probability,
    floats,
    like,
    require_length,
    require_rank,
    require_scalar,
)


class MultiplierState(NamedTuple):
    """State of :func:`pid_multiplier_step`.

    Attributes:
        error: Exponential moving average of the excess over the limit, in units of cost.
        cost: Exponential moving averages of the cost, newest last, shape ``(delay + 1,)``.
        integral: The integral part of the multiplier.
    """

    error: Float[Array, ""]
    cost: Float[Array, " history"]
    integral: Float[Array, ""]


def pid_multiplier_init(cost: Float[Array, ""], *, delay: int) -> MultiplierState:
    """A multiplier at rest: zero error and integral, with ``cost`` as its history.

    Args:
        cost: A first measurement of the episode's cost, so that the derivative starts at zero.
        delay: Steps over which the derivative part looks back, static, at least one.

    Returns:
        The state.

    Raises:
        ValueError: If ``delay`` is not a positive integer or ``cost`` is not a scalar.
    """
    delay = checked_integer("delay", delay, 1, "1 compares with the step before")
    require_scalar("cost", cost)
    cost = floats(cost)
    zero = jnp.zeros_like(cost)
    return MultiplierState(zero, jnp.full((delay + 1,), cost), zero)


def pid_multiplier_step(
    state: MultiplierState,
    cost: Float[Array, ""],
    limit: Float[Array, ""],
    *,
    kp: float | Float[Array, ""],
    ki: float | Float[Array, ""],
    kd: float | Float[Array, ""],
    smoothing: float | Float[Array, ""] = 0.95,
    max_integral: float | Float[Array, ""] = 10.0,
    max_multiplier: float | Float[Array, ""] = 100.0,
) -> tuple[MultiplierState, Float[Array, ""]]:
    """One update of the multiplier from one measured cost.

    With ``e = cost - limit`` and ``a = smoothing``: ``P = a P + (1 - a) e``,
    ``C = a C + (1 - a) cost``, ``D = max(0, C_t - C_{t - delay})``,
    ``I = clip(I + ki e, 0, max_integral)``, and the multiplier is
    ``clip(kp P + I + kd D, 0, max_multiplier)``.

    The integrator itself is clamped. If only the multiplier were clamped, the integral would wind
    up during a long violation, and the multiplier would take as long to fall again.

    Args:
        state: State from :func:`pid_multiplier_init` or the last step.
        cost: Measured cost of an episode.
        limit: Limit of that cost, same unit.
        kp: Proportional gain, multiplier units per cost unit, not negative.
        ki: Integral gain, per step, not negative.
        kd: Derivative gain, which acts on rising cost only, not negative.
        smoothing: Weight of the past in the exponential moving averages, in [0, 1].
        max_integral: Largest integral part, positive.
        max_multiplier: Largest multiplier, positive.

    Returns:
        The new state and the multiplier, a scalar. The multiplier is NaN under ``jit`` if a gain, a
        largest value or ``smoothing`` is outside its range.

    Raises:
        ValueError: If an argument or a field of the state does not have the stated rank, a concrete
            gain is negative, a largest value is not positive or ``smoothing`` is outside [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> state = pid_multiplier_init(jnp.array(12.0), delay=1)
        >>> gains = {"kp": 0.0, "ki": 0.25, "kd": 0.0}
        >>> state, multiplier = pid_multiplier_step(
        ...     state, jnp.array(12.0), jnp.array(10.0), **gains
        ... )
        >>> float(multiplier)
        0.5

    Source: Stooke, Achiam and Abbeel, Responsive safety in reinforcement learning by PID
    Lagrangian methods, arXiv 2007.03964, algorithm 1.
    """
    for name, number in (
        ("state.error", state.error),
        ("state.integral", state.integral),
        ("cost", cost),
        ("limit", limit),
    ):
        require_scalar(name, number)
    require_rank("state.cost", state.cost, 1, "history")
    require_length("state.cost", state.cost, 2)
    kp = checked_positive("kp", kp, or_zero=True)
    ki = checked_positive("ki", ki, or_zero=True)
    kd = checked_positive("kd", kd, or_zero=True)
    max_integral = checked_positive("max_integral", max_integral)
    max_multiplier = checked_positive("max_multiplier", max_multiplier)
    smoothing = checked_probability("smoothing", smoothing, closed=True)
    cost = floats(cost)
    excess = cost - floats(limit)
    keep = like(smoothing, cost)
    error = keep * state.error + (1 - keep) * excess
    newest = keep * state.cost[-1] + (1 - keep) * cost
    history = jnp.concatenate([state.cost[1:], newest[None]])
    rise = jnp.maximum(newest - history[0], 0)
    integral = jnp.clip(state.integral + like(ki, cost) * excess, 0, like(max_integral, cost))
    unclipped = like(kp, cost) * error + integral + like(kd, cost) * rise
    multiplier = jnp.clip(unclipped, 0, like(max_multiplier, cost))
    return MultiplierState(error, history, integral), multiplier
