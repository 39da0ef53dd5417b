"""Implicit Q-learning."""

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.algorithms._batches import only, required, rows_ahead
from neorl_agents.algorithms._diagnostics import value_metrics, weight_metrics
from neorl_agents.algorithms._hyperparameters import (
    as_widths,
    require_choice,
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
from neorl_agents.algorithms._schedules import cosine, require_planned
from neorl_agents.algorithms._weighted_regression import (
    regression_weights,
    weighted_regression_loss,
)
from neorl_agents.networks._activations import tanh
from neorl_agents.networks._critics import critic_loss, init_critics, q_values
from neorl_agents.networks._encoders import Encoder, Network, init_network
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
from neorl_agents.sampling import NStepRows, Sampler
from neorl_core import DataStatistics, Spec, Transition, as_arrays
from neorl_core.losses import expectile_loss, masked_mean
from neorl_core.targets import polyak, td_target

LOG_STD_RANGE = {"original": (-5.0, 2.0), "corl": (-20.0, 2.0)}


class IQLState(eqx.Module):
    """The training state of :class:`IQL`; ``critics`` are two, stacked, ``step`` counts updates."""

    value: Network
    critics: Network
    target_critics: Network
    actor: GaussianActor
    value_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    actor_optimiser: optax.OptState
    step: Int[Array, ""]
    scaling: Scaling


class IQL(eqx.Module):
    """Implicit Q-learning: expectile regression of values, then weighted regression of actions.

    With ``q = min_i Q'_i(s, a)`` of the target critics, one update is, in this order,

    1. value: ``mean |expectile - 1[q < V(s)]| (q - V(s))^2``;
    2. actor, with the **new** ``V``: ``-mean min(exp(inverse_temperature (q - V(s))),
       max_weight) log pi(a|s)``, the weight without gradient;
    3. critics, with the new ``V``: ``mean (Q_1 - y)^2 + mean (Q_2 - y)^2``,
       ``y = r + discount (1 - terminated) V(s')``;
    4. targets: towards the new critics by ``tau``.

    ``pi`` is a Gaussian that is not squashed, around a tanh network, with one deviation per action
    channel. Its learning rate falls along half a cosine to zero over ``decay_updates``; the
    others stay. Acting uses the mean.

    Variants: ``"original"`` as above, orthogonal initialisation, log-deviation clipped to
    [-5, 2]; ``"corl"`` takes ``V`` from **before** step 1 in steps 2 and 3, halves the critics'
    loss, clips to [-20, 2] and initialises uniformly.

    Fine-tuning (``neorl_agents.online``): ``"original"`` keeps the actor's rate, as the authors'
    code does; what is tried are draws of the policy (:meth:`explore`).

    Deviations: a plant's channels are in physical units, so observations are standardised and
    rewards divided by their deviation (the original does neither, and scales the rewards of its
    locomotion tasks by ``reward_scale="return_range"``); the actor's rate stays where
    ``decay_updates`` is not given (both codes always let it fall); no dropout in the actor.

    Attributes:
        expectile: Expectile of the value, in (0, 1); 0.5 evaluates the behaviour, towards 1 the
            best action in the data.
        inverse_temperature: The ``beta`` of the actor's weights, not negative.
        max_weight: Largest weight of the actor's regression.
        discount: Discount of the reward per step, in [0, 1].
        tau: Fraction by which the target critics move, in (0, 1].
        value_learning_rate: Learning rate of the value.
        critic_learning_rate: Learning rate of the critics.
        actor_learning_rate: Learning rate of the actor, at the start.
        decay_updates: Updates over which the actor's rate falls to zero; 0 keeps it, -1 stands for
            the length of the run (:func:`neorl_agents.algorithms.for_run`).
        variant: ``"original"`` or ``"corl"``; static.
        advantage_scale: ``"fixed"`` for the formula above; ``"std"`` divides the advantage by its
            standard deviation in the batch first, so that an inverse temperature means the
            same on every plant; static.
        reward_scale: ``"std"``, ``"none"`` or ``"return_range"``; static.
        hidden: Widths of the hidden layers of all networks; static.
        batch_size: Rows of one gradient step; static.
        optimiser: Name of the optimiser in ``neorl_agents.optimisers.OPTIMISERS``, for all
            networks; static.
        encoder: ``"none"``, ``"history"`` or ``"gru"``: whether networks see the last steps too,
            side by side or through a recurrent unit each; static.
        history_steps: Number of steps that they see then, with the present one; static.
        n_step: Steps of the critics' targets, whose rewards are the log's; the value of the last
            one's next observation follows. More than one tells rewards faster, and is biased to the
            behaviour; static.

    Source: Kostrikov, Nair and Levine, Offline reinforcement learning with implicit Q-learning,
    arXiv 2110.06169; widths, rates and weights are the locomotion defaults of its code.
    """

    expectile: float = 0.7
    inverse_temperature: float = 3.0
    max_weight: float = 100.0
    discount: float = 0.99
    tau: float = 0.005
    value_learning_rate: float = 3e-4
    critic_learning_rate: float = 3e-4
    actor_learning_rate: float = 3e-4
    decay_updates: int = 0
    variant: Literal["original", "corl"] = eqx.field(static=True, default="original")
    advantage_scale: Literal["fixed", "std"] = eqx.field(static=True, default="fixed")
    reward_scale: RewardScale = eqx.field(static=True, default="std")
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256), converter=as_widths)
    batch_size: int = eqx.field(static=True, default=256)
    optimiser: str = eqx.field(static=True, default="adam")
    encoder: Encoder = eqx.field(static=True, default="none")
    history_steps: int = eqx.field(static=True, default=8)
    n_step: int = eqx.field(static=True, default=1)

    schedules: ClassVar[tuple[str, ...]] = ("decay_updates",)
    fine_tuning: ClassVar[dict[str, dict[str, Any]]] = {"original": {"decay_updates": 0}}

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
        """One."""
        return 1

    def validate(self) -> None:
        """Raises a ``ValueError`` that names the first field with a bad value."""
        require_encoder(self)
        require_count(self, "n_step")
        require_number(self, "expectile", low=0, high=1, open_low=True, open_high=True)
        require_number(self, "inverse_temperature", low=0)
        require_number(self, "max_weight", low=0, open_low=True)
        require_critic_learner(self, "value", "critic", "actor")
        require_count(self, "decay_updates", least=-1)
        require_choice(self, "variant", ("original", "corl"))
        require_choice(self, "advantage_scale", ("fixed", "std"))

    def init(self, spec: Spec, statistics: DataStatistics, key: PRNGKeyArray) -> IQLState:
        """A fresh state; see :class:`neorl_agents.Algorithm`."""
        self.validate()
        require_planned(self)
        return _init(as_arrays(self), statistics, key, spec)

    def update(
        self, state: IQLState, batch: Transition | NStepRows, key: PRNGKeyArray
    ) -> tuple[IQLState, Metrics]:
        """One gradient step of value, actor and critics; the key is ignored."""
        physical, discount = rows_ahead(batch)
        rows = only(scaled(state.scaling, physical))
        q = jnp.min(q_values(state.target_critics, rows.obs, rows.action), axis=0)
        before = state.value
        state, value_loss = self.value_step(state, rows, q)
        value = state.value if self.variant == "original" else before
        both = jnp.concatenate([rows.obs, required(rows, "next_obs")])
        v, next_v = jnp.split(_values(value, both), 2)
        weights = self.weights(q - v, rows.mask)
        state, actor_loss = self.actor_step(state, rows, weights)
        factor = self.discount if discount is None else only(discount)
        state, loss, mean_q = self.critic_step(state, rows, factor * next_v)
        metrics = {
            "value_loss": value_loss,
            "actor_loss": actor_loss,
            "critic_loss": loss,
            "advantage": masked_mean(q - v, rows.mask),
            **value_metrics(mean_q, state.scaling, rows.mask, discount=self.discount),
            **weight_metrics(weights, rows.mask, self.max_weight),
        }
        return state, metrics

    def value_step(
        self, state: IQLState, rows: Transition, q: Float[Array, " batch"]
    ) -> tuple[IQLState, Float[Array, ""]]:
        """One gradient step of the value towards an upper expectile of ``q``."""
        value, optimiser, loss, _ = minimise(
            self.optimiser,
            _value_loss,
            state.value,
            state.value_optimiser,
            self.value_learning_rate,
            rows,
            q,
            self.expectile,
        )
        return replace(state, value=value, value_optimiser=optimiser), loss

    def weights(
        self, advantage: Float[Array, " batch"], mask: Array | None
    ) -> Float[Array, " batch"]:
        """The weights of the actor's regression."""
        return regression_weights(
            advantage,
            mask,
            scale=self.advantage_scale,
            inverse_temperature=self.inverse_temperature,
            max_weight=self.max_weight,
        )

    def actor_step(
        self, state: IQLState, rows: Transition, weights: Float[Array, " batch"]
    ) -> tuple[IQLState, Float[Array, ""]]:
        """One gradient step of the actor, weighted."""
        actor, optimiser, loss, _ = minimise(
            self.optimiser,
            partial(weighted_regression_loss, log_std_range=LOG_STD_RANGE[self.variant]),
            state.actor,
            state.actor_optimiser,
            self.actor_learning_rate * cosine(state.step, self.decay_updates),
            rows,
            weights,
        )
        state = replace(state, actor=actor, actor_optimiser=optimiser, step=state.step + 1)
        return state, loss

    def critic_step(
        self, state: IQLState, rows: Transition, following: Float[Array, " batch"]
    ) -> tuple[IQLState, Float[Array, ""], Float[Array, " batch"]]:
        """One gradient step of the critics to ``reward + following``, then one of their targets."""
        target = td_target(rows.reward, following, required(rows, "terminated"), discount=1.0)
        critics, optimiser, loss, q = minimise(
            self.optimiser,
            partial(_scaled_critic_loss, factor=1.0 if self.variant == "original" else 0.5),
            state.critics,
            state.critic_optimiser,
            self.critic_learning_rate,
            rows,
            target,
        )
        targets = polyak(state.target_critics, critics, tau=self.tau)
        state = replace(state, critics=critics, target_critics=targets, critic_optimiser=optimiser)
        return state, loss, q

    def policy(self, state: IQLState) -> NetworkPolicy | HistoryPolicy:
        """The mean of the trained policy, in physical units."""
        return network_policy(state.scaling, state.actor.mean)

    def explore(self, state: IQLState) -> GaussianPolicy:
        """The trained policy with its own noise, in physical units."""
        log_std = jnp.clip(state.actor.log_std, *LOG_STD_RANGE[self.variant])
        return GaussianPolicy(self.policy(state), log_std)


@partial(jax.jit, static_argnums=3)
def _init(algorithm: IQL, statistics: DataStatistics, key: PRNGKeyArray, spec: Spec) -> IQLState:
    encoding = encoding_of(algorithm, spec)
    initialiser = "orthogonal" if algorithm.variant == "original" else "uniform"
    value_key, critic_key, actor_key = jax.random.split(key, 3)
    widths = (encoding.width, *algorithm.hidden)
    value = init_network((*widths, 1), value_key, initialiser=initialiser, encoding=encoding)
    mean = init_network(
        (*widths, spec.n_action), actor_key, initialiser=initialiser, output=tanh, encoding=encoding
    )
    critics = init_critics(
        (encoding.width + spec.n_action, *algorithm.hidden),
        critic_key,
        initialiser=initialiser,
        encoding=encoding,
    )
    actor = GaussianActor(mean, jnp.zeros(spec.n_action, jnp.float32))
    start = partial(init_optimiser, algorithm.optimiser)
    return IQLState(
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


def _values(value: Network, obs: Float[Array, "batch obs"]) -> Float[Array, " batch"]:
    return value(obs)[..., 0]


def _value_loss(
    value: Network, rows: Transition, q: Float[Array, " batch"], expectile: Float[Array, ""]
) -> tuple[Float[Array, ""], None]:
    loss = expectile_loss(_values(value, rows.obs), q, expectile=expectile)
    return masked_mean(loss, rows.mask), None


def _scaled_critic_loss(
    critics: Network, rows: Transition, target: Float[Array, " batch"], *, factor: float
) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
    loss, q = critic_loss(critics, rows, target)
    return factor * loss, q
