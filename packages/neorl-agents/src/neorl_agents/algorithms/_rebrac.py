"""ReBRAC: TD3 with the distance to the log in actor and critics, each with its weight."""

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.algorithms._batches import mean_of, merged, required, taken
from neorl_agents.algorithms._diagnostics import held_actions, value_metrics
from neorl_agents.algorithms._hyperparameters import (
    as_widths,
    require_count,
    require_critic_learner,
    require_number,
)
from neorl_agents.algorithms._memory import encoding_of, fields_read, require_encoder, with_history
from neorl_agents.algorithms._protocol import Metrics
from neorl_agents.algorithms._schedules import WHOLE_RUN, linear, require_planned
from neorl_agents.networks import (
    Encoder,
    Network,
    critic_loss,
    init_critics,
    init_network,
    q_values,
    tanh,
)
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
from neorl_core.targets import polyak, regularised_td_target


class ReBRACState(eqx.Module):
    """The training state of :class:`ReBRAC`: two stacked ``critics``, ``step`` counts updates."""

    actor: Network
    critics: Network
    target_actor: Network
    target_critics: Network
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    step: Int[Array, ""]
    scaling: Scaling


class ReBRAC(eqx.Module):
    """ReBRAC: TD3 with the distance to the log in actor and critics, each with its weight.

    One update is ``policy_delay`` critic steps and one actor step. Critics, with
    ``a' = clip(pi'(s') + e, -1, 1)``, ``e = clip(noise_std N(0, 1), -noise_clip,
    noise_clip)`` and ``b'`` the log's next action:

    ``y = r + discount (1 - terminated) (min_i Q'_i(s', a') - critic_weight d)``,
    ``d = sum_c (a'_c - b'_c)^2``,
    ``loss = mean (Q_1 - y)^2 + mean (Q_2 - y)^2``.

    Actor, on the last of the batches:

    ``loss = mean (actor_weight sum_c (pi(s)_c - a_c)^2 - lam min_i Q_i(s, pi(s)))``,
    ``lam = 1 / mean |min_i Q_i|`` without gradient.

    Distances are sums over the action channels: against a mean (as in :class:`TD3BC`) the weights
    are smaller by their number. Where an episode ends there is no next action and no penalty.
    Critics have layer normalisation behind every hidden ReLU. Targets move on actor steps; that
    of the actor towards the actor **before** the step, as in the authors' code.

    Both weights may fall: ``weight (1 + (final_weight - 1) min(step / decay_updates, 1))``.

    Fine-tuning (``neorl_agents.online``): ``"original"`` is the authors' code, in which online the
    critics have no penalty and the actor's falls to half; in ``"linear"`` both fall to nothing.

    Deviations: observations are standardised and rewards divided by their deviation (the code
    does neither).

    Attributes:
        actor_weight: Weight of the distance to the log in the actor's loss, not negative.
        critic_weight: Weight of that distance in the critics' targets, not negative.
        discount: Discount of the reward per step, in [0, 1].
        tau: Fraction by which the targets move, in (0, 1].
        actor_learning_rate: Learning rate of the actor.
        critic_learning_rate: Learning rate of the critics.
        noise_std: Standard deviation of the smoothing noise on the target's action, in [-1, 1]
            units.
        noise_clip: Bound of that noise.
        decay_updates: Updates over which both weights fall; 0 keeps them, -1 stands for the length
            of the run (:func:`neorl_agents.algorithms.for_run`).
        final_weight: Fraction of both weights that is left then, in [0, 1].
        exploration_std: Standard deviation of the noise of :meth:`explore`, in [-1, 1] units.
        policy_delay: Critic steps per actor step; static.
        reward_scale: ``"std"``, ``"none"`` or ``"return_range"``; static.
        hidden: Widths of the hidden layers of actor and critics; static.
        batch_size: Rows of one gradient step; static.
        optimiser: Name of the optimiser in ``neorl_agents.optimisers.OPTIMISERS``; static.
        encoder: ``"none"``, ``"history"`` or ``"gru"``: whether networks see the last steps too,
            side by side or through a recurrent unit each; static.
        history_steps: Number of steps that they see then, with the present one; static.

    Source: Tarasov et al., Revisiting the minimalist approach to offline reinforcement learning,
    arXiv 2305.09836, equations 2 and 3. Defaults are those of its code for hopper-medium.
    """

    actor_weight: float = 0.01
    critic_weight: float = 0.01
    discount: float = 0.99
    tau: float = 0.005
    actor_learning_rate: float = 1e-3
    critic_learning_rate: float = 1e-3
    noise_std: float = 0.2
    noise_clip: float = 0.5
    decay_updates: int = 0
    final_weight: float = 0.5
    exploration_std: float = 0.1
    policy_delay: int = eqx.field(static=True, default=2)
    reward_scale: RewardScale = eqx.field(static=True, default="std")
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256, 256), converter=as_widths)
    batch_size: int = eqx.field(static=True, default=1024)
    optimiser: str = eqx.field(static=True, default="adam")
    encoder: Encoder = eqx.field(static=True, default="none")
    history_steps: int = eqx.field(static=True, default=8)

    schedules: ClassVar[tuple[str, ...]] = ("decay_updates",)
    fine_tuning: ClassVar[dict[str, dict[str, Any]]] = {
        "original": {
            "critic_weight": 0.0,
            "decay_updates": WHOLE_RUN,
            "final_weight": 0.5,
            "exploration_std": 0.03,
        },
        "linear": {"decay_updates": WHOLE_RUN, "final_weight": 0.0},
    }

    @property
    def fields(self) -> tuple[str, ...]:
        """With memory, also where episodes end."""
        return fields_read(
            self,
            "obs",
            "action",
            "reward",
            "next_obs",
            "next_action",
            "terminated",
            "truncated",
            "mask",
        )

    @property
    def sampler(self) -> Sampler:
        """Rows, with memory as windows."""
        return with_history(self, Rows())

    @property
    def batches_per_update(self) -> int:
        """One batch for every critic step of an update."""
        return self.policy_delay

    def validate(self) -> None:
        """Raises a ``ValueError`` that names the first field with a bad value."""
        require_encoder(self)
        require_number(self, "actor_weight", "critic_weight", "noise_std", "noise_clip", low=0)
        require_number(self, "exploration_std", low=0)
        require_number(self, "final_weight", low=0, high=1)
        require_count(self, "decay_updates", least=-1)
        require_count(self, "policy_delay")
        require_critic_learner(self, "actor", "critic")

    def init(self, spec: Spec, statistics: DataStatistics, key: PRNGKeyArray) -> ReBRACState:
        """A fresh state; see :class:`neorl_agents.Algorithm`."""
        self.validate()
        require_planned(self)
        return _init(as_arrays(self), statistics, key, spec)

    def update(
        self, state: ReBRACState, batch: Transition, key: PRNGKeyArray
    ) -> tuple[ReBRACState, Metrics]:
        """``policy_delay`` critic steps, one actor step, one step of the targets."""
        rows = scaled(state.scaling, batch)
        targets = self.critic_targets(state, rows, key)
        losses, values = [], []
        for i in range(self.policy_delay):
            row = taken(rows, i)
            critics, optimiser, loss, q = minimise(
                self.optimiser,
                critic_loss,
                state.critics,
                state.critic_optimiser,
                self.critic_learning_rate,
                row,
                targets[i],
            )
            state = replace(state, critics=critics, critic_optimiser=optimiser)
            losses.append({"critic_loss": loss})
            values.append(
                value_metrics(q, state.scaling, row.mask, discount=self.discount, penalised=True)
            )
        state, metrics = self.actor_step(state, row)
        return state, jax.tree.map(mean_of, *losses) | jax.tree.map(mean_of, *values) | metrics

    def critic_targets(
        self, state: ReBRACState, rows: Transition, key: PRNGKeyArray
    ) -> Float[Array, "step batch"]:
        """What the critics regress on, for all critic steps of an update at once."""
        shape = rows.reward.shape
        flat = merged(rows)
        noise = self.noise_std * jax.random.normal(key, flat.action.shape, flat.action.dtype)
        noise = jnp.clip(noise, -self.noise_clip, self.noise_clip)
        next_obs = required(flat, "next_obs")
        action = jnp.clip(state.target_actor(next_obs) + noise, -1, 1)
        targets = regularised_td_target(
            flat.reward,
            q_values(state.target_critics, next_obs, action),
            action,
            required(flat, "next_action"),
            required(flat, "terminated"),
            required(flat, "truncated"),
            discount=self.discount,
            weight=self.critic_weight * self.remaining(state),
        )
        return targets.reshape(shape)

    def actor_step(self, state: ReBRACState, rows: Transition) -> tuple[ReBRACState, Metrics]:
        """One gradient step of the actor, one step of both targets."""
        actor, optimiser, loss, more = minimise(
            self.optimiser,
            _actor_loss,
            state.actor,
            state.actor_optimiser,
            self.actor_learning_rate,
            state.critics,
            rows,
            self.actor_weight * self.remaining(state),
        )
        state = replace(
            state,
            actor=actor,
            actor_optimiser=optimiser,
            target_actor=polyak(state.target_actor, state.actor, tau=self.tau),
            target_critics=polyak(state.target_critics, state.critics, tau=self.tau),
            step=state.step + 1,
        )
        return state, {"actor_loss": loss, **more}

    def remaining(self, state: ReBRACState) -> Float[Array, ""]:
        """The fraction of both weights that is left."""
        return linear(state.step, self.decay_updates, self.final_weight)

    def policy(self, state: ReBRACState) -> NetworkPolicy | HistoryPolicy:
        """The trained policy, in physical units."""
        return network_policy(state.scaling, state.actor)

    def explore(self, state: ReBRACState) -> GaussianPolicy:
        """The trained policy with Gaussian noise, in physical units."""
        noise = jnp.log(jnp.full_like(state.scaling.low, self.exploration_std))
        return GaussianPolicy(self.policy(state), noise)


@partial(jax.jit, static_argnums=3)
def _init(
    algorithm: ReBRAC, statistics: DataStatistics, key: PRNGKeyArray, spec: Spec
) -> ReBRACState:
    encoding = encoding_of(algorithm, spec)
    actor_key, critic_key = jax.random.split(key)
    actor = init_network(
        (encoding.width, *algorithm.hidden, spec.n_action),
        actor_key,
        output=tanh,
        hidden_bias=0.1,
        last_bound=1e-3,
        encoding=encoding,
    )
    critics = init_critics(
        (encoding.width + spec.n_action, *algorithm.hidden),
        critic_key,
        hidden_bias=0.1,
        last_bound=3e-3,
        normalised=True,
        encoding=encoding,
    )
    start = partial(init_optimiser, algorithm.optimiser)
    return ReBRACState(
        actor=actor,
        critics=critics,
        target_actor=actor,
        target_critics=critics,
        actor_optimiser=start(actor, algorithm.actor_learning_rate),
        critic_optimiser=start(critics, algorithm.critic_learning_rate),
        step=jnp.zeros((), jnp.int32),
        scaling=init_scaling(spec, statistics, algorithm.reward_scale, window=encoding.window),
    )


def _actor_loss(
    actor: Network, critics: Network, rows: Transition, weight: Float[Array, ""]
) -> tuple[Float[Array, ""], Metrics]:
    action = actor(rows.obs)
    q = jnp.min(q_values(critics, rows.obs, action), axis=0)
    size = jax.lax.stop_gradient(masked_mean(jnp.abs(q), rows.mask))
    sized = size > jnp.finfo(q.dtype).tiny
    value = jnp.where(sized, masked_mean(q, rows.mask) / jnp.where(sized, size, 1), 0)
    distance = masked_mean(jnp.sum(jnp.square(action - rows.action), axis=-1), rows.mask)
    held = held_actions(action, rows.action, rows.mask)
    return weight * distance - value, {"distance": distance, "held_at_bound": held}
