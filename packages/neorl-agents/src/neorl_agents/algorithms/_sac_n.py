"""SAC-N: soft actor-critic with the least of many critics."""

from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.algorithms._batches import only, required
from neorl_agents.algorithms._diagnostics import value_metrics
from neorl_agents.algorithms._hyperparameters import (
    as_widths,
    require_count,
    require_critic_learner,
    require_number,
)
from neorl_agents.algorithms._memory import encoding_of, fields_read, require_encoder, with_history
from neorl_agents.algorithms._protocol import Metrics
from neorl_agents.algorithms._soft_actor import (
    drawn,
    most_entropy,
    soft_actor_loss,
    temperature_loss,
)
from neorl_agents.networks import (
    Encoder,
    Network,
    critic_loss,
    init_critics,
    init_network,
    q_values,
)
from neorl_agents.networks._gaussian_heads import squashed_mean
from neorl_agents.optimisers import init_optimiser, minimise
from neorl_agents.policies._history_policy import HistoryPolicy
from neorl_agents.policies._network_policy import NetworkPolicy
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
from neorl_core.targets import polyak, soft_td_target

LOG_STD_RANGE = (-5.0, 2.0)


class SACNState(eqx.Module):
    """The training state of :class:`SACN` and :class:`EDAC`; ``critics`` are many, stacked."""

    actor: Network
    critics: Network
    target_critics: Network
    log_temperature: Float[Array, ""]
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    temperature_optimiser: optax.OptState
    scaling: Scaling


class SACN(eqx.Module):
    """SAC-N: pessimism from the least value of ``n_critics`` independent critics.

    One update is, in this order, each step with what the one before it left,

    1. temperature, ``exp(x)``: ``-x mean (log pi(a|s) + target_entropy)``;
    2. actor: ``mean (temperature log pi(a|s) - min_i Q_i(s, a))``;
    3. critics: ``sum_i mean (Q_i(s, a) - y)^2``,
       ``y = r + discount (1 - terminated) (min_i Q'_i(s', a') - temperature log pi(a'|s'))``;
    4. targets: towards the new critics by ``tau``.

    ``pi`` is a tanh-Gaussian, its log-deviation clipped to [-5, 2]; acting uses ``tanh`` of the
    mean. Many critics are needed: the least of few is no pessimism off the data. Where most logged
    actions lie at one of the bounds, few critics do not tell which one is right in a state, and the
    entropy that is paid for keeps actions away from both.

    Deviations: observations are standardised, rewards divided by their deviation; the logarithm
    of ``1 - tanh^2`` is exact (the codes add 1e-6 to its argument).

    Attributes:
        discount: Discount of the reward per step, in [0, 1].
        tau: Fraction by which the target critics move, in (0, 1].
        target_entropy: Target of the policy's entropy in nats per action channel.
        actor_learning_rate: Learning rate of the actor.
        critic_learning_rate: Learning rate of the critics.
        temperature_learning_rate: Learning rate of the entropy's temperature.
        n_critics: Number of critics, two or more; static.
        reward_scale: ``"std"``, ``"none"`` or ``"return_range"``; static.
        hidden: Widths of the hidden layers of actor and critics; static.
        batch_size: Rows of one gradient step; static.
        optimiser: Name of the optimiser in ``neorl_agents.optimisers.OPTIMISERS``; static.
        encoder: ``"none"``, ``"history"`` or ``"gru"``: whether networks see the last steps too,
            side by side or through a recurrent unit each; static.
        history_steps: Number of steps that they see then, with the present one; static.

    Source: An et al., Uncertainty-based offline reinforcement learning with diversified
    Q-ensemble, arXiv 2110.01548. Initialisation, order and defaults are those of its code.
    """

    discount: float = 0.99
    tau: float = 0.005
    target_entropy: float = -1.0
    actor_learning_rate: float = 3e-4
    critic_learning_rate: float = 3e-4
    temperature_learning_rate: float = 3e-4
    n_critics: int = eqx.field(static=True, default=10)
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
        require_number(self, "target_entropy", low=-20, high=20)
        require_count(self, "n_critics", least=2)
        require_critic_learner(self, "actor", "critic", "temperature")

    def init(self, spec: Spec, statistics: DataStatistics, key: PRNGKeyArray) -> SACNState:
        """A fresh state; see :class:`neorl_agents.Algorithm`."""
        self.validate()
        return _init(as_arrays(self), statistics, key, spec)

    def update(
        self, state: SACNState, batch: Transition, key: PRNGKeyArray
    ) -> tuple[SACNState, Metrics]:
        """One gradient step of temperature, actor and critics, then one of the targets."""
        rows = only(scaled(state.scaling, batch))
        keys = jax.random.split(key, 3)
        state, entropy = self.temperature_step(state, rows, keys[0])
        temperature = jnp.exp(state.log_temperature)
        actor, actor_optimiser, actor_loss, _ = minimise(
            self.optimiser,
            partial(soft_actor_loss, log_std_range=LOG_STD_RANGE),
            state.actor,
            state.actor_optimiser,
            self.actor_learning_rate,
            state.critics,
            temperature,
            rows,
            keys[1],
        )
        state = replace(state, actor=actor, actor_optimiser=actor_optimiser)
        state, loss, (q, metrics) = self.critic_step(state, rows, temperature, keys[2])
        values = value_metrics(
            q,
            state.scaling,
            rows.mask,
            discount=self.discount,
            penalised=True,
            entropy=most_entropy(temperature, rows.action.shape[-1]),
        )
        return state, {
            "critic_loss": loss,
            "actor_loss": actor_loss,
            "entropy": entropy,
            "temperature": temperature,
            **metrics,
            **values,
        }

    def temperature_step(
        self, state: SACNState, rows: Transition, key: PRNGKeyArray
    ) -> tuple[SACNState, Float[Array, ""]]:
        """One gradient step of the temperature; also the entropy of the actor."""
        _, log_prob = drawn(state.actor, rows.obs, key, LOG_STD_RANGE)
        log_temperature, optimiser, _, _ = minimise(
            self.optimiser,
            temperature_loss,
            state.log_temperature,
            state.temperature_optimiser,
            self.temperature_learning_rate,
            log_prob,
            rows.mask,
            self.target_entropy * rows.action.shape[-1],
        )
        state = replace(state, log_temperature=log_temperature, temperature_optimiser=optimiser)
        return state, -masked_mean(log_prob, rows.mask)

    def critic_step(
        self, state: SACNState, rows: Transition, temperature: Float[Array, ""], key: PRNGKeyArray
    ) -> tuple[SACNState, Float[Array, ""], Any]:
        """One gradient step of the critics, then one of their targets."""
        next_obs = required(rows, "next_obs")
        action, log_prob = drawn(state.actor, next_obs, key, LOG_STD_RANGE)
        target = soft_td_target(
            rows.reward,
            q_values(state.target_critics, next_obs, action),
            log_prob,
            required(rows, "terminated"),
            discount=self.discount,
            temperature=temperature,
        )
        critics, optimiser, loss, more = minimise(
            self.optimiser,
            self.critic_loss,
            state.critics,
            state.critic_optimiser,
            self.critic_learning_rate,
            rows,
            target,
        )
        slow = polyak(state.target_critics, critics, tau=self.tau)
        state = replace(state, critics=critics, critic_optimiser=optimiser, target_critics=slow)
        return state, loss, more

    def critic_loss(
        self, critics: Network, rows: Transition, target: Float[Array, " batch"]
    ) -> tuple[Float[Array, ""], tuple[Array, Metrics]]:
        """The squared errors, summed over the critics; values of the rows, and metrics."""
        loss, q = critic_loss(critics, rows, target)
        return loss, (q, {})

    def policy(self, state: SACNState) -> NetworkPolicy | HistoryPolicy:
        """The deterministic policy, in physical units."""
        return network_policy(state.scaling, squashed_mean(state.actor))


@partial(jax.jit, static_argnums=3)
def _init(algorithm: SACN, statistics: DataStatistics, key: PRNGKeyArray, spec: Spec) -> SACNState:
    encoding = encoding_of(algorithm, spec)
    actor_key, critic_key = jax.random.split(key)
    actor = init_network(
        (encoding.width, *algorithm.hidden, 2 * spec.n_action),
        actor_key,
        hidden_bias=0.1,
        last_bound=1e-3,
        encoding=encoding,
    )
    critics = init_critics(
        (encoding.width + spec.n_action, *algorithm.hidden),
        critic_key,
        members=algorithm.n_critics,
        hidden_bias=0.1,
        last_bound=3e-3,
        encoding=encoding,
    )
    log_temperature = jnp.zeros((), jnp.float32)
    start = partial(init_optimiser, algorithm.optimiser)
    return SACNState(
        actor=actor,
        critics=critics,
        target_critics=critics,
        log_temperature=log_temperature,
        actor_optimiser=start(actor, algorithm.actor_learning_rate),
        critic_optimiser=start(critics, algorithm.critic_learning_rate),
        temperature_optimiser=start(log_temperature, algorithm.temperature_learning_rate),
        scaling=init_scaling(spec, statistics, algorithm.reward_scale, window=encoding.window),
    )
