"""The steps that TD3 and its relatives share: smoothed actions, and delayed actor steps."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.learning import (
    LearnerState,
    Metrics,
    UnitRows,
    critic_loss,
    nth_batch,
    value_metrics,
)
from neorl_agents.networks import Network


def smoothed_action(
    learner: Any, actor: Network, obs: Float[Array, "batch obs"], key: PRNGKeyArray
) -> Float[Array, "batch act"]:
    """``clip(actor(obs) + e, -1, 1)``, ``e = clip(noise_std N(0, 1), -noise_clip, noise_clip)``.

    ``obs`` is standardised; the last layer of ``actor`` is a tanh.
    """
    mean = actor(obs)
    noise = learner.noise_std * jax.random.normal(key, mean.shape, mean.dtype)
    return jnp.clip(mean + jnp.clip(noise, -learner.noise_clip, learner.noise_clip), -1, 1)


def delayed_critic_steps(
    learner: Any,
    state: LearnerState,
    rows: UnitRows,
    targets: Float[Array, "step batch"],
    *,
    penalised: bool = False,
) -> tuple[LearnerState, Metrics]:
    """Takes ``policy_delay`` gradient steps of the critics; actor and targets stay as they are.

    ``rows`` and ``targets`` begin with an axis of ``policy_delay`` steps. Loss and diagnostics are
    means over the steps; ``penalised`` is that of ``value_metrics``.
    """
    steps = []
    for i in range(learner.policy_delay):
        row = nth_batch(rows, i)
        state, loss, q = learner.descend(state, "critics", critic_loss, row, targets[i])
        values = value_metrics(
            q, state.preparation, row, discount=learner.discount, penalised=penalised
        )
        steps.append({"critic_loss": loss, **values})
    return state, jax.tree.map(_mean, *steps)


def _mean(*values: Array) -> Array:
    return jnp.mean(jnp.stack(values), axis=0)
