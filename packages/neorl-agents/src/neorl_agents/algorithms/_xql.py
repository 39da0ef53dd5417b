"""Extreme Q-learning."""

from dataclasses import replace
from functools import partial
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_agents.algorithms._batches import only, required
from neorl_agents.algorithms._diagnostics import value_metrics, weight_metrics
from neorl_agents.algorithms._hyperparameters import (
    as_widths,
    require_choice,
    require_count,
    require_critic_learner,
    require_number,
)
from neorl_agents.algorithms._memory import encoding_of, fields_read, require_encoder, with_history
from neorl_agents.algorithms._protocol import Metrics
from neorl_agents.algorithms._schedules import cosine, require_planned
from neorl_agents.algorithms._weighted_regression import (
    regression_weights,
    weighted_regression_loss,
)
from neorl_agents.networks import (
    Encoder,
    Network,
    critic_loss,
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
from neorl_core.losses import gumbel_loss, masked_mean
from neorl_core.targets import polyak, td_target

LOG_STD_RANGE = (-5.0, 2.0)


class XQLState(eqx.Module):
    """The training state of :class:`XQL`; ``critics`` are two, stacked, ``step`` counts updates."""

    value: Network
    critics: Network
    target_critics: Network
    actor: GaussianActor
    value_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    actor_optimiser: optax.OptState
    step: Int[Array, ""]
    scaling: Scaling


class XQL(eqx.Module):
    """Extreme Q-learning: values by Gumbel regression, then weighted regression of actions.

    With ``q = min_i Q'_i(s, a)`` of the target critics, one update is, in this order,

    1. value: ``mean (exp(z) - z - 1) exp(-m)``, ``z = min((q - V(s)) / temperature, max_exponent)``
       and ``m`` the largest ``z`` of the batch, at least -1, without gradient: ``V`` becomes the
       soft maximum ``temperature log E exp(Q / temperature)`` over the log's actions;
    2. actor, with the new ``V``: ``-mean min(exp(inverse_temperature (q - V(s))), max_weight)
       log pi(a|s)``, the weight without gradient;
    3. critics, with the new ``V``: ``mean (Q_1 - y)^2 + mean (Q_2 - y)^2``,
       ``y = r + discount (1 - terminated) V(s')``;
    4. targets: towards the new critics by ``tau``.

    It differs from :class:`IQL` in step 1 alone. A small temperature comes near to the largest
    value in the data and is unstable; the exponent's bound keeps steps finite, not values right.

    Deviations: observations are standardised, rewards divided by their deviation, so that a
    temperature means the same on every plant; the squared loss of the critics (the code has half of
    Huber's with width 20); the actor's rate stays where ``decay_updates`` is not given (the code
    always lets it fall); no layer normalisation of the value network.

    Attributes:
        temperature: Temperature of the soft maximum in the scale of the critics, positive.
        max_exponent: Largest exponent of the Gumbel loss, positive.
        inverse_temperature: The ``beta`` of the actor's weights, not negative.
        max_weight: Largest weight of the actor's regression.
        discount: Discount of the reward per step, in [0, 1].
        tau: Fraction by which the target critics move, in (0, 1].
        value_learning_rate: Learning rate of the value.
        critic_learning_rate: Learning rate of the critics.
        actor_learning_rate: Learning rate of the actor, at the start.
        decay_updates: Updates over which the actor's rate falls along half a cosine to zero; 0
            keeps it, -1 stands for the length of the run
            (:func:`neorl_agents.algorithms.for_run`).
        advantage_scale: ``"fixed"``, or ``"std"`` to divide the advantage by its standard deviation
            in the batch first; static.
        reward_scale: ``"std"``, ``"none"`` or ``"return_range"``; static.
        hidden: Widths of the hidden layers of all networks; static.
        batch_size: Rows of one gradient step; static.
        optimiser: Name of the optimiser in ``neorl_agents.optimisers.OPTIMISERS``; static.
        encoder: ``"none"``, ``"history"`` or ``"gru"``: whether networks see the last steps too,
            side by side or through a recurrent unit each; static.
        history_steps: Number of steps that they see then, with the present one; static.

    Source: Garg et al., Extreme Q-learning: MaxEnt RL without entropy, arXiv 2301.02328,
    equation 8 and appendix C.
    """

    temperature: float = 2.0
    max_exponent: float = 7.0
    inverse_temperature: float = 3.0
    max_weight: float = 100.0
    discount: float = 0.99
    tau: float = 0.005
    value_learning_rate: float = 3e-4
    critic_learning_rate: float = 3e-4
    actor_learning_rate: float = 3e-4
    decay_updates: int = 0
    advantage_scale: Literal["fixed", "std"] = eqx.field(static=True, default="fixed")
    reward_scale: RewardScale = eqx.field(static=True, default="std")
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256), converter=as_widths)
    batch_size: int = eqx.field(static=True, default=256)
    optimiser: str = eqx.field(static=True, default="adam")
    encoder: Encoder = eqx.field(static=True, default="none")
    history_steps: int = eqx.field(static=True, default=8)

    schedules: ClassVar[tuple[str, ...]] = ("decay_updates",)

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
        positive = ("temperature", "max_exponent", "max_weight")
        require_number(self, *positive, low=0, open_low=True)
        require_number(self, "inverse_temperature", low=0)
        require_count(self, "decay_updates", least=-1)
        require_choice(self, "advantage_scale", ("fixed", "std"))
        require_critic_learner(self, "value", "critic", "actor")

    def init(self, spec: Spec, statistics: DataStatistics, key: PRNGKeyArray) -> XQLState:
        """A fresh state; see :class:`neorl_agents.Algorithm`."""
        self.validate()
        require_planned(self)
        return _init(as_arrays(self), statistics, key, spec)

    def update(
        self, state: XQLState, batch: Transition, key: PRNGKeyArray
    ) -> tuple[XQLState, Metrics]:
        """One gradient step of value, actor and critics, then one of the targets."""
        rows = only(scaled(state.scaling, batch))
        q = jnp.min(q_values(state.target_critics, rows.obs, rows.action), axis=0)
        state, value_loss = self.value_step(state, rows, q)
        both = state.value(jnp.concatenate([rows.obs, required(rows, "next_obs")]))[..., 0]
        v, next_v = jnp.split(both, 2)
        weights = self.weights(q - v, rows.mask)
        actor, actor_optimiser, actor_loss, _ = minimise(
            self.optimiser,
            partial(weighted_regression_loss, log_std_range=LOG_STD_RANGE),
            state.actor,
            state.actor_optimiser,
            self.actor_learning_rate * cosine(state.step, self.decay_updates),
            rows,
            weights,
        )
        critics, critic_optimiser, loss, mean_q = minimise(
            self.optimiser,
            critic_loss,
            state.critics,
            state.critic_optimiser,
            self.critic_learning_rate,
            rows,
            td_target(rows.reward, next_v, required(rows, "terminated"), discount=self.discount),
        )
        state = replace(
            state,
            critics=critics,
            target_critics=polyak(state.target_critics, critics, tau=self.tau),
            actor=actor,
            critic_optimiser=critic_optimiser,
            actor_optimiser=actor_optimiser,
            step=state.step + 1,
        )
        return state, {
            "value_loss": value_loss,
            "actor_loss": actor_loss,
            "critic_loss": loss,
            "advantage": masked_mean(q - v, rows.mask),
            **value_metrics(mean_q, state.scaling, rows.mask, discount=self.discount),
            **weight_metrics(weights, rows.mask, self.max_weight),
        }

    def value_step(
        self, state: XQLState, rows: Transition, q: Float[Array, " batch"]
    ) -> tuple[XQLState, Float[Array, ""]]:
        """One gradient step of the value towards the soft maximum of ``q``."""
        value, optimiser, loss, _ = minimise(
            self.optimiser,
            self.value_loss,
            state.value,
            state.value_optimiser,
            self.value_learning_rate,
            rows,
            q,
        )
        return replace(state, value=value, value_optimiser=optimiser), loss

    def value_loss(
        self, value: Network, rows: Transition, q: Float[Array, " batch"]
    ) -> tuple[Float[Array, ""], None]:
        """The mean of the rescaled Gumbel loss."""
        loss = gumbel_loss(
            value(rows.obs)[..., 0],
            q,
            rows.mask,
            temperature=self.temperature,
            max_exponent=self.max_exponent,
        )
        return masked_mean(loss, rows.mask), None

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

    def policy(self, state: XQLState) -> NetworkPolicy | HistoryPolicy:
        """The mean of the trained policy, in physical units."""
        return network_policy(state.scaling, state.actor.mean)

    def explore(self, state: XQLState) -> GaussianPolicy:
        """The trained policy with its own noise, in physical units."""
        log_std = jnp.clip(state.actor.log_std, *LOG_STD_RANGE)
        return GaussianPolicy(self.policy(state), log_std)


@partial(jax.jit, static_argnums=3)
def _init(algorithm: XQL, statistics: DataStatistics, key: PRNGKeyArray, spec: Spec) -> XQLState:
    encoding = encoding_of(algorithm, spec)
    value_key, critic_key, actor_key = jax.random.split(key, 3)
    widths = (encoding.width, *algorithm.hidden)
    value = init_network((*widths, 1), value_key, initialiser="orthogonal", encoding=encoding)
    mean = init_network(
        (*widths, spec.n_action),
        actor_key,
        initialiser="orthogonal",
        output=tanh,
        encoding=encoding,
    )
    actor = GaussianActor(mean, jnp.zeros(spec.n_action, jnp.float32))
    critics = init_critics(
        (encoding.width + spec.n_action, *algorithm.hidden),
        critic_key,
        initialiser="orthogonal",
        encoding=encoding,
    )
    start = partial(init_optimiser, algorithm.optimiser)
    return XQLState(
        value=value,
        critics=critics,
        target_critics=critics,
        actor=actor,
        value_optimiser=start(value, algorithm.value_learning_rate),
        critic_optimiser=start(critics, algorithm.critic_learning_rate),
        actor_optimiser=start(actor, algorithm.actor_learning_rate),
        step=jnp.zeros((), jnp.int32),
        scaling=init_scaling(spec, statistics, algorithm.reward_scale, window=encoding.window),
    )
