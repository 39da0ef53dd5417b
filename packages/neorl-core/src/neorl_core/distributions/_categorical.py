"""The categorical distribution given by its logits; a logit of -infinity excludes a choice."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from neorl_core._internal.checks import floats


def categorical_log_prob(
    index: Int[Array, " *batch"], logits: Float[Array, "*batch choice"]
) -> Float[Array, " *batch"]:
    """Log-probability of a choice.

    Args:
        index: Index in ``[0, choice)``.
        logits: Unnormalised log-probabilities along the last axis.

    Returns:
        The log-probability, with the shape of ``index``; NaN for an index outside the range.

    Raises:
        ValueError: If the shapes disagree or there is no choice.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(categorical_log_prob(jnp.array(1), jnp.zeros(4))), 4)
        -1.3863
    """
    logits = _logits(logits)
    index = jnp.asarray(index)
    if index.shape != logits.shape[:-1]:
        raise ValueError(
            f"index must have the shape of logits without the last axis, got {index.shape} "
            f"for {logits.shape}; give one index for each row of logits"
        )
    log_p = jax.nn.log_softmax(logits, axis=-1)
    # Clamped for the gather and set to NaN after it: a negative index would wrap around.
    inside = (index >= 0) & (index < logits.shape[-1])
    safe = jnp.where(inside, index, 0)[..., None]
    chosen = jnp.take_along_axis(log_p, safe, axis=-1)[..., 0]
    return jnp.where(inside, chosen, jnp.nan)


def categorical_entropy(logits: Float[Array, "*batch choice"]) -> Float[Array, " *batch"]:
    """Entropy in nats, ``-sum_i p_i log p_i``; excluded choices contribute nothing.

    Args:
        logits: Unnormalised log-probabilities along the last axis.

    Returns:
        The entropy, without the last axis.

    Raises:
        ValueError: If there is no choice.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(categorical_entropy(jnp.array([0.0, 0.0, -jnp.inf]))), 4)
        0.6931
    """
    probability, log_p, _ = _possible(logits)
    return -jnp.sum(probability * log_p, axis=-1)


def _possible(logits: Array) -> tuple[Array, Array, Array]:
    """Probabilities, their logarithms (0 for excluded choices), and which choices are possible."""
    log_p = jax.nn.log_softmax(_logits(logits), axis=-1)
    possible = jnp.isfinite(log_p)
    safe = jnp.where(possible, log_p, 0)
    return jnp.where(possible, jnp.exp(safe), 0), safe, possible


def _logits(logits: Array) -> Array:
    logits = floats(logits)
    if logits.ndim == 0 or logits.shape[-1] == 0:
        raise ValueError(
            f"logits need a last axis with at least one choice, got shape {logits.shape}; "
            "give one logit for each choice"
        )
    return logits
