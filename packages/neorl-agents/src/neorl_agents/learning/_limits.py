"""The cost limits of a run as learners use them: checked against a log, and as critic values."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from neorl_agents.policies import Preparation
from neorl_agents.sampling._rows import episode_ends
from neorl_core import InputError, Spec, Transition
from neorl_core.costs import discounted_cost_limit, limit_kind, step_cost_limit


def episode_costs(
    spec: Spec, rows: Transition
) -> tuple[Int[np.ndarray, " row"], Float[np.ndarray, "episode cost"]]:
    """The limited quantity of every logged episode: the sum of a cost, or its worst step.

    Args:
        spec: Channels, whose ``per`` determines which of the two a limit bounds.
        rows: A log in order, host arrays, with ``cost``, ``terminated`` and ``truncated``; the cost
            of a masked row is taken as zero.

    Returns:
        The episode index of every row, and the quantities in the units of the costs.

    Raises:
        ValueError: If the log has no columns that mark where episodes end.

    Example:
        >>> from neorl_core import Channel, CostChannel
        >>> one = (Channel("x", "1", 0.0, 1.0),)
        >>> limits = (("sum", "episode"), ("worst", "step"))
        >>> costs = tuple(CostChannel(name, "1", 1.0, per) for name, per in limits)
        >>> ends, cost = np.array([False, True, True]), np.array([[1.0], [2.0], [0.5]])
        >>> log = Transition(
        ...     cost, cost, cost[:, 0], np.repeat(cost, 2, 1), terminated=ends, truncated=ends
        ... )
        >>> episode_costs(Spec(one, one, costs, 1.0, 2), log)[1].tolist()
        [[3.0, 2.0], [0.5, 0.5]]
    """
    ends = episode_ends(rows)
    episode = np.concatenate([[0], np.cumsum(ends)[:-1]]).astype(np.int32)
    first = np.flatnonzero(np.concatenate([[True], ends[:-1]]))
    cost = np.asarray(rows.cost, np.float64)
    if rows.mask is not None:
        cost = np.where(np.asarray(rows.mask)[:, None], cost, 0)
    total, worst = np.add.reduceat(cost, first), np.maximum.reduceat(cost, first)
    quantities = [
        limit_kind(channel).of_episode(total[:, i], worst[:, i])
        for i, channel in enumerate(spec.cost)
    ]
    # In the precision of logs, so that a quantity equal to a limit there keeps the limit here.
    return episode, np.stack(quantities, axis=1).astype(np.float32)


def require_costs(name: str, spec: Spec) -> None:
    """Refuses a plant without cost channels."""
    if not spec.cost:
        raise InputError(
            f"{name} learns to keep cost limits, but the plant has no costs; declare them with "
            "their limits under [[cost]], or take a learner without costs, such as td3_bc"
        )


def require_limits_in_log(name: str, spec: Spec, rows: Transition) -> None:
    """Refuses a log from which nothing can be learned about its limits.

    Args:
        name: Name of the learner, for messages.
        spec: Channels with the cost limits of the run.
        rows: The training split, host arrays.

    Raises:
        InputError: If the log has no cost, a single episode, no cost above zero, no action that
            moves, or a limit that no episode keeps; the message says what to do.
    """
    require_costs(name, spec)
    if rows.cost is None:
        raise InputError(
            f"{name} learns to keep the limit of {spec.cost[0].name}, but the log has no costs; "
            "give every row its costs, or take a learner without costs, such as td3_bc"
        )
    _, quantities = episode_costs(spec, rows)
    if len(quantities) < 2:
        raise InputError(
            f"{name} learns from the differences between the costs of episodes, but the log is "
            "one episode; log more, or split it into episodes of the plant's horizon"
        )
    if not np.any(quantities > 0):
        raise InputError(
            f"{name} learns from costs, but no logged cost is above zero, so the log does not show "
            "which actions lead to a cost; check the costs' expressions, log operation that leads "
            "to costs, or take a learner without costs, such as td3_bc"
        )
    require_moving_actions(name, spec, rows)
    for i, channel in enumerate(spec.cost):
        least, kind = quantities[:, i].min(), limit_kind(channel)
        if kind.exceeded(least, channel.limit):
            limit = kind.limit_words(channel.limit, channel.unit)
            raise InputError(
                f"{name} learns from episodes that keep the limit of {channel.name}, {limit}, but "
                f"no logged episode does: the {kind.quantity} is at least {least:.4g}; raise the "
                "limit, or log episodes that keep it"
            )


def require_moving_actions(name: str, spec: Spec, rows: Transition) -> None:
    """Refuses a log in which no action ever moves; some channels may be constant.

    Raises:
        InputError: If none moves; the message names the actions and says what to do.
    """
    action = np.asarray(rows.action)
    if rows.mask is not None:
        action = action[np.asarray(rows.mask, bool)]
    if len(action) and not np.any(np.ptp(action, axis=0) > 0):
        still = ", ".join(channel.name for channel in spec.action)
        raise InputError(
            f"{name} learns the effect of actions, but {still} is constant in the log; log a "
            "controller or operator at work, or hold that value with a constant policy"
        )


def counted_costs(
    preparation: Preparation, cost: Float[Array, "*batch cost"]
) -> Float[Array, "*batch cost"]:
    """Costs that critics sum: costs with a limit per episode, and steps above a limit per step.

    The value of a sum contains no information about the worst step. The number of steps above a
    limit per step is a sum, and its mean over episodes bounds from above the probability that an
    episode has one (Markov).

    Args:
        preparation: Maps of the learner's state, with the limits and what they bound.
        cost: Costs in the units of the networks.

    Returns:
        A cost with a limit per episode unchanged; for a limit per step, 1 above it and else 0.
    """
    limit = jnp.broadcast_to(preparation.cost_limit, cost.shape)
    above = (cost > limit).astype(cost.dtype)
    return jnp.where(np.broadcast_to(_per_step(preparation), cost.shape), above, cost)


def counted_cost_unit(preparation: Preparation) -> Float[Array, " cost"]:
    """The unit of :func:`counted_costs`: that of the cost, or 1 if steps are counted."""
    return jnp.where(_per_step(preparation), 1, preparation.cost_unit)


def critic_limits(
    preparation: Preparation,
    *,
    discount: float | Float[Array, ""],
    allowed_violations: float | Float[Array, ""],
) -> Float[Array, " cost"]:
    """The values of critics of :func:`counted_costs` at which the run's limits are met.

    A limit per episode becomes the discounted sum of a cost spread evenly over the horizon,
    ``(limit / horizon) (1 - discount^horizon) / (1 - discount)``. If the log is known to have no
    terminated row, the critics go on behind every truncation and value endless episodes, whose
    discounted sum is ``(limit / horizon) / (1 - discount)``, larger by a factor of
    ``1 / (1 - discount^horizon)``. A limit per step becomes the same for ``allowed_violations``
    steps above it in an episode.

    Args:
        preparation: Maps of the learner's state.
        discount: Discount of the cost per step, in [0, 1].
        allowed_violations: Mean number of steps per episode that may exceed a limit per step;
            positive.
    """
    return _critic_values(preparation, _allowance(preparation, allowed_violations), discount)


def critic_limit_units(
    preparation: Preparation, *, discount: float | Float[Array, ""]
) -> Float[Array, " cost"]:
    """The values of critics for one unit of :func:`counted_costs` per episode.

    They are :func:`critic_limits` divided by the limits, also where a limit is zero.

    Args:
        preparation: Maps of the learner's state.
        discount: Discount of the cost per step, in [0, 1].
    """
    return _critic_values(preparation, jnp.ones_like(preparation.cost_limit), discount)


def step_limits(
    preparation: Preparation, *, allowed_violations: float | Float[Array, ""]
) -> Float[Array, " cost"]:
    """The means over steps of :func:`counted_costs` at which the run's limits are met.

    These are the limits of an episode divided by its horizon. A mean of ``w c`` over rows is
    compared with them, where ``w`` corrects the distribution of the log.

    Args:
        preparation: Maps of the learner's state.
        allowed_violations: Mean number of steps per episode that may exceed a limit per step;
            positive.
    """
    return step_cost_limit(_allowance(preparation, allowed_violations), horizon=preparation.horizon)


def _critic_values(
    preparation: Preparation, of_episode: Array, discount: float | Float[Array, ""]
) -> Float[Array, " cost"]:
    """The values of critics for sums over an episode that is spread evenly over the horizon."""
    horizon, discount = preparation.horizon, jnp.asarray(discount)
    truncated = discounted_cost_limit(of_episode, horizon=horizon, discount=discount)
    # Undiscounted sums of endless episodes are not defined, so there the limit itself is taken.
    discounted = (preparation.endless > 0) & (discount < 1)
    remaining = jnp.where(discounted, 1 - discount, 1)
    endless = step_cost_limit(of_episode, horizon=horizon) / remaining
    return jnp.where(discounted, endless, truncated)


def _allowance(preparation: Preparation, allowed_violations: float | Array) -> Array:
    return jnp.where(_per_step(preparation), allowed_violations, preparation.cost_limit)


def _per_step(preparation: Preparation) -> Any:
    return np.asarray([per == "step" for per in preparation.cost_per], bool)
