"""Scores on a common scale."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from neorl_core._internal.checks import floats, is_concrete, nan_unless, require_scalar


def normalised_score(
    returns: Float[ArrayLike, "*batch"],
    *,
    low: Float[ArrayLike, ""],
    high: Float[ArrayLike, ""],
) -> Float[Array, "*batch"]:
    """``100 (return - low) / (high - low)``: 0 is the poor reference, 100 the good one.

    The convention of D4RL and NeoRL. Scores may be negative or exceed 100.

    Args:
        returns: Undiscounted episode returns.
        low: Return of the poor reference (a random policy).
        high: Return of the good reference (an expert); must differ from ``low``.

    Returns:
        Scores in per cent of the distance between the references; infinite or NaN under ``jit`` if
        the references agree.

    Raises:
        ValueError: If a reference is not a scalar, or concrete references agree.

    Example:
        >>> float(normalised_score(5.0, low=0.0, high=10.0))
        50.0

    Source: Fu et al., D4RL: datasets for deep data-driven reinforcement learning, arXiv 2004.07219.
    """
    require_scalar("low", low)
    require_scalar("high", high)
    if is_concrete((low, high)) and np.any(np.asarray(low) == np.asarray(high)):
        raise ValueError(f"low and high must differ, got {low} and {high}; measure both references")
    returns = floats(returns)
    low, high = jnp.asarray(low, returns.dtype), jnp.asarray(high, returns.dtype)
    return 100 * (returns - low) / nan_unless(high != low, high - low)
