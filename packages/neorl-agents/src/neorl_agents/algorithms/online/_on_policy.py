"""Shared parts of on-policy learners: sampling of actions, value function, advantages."""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.learning import LearnerState, Networks, UnitRows, counted_costs
from neorl_agents.networks import (
    Network,
    largest,
    squashed_mean,
    squashed_parameters,
)
from neorl_agents.policies import (
    CategoricalPolicy,
    HistoryPolicy,
    NetworkPolicy,
    SquashedGaussianPolicy,
    network_policy,
)
from neorl_core import Spec
from neorl_core.distributions import (
    categorical_entropy,
    categorical_log_prob,
    diagonal_gaussian_entropy,
    tanh_gaussian_log_prob,
)
from neorl_core.returns import segment_generalised_advantages

ActionKind = Literal["squashed", "choice"]
"""``"squashed"``: a tanh-Gaussian over all channels. ``"choice"``: one channel is chosen, which
gets the high end of its range, and all others get their low end; for plants that only act on the
largest channel, such as LoadBalance."""

LOG_STD_RANGE = (-5.0, 1.0)


class ScaledValue(eqx.Module):
    """Values ``mean + scale network(obs)``, so that the network's outputs are of order one.

    There is one value per signal: the reward, and each cost if a learner keeps limits. No gradient
    reaches ``mean`` and ``scale``: they track the returns of the rollouts.

    Attributes:
        network: Network from observations to one number for each signal.
        mean: Mean of the returns so far, in the unit of the signal.
        scale: Standard deviation of the returns so far, positive.
    """

    network: Network
    mean: Float[Array, " signal"]
    scale: Float[Array, " signal"]

    def __call__(self, obs: Float[Array, "row obs"]) -> Float[Array, "row signal"]:
        """The values, in the units of the signals."""
        return self.mean[None] + self.scale[None] * self.network(obs)

    def loss(
        self, obs: Float[Array, "row obs"], returns: Float[Array, "row signal"]
    ) -> Float[Array, ""]:
        """Half the mean squared distance from the returns, in units of the scales."""
        mean, scale = jax.lax.stop_gradient((self.mean, self.scale))
        error = self.network(obs) - (returns - mean[None]) / scale[None]
        return jnp.sum(jnp.mean(jnp.square(error), axis=0)) / 2

    def with_statistics(
        self, returns: Float[Array, "row signal"], rate: Float[Array, ""]
    ) -> "ScaledValue":
        """The value with means and scales moved towards those of a rollout by ``rate``."""
        mean = self.mean + rate * (jnp.mean(returns, axis=0) - self.mean)
        square = jnp.square(self.scale)
        square = square + rate * (jnp.mean(jnp.square(returns - mean[None]), axis=0) - square)
        return ScaledValue(self.network, mean, jnp.sqrt(jnp.maximum(square, 1e-8)))


class Estimates(NamedTuple):
    """Value targets and advantages of a rollout, by the networks from before the update.

    Attributes:
        advantages: Excess of the return over the value, in the units of the signals.
        returns: Training targets of the values.
        log_prob: Log-probability of the actions when they were sampled.
    """

    advantages: Float[Array, "row signal"]
    returns: Float[Array, "row signal"]
    log_prob: Float[Array, " row"]


def fresh_actor(networks: Networks, spec: Spec, key: PRNGKeyArray, kind: ActionKind) -> Network:
    """A network with a small initial last layer, so that all actions are about equally likely."""
    count = spec.n_action * (2 if kind == "squashed" else 1)
    return networks.obs_network(spec, count, key, initialiser="orthogonal", last_bound=1e-2)


def fresh_value(learner: Any, spec: Spec, key: PRNGKeyArray) -> ScaledValue:
    """Values of :func:`reward_and_costs`, whose scales are one until the first rollout."""
    signals = 1 + (spec.n_cost if learner.keeps_limits else 0)
    network = learner.networks.obs_network(spec, signals, key, initialiser="orthogonal")
    return ScaledValue(network, jnp.zeros(signals, jnp.float32), jnp.ones(signals, jnp.float32))


def require_no_encoder(learner: Any) -> None:
    """Refuses networks with memory: a rollout holds rows without the windows before them."""
    if learner.networks.encoder != "none":
        raise ValueError(
            f"{type(learner).__name__}.networks.encoder must be 'none', got "
            f"{learner.networks.encoder!r}: it learns from the rows of a rollout, not from windows"
        )


def log_prob_and_entropy(
    actor: Network, rows: UnitRows, kind: ActionKind
) -> tuple[Float[Array, " row"], Float[Array, " row"]]:
    """Log-probability and entropy of the actions; a Gaussian's entropy is taken unsquashed."""
    if kind == "choice":
        logits = actor(rows.obs)
        chosen = jnp.argmax(rows.action, axis=-1)
        return categorical_log_prob(chosen, logits), categorical_entropy(logits)
    mean, log_std = squashed_parameters(actor, rows.obs, LOG_STD_RANGE)
    return tanh_gaussian_log_prob(rows.action, mean, log_std), diagonal_gaussian_entropy(log_std)


def reward_and_costs(
    learner: Any, state: LearnerState, rows: UnitRows
) -> Float[Array, "*batch signal"]:
    """Signals with a value function: the reward, and each cost if the learner keeps limits."""
    reward = rows.reward[..., None]
    if not learner.keeps_limits:
        return reward
    return jnp.concatenate([reward, counted_costs(state.preparation, rows.cost)], axis=-1)


def estimate(
    actor: Network,
    value: ScaledValue,
    rows: UnitRows,
    signals: Float[Array, "step env signal"],
    *,
    discount: Any,
    lam: Any,
    kind: ActionKind,
) -> Estimates:
    """Generalised advantages of every episode of a rollout ``(step, env, ...)``, as flat rows.

    A time limit does not end an episode: the value of the step's own next observation follows it.

    The reward is the first of the ``signals``.
    """
    flat, shape = as_rows(rows), signals.shape
    values, next_values = value(flat.obs), value(flat.next_obs)

    def advantages_of(*series: Array) -> Array:
        return segment_generalised_advantages(*series, discount=discount, lam=lam)

    over_signals = jax.vmap(advantages_of, in_axes=(1, 1, 1, None, None), out_axes=1)
    series = (
        signals, values.reshape(shape), next_values.reshape(shape), rows.terminated, rows.truncated,
    )  # fmt: skip
    advantage = jax.vmap(over_signals, in_axes=1, out_axes=1)(*series).reshape(values.shape)
    log_prob, _ = log_prob_and_entropy(actor, flat, kind)
    return jax.tree.map(jax.lax.stop_gradient, Estimates(advantage, values + advantage, log_prob))


def standardise(advantage: Float[Array, " row"]) -> Float[Array, " row"]:
    """The advantage scaled to mean 0 and standard deviation 1."""
    centred = advantage - jnp.mean(advantage)
    return centred / (jnp.std(advantage) + 1e-8)


def statistics_rate(state: LearnerState, rate: Any) -> Float[Array, ""]:
    """The part by which mean and scale follow a rollout: 1 for the first one, then ``rate``."""
    return jnp.where(state.updates == 0, 1.0, rate)


def as_rows(rows: UnitRows) -> UnitRows:
    """A rollout ``(step, env, ...)`` as one batch of rows."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)


def greedy_policy(
    state: LearnerState, actor: Network, kind: ActionKind
) -> NetworkPolicy | HistoryPolicy:
    """The deterministic policy: the mean, or the likeliest choice."""
    if kind == "choice":
        actor = actor.first_outputs(actor.n_outputs, output=largest)
        return network_policy(state.preparation, actor)
    return network_policy(state.preparation, squashed_mean(actor))


def exploring_policy(
    state: LearnerState, actor: Network, kind: ActionKind
) -> SquashedGaussianPolicy | CategoricalPolicy:
    """The trained policy, which samples its actions."""
    stochastic_policy = network_policy(state.preparation, actor)
    if kind == "choice":
        return CategoricalPolicy(stochastic_policy)
    return SquashedGaussianPolicy(stochastic_policy, LOG_STD_RANGE)
