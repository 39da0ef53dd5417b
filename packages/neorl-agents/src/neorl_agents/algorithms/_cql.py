"""Conservative Q-learning, and its calibrated form Cal-QL."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.algorithms._soft_actor import (
    SOFT_RATES,
    actor_step,
    max_entropy,
    sampled_actions,
    soft_target,
    temperature_step,
)
from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    Networks,
    UnitRows,
    only_batch,
    value_metrics,
)
from neorl_agents.networks import Network, sampled_q_values
from neorl_agents.networks._gaussian_heads import squashed_mean
from neorl_agents.policies import (
    HistoryPolicy,
    NetworkPolicy,
    SquashedGaussianPolicy,
    network_policy,
)
from neorl_agents.sampling import Rows, RowsWithReturns, Sampler
from neorl_core import Spec
from neorl_core.infrastructure import setting
from neorl_core.losses import cal_ql_clamp, cql_regulariser, masked_mean

LOG_STD_RANGE = (-20.0, 2.0)
MAX_MULTIPLIER = 1e6


class CQL(BaseLearner):
    """CQL(H): a soft actor-critic whose critics value unseen actions below logged ones.

    With ``n_samples`` actions from each of a uniform distribution, ``pi(.|s)`` and ``pi(.|s')``,
    the loss of critic ``i`` is

    ``mean (Q_i(s, a) - y)^2 + weight mean (logsumexp_j (Q_i(s, a_j) - log mu(a_j)) - Q_i(s, a))``,
    ``y = r + discount (1 - terminated) min_i Q'_i(s', a')``, ``a' ~ pi(.|s')``.

    The actor minimises ``mean (temperature log pi(a|s) - min_i Q_i(s, a))``, and the temperature
    is adapted towards a target entropy. All gradients of an update are taken at the networks from
    before it. Acting uses ``tanh`` of the mean.

    Variants: ``density_correction=False`` omits ``log mu`` and adds ``Q_i(s, a)`` to the samples
    (the authors' code calls the two forms versions 3 and 2); ``lagrange=True`` multiplies the
    weight by ``exp(x)``, which rises while the conservative term is above ``gap``;
    ``calibrated=True`` is Cal-QL: the value of an action sampled from the policy enters the
    conservative term no lower than the logged return from that row on.

    After a truncation, the return of Cal-QL continues with the log's mean reward for ever
    (``neorl_agents.sampling.returns_to_go``); the authors' code and CORL add nothing there, or the
    last reward for ever on some tasks. If most episodes are truncated, as in plants, this choice
    determines how high the bounds lie.

    Deviations: rewards are divided by their standard deviation (observations are standardised as in
    CORL). The codes train a factor and an offset of the log standard deviation; here the last layer
    takes their place, so the initial policy has a standard deviation of 1 rather than 0.37, and its
    last layer is not scaled by 0.01. Critics are initialised uniformly (CORL: orthogonally, the
    last layer times 0.01); ``gap`` is 5 (CORL: -1). CORL's ``bc_steps``, ``max_target_backup`` and
    clipping of the difference are left out. The deviations common to all learners apply too
    (:class:`neorl_agents.learning.BaseLearner`).

    Attributes:
        conservative_weight: Weight of the conservative term.
        gap: Target of the conservative term under a Lagrange multiplier, in the scale of the
            critics.
        sample_temperature: Temperature of the soft maximum.
        discount: Discount of the reward per step.
        tau: Fraction by which the target critics move.
        target_entropy: Target of the policy's entropy in nats per action channel.
        actor_learning_rate: Learning rate of the actor.
        critic_learning_rate: Learning rate of the critics.
        temperature_learning_rate: Learning rate of the entropy's temperature.
        multiplier_learning_rate: Learning rate of the Lagrange multiplier.
        n_samples: Samples from each of the three distributions; static.
        density_correction: Whether the sampled values are corrected by their log-density; static.
        lagrange: Whether a Lagrange multiplier adapts the weight; static.
        entropy_backup: Whether targets include the entropy of the next action; static.
        calibrated: Whether this is Cal-QL; static.

    Source: Kumar et al., Conservative Q-learning for offline reinforcement learning,
    arXiv 2006.04779, equation 4 and appendix F; Nakamoto et al., Cal-QL, arXiv 2303.05479,
    equation 6. Defaults are those of CORL for locomotion.
    """

    conservative_weight: float = setting(10.0, low=0)
    gap: float = setting(5.0, low=0)
    sample_temperature: float = setting(1.0, above=0)
    discount: float = setting(0.99, low=0, high=1)
    tau: float = setting(0.005, above=0, high=1)
    target_entropy: float = setting(-1.0, low=-20, high=20)
    actor_learning_rate: float = setting(3e-5, above=0)
    critic_learning_rate: float = setting(3e-4, above=0)
    temperature_learning_rate: float = setting(3e-5, above=0)
    multiplier_learning_rate: float = setting(3e-4, above=0)
    n_samples: int = setting(10, low=1, static=True)
    density_correction: bool = eqx.field(static=True, default=True)
    lagrange: bool = eqx.field(static=True, default=False)
    entropy_backup: bool = eqx.field(static=True, default=False)
    calibrated: bool = eqx.field(static=True, default=False)
    networks: Networks = Networks(hidden=(256, 256, 256))

    rates: ClassVar[Mapping[str, str]] = {
        **SOFT_RATES, "log_multiplier": "multiplier_learning_rate",
    }  # fmt: skip

    @property
    def reads(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Cal-QL also reads where the log was truncated, to compute its returns."""
        episode_columns = ("truncated",) if self.calibrated else ()
        return ("obs", "action", "reward", "next_obs", "terminated", "mask", *episode_columns)

    @property
    def row_sampler(self) -> Sampler:
        """A sampler of rows; for Cal-QL each row carries the return that followed it."""
        return RowsWithReturns(self.discount) if self.calibrated else Rows()

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """An actor, two critics, a temperature and a multiplier; the critics have targets."""
        actor_key, critic_key = jax.random.split(key)
        critics = self.networks.obs_action_networks(spec, 1, critic_key)
        parameters = {
            "actor": self.networks.obs_network(spec, 2 * spec.n_action, actor_key),
            "critics": critics,
            "log_temperature": jnp.zeros((), jnp.float32),
            "log_multiplier": jnp.ones((), jnp.float32),
        }
        return parameters, {"critics": critics}

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one step of actor, temperature, critics and multiplier, then of the targets."""
        rows = only_batch(rows)
        actor_key, target_key, sample_key = jax.random.split(key, 3)
        actor = state.parameters["actor"]
        temperature = jnp.exp(state.parameters["log_temperature"])
        target = self.critic_target(state, rows, temperature, target_key)
        samples = sampled_actions(actor, rows, sample_key, self.n_samples, LOG_STD_RANGE)
        state, actor_loss, log_prob = actor_step(
            self, state, rows, temperature, actor_key, LOG_STD_RANGE
        )
        state = temperature_step(self, state, rows, log_prob)
        state, critic_loss, (q, term) = self.critic_step(state, rows, target, samples)

        entropy_bonus = (
            max_entropy(temperature, rows.action.shape[-1]) if self.entropy_backup else 0.0
        )
        values = value_metrics(
            q,
            state.preparation,
            rows,
            discount=self.discount,
            penalised=True,
            entropy=entropy_bonus,
        )
        multiplier = _multiplier(state.parameters["log_multiplier"])
        return state.with_averaged_targets("critics", tau=self.tau), {
            "critic_loss": critic_loss,
            "conservative_term": term,
            **({"multiplier": multiplier} if self.lagrange else {}),
            "actor_loss": actor_loss,
            "entropy": -masked_mean(log_prob, rows.mask),
            "temperature": temperature,
            **values,
        }

    def critic_target(
        self, state: LearnerState, rows: UnitRows, temperature: Float[Array, ""], key: PRNGKeyArray
    ) -> Float[Array, " batch"]:
        """Returns the regression target of the critics."""
        bonus = temperature if self.entropy_backup else jnp.zeros_like(temperature)
        return soft_target(self, state, rows, rows.reward, bonus, key, LOG_STD_RANGE)

    def critic_step(
        self,
        state: LearnerState,
        rows: UnitRows,
        target: Float[Array, " batch"],
        samples: tuple[Array, Array],
    ) -> tuple[LearnerState, Float[Array, ""], tuple[Array, Array]]:
        """Takes one gradient step of critics and multiplier.

        Returns:
            The state, the loss, the mean value of every row and the mean conservative term.
        """
        weight = self.conservative_weight
        if self.lagrange:
            weight = weight * _multiplier(state.parameters["log_multiplier"])
        floor = rows.mc_return if self.calibrated else None
        state, loss, (q, term) = self.descend(
            state, "critics", self.critic_loss, rows, target, samples, floor, weight
        )
        if self.lagrange:
            excess = self.conservative_weight * (term - self.gap)
            state, _, _ = self.descend(state, "log_multiplier", _multiplier_loss, excess)
        return state, loss, (q, term)

    def critic_loss(
        self,
        critics: Network,
        rows: UnitRows,
        target: Float[Array, " batch"],
        samples: tuple[Array, Array],
        floor: Float[Array, " batch"] | None,
        weight: Float[Array, ""],
    ) -> tuple[Float[Array, ""], tuple[Array, Array]]:
        """Squared errors and conservative terms, summed over the critics.

        Returns:
            The loss, the mean value of every row, and the mean conservative term of the critics.
        """
        actions, log_prob = samples
        # The logged action and the samples go through the critics together.
        together = jnp.concatenate([rows.action[:, None], actions], axis=1)
        values = sampled_q_values(critics, rows.obs, together)
        q, q_samples = values[..., 0], values[..., 1:]
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

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The deterministic policy, in physical units."""
        return network_policy(state.preparation, squashed_mean(state.parameters["actor"]))

    def explore(self, state: LearnerState) -> SquashedGaussianPolicy:
        """The trained policy, which samples its actions, in physical units."""
        stochastic_policy = network_policy(state.preparation, state.parameters["actor"])
        return SquashedGaussianPolicy(stochastic_policy, LOG_STD_RANGE)


class CalQL(CQL):
    """Cal-QL: :class:`CQL` with ``calibrated=True``.

    Conservative values may sink far below the returns of the behaviour. A pretrained policy then
    looks better than it is when online fine-tuning starts, and is unlearned. Cal-QL does not push
    the value of a sampled action below the logged return from that row on.

    Fine-tuning (``neorl_agents.online``): ``"original"`` changes nothing; once its episode has
    ended, a row collected online is bounded by its return. ``"corl"`` drops all bounds online.

    Deviations, beside those of :class:`CQL`: after a truncation a return continues with the log's
    mean reward for ever (:func:`neorl_agents.sampling.returns_to_go`), where CORL adds nothing and
    the authors add nothing, or the last reward for ever in their kitchen tasks. CORL has no
    settings for locomotion; its maze settings are a multiplier, a weight of 5, an actor's learning
    rate of 1e-4, and targets by the largest of several actions, which are left out here.

    The fields are those of :class:`CQL`.

    Source: Nakamoto et al., Cal-QL: calibrated offline RL pre-training for efficient online
    fine-tuning, arXiv 2303.05479.
    """

    calibrated: bool = eqx.field(static=True, default=True)

    fine_tuning: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "original": {},
        "corl": {"calibrated": False},
    }


def _multiplier(log_multiplier: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.minimum(jnp.exp(log_multiplier), MAX_MULTIPLIER)


def _multiplier_loss(
    log_multiplier: Float[Array, ""], excess: Float[Array, ""]
) -> tuple[Float[Array, ""], None]:
    return -_multiplier(log_multiplier) * jax.lax.stop_gradient(excess), None
