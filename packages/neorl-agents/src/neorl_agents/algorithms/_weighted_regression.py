"""Regression of a Gaussian actor onto logged actions, weighted by their advantage."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_agents.networks._gaussian_heads import GaussianActor, gaussian_log_prob
from neorl_core import Transition
from neorl_core.losses import advantage_weights, masked_mean, scaled_advantage


def regression_weights(
    advantage: Float[Array, " batch"],
    mask: Bool[Array, " batch"] | None,
    *,
    scale: str,
    inverse_temperature: float | Float[Array, ""],
    max_weight: float | Float[Array, ""],
) -> Float[Array, " batch"]:
    """``min(exp(inverse_temperature advantage), max_weight)``, row by row.

    Args:
        advantage: Of the logged actions, in scaled units of reward.
        mask: Rows that count.
        scale: ``"std"`` divides the advantage by its deviation in the batch, ``"fixed"`` does not.
        inverse_temperature: How sharply the weights tell advantages apart.
        max_weight: Largest weight.
    """
    if scale == "std":
        advantage = scaled_advantage(advantage, mask)
    return advantage_weights(
        advantage, inverse_temperature=inverse_temperature, max_weight=max_weight
    )


def weighted_regression_loss(
    actor: GaussianActor,
    rows: Transition,
    weights: Float[Array, " batch"],
    *,
    log_std_range: tuple[float, float],
) -> tuple[Float[Array, ""], None]:
    """Minus the weighted mean of the logged actions' log-probability."""
    log_prob = gaussian_log_prob(actor, rows.obs, rows.action, log_std_range)
    return -masked_mean(jnp.multiply(weights, log_prob), rows.mask), None
