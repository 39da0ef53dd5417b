"""A network on top of a controller, trained through a learned plant."""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.models import (
    PredictedEpisodes,
    ReplayedPlant,
    ReplayedStart,
    every_start,
    predicted_episodes,
)
from neorl_agents.networks import init_mlp
from neorl_agents.networks._activations import tanh
from neorl_agents.policies import ResidualPolicy
from neorl_agents.retuning._search import SLACK, Limits, excess
from neorl_core import Affine, Policy, highs, lows, unit_interval


@dataclasses.dataclass(frozen=True)
class ResidualSettings:
    """Training settings of a network on top of a controller.

    Attributes:
        authority: Largest addition to an action, as a fraction of the range that the log used.
        hidden: Widths of the hidden layers.
        updates: Number of gradient steps.
        episodes: Number of logged episodes that a step replays.
        members: Number of networks of the model in which a step replays them; the other networks
            and the linear part judge the result.
        learning_rate: Learning rate of Adam, which falls to zero along a cosine.
        clip: Largest norm of a gradient.
        penalty: Weight of costs beyond ``budget`` of their limit.
        budget: Fraction of a limit that an episode may use before it is penalised.
        outside: Weight of leaving the log's data farther than the controller does without it.
        near: Factor on the controller's distance that is not penalised.
    """

    authority: float = 0.15
    hidden: tuple[int, ...] = (32, 32)
    updates: int = 120
    episodes: int = 8
    members: int = 2
    learning_rate: float = 5e-3
    clip: float = 1.0
    penalty: float = 3.0
    budget: float = 0.4
    outside: float = 1.0
    near: float = 1.1


class FittedResidual(NamedTuple):
    """A network on top of a controller, and how its training went.

    Attributes:
        policy: The controller with the network.
        scores: Score before every step: mean return divided by the scale, minus the penalties.
    """

    policy: ResidualPolicy
    scores: tuple[float, ...]


def fit_residual(
    plant: ReplayedPlant,
    controller: Policy,
    limits: Limits,
    scale: float,
    key: PRNGKeyArray,
    settings: ResidualSettings = ResidualSettings(),
) -> FittedResidual:
    """Trains a network on top of a controller by the gradient through a learned plant.

    Args:
        plant: Learned plant.
        controller: Controller in physical units that ignores its key.
        limits: Cost limits.
        scale: Difference of returns that counts as one.
        key: Random key of the initial weights and of the sampled episodes.
        settings: Settings of the training.

    Returns:
        The policy. Before training the network adds nothing. A step whose gradient is not finite
        is skipped.
    """
    network_key, update_key = jax.random.split(key)
    policy = _initial_policy(plant, controller, network_key, settings)
    count = min(settings.episodes, plant.n_episodes)
    all_starts = every_start(
        plant, range(settings.members), range(min(4 * count, plant.n_episodes))
    )
    controller_distance = jnp.mean(_distance(plant, controller, all_starts))
    unit = jnp.asarray(scale, jnp.float32)
    network, scores = _train(plant, policy, limits, unit, controller_distance, update_key, settings)
    return FittedResidual(
        dataclasses.replace(policy, network=network), tuple(float(x) for x in np.asarray(scores))
    )


def with_authority(policy: ResidualPolicy, part: float) -> ResidualPolicy:
    """The same policy with a fraction of its authority."""
    return dataclasses.replace(policy, authority=policy.authority * part)


def _initial_policy(
    plant: ReplayedPlant, controller: Policy, key: PRNGKeyArray, settings: ResidualSettings
) -> ResidualPolicy:
    spec, scales = plant.spec, plant.model.scales
    low, high = (jnp.asarray(ends(spec.action), jnp.float32) for ends in (lows, highs))
    # Four standard deviations are about the range in use; a valve that hardly moved gets little.
    action_span = jnp.minimum(4 * scales.action[1], high - low)
    widths = (spec.n_obs + spec.n_action, *settings.hidden, spec.n_action)
    return ResidualPolicy(
        base=controller,
        obs=Affine(scales.obs[0], scales.obs[1]),
        action=unit_interval(spec.action),
        network=init_mlp(widths, key, initialiser="orthogonal", activation=tanh, last_bound=0.0),
        authority=settings.authority * action_span,
        low=low,
        high=high,
    )


@jax.jit
def _distance(plant: ReplayedPlant, policy: Policy, starts: ReplayedStart) -> Array:
    return predicted_episodes(plant, policy, starts).outside


@partial(jax.jit, static_argnums=6)
def _train(
    plant: ReplayedPlant,
    policy: ResidualPolicy,
    limits: Limits,
    scale: Float[Array, ""],
    controller_distance: Float[Array, ""],
    key: PRNGKeyArray,
    settings: ResidualSettings,
) -> tuple[Any, Float[Array, " update"]]:
    rate = optax.cosine_decay_schedule(settings.learning_rate, settings.updates)
    chain = optax.chain(optax.clip_by_global_norm(settings.clip), optax.adam(rate))
    optimiser = optax.apply_if_finite(chain, max_consecutive_errors=settings.updates)
    count = min(settings.episodes, plant.n_episodes)

    def loss(network: Any, starts: ReplayedStart) -> Array:
        trained_policy = dataclasses.replace(policy, network=network)
        predicted = predicted_episodes(plant, trained_policy, starts)
        return -_score(predicted, limits, scale, controller_distance, settings)

    def update(train_state: tuple[Any, Any], key: PRNGKeyArray) -> tuple[tuple[Any, Any], Array]:
        network, state = train_state
        sampled_episodes = jax.random.choice(key, plant.n_episodes, (count,), replace=False)
        members, episodes = jnp.meshgrid(
            jnp.arange(settings.members), sampled_episodes, indexing="ij"
        )
        starts = ReplayedStart(episodes.ravel(), members.ravel())
        value, gradient = jax.value_and_grad(loss)(network, starts)
        steps, state = optimiser.update(gradient, state)
        return (eqx.apply_updates(network, steps), state), -value

    fresh: Any = policy.network
    begin = (fresh, optimiser.init(fresh))
    (network, _), scores = jax.lax.scan(update, begin, jax.random.split(key, settings.updates))
    return network, scores


def _score(
    predicted: PredictedEpisodes,
    limits: Limits,
    scale: Float[Array, ""],
    controller_distance: Float[Array, ""],
    settings: ResidualSettings,
) -> Array:
    penalty = settings.penalty * excess(predicted, limits, settings.budget)
    gain = jnp.mean(predicted.returns / scale - penalty)
    excess_distance = (
        jnp.mean(predicted.outside) / (settings.near * controller_distance + SLACK) - 1
    )
    return gain - settings.outside * jnp.maximum(excess_distance, 0.0)
