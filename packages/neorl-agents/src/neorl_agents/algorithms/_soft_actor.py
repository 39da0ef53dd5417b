"""The steps that soft actor-critics share: a tanh-Gaussian actor and its entropy temperature."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_agents.learning import LearnerState, UnitRows
from neorl_agents.networks import Network, q_values
from neorl_agents.networks._gaussian_heads import squashed_parameters
from neorl_core.distributions import tanh_gaussian_sample
from neorl_core.losses import masked_mean, sac_policy_loss
from neorl_core.targets import soft_td_target

LOG_STD_RANGE = (-5.0, 2.0)
"""Range of the policy's log standard deviation, where a learner has no other."""

SOFT_RATES: Mapping[str, str] = {
    "actor": "actor_learning_rate",
    "critics": "critic_learning_rate",
    "log_temperature": "temperature_learning_rate",
}
"""The field with the learning rate of each parameter of a soft actor-critic."""

SampledAction = tuple[Float[Array, "batch act"], Float[Array, " batch"]]


def sample_action(
    actor: Network,
    obs: Float[Array, "batch obs"],
    key: PRNGKeyArray,
    log_std_range: tuple[float, float],
) -> SampledAction:
    """Samples one action per row, with its log-density; both are differentiable in the actor."""
    return tanh_gaussian_sample(*squashed_parameters(actor, obs, log_std_range), key)


def sampled_actions(
    actor: Network,
    rows: UnitRows,
    key: PRNGKeyArray,
    number: int,
    log_std_range: tuple[float, float],
) -> tuple[Float[Array, "batch sample act"], Float[Array, "batch sample"]]:
    """``number`` actions from each of three distributions, with log-densities, for every row.

    Uniform actions first, then the policy's at the observation, then its actions at the next one.
    """
    uniform_key, obs_key, next_key = jax.random.split(key, 3)
    batch, act = rows.action.shape
    shape = (batch, number, act)
    uniform = jax.random.uniform(uniform_key, shape, rows.action.dtype, -1, 1)
    parts = [(uniform, jnp.full(shape[:2], -act * jnp.log(2.0), rows.action.dtype))]
    for obs, sample_key in ((rows.obs, obs_key), (rows.next_obs, next_key)):
        mean, log_std = squashed_parameters(actor, obs, log_std_range)
        mean, log_std = (jnp.broadcast_to(x[:, None, :], shape) for x in (mean, log_std))
        parts.append(tanh_gaussian_sample(mean, log_std, sample_key))
    actions, log_prob = zip(*parts, strict=True)
    return jnp.concatenate(actions, axis=1), jnp.concatenate(log_prob, axis=1)


def soft_actor_loss(
    actor: Network,
    critics: Network,
    temperature: Float[Array, ""],
    rows: UnitRows,
    key: PRNGKeyArray,
    log_std_range: tuple[float, float],
) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
    """``mean (temperature log pi(a|s) - min_i Q_i(s, a))``, and the log-density of every action."""
    action, log_prob = sample_action(actor, rows.obs, key, log_std_range)
    values = q_values(critics, rows.obs, action)
    loss = sac_policy_loss(log_prob, values, temperature=temperature)
    return masked_mean(loss, rows.mask), log_prob


def temperature_loss(
    log_temperature: Float[Array, ""],
    log_prob: Float[Array, " batch"],
    mask: Bool[Array, " batch"] | None,
    target_entropy: Float[Array, ""],
) -> tuple[Float[Array, ""], None]:
    """``-log_temperature mean (log pi(a|s) + target_entropy)``; its gradient is the bracket's mean.

    The codes of SAC's authors, CORL and OfflineRL-Kit use this form. The equation (18 of arXiv
    1812.05905) has ``exp(log_temperature)``, as CleanRL does, whose steps shrink with the
    temperature.
    """
    excess = jax.lax.stop_gradient(log_prob) + target_entropy
    return -log_temperature * masked_mean(excess, mask), None


def soft_target(
    learner: Any,
    state: LearnerState,
    rows: UnitRows,
    reward: Float[Array, " batch"],
    temperature: Float[Array, ""],
    key: PRNGKeyArray,
    log_std_range: tuple[float, float] = LOG_STD_RANGE,
) -> Float[Array, " batch"]:
    """``reward + discount (1 - terminated) (min_i Q'_i(s', a') - temperature log pi(a'|s'))``."""
    actor, critics = state.parameters["actor"], state.targets["critics"]
    action, log_prob = sample_action(actor, rows.next_obs, key, log_std_range)
    next_q = q_values(critics, rows.next_obs, action)
    return soft_td_target(
        reward, next_q, log_prob, rows.terminated,
        discount=learner.discount, temperature=temperature,
    )  # fmt: skip


def actor_step(
    learner: Any,
    state: LearnerState,
    rows: UnitRows,
    temperature: Float[Array, ""],
    key: PRNGKeyArray,
    log_std_range: tuple[float, float] = LOG_STD_RANGE,
    rate: Float[Array, ""] | None = None,
) -> tuple[LearnerState, Float[Array, ""], Float[Array, " batch"]]:
    """Takes one step of the actor; also returns its loss and the log-densities of its actions."""
    loss = partial(soft_actor_loss, log_std_range=log_std_range)
    critics = state.parameters["critics"]
    return learner.descend(state, "actor", loss, critics, temperature, rows, key, rate=rate)


def temperature_step(
    learner: Any, state: LearnerState, rows: UnitRows, log_prob: Float[Array, " batch"]
) -> LearnerState:
    """Takes one step of the temperature towards ``target_entropy`` for each action channel."""
    target_entropy = learner.target_entropy * rows.action.shape[-1]
    loss, mask = temperature_loss, rows.mask
    return learner.descend(state, "log_temperature", loss, log_prob, mask, target_entropy)[0]


def max_entropy(temperature: Float[Array, ""], n_action: int) -> Float[Array, ""]:
    """The largest entropy bonus in a step: that of uniform actions in [-1, 1]."""
    return temperature * n_action * jnp.log(2.0).astype(temperature.dtype)
