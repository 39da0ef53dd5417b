"""Conservative Q-learning, and its calibrated form Cal-QL."""

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

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
    require_flag,
    require_number,
)
from neorl_agents.algorithms._memory import encoding_of, fields_read, require_encoder, with_history
from neorl_agents.algorithms._protocol import Metrics
from neorl_agents.algorithms._soft_actor import (
    drawn,
    most_entropy,
    sampled_actions,
    soft_actor_loss,
    temperature_loss,
)
from neorl_agents.networks import (
    Encoder,
    Network,
    init_critics,
    init_network,
    q_values,
    sampled_q_values,
)
from neorl_agents.networks._gaussian_heads import squashed_mean
from neorl_agents.optimisers import init_optimiser, minimise
from neorl_agents.policies._history_policy import HistoryPolicy
from neorl_agents.policies._network_policy import NetworkPolicy, SquashedGaussianPolicy
from neorl_agents.policies._scaling import (
    RewardScale,
    Scaling,
    init_scaling,
    network_policy,
    scaled,
)
from neorl_agents.sampling import Reference, Rows, RowsWithReturns, Sampler
from neorl_core import DataStatistics, Spec, Transition, as_arrays
from neorl_core.losses import cal_ql_clamp, cql_regulariser, masked_mean
from neorl_core.targets import polyak, soft_td_target

LOG_STD_RANGE = (-20.0, 2.0)
MAX_MULTIPLIER = 1e6


class CQLState(eqx.Module):
    """The training state of :class:`CQL`; ``critics`` are two, stacked."""

    actor: Network
    critics: Network
    target_critics: Network
    log_temperature: Float[Array, ""]
    log_multiplier: Float[Array, ""]
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    temperature_optimiser: optax.OptState
    multiplier_optimiser: optax.OptState
    scaling: Scaling


class CQL(eqx.Module):
    """CQL(H): a soft actor-critic whose critics value unseen actions below those of the log.

    With ``n_samples`` actions each, uniform, from ``pi(.|s)`` and from ``pi(.|s')``, the loss of
    critic ``i`` is

    ``mean (Q_i(s, a) - y)^2 + weight mean (logsumexp_j (Q_i(s, a_j) - log mu(a_j)) - Q_i(s, a))``,
    ``y = r + discount (1 - terminated) min_i Q'_i(s', a')``, ``a' ~ pi(.|s')``.

    The actor minimises ``mean (temperature log pi(a|s) - min_i Q_i(s, a))``, and the temperature
    follows a target entropy. All gradients of an update are taken at the networks before it.
    Acting uses ``tanh`` of the mean.

    Variants: ``density_correction=False`` leaves ``log mu`` out and puts ``Q_i(s, a)`` among the
    samples (the two forms are called versions 3 and 2 in the authors' code);
    ``lagrange=True`` multiplies the weight by ``exp(x)``, which rises while the conservative term
    is above ``gap``; ``calibrated=True`` is Cal-QL: values of the policy's own samples count as
    at least the return that the log earned from that row on.

    Deviations: observations are standardised, rewards divided by their deviation; the codes'
    trained factor and offset of the log-deviation are left to the last layer.

    Attributes:
        conservative_weight: Weight of the conservative term, not negative.
        gap: Conservative term that a Lagrange multiplier aims at, in the scale of the critics.
        sample_temperature: Temperature of the soft maximum, positive.
        discount: Discount of the reward per step, in [0, 1].
        tau: Fraction by which the target critics move, in (0, 1].
        target_entropy: Target of the policy's entropy in nats per action channel.
        actor_learning_rate: Learning rate of the actor.
        critic_learning_rate: Learning rate of the critics.
        temperature_learning_rate: Learning rate of the entropy's temperature.
        multiplier_learning_rate: Learning rate of the Lagrange multiplier.
        n_samples: Samples of each of the three kinds; static.
        density_correction: Which of the two forms; static.
        lagrange: Whether the weight has a multiplier; static.
        entropy_backup: Whether targets hold the entropy of the next action; static.
        calibrated: Whether this is Cal-QL; static.
        reward_scale: ``"std"``, ``"none"`` or ``"return_range"``; static.
        hidden: Widths of the hidden layers of actor and critics; static.
        batch_size: Rows of one gradient step; static.
        optimiser: Name of the optimiser in ``neorl_agents.optimisers.OPTIMISERS``; static.
        encoder: ``"none"``, ``"history"`` or ``"gru"``: whether networks see the last steps too,
            side by side or through a recurrent unit each; static.
        history_steps: Number of steps that they see then, with the present one; static.

    Source: Kumar et al., Conservative Q-learning for offline reinforcement learning,
    arXiv 2006.04779, equation 4 and appendix F; Nakamoto et al., Cal-QL, arXiv 2303.05479,
    equation 6. Defaults are those of CORL for locomotion.
    """

    conservative_weight: float = 10.0
    gap: float = 5.0
    sample_temperature: float = 1.0
    discount: float = 0.99
    tau: float = 0.005
    target_entropy: float = -1.0
    actor_learning_rate: float = 3e-5
    critic_learning_rate: float = 3e-4
    temperature_learning_rate: float = 3e-5
    multiplier_learning_rate: float = 3e-4
    n_samples: int = eqx.field(static=True, default=10)
    density_correction: bool = eqx.field(static=True, default=True)
    lagrange: bool = eqx.field(static=True, default=False)
    entropy_backup: bool = eqx.field(static=True, default=False)
    calibrated: bool = eqx.field(static=True, default=False)
    reward_scale: RewardScale = eqx.field(static=True, default="std")
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256, 256), converter=as_widths)
    batch_size: int = eqx.field(static=True, default=256)
    optimiser: str = eqx.field(static=True, default="adam")
    encoder: Encoder = eqx.field(static=True, default="none")
    history_steps: int = eqx.field(static=True, default=8)

    @property
    def fields(self) -> tuple[str, ...]:
        """Cal-QL also reads where the log was cut, for its returns."""
        plain = ("obs", "action", "reward", "next_obs", "terminated", "mask")
        return fields_read(self, *plain, *(("truncated",) if self.calibrated else ()))

    @property
    def sampler(self) -> Sampler:
        """Rows, for Cal-QL with the returns that followed them; with memory as windows."""
        rows = RowsWithReturns(self.discount) if self.calibrated else Rows()
        return with_history(self, rows)

    @property
    def batches_per_update(self) -> int:
        """One."""
        return 1

    def validate(self) -> None:
        """Raises a ``ValueError`` that names the first field with a bad value."""
        require_encoder(self)
        require_number(self, "conservative_weight", "gap", low=0)
        require_number(self, "sample_temperature", low=0, open_low=True)
        require_number(self, "target_entropy", low=-20, high=20)
        require_count(self, "n_samples")
        flags = ("density_correction", "lagrange", "entropy_backup", "calibrated")
        require_flag(self, *flags)
        require_critic_learner(self, "actor", "critic", "temperature", "multiplier")

    def init(self, spec: Spec, statistics: DataStatistics, key: PRNGKeyArray) -> CQLState:
        """A fresh state; see :class:`neorl_agents.Algorithm`."""
        self.validate()
        return _init(as_arrays(self), statistics, key, spec)

    def update(
        self, state: CQLState, batch: Transition | Reference, key: PRNGKeyArray
    ) -> tuple[CQLState, Metrics]:
        """One gradient step of actor, temperature, critics and multiplier, then of the targets."""
        physical = batch.rows if isinstance(batch, Reference) else batch
        rows = only(scaled(state.scaling, physical))
        floor = None
        if isinstance(batch, Reference):
            floor = _known(only(batch.mc_return) / state.scaling.reward)
        actor_key, target_key, sample_key = jax.random.split(key, 3)
        temperature = jnp.exp(state.log_temperature)
        target = self.critic_target(state, rows, temperature, target_key)
        samples = sampled_actions(state.actor, rows, sample_key, self.n_samples, LOG_STD_RANGE)
        changed, metrics = self.actor_and_temperature_step(state, rows, temperature, actor_key)
        state, (loss, q, difference) = self.critic_step(state, rows, target, samples, floor)
        state = replace(state, **changed)
        bonus = most_entropy(temperature, rows.action.shape[-1]) if self.entropy_backup else 0.0
        values = value_metrics(
            q, state.scaling, rows.mask, discount=self.discount, penalised=True, entropy=bonus
        )
        return state, {
            "critic_loss": loss,
            "conservative_term": difference,
            **({"multiplier": _multiplier(state.log_multiplier)} if self.lagrange else {}),
            **metrics,
            **values,
        }

    def critic_target(
        self, state: CQLState, rows: Transition, temperature: Float[Array, ""], key: PRNGKeyArray
    ) -> Float[Array, " batch"]:
        """What the critics regress on."""
        next_obs = required(rows, "next_obs")
        action, log_prob = drawn(state.actor, next_obs, key, LOG_STD_RANGE)
        return soft_td_target(
            rows.reward,
            q_values(state.target_critics, next_obs, action),
            log_prob,
            required(rows, "terminated"),
            discount=self.discount,
            temperature=temperature if self.entropy_backup else jnp.zeros_like(temperature),
        )

    def actor_and_temperature_step(
        self, state: CQLState, rows: Transition, temperature: Float[Array, ""], key: PRNGKeyArray
    ) -> tuple[dict[str, Any], Metrics]:
        """One gradient step of the actor and one of the temperature, as fields of the state."""
        actor, actor_optimiser, loss, log_prob = minimise(
            self.optimiser,
            partial(soft_actor_loss, log_std_range=LOG_STD_RANGE),
            state.actor,
            state.actor_optimiser,
            self.actor_learning_rate,
            state.critics,
            temperature,
            rows,
            key,
        )
        log_temperature, temperature_optimiser, _, _ = minimise(
            self.optimiser,
            temperature_loss,
            state.log_temperature,
            state.temperature_optimiser,
            self.temperature_learning_rate,
            log_prob,
            rows.mask,
            self.target_entropy * rows.action.shape[-1],
        )
        changed = {
            "actor": actor,
            "actor_optimiser": actor_optimiser,
            "log_temperature": log_temperature,
            "temperature_optimiser": temperature_optimiser,
        }
        entropy = -masked_mean(log_prob, rows.mask)
        return changed, {"actor_loss": loss, "entropy": entropy, "temperature": temperature}

    def critic_step(
        self,
        state: CQLState,
        rows: Transition,
        target: Float[Array, " batch"],
        samples: tuple[Array, Array],
        floor: Float[Array, " batch"] | None,
    ) -> tuple[CQLState, tuple[Array, Array, Array]]:
        """One gradient step of critics and multiplier, then one of the target critics."""
        weight = self.conservative_weight
        if self.lagrange:
            weight = weight * _multiplier(state.log_multiplier)
        critics, optimiser, loss, (q, difference) = minimise(
            self.optimiser,
            self.critic_loss,
            state.critics,
            state.critic_optimiser,
            self.critic_learning_rate,
            rows,
            target,
            samples,
            floor,
            weight,
        )
        state = replace(
            state,
            critics=critics,
            critic_optimiser=optimiser,
            target_critics=polyak(state.target_critics, critics, tau=self.tau),
        )
        if self.lagrange:
            multiplier, optimiser, _, _ = minimise(
                self.optimiser,
                _multiplier_loss,
                state.log_multiplier,
                state.multiplier_optimiser,
                self.multiplier_learning_rate,
                self.conservative_weight * (difference - self.gap),
            )
            state = replace(state, log_multiplier=multiplier, multiplier_optimiser=optimiser)
        return state, (loss, q, difference)

    def critic_loss(
        self,
        critics: Network,
        rows: Transition,
        target: Float[Array, " batch"],
        samples: tuple[Array, Array],
        floor: Float[Array, " batch"] | None,
        weight: Float[Array, ""],
    ) -> tuple[Float[Array, ""], tuple[Array, Array]]:
        """Squared errors and conservative terms, summed over the critics.

        Returns:
            The loss; the mean value of every row, and the mean conservative term of the critics.
        """
        actions, log_prob = samples
        q = q_values(critics, rows.obs, rows.action)
        q_samples = sampled_q_values(critics, rows.obs, actions)
        if floor is not None:
            random, own = q_samples[..., : self.n_samples], q_samples[..., self.n_samples :]
            floors = jnp.broadcast_to(floor[None, :], q.shape)
            q_samples = jnp.concatenate([random, cal_ql_clamp(own, floors)], axis=-1)
        corrected = self.density_correction
        terms = cql_regulariser(
            q,
            q_samples,
            jnp.broadcast_to(log_prob[None], q_samples.shape) if corrected else None,
            temperature=self.sample_temperature,
        )
        errors = jnp.sum(jnp.square(q - target[None, :]), axis=0)
        loss = masked_mean(errors + weight * jnp.sum(terms, axis=0), rows.mask)
        return loss, (jnp.mean(q, axis=0), masked_mean(jnp.mean(terms, axis=0), rows.mask))

    def policy(self, state: CQLState) -> NetworkPolicy | HistoryPolicy:
        """The deterministic policy, in physical units."""
        return network_policy(state.scaling, squashed_mean(state.actor))

    def explore(self, state: CQLState) -> SquashedGaussianPolicy:
        """Draws of the trained policy, in physical units."""
        return SquashedGaussianPolicy(network_policy(state.scaling, state.actor), LOG_STD_RANGE)


class CalQL(CQL):
    """Cal-QL: :class:`CQL` with ``calibrated=True``.

    Conservative values may sink far below what the behaviour earned; a first policy that is then
    tried online looks better than it is and is unlearned. Cal-QL does not push a sampled value
    below the return that the log earned from that row on.

    Fine-tuning (``neorl_agents.online``): ``"original"`` changes nothing; a row collected online is
    bounded by its return once its episode has ended. ``"corl"`` drops all bounds online.

    Source: Nakamoto et al., Cal-QL: calibrated offline RL pre-training for efficient online
    fine-tuning, arXiv 2303.05479.
    """

    calibrated: bool = eqx.field(static=True, default=True)

    fine_tuning: ClassVar[dict[str, dict[str, Any]]] = {
        "original": {},
        "corl": {"calibrated": False},
    }


@partial(jax.jit, static_argnums=3)
def _init(algorithm: CQL, statistics: DataStatistics, key: PRNGKeyArray, spec: Spec) -> CQLState:
    encoding = encoding_of(algorithm, spec)
    actor_key, critic_key = jax.random.split(key)
    actor = init_network(
        (encoding.width, *algorithm.hidden, 2 * spec.n_action), actor_key, encoding=encoding
    )
    critics = init_critics(
        (encoding.width + spec.n_action, *algorithm.hidden), critic_key, encoding=encoding
    )
    start = partial(init_optimiser, algorithm.optimiser)
    log_temperature, log_multiplier = jnp.zeros((), jnp.float32), jnp.ones((), jnp.float32)
    return CQLState(
        actor=actor,
        critics=critics,
        target_critics=critics,
        log_temperature=log_temperature,
        log_multiplier=log_multiplier,
        actor_optimiser=start(actor, algorithm.actor_learning_rate),
        critic_optimiser=start(critics, algorithm.critic_learning_rate),
        temperature_optimiser=start(log_temperature, algorithm.temperature_learning_rate),
        multiplier_optimiser=start(log_multiplier, algorithm.multiplier_learning_rate),
        scaling=init_scaling(spec, statistics, algorithm.reward_scale, window=encoding.window),
    )


def _multiplier(log_multiplier: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.minimum(jnp.exp(log_multiplier), MAX_MULTIPLIER)


def _multiplier_loss(
    log_multiplier: Float[Array, ""], excess: Float[Array, ""]
) -> tuple[Float[Array, ""], None]:
    return -_multiplier(log_multiplier) * jax.lax.stop_gradient(excess), None


def _known(returns: Float[Array, " batch"]) -> Float[Array, " batch"]:
    # While an episode goes on there is no bound; a masked row may hold anything.
    return jnp.where(jnp.isfinite(returns), returns, -jnp.inf)
