"""Disturbances that are part of a plant's state, as functions of given random numbers.

The random numbers of a step are an argument, so that recorded ones can be replayed.
"""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float


def autoregressive(
    value: Float[Array, "*shape"],
    normal: Float[Array, "*shape"],
    *,
    sd: Float[ArrayLike, "*shape"],
    memory: Float[ArrayLike, "*shape"],
    dt: float,
) -> Float[Array, "*shape"]:
    """One step of a stationary Ornstein-Uhlenbeck process, sampled exactly.

    ``x <- a x + sd sqrt(1 - a^2) n`` with ``a = exp(-dt / memory)``.

    Args:
        value: The process before the step.
        normal: Standard normal random numbers.
        sd: Stationary standard deviation.
        memory: Time constant, s.
        dt: Period, s.

    Example:
        >>> import jax.numpy as jnp
        >>> float(autoregressive(jnp.zeros(()), jnp.ones(()), sd=2.0, memory=1e-9, dt=1.0))
        2.0
    """
    decay = jnp.exp(-dt / jnp.asarray(memory, value.dtype))
    # 1 - a^2 without cancellation, for periods much shorter than the memory
    fresh = jnp.sqrt(-jnp.expm1(-2 * dt / jnp.asarray(memory, value.dtype)))
    return decay * value + jnp.asarray(sd, value.dtype) * fresh * normal


def random_step(
    value: Float[Array, "*shape"],
    candidate: Float[Array, "*shape"],
    uniform: Float[Array, "*shape"],
    *,
    every: Float[ArrayLike, "*shape"],
    dt: float,
) -> Float[Array, "*shape"]:
    """Steps to new levels at random times, a Poisson process.

    Args:
        value: The level before.
        candidate: The level after a step.
        uniform: Uniform random numbers from [0, 1).
        every: Mean seconds between two steps; infinite for none.
        dt: Period, s.

    Example:
        >>> import jax.numpy as jnp
        >>> new = random_step(jnp.zeros(2), jnp.ones(2), jnp.array([0.0, 0.9]), every=60.0, dt=6.0)
        >>> new.tolist()
        [1.0, 0.0]
    """
    due = uniform < -jnp.expm1(-dt / jnp.asarray(every, value.dtype))
    return jnp.where(due, candidate, value)
