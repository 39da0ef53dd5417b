"""TD3+BC: twin delayed policy gradient, tied to the log."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.algorithms._batches import mean_of, merged, required, rows_ahead, taken
from neorl_agents.algorithms._diagnostics import held_actions, value_metrics
from neorl_agents.algorithms._hyperparameters import (
    as_widths,
    require_count,
    require_critic_learner,
    require_number,
)
from neorl_agents.algorithms._memory import (
    encoding_of,
    fields_read,
    require_encoder,
    steps_ahead,
    with_history,
)
from neorl_agents.algorithms._protocol import Metrics
from neorl_agents.networks._activations import tanh
from neorl_agents.networks._critics import critic_loss, first_q_value, init_critics, q_values
from neorl_agents.networks._encoders import Encoder, Network, init_network
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
from neorl_agents.sampling import NStepRows, Sampler
from neorl_core import DataStatistics, Spec, Transition, as_arrays
from neorl_core.losses import masked_mean, td3_bc_policy_loss
from neorl_core.targets import clipped_double_td_target, polyak


class TD3BCState(eqx.Module):
    """The training state of :class:`TD3BC`; ``critics`` are two, stacked."""

    actor: Network
    critics: Network
    target_actor: Network
    target_critics: Network
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    scaling: Scaling


class TD3BC(eqx.Module):
    """TD3+BC: twin delayed policy gradient, tied to the log.

    One update is ``policy_delay`` critic steps and one actor step. Critics, with
    ``e = clip(noise_std N(0, 1), -noise_clip, noise_clip)``:

    ``y = r + discount (1 - terminated) min_i Q'_i(s', clip(pi'(s') + e, -1, 1))``,
    ``loss = mean (Q_1 - y)^2 + mean (Q_2 - y)^2``.

    Actor, on the last of the batches:

    ``loss = -lam mean Q_1(s, pi(s)) + mean (pi(s) - a)^2``, ``lam = alpha / mean |Q_1|`` without
    gradient; the second mean is over the batch and the action channels.

    Then both targets move by ``tau``: they move on actor steps only.

    Attributes:
        alpha: Weight of the value against the distance to the log; 0 is behaviour cloning.
        discount: Discount of the reward per step, in [0, 1].
        tau: Fraction by which the targets move, in (0, 1].
        actor_learning_rate: Learning rate of the actor.
        critic_learning_rate: Learning rate of the critics.
        noise_std: Standard deviation of the smoothing noise on the target's action, in [-1, 1]
            units.
        noise_clip: Bound of that noise.
        policy_delay: Critic steps per actor step; static.
        reward_scale: ``"std"``, ``"none"`` or ``"return_range"``; static. The loss is invariant to
            it but for the critics' conditioning.
        hidden: Widths of the hidden layers of actor and critics; static.
        batch_size: Rows of one gradient step; static.
        optimiser: Name of the optimiser in ``neorl_agents.optimisers.OPTIMISERS``, for actor and
            critics; static.
        encoder: ``"none"``, ``"history"`` or ``"gru"``: whether networks see the last steps too,
            side by side or through a recurrent unit each; static.
        history_steps: Number of steps that they see then, with the present one; static.
        n_step: Steps of the critics' targets, whose rewards are the log's; the value of the last
            one's next observation follows. More than one tells rewards faster, and is biased to the
            behaviour; static.

    Source: Fujimoto and Gu, A minimalist approach to offline reinforcement learning,
    arXiv 2106.06860; the defaults are those of its code. Deviations: a channel is scaled by at
    least a thousandth of its measuring range (the code adds 1e-3), rewards are divided by their
    deviation, and logged actions are clipped to ``1 - 1e-5`` of their range.
    """

    alpha: float = 2.5
    discount: float = 0.99
    tau: float = 0.005
    actor_learning_rate: float = 3e-4
    critic_learning_rate: float = 3e-4
    noise_std: float = 0.2
    noise_clip: float = 0.5
    policy_delay: int = eqx.field(static=True, default=2)
    reward_scale: RewardScale = eqx.field(static=True, default="std")
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256), converter=as_widths)
    batch_size: int = eqx.field(static=True, default=256)
    optimiser: str = eqx.field(static=True, default="adam")
    encoder: Encoder = eqx.field(static=True, default="none")
    history_steps: int = eqx.field(static=True, default=8)
    n_step: int = eqx.field(static=True, default=1)

    @property
    def fields(self) -> tuple[str, ...]:
        """With memory or several steps, also where episodes end."""
        return fields_read(self, "obs", "action", "reward", "next_obs", "terminated", "mask")

    @property
    def sampler(self) -> Sampler:
        """Rows or several steps; with memory as windows."""
        return with_history(self, steps_ahead(self))

    @property
    def batches_per_update(self) -> int:
        """One batch for every critic step of an update."""
        return self.policy_delay

    def validate(self) -> None:
        """Raises a ``ValueError`` that names the first field with a bad value."""
        require_encoder(self)
        require_count(self, "n_step")
        require_number(self, "alpha", "noise_std", "noise_clip", low=0)
        require_count(self, "policy_delay")
        require_critic_learner(self, "actor", "critic")

    def init(self, spec: Spec, statistics: DataStatistics, key: PRNGKeyArray) -> TD3BCState:
        """A fresh state; see :class:`neorl_agents.Algorithm`."""
        self.validate()
        return _init(as_arrays(self), statistics, key, spec)

    def update(
        self, state: TD3BCState, batch: Transition | NStepRows, key: PRNGKeyArray
    ) -> tuple[TD3BCState, Metrics]:
        """``policy_delay`` critic steps, one actor step, one step of the targets."""
        physical, discount = rows_ahead(batch)
        rows = scaled(state.scaling, physical)
        targets = self.critic_targets(state, rows, key, discount)
        losses, values = [], []
        for i in range(self.policy_delay):
            row = taken(rows, i)
            state, loss, value = self.critic_step(state, row, targets[i])
            losses.append(loss)
            values.append(value_metrics(value, state.scaling, row.mask, discount=self.discount))
        state, actor_metrics = self.actor_step(state, row)
        means = jax.tree.map(mean_of, *values)
        return state, {"critic_loss": mean_of(*losses), **means, **actor_metrics}

    def critic_targets(
        self,
        state: TD3BCState,
        rows: Transition,
        key: PRNGKeyArray,
        discount: Float[Array, "step batch"] | None = None,
    ) -> Float[Array, "step batch"]:
        """What the critics regress on, for all critic steps of an update at once.

        The target networks stand still between two actor steps, so one wide pass does for all.

        Args:
            state: State whose target networks are asked.
            rows: Scaled units, leading axes ``(policy_delay, batch_size)``.
            key: Random key of the smoothing noise.
            discount: Discount of every row's next value, where it is not the learner's own.

        Returns:
            The targets, in the scale of the critics.
        """
        shape = rows.reward.shape
        flat = merged(rows)
        noise = self.noise_std * jax.random.normal(key, flat.action.shape, flat.action.dtype)
        noise = jnp.clip(noise, -self.noise_clip, self.noise_clip)
        next_obs = required(flat, "next_obs")
        next_action = jnp.clip(state.target_actor(next_obs) + noise, -1, 1)
        next_q = q_values(state.target_critics, next_obs, next_action)
        factor = self.discount if discount is None else discount.reshape(1, -1)
        targets = clipped_double_td_target(
            flat.reward, factor * next_q, required(flat, "terminated"), discount=1.0
        )
        return targets.reshape(shape)

    def critic_step(
        self, state: TD3BCState, rows: Transition, target: Float[Array, " batch"]
    ) -> tuple[TD3BCState, Float[Array, ""], Float[Array, " batch"]]:
        """One gradient step of the critics; actor and targets stay as they are.

        Args:
            state: State before the step.
            rows: One batch in scaled units.
            target: Regression target of every row.

        Returns:
            The state, the loss and the mean over members of every row's value, before the step.
        """
        critics, optimiser, loss, q = minimise(
            self.optimiser,
            critic_loss,
            state.critics,
            state.critic_optimiser,
            self.critic_learning_rate,
            rows,
            target,
        )
        return replace(state, critics=critics, critic_optimiser=optimiser), loss, q

    def actor_step(self, state: TD3BCState, rows: Transition) -> tuple[TD3BCState, Metrics]:
        """One gradient step of the actor, then one step of both targets."""
        actor, optimiser, loss, more = minimise(
            self.optimiser,
            _actor_loss,
            state.actor,
            state.actor_optimiser,
            self.actor_learning_rate,
            state.critics,
            rows,
            self.alpha,
        )
        state = replace(
            state,
            actor=actor,
            actor_optimiser=optimiser,
            target_actor=polyak(state.target_actor, actor, tau=self.tau),
            target_critics=polyak(state.target_critics, state.critics, tau=self.tau),
        )
        return state, {"actor_loss": loss, **more}

    def policy(self, state: TD3BCState) -> NetworkPolicy | HistoryPolicy:
        """The trained policy, in physical units."""
        return network_policy(state.scaling, state.actor)


@partial(jax.jit, static_argnums=3)
def _init(
    algorithm: TD3BC, statistics: DataStatistics, key: PRNGKeyArray, spec: Spec
) -> TD3BCState:
    encoding = encoding_of(algorithm, spec)
    actor_key, critic_key = jax.random.split(key)
    actor = init_network(
        (encoding.width, *algorithm.hidden, spec.n_action),
        actor_key,
        output=tanh,
        encoding=encoding,
    )
    critics = init_critics(
        (encoding.width + spec.n_action, *algorithm.hidden),
        critic_key,
        initialiser="uniform",
        encoding=encoding,
    )
    scaling = init_scaling(spec, statistics, algorithm.reward_scale, window=encoding.window)
    start = partial(init_optimiser, algorithm.optimiser)
    return TD3BCState(
        actor=actor,
        critics=critics,
        target_actor=actor,
        target_critics=critics,
        actor_optimiser=start(actor, algorithm.actor_learning_rate),
        critic_optimiser=start(critics, algorithm.critic_learning_rate),
        scaling=scaling,
    )


def _actor_loss(
    actor: Network, critics: Network, rows: Transition, alpha: Float[Array, ""]
) -> tuple[Float[Array, ""], Metrics]:
    action = actor(rows.obs)
    q = first_q_value(critics, rows.obs, action)
    distance = masked_mean(jnp.mean(jnp.square(action - rows.action), axis=-1), rows.mask)
    held = held_actions(action, rows.action, rows.mask)
    loss = td3_bc_policy_loss(q, action, rows.action, rows.mask, alpha=alpha)
    return loss, {"distance": distance, "held_at_bound": held}
