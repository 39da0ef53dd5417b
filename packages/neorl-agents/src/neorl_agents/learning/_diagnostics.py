"""Metrics that show failed training before a policy is tried."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from neorl_agents.learning._protocol import Metrics
from neorl_agents.learning._unit_rows import UnitRows
from neorl_agents.policies import Preparation
from neorl_core.losses import masked_mean

SLACK = 0.05
"""Values may pass their bounds by this share of the width: a network is no exact solution."""
HELD = 1e-3
"""Nearer to a bound than this, at most 2e-3 of a gradient passes the tanh."""
INSIDE = 0.01
"""A logged action at least this far from its bounds, of half their distance, is not at one."""


def weight_metrics(
    weights: Float[Array, " batch"],
    mask: Bool[Array, " batch"] | None,
    max_weight: float | Float[Array, ""],
) -> Metrics:
    """Effective number of rows that a weighted regression learns from, as metrics.

    ``effective_sample = (sum w)^2 / (n sum w^2)``: 1 where all weights are equal, ``1 / n`` where
    one row has all of it. ``at_ceiling`` is the share of rows with the largest weight allowed:
    where it is large, the regression no longer tells good rows from very good ones.

    Args:
        weights: Not negative, one a row.
        mask: Rows that count.
        max_weight: The largest weight allowed.

    Returns:
        The two shares, in [0, 1].

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
    """The share of actions that a tanh holds at a bound where the log's action is not.

    Next to no gradient passes there, neither of the value nor of the distance to the log, so that
    such an actor may stay as it is however long it is trained.

    Args:
        action: Output of the actor, in [-1, 1].
        logged: Action of the log in the same rows.
        mask: Rows that count.

    Returns:
        A share in [0, 1].
    """
    held = (jnp.abs(action) >= 1 - HELD) & (jnp.abs(logged) <= 1 - INSIDE)
    return masked_mean(jnp.mean(held.astype(action.dtype), axis=-1), mask)


def value_metrics(
    q: Float[Array, " batch"],
    preparation: Preparation,
    rows: UnitRows,
    *,
    discount: float | Float[Array, ""],
    penalised: bool = False,
    entropy: Float[Array, ""] | float = 0.0,
) -> Metrics:
    """The mean value, the share of rows valued beyond the log's rewards, and how far from them.

    With rewards in ``[low, high]``, no policy that stays with them can earn less than
    ``min(low, 0) / (1 - discount)`` or more than ``max(high, 0) / (1 - discount)``. A value
    outside by more than a twentieth of that width has left the data.

    Values that follow from rewards satisfy ``q = r + discount q'``. As the rows and what follows
    them are alike on average, ``q - discount q`` (``q`` alone where the plant ended the episode) is
    the reward a step that the values stand for. ``q_off_rewards`` says how far that is from the
    batch's mean reward, in deviations of its rewards: it is large where values have not yet climbed
    to where a constant in the reward puts them.

    Args:
        q: Values of logged actions, in the scale of the critics.
        preparation: Preparation of the learner, which knows the rewards of the log.
        rows: The rows of ``q``.
        discount: Discount of the reward per step.
        penalised: Whether the learner pushes values down on purpose; only the upper bound holds,
            and values that are too low are no sign.
        entropy: Reward for entropy per step at most, where values hold it.

    Returns:
        ``q``, ``q_beyond_rewards``, a share in [0, 1], and ``q_off_rewards``, not negative.
    """
    mask = rows.mask
    low = jnp.minimum(preparation.reward_range[0], 0)
    high = jnp.maximum(preparation.reward_range[1], 0) + entropy
    slack = SLACK * (high - low)
    steps = 1 / jnp.maximum(1 - jnp.asarray(discount, q.dtype), jnp.finfo(q.dtype).eps)
    beyond = q > (high + slack) * steps
    if not penalised:
        beyond = beyond | (q < (low - slack) * steps)
    return {
        "q": masked_mean(q, mask),
        "q_beyond_rewards": masked_mean(beyond.astype(q.dtype), mask),
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
    off = jnp.maximum(gap if penalised else jnp.abs(gap), 0)
    # The reward for entropy is in the values and not in the rows.
    return jnp.where(
        spread > 0, jnp.maximum(off - entropy, 0) / jnp.where(spread > 0, spread, 1), 0
    )
