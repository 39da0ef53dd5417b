"""Losses that several learners share, on rows in the units of the networks."""

from functools import partial
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_agents.learning._diagnostics import weight_metrics
from neorl_agents.learning._protocol import Metrics
from neorl_agents.learning._state import LearnerState
from neorl_agents.learning._unit_rows import UnitRows
from neorl_agents.networks import GaussianActor, Network, gaussian_log_prob, q_values
from neorl_core.losses import advantage_weights, masked_mean, scaled_advantage


def critic_loss(
    critics: Network, rows: UnitRows, target: Float[Array, " batch"]
) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
    """The squared error to ``target``, averaged over rows and summed over members.

    Args:
        critics: The stacked networks.
        rows: One batch.
        target: Regression target, one per row.

    Returns:
        The loss, and the mean value of the members for every row.
    """
    q = q_values(critics, rows.obs, rows.action)
    errors = jnp.sum(jnp.square(q - target[None, :]), axis=0)
    return masked_mean(errors, rows.mask), jnp.mean(q, axis=0)


def regression_weights(
    learner: Any, advantage: Float[Array, " batch"], mask: Bool[Array, " batch"] | None
) -> Float[Array, " batch"]:
    """``min(exp(inverse_temperature advantage), max_weight)``, row by row.

    Args:
        learner: A learner with the fields ``inverse_temperature``, ``max_weight`` and
            ``advantage_scale``: ``"std"`` first divides the advantage by its standard deviation in
            the batch, ``"fixed"`` does not.
        advantage: Advantage of the logged actions, in the unit of the critics.
        mask: True for the rows to use.
    """
    if learner.advantage_scale == "std":
        advantage = scaled_advantage(advantage, mask)
    return advantage_weights(
        advantage, inverse_temperature=learner.inverse_temperature, max_weight=learner.max_weight
    )


def weighted_regression_loss(
    actor: GaussianActor,
    rows: UnitRows,
    weights: Float[Array, " batch"],
    *,
    log_std_range: tuple[float, float],
) -> tuple[Float[Array, ""], None]:
    """The negated weighted mean of the logged actions' log-probability."""
    log_prob = gaussian_log_prob(actor, rows.obs, rows.action, log_std_range)
    return -masked_mean(jnp.multiply(weights, log_prob), rows.mask), None


def regress_actor(
    learner: Any,
    state: LearnerState,
    rows: UnitRows,
    advantage: Float[Array, " batch"],
    *,
    log_std_range: tuple[float, float],
    rate: float | Float[Array, ""] | None = None,
) -> tuple[LearnerState, Metrics]:
    """Takes one gradient step of ``"actor"`` towards logged actions, weighted by their advantage.

    Args:
        learner: A learner with the fields of :func:`regression_weights`.
        state: State before the step.
        rows: One batch.
        advantage: Advantage of logged actions in the critics' unit; without gradient.
        log_std_range: Smallest and largest log standard deviation of the actor.
        rate: Learning rate, if it is not that of the learner's ``rates``.

    Returns:
        The state after the step, and metrics of the loss, the advantage and the weights.
    """
    weights = regression_weights(learner, advantage, rows.mask)
    loss = partial(weighted_regression_loss, log_std_range=log_std_range)
    state, value, _ = learner.descend(state, "actor", loss, rows, weights, rate=rate)
    return state, {
        "actor_loss": value,
        "advantage": masked_mean(advantage, rows.mask),
        **weight_metrics(weights, rows.mask, learner.max_weight),
    }
