"""Fixed-horizon temporal differences: head h bootstraps from head h - 1."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_agents.critics._safety_critic import (
    Quantity,
    cumulative_hazard,
    predictions,
    raw_heads,
)
from neorl_agents.learning import cosine
from neorl_agents.networks import MLP
from neorl_agents.optimisers import init_optimiser, minimise
from neorl_core.targets import polyak


class Rows(NamedTuple):
    """What heads are trained on, one entry a row; inputs are scaled.

    Attributes:
        inputs: Observation and action.
        next_inputs: The following observation, and the action that is taken there.
        counted: Whether the step counts against each limit, as 0 or 1, or its scaled cost.
        follows: Whether the plant went on.
        known: Whether the heads beyond the first have a target, of each limit.
        weight: Importance weight of the row under the draws, mean 1.
    """

    inputs: Float[Array, "row in"]
    next_inputs: Float[Array, "row in"]
    counted: Float[Array, "row cost"]
    follows: Bool[Array, " row"]
    known: Bool[Array, "row cost"]
    weight: Float[Array, " row"]


class Draws(NamedTuple):
    """Rows that are drawn more often than others: those ahead of a violation of each limit.

    Attributes:
        rows: Numbers of such rows, limit after limit.
        start: Where those of each limit begin in ``rows``, shape ``(limit,)``.
        count: How many they are, shape ``(limit,)``; without a limit all draws are uniform.
    """

    rows: Int[Array, " drawn"]
    start: Int[Array, " limit"]
    count: Int[Array, " limit"]


def horizon_targets(
    counted: Float[Array, "*batch cost"],
    next_values: Float[Array, "*batch cost horizon"],
    follows: Bool[Array, " *batch"],
    *,
    quantity: Quantity,
    discount: float | Float[Array, ""],
) -> Float[Array, "*batch cost horizon"]:
    """One-step targets of all heads.

    ``y_j = x + s discount (1 - terminated) Q_{j-1}(s', a')`` with ``Q_0 = 0``, where ``s`` is
    ``1 - x`` for a violation and 1 for a cost. Head ``j`` needs head ``j - 1`` alone, so the
    targets of all heads are right after ``horizon`` exact sweeps, whatever the networks do.

    Args:
        counted: ``x``: 1 where the step counts against the limit, or its cost.
        next_values: Predictions of all heads for the following observation and action.
        follows: False where the plant ended the episode.
        quantity: ``"violation"`` or ``"cost"``.
        discount: Discount of the cost per step, in [0, 1].

    Returns:
        The targets.

    Example:
        >>> import jax.numpy as jnp
        >>> values = jnp.array([[[0.2, 0.4, 0.6]]])
        >>> targets = horizon_targets(jnp.zeros((1, 1)), values, jnp.array([True]),
        ...     quantity="violation", discount=1.0)
        >>> [round(float(y), 2) for y in targets[0, 0]]
        [0.0, 0.2, 0.4]

    Source: De Asis et al., Fixed-horizon temporal difference methods for stable reinforcement
    learning, arXiv 1909.03906, equation 4.
    """
    before = jnp.concatenate([jnp.zeros_like(next_values[..., :1]), next_values[..., :-1]], -1)
    x = counted[..., None]
    after = discount * jnp.where(follows[..., None, None], before, 0)
    return x + ((1 - x) * after if quantity == "violation" else after)


def head_loss(
    members: MLP,
    rows: Rows,
    targets: Float[Array, "ens row cost horizon"],
    shift: Float[Array, " cost"],
    quantity: Quantity,
) -> tuple[Float[Array, ""], None]:
    """Cross-entropy of probabilities, or squared errors of costs, over the heads with a target.

    The error of a cost over ``j`` steps counts ``1 / j``: it grows with the steps by itself.
    """
    heads = jax.vmap(raw_heads, in_axes=(0, None, None))(members, rows.inputs, shift)
    if quantity == "violation":
        hazard = cumulative_hazard(heads)
        losses = (1 - targets) * hazard - targets * jnp.log(-jnp.expm1(-hazard))
    else:
        steps = jnp.arange(1, heads.shape[-1] + 1, dtype=heads.dtype)
        losses = jnp.square(predictions(heads, quantity) - targets) / steps[None, None, None]
    first = jnp.arange(heads.shape[-1]) == 0
    counts = jnp.where(rows.known[..., None] | first[None, None], rows.weight[:, None, None], 0)
    return jnp.sum(jnp.mean(losses * counts[None], axis=(1, 2, 3))), None


@partial(jax.jit, static_argnames="quantity")
def trained_members(
    settings: Any,
    members: MLP,
    rows: Rows,
    draws: Draws,
    shift: Float[Array, " cost"],
    key: PRNGKeyArray,
    *,
    quantity: Quantity,
) -> tuple[MLP, Float[Array, ""]]:
    """Members after all updates, averaged by their target networks, and the last loss.

    Args:
        settings: With ``updates``, ``batch_size``, ``learning_rate``, ``tau``, ``discount`` and
            ``optimiser``; numbers as arrays.
        members: Stacked networks.
        rows: All rows.
        draws: Rows ahead of a violation.
        shift: Offsets of the heads.
        key: Decides the rows of every update.
        quantity: What is predicted.
    """
    state = init_optimiser(settings.optimiser, members, settings.learning_rate)

    def update(number: Int[Array, ""], carry: tuple) -> tuple:
        members, slow, state, _ = carry
        drawn = draw_rows(draws, len(rows.weight), settings.batch_size, key, number)
        batch = jax.tree.map(lambda column: column[drawn], rows)
        heads = jax.vmap(raw_heads, in_axes=(0, None, None))(slow, batch.next_inputs, shift)
        targets = horizon_targets(
            batch.counted[None],
            predictions(heads, quantity),
            batch.follows[None],
            quantity=quantity,
            discount=settings.discount,
        )
        members, state, loss, _ = minimise(
            settings.optimiser,
            partial(head_loss, quantity=quantity),
            members,
            state,
            settings.learning_rate * cosine(number, settings.updates),
            batch,
            targets,
            shift,
        )
        return members, polyak(slow, members, tau=settings.tau), state, loss

    start = (members, members, state, jnp.zeros(()))
    _, slow, _, loss = jax.lax.fori_loop(0, settings.updates, update, start)
    return slow, loss


def draw_rows(
    draws: Draws, rows: int, size: int, key: PRNGKeyArray, number: Int[Array, ""]
) -> Int[Array, " size"]:
    """Rows of one update: each uniform, or, with a chance of a half, ahead of a violation."""
    keys = jax.random.split(jax.random.fold_in(key, number), 4)
    anywhere = jax.random.randint(keys[0], (size,), 0, rows)
    if len(draws.count) == 0:
        return anywhere
    limit = jax.random.randint(keys[1], (size,), 0, len(draws.count))
    count_there = draws.count[limit]
    within = jax.random.uniform(keys[2], (size,)) * count_there.astype(jnp.float32)
    # A product that rounds up to the count itself would leave the rows of its limit.
    place = jnp.minimum(within.astype(jnp.int32), count_there - 1)
    ahead = draws.rows[draws.start[limit] + place]
    return jnp.where(jax.random.bernoulli(keys[3], shape=(size,)), ahead, anywhere)
