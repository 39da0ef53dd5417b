"""Losses that several learners share, on rows in the units of the networks."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_agents.learning._unit_rows import UnitRows
from neorl_agents.networks import Network, q_values
from neorl_agents.networks._gaussian_heads import GaussianActor, gaussian_log_prob
from neorl_core.losses import advantage_weights, masked_mean, scaled_advantage


def critic_loss(
    critics: Network, rows: UnitRows, target: Float[Array, " batch"]
) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
    """The squared error to ``target``, averaged over rows and summed over members.

    Args:
        critics: The stacked networks.
        rows: One batch.
        target: One per row.

    Returns:
        The loss, and the mean value of the members for every row.
    """
    q = q_values(critics, rows.obs, rows.action)
    errors = jnp.sum(jnp.square(q - target[None, :]), axis=0)
    return masked_mean(errors, rows.mask), jnp.mean(q, axis=0)


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
    rows: UnitRows,
    weights: Float[Array, " batch"],
    *,
    log_std_range: tuple[float, float],
) -> tuple[Float[Array, ""], None]:
    """Minus the weighted mean of the logged actions' log-probability."""
    log_prob = gaussian_log_prob(actor, rows.obs, rows.action, log_std_range)
    return -masked_mean(jnp.multiply(weights, log_prob), rows.mask), None
