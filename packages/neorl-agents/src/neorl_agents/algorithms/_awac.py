"""Advantage-weighted actor critic."""

from dataclasses import replace
from functools import partial
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_agents.algorithms._batches import only, required
from neorl_agents.algorithms._diagnostics import value_metrics, weight_metrics
from neorl_agents.algorithms._hyperparameters import (
    as_widths,
    require_choice,
    require_critic_learner,
    require_number,
)
from neorl_agents.algorithms._memory import encoding_of, fields_read, require_encoder, with_history
from neorl_agents.algorithms._protocol import Metrics
from neorl_agents.algorithms._weighted_regression import (
    regression_weights,
    weighted_regression_loss,
)
from neorl_agents.networks import (
    Encoder,
    Network,
    critic_loss,
    identity,
    init_critics,
    init_network,
    q_values,
    tanh,
)
from neorl_agents.networks._gaussian_heads import GaussianActor
from neorl_agents.optimisers import init_optimiser, minimise
from neorl_agents.policies._history_policy import HistoryPolicy
from neorl_agents.policies._network_policy import GaussianPolicy, NetworkPolicy
from neorl_agents.policies._scaling import (
    RewardScale,
    Scaling,
    init_scaling,
    network_policy,
    scaled,
)
from neorl_agents.sampling import Rows, Sampler
from neorl_core import DataStatistics, Spec, Transition, as_arrays
from neorl_core.losses import masked_mean
from neorl_core.targets import clipped_double_td_target, polyak

LOG_STD_RANGE = (-20.0, 2.0)


class AWACState(eqx.Module):
    """The training state of :class:`AWAC`; ``critics`` are two, stacked."""

    actor: GaussianActor
    critics: Network
    target_critics: Network
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    scaling: Scaling


class AWAC(eqx.Module):
    """AWAC: critics of the policy, and logged actions weighted by how much better they are.

    One update is, in this order,

    1. critics: ``mean (Q_1 - y)^2 + mean (Q_2 - y)^2``,
       ``y = r + discount (1 - terminated) min_i Q'_i(s', a')``, ``a' ~ pi(.|s')``;
    2. actor, with the new critics: ``-mean min(exp(inverse_temperature A), max_weight)
       log pi(a|s)``, ``A = min_i Q_i(s, a) - min_i Q_i(s, b)``, ``b ~ pi(.|s)``, the weight
       without gradient;
    3. targets: towards the new critics by ``tau``.

    ``pi`` is a Gaussian that is not squashed, around a tanh network, with one deviation per action
    channel; drawn actions are clipped to [-1, 1]. Acting uses the mean.

    Variants: ``"original"`` as above; ``"corl"`` has no tanh behind the mean, so that a mean may
    lie outside of the range; acting clips it.

    Deviations: observations are standardised, rewards divided by their deviation; weights are not
    normalised over the batch (the paper's Lagrange form would be, its code and CORL are not).

    Attributes:
        inverse_temperature: ``1 / lambda``, not negative.
        max_weight: Largest weight of the actor's regression.
        discount: Discount of the reward per step, in [0, 1].
        tau: Fraction by which the target critics move, in (0, 1].
        actor_learning_rate: Learning rate of the actor.
        critic_learning_rate: Learning rate of the critics.
        variant: ``"original"`` or ``"corl"``; static.
        advantage_scale: ``"fixed"``, or ``"std"`` to divide the advantage by its standard deviation
            in the batch first; static.
        reward_scale: ``"std"``, ``"none"`` or ``"return_range"``; static.
        hidden: Widths of the hidden layers of actor and critics; static.
        batch_size: Rows of one gradient step; static.
        optimiser: Name of the optimiser in ``neorl_agents.optimisers.OPTIMISERS``; static.
        encoder: ``"none"``, ``"history"`` or ``"gru"``: whether networks see the last steps too,
            side by side or through a recurrent unit each; static.
        history_steps: Number of steps that they see then, with the present one; static.

    Source: Nair et al., AWAC: accelerating online reinforcement learning with offline datasets,
    arXiv 2006.09359. Defaults are those of CORL for locomotion.
    """

    inverse_temperature: float = 3.0
    max_weight: float = 100.0
    discount: float = 0.99
    tau: float = 0.005
    actor_learning_rate: float = 3e-4
    critic_learning_rate: float = 3e-4
    variant: Literal["original", "corl"] = eqx.field(static=True, default="original")
    advantage_scale: Literal["fixed", "std"] = eqx.field(static=True, default="fixed")
    reward_scale: RewardScale = eqx.field(static=True, default="std")
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256, 256), converter=as_widths)
    batch_size: int = eqx.field(static=True, default=256)
    optimiser: str = eqx.field(static=True, default="adam")
    encoder: Encoder = eqx.field(static=True, default="none")
    history_steps: int = eqx.field(static=True, default=8)

    @property
    def fields(self) -> tuple[str, ...]:
        """With memory, also where episodes end."""
        return fields_read(self, "obs", "action", "reward", "next_obs", "terminated", "mask")

    @property
    def sampler(self) -> Sampler:
        """Rows, with memory as windows."""
        return with_history(self, Rows())

    @property
    def batches_per_update(self) -> int:
        """One."""
        return 1

    def validate(self) -> None:
        """Raises a ``ValueError`` that names the first field with a bad value."""
        require_encoder(self)
        require_number(self, "inverse_temperature", low=0)
        require_number(self, "max_weight", low=0, open_low=True)
        require_choice(self, "variant", ("original", "corl"))
        require_choice(self, "advantage_scale", ("fixed", "std"))
        require_critic_learner(self, "actor", "critic")

    def init(self, spec: Spec, statistics: DataStatistics, key: PRNGKeyArray) -> AWACState:
        """A fresh state; see :class:`neorl_agents.Algorithm`."""
        self.validate()
        return _init(as_arrays(self), statistics, key, spec)

    def update(
        self, state: AWACState, batch: Transition, key: PRNGKeyArray
    ) -> tuple[AWACState, Metrics]:
        """One gradient step of critics and actor, then one of the targets."""
        rows = only(scaled(state.scaling, batch))
        next_key, own_key = jax.random.split(key)
        next_obs, terminated = required(rows, "next_obs"), required(rows, "terminated")
        after = q_values(state.target_critics, next_obs, _drawn(state.actor, next_obs, next_key))
        critics, critic_optimiser, loss, mean_q = minimise(
            self.optimiser,
            critic_loss,
            state.critics,
            state.critic_optimiser,
            self.critic_learning_rate,
            rows,
            clipped_double_td_target(rows.reward, after, terminated, discount=self.discount),
        )
        own = q_values(critics, rows.obs, _drawn(state.actor, rows.obs, own_key))
        logged = q_values(critics, rows.obs, rows.action)
        advantage = jnp.min(logged, axis=0) - jnp.min(own, axis=0)
        weights = self.weights(advantage, rows.mask)
        actor, actor_optimiser, actor_loss, _ = minimise(
            self.optimiser,
            partial(weighted_regression_loss, log_std_range=LOG_STD_RANGE),
            state.actor,
            state.actor_optimiser,
            self.actor_learning_rate,
            rows,
            weights,
        )
        state = replace(
            state,
            actor=actor,
            critics=critics,
            target_critics=polyak(state.target_critics, critics, tau=self.tau),
            actor_optimiser=actor_optimiser,
            critic_optimiser=critic_optimiser,
        )
        return state, {
            "critic_loss": loss,
            "actor_loss": actor_loss,
            "advantage": masked_mean(advantage, rows.mask),
            **value_metrics(mean_q, state.scaling, rows.mask, discount=self.discount),
            **weight_metrics(weights, rows.mask, self.max_weight),
        }

    def weights(
        self, advantage: Float[Array, " batch"], mask: Bool[Array, " batch"] | None
    ) -> Float[Array, " batch"]:
        """The weights of the actor's regression."""
        return regression_weights(
            advantage,
            mask,
            scale=self.advantage_scale,
            inverse_temperature=self.inverse_temperature,
            max_weight=self.max_weight,
        )

    def policy(self, state: AWACState) -> NetworkPolicy | HistoryPolicy:
        """The mean of the trained policy, in physical units."""
        return network_policy(state.scaling, state.actor.mean)

    def explore(self, state: AWACState) -> GaussianPolicy:
        """The trained policy with its own noise, in physical units."""
        log_std = jnp.clip(state.actor.log_std, *LOG_STD_RANGE)
        return GaussianPolicy(self.policy(state), log_std)


@partial(jax.jit, static_argnums=3)
def _init(algorithm: AWAC, statistics: DataStatistics, key: PRNGKeyArray, spec: Spec) -> AWACState:
    encoding = encoding_of(algorithm, spec)
    actor_key, critic_key = jax.random.split(key)
    last = tanh if algorithm.variant == "original" else identity
    mean = init_network(
        (encoding.width, *algorithm.hidden, spec.n_action),
        actor_key,
        output=last,
        encoding=encoding,
    )
    actor = GaussianActor(mean, jnp.zeros(spec.n_action, jnp.float32))
    critics = init_critics(
        (encoding.width + spec.n_action, *algorithm.hidden), critic_key, encoding=encoding
    )
    start = partial(init_optimiser, algorithm.optimiser)
    return AWACState(
        actor=actor,
        critics=critics,
        target_critics=critics,
        actor_optimiser=start(actor, algorithm.actor_learning_rate),
        critic_optimiser=start(critics, algorithm.critic_learning_rate),
        scaling=init_scaling(spec, statistics, algorithm.reward_scale, window=encoding.window),
    )


def _drawn(
    actor: GaussianActor, obs: Float[Array, "batch obs"], key: PRNGKeyArray
) -> Float[Array, "batch act"]:
    mean = actor.mean(obs)
    noise = jax.random.normal(key, mean.shape, mean.dtype)
    return jnp.clip(mean + jnp.exp(jnp.clip(actor.log_std, *LOG_STD_RANGE))[None] * noise, -1, 1)
