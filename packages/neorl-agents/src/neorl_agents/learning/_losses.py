"""Losses that several learners share, and metrics that show failed training early.

Rows are in the units of the networks.
"""

from functools import partial
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_agents.learning._protocol import Metrics
from neorl_agents.learning._state import LearnerState
from neorl_agents.learning._unit_rows import UnitRows
from neorl_agents.networks import GaussianActor, Network, gaussian_log_prob, q_values
from neorl_agents.policies import Preparation
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


# Metrics that show failed training before a policy is tried.


SLACK = 0.05
"""Values may exceed their bounds by this fraction of the width: a network is not exact."""
HELD = 1e-3
"""Closer to a bound than this, at most 2e-3 of a gradient passes the tanh."""
INSIDE = 0.01
"""A logged action is not at a bound if it is this far away, as a fraction of half its range."""


def weight_metrics(
    weights: Float[Array, " batch"],
    mask: Bool[Array, " batch"] | None,
    max_weight: float | Float[Array, ""],
) -> Metrics:
    """Effective sample size of a weighted regression, as metrics.

    ``effective_sample = (sum w)^2 / (n sum w^2)`` is 1 if all weights are equal and ``1 / n`` if
    one row has all of the weight. ``at_ceiling`` is the fraction of rows with the largest weight
    allowed; if it is large, the regression no longer distinguishes good rows from very good ones.

    Args:
        weights: Not negative, one per row.
        mask: True for the rows to use.
        max_weight: The largest weight allowed.

    Returns:
        The two fractions, in [0, 1].

    Source: Kish, Survey sampling, 1965, for the effective sample size.
    """
    mean, square = masked_mean(weights, mask), masked_mean(jnp.square(weights), mask)
    share = jnp.where(square > 0, jnp.square(mean) / jnp.where(square > 0, square, 1), 0)
    ceiling = masked_mean((weights >= max_weight * (1 - 1e-6)).astype(weights.dtype), mask)
    return {"effective_sample": share, "at_ceiling": ceiling}


def held_actions(
    action: Float[Array, "batch act"],
    logged: Float[Array, "batch act"],
    mask: Bool[Array, " batch"] | None,
) -> Float[Array, ""]:
    """Fraction of actions that a tanh holds at a bound although the logged action is not there.

    Almost no gradient passes there, neither that of the value nor that of the distance to the log,
    so such an actor may stay as it is however long it is trained.

    Args:
        action: Output of the actor, in [-1, 1].
        logged: Action of the log in the same rows.
        mask: True for the rows to use.

    Returns:
        A fraction in [0, 1].
    """
    is_held = (jnp.abs(action) >= 1 - HELD) & (jnp.abs(logged) <= 1 - INSIDE)
    return masked_mean(jnp.mean(is_held.astype(action.dtype), axis=-1), mask)


def value_metrics(
    q: Float[Array, " batch"],
    preparation: Preparation,
    rows: UnitRows,
    *,
    discount: float | Float[Array, ""],
    penalised: bool = False,
    entropy: Float[Array, ""] | float = 0.0,
) -> Metrics:
    """Diagnostics of the values: their mean, and whether the log's rewards can explain them.

    With rewards in ``[low, high]``, the value of a policy that stays with them is at least
    ``min(low, 0) / (1 - discount)`` and at most ``max(high, 0) / (1 - discount)``.
    ``q_beyond_rewards`` is the fraction of rows whose value is outside these bounds by more than a
    twentieth of their distance: such values have left the data.

    Values that follow from rewards satisfy ``q = r + discount q'``. As the rows and their
    successors are alike on average, ``q - discount q`` (just ``q`` if the plant ended the episode)
    is the reward per step that the values imply. ``q_off_rewards`` is the distance between its mean
    and the batch's mean reward, in standard deviations of the rewards. It is large as long as
    values have not yet reached the level that a constant in the reward gives them.

    Args:
        q: Values of logged actions, in the scale of the critics.
        preparation: Preparation of the learner, which holds the range of the log's rewards.
        rows: The rows of ``q``.
        discount: Discount of the reward per step.
        penalised: Whether the learner deliberately pushes values down; then only the upper bound
            is checked, and values that are too low are not reported.
        entropy: Largest entropy bonus per step, if the values include one.

    Returns:
        ``q``; ``q_beyond_rewards``, a fraction in [0, 1]; ``q_off_rewards``, not negative.
    """
    mask = rows.mask
    low = jnp.minimum(preparation.reward_range[0], 0)
    high = jnp.maximum(preparation.reward_range[1], 0) + entropy
    slack = SLACK * (high - low)
    steps = 1 / jnp.maximum(1 - jnp.asarray(discount, q.dtype), jnp.finfo(q.dtype).eps)
    out_of_bounds = q > (high + slack) * steps
    if not penalised:
        out_of_bounds = out_of_bounds | (q < (low - slack) * steps)
    return {
        "q": masked_mean(q, mask),
        "q_beyond_rewards": masked_mean(out_of_bounds.astype(q.dtype), mask),
        "q_off_rewards": _off_rewards(q, rows, entropy, penalised=penalised),
    }


def _off_rewards(
    q: Float[Array, " batch"],
    rows: UnitRows,
    entropy: Float[Array, ""] | float,
    *,
    penalised: bool,
) -> Float[Array, ""]:
    implied = q * (1 - jnp.where(rows.terminated, 0, rows.discount))
    mean = masked_mean(rows.reward, rows.mask)
    spread = jnp.sqrt(masked_mean(jnp.square(rows.reward - mean), rows.mask))
    gap = masked_mean(implied, rows.mask) - mean
    difference = jnp.maximum(gap if penalised else jnp.abs(gap), 0)
    # The entropy bonus is in the values but not in the rows.
    return jnp.where(
        spread > 0, jnp.maximum(difference - entropy, 0) / jnp.where(spread > 0, spread, 1), 0
    )
