"""Batch-constrained Q-learning with a critic and a controlled multiplier for every cost limit."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.algorithms.constrained._autoencoder import RATES as AUTOENCODER_RATES
from neorl_agents.algorithms.constrained._autoencoder import autoencoder_step, fresh_autoencoder
from neorl_agents.algorithms.constrained._lagrangian import (
    MEMBERS,
    MultiplierSettings,
    cost_critic_loss,
    cost_values,
    fresh_multipliers,
    multiplier_step,
)
from neorl_agents.algorithms.constrained._lagrangian import RATES as PRICE_RATES
from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    UnitRows,
    counted_costs,
    critic_loss,
    held_actions,
    only_batch,
    value_metrics,
)
from neorl_agents.networks import (
    Network,
    PerturbedDecoder,
    q_values,
    sampled_q_values,
    tanh,
)
from neorl_agents.policies import HistoryPolicy, NetworkPolicy, network_policy
from neorl_core import Spec
from neorl_core.costs import discounted_cost_target
from neorl_core.infrastructure import setting
from neorl_core.losses import masked_mean
from neorl_core.targets import td_target

LATENT_RANGE = 0.5
"""Bound of the latent samples on either side, as in BCQ's code."""


class BCQLag(BaseLearner):
    """Batch-constrained Q-learning that pays for costs through controlled multipliers.

    An autoencoder learns which actions the log takes in a state, and an actor may move such an
    action by at most ``phi``: ``g(s, z) = clip(D(s, z) + phi xi(s, D(s, z)), -1, 1)``, with ``D``
    the decoder. One update takes these steps, in this order:

    1. the autoencoder of logged actions (with two latent numbers per channel):
       ``mean (decoded - a)^2 + kl_weight KL(q(z|s, a) || N(0, 1)) / latent``;
    2. critics: ``mean (Q_1 - y)^2 + mean (Q_2 - y)^2``, ``y = r + discount (1 - terminated)
       max_k (least_weight min_i Q'_i + (1 - least_weight) max_i Q'_i)(s', g'(s', z_k))``, over
       ``n_samples`` samples ``z_k = clip(N(0, 1), -0.5, 0.5)``;
    3. cost critics, two of each: the same with ``c_j`` in place of ``r`` at the action of the
       policy, ``g'(s', 0)``; with ``costly = "larger"`` the weights of ``min`` and ``max`` are
       exchanged;
    4. the multiplier of every limit, one step of a PID controller on ``e_j = mean max_i Qc_ji(s,
       g(s, 0)) - d_j`` as in :class:`~neorl_agents.TD3BCLag`;
    5. actor ``xi``: ``-mean (min_i Q_i(s, g(s, z)) - sum_j multiplier_j max_i Qc_ji(s, g(s, z)))``;
    6. targets of actor and critics, by ``tau``.

    With ``costly = "smaller"``, steps 4 and 5 use the smaller of two cost critics, and step 3 gives
    it the larger weight. OSRL does this, which makes costs look smaller than either critic
    predicts.

    With ``cost_of = "samples"``, step 3 takes the largest value over ``n_samples`` samples of its
    own and step 4 the actions of step 5, as in OSRL. The costliest of ten samples costs far more
    than the policy does. On a toy with a limit of 6 and ``phi = 0.5`` the policy takes a cost of
    0.1 after 40,000 updates; with the default, three seeds take 5.0, 5.4 and 6.7.

    The policy is ``g(s, 0)``, deterministic. OSRL samples one ``z`` in every step, and BCQ takes
    the best of 100. If the log holds two good actions, ``z = 0`` may decode to one between them.

    Deviations: acting by ``z = 0``; ``costly``; ``cost_of``; a controller with a clamped integrator
    and a smoothed error; a termination ends the costs too (OSRL bootstraps past it), and a time
    limit ends nothing (in OSRL it ends the values of rewards); ReLU in the actor as in BCQ (OSRL:
    tanh); all networks have the same widths (OSRL: 400 in the autoencoder); one pair of critics
    (OSRL takes two pairs); limits in the units of critics by
    :func:`neorl_agents.learning.critic_limits`, with several at a time.

    Attributes:
        phi: How far an action may be moved from the decoded one, in [-1, 1] units.
        least_weight: Weight of the smaller of two critics in the targets.
        kl_weight: Weight of the divergence in the autoencoder.
        discount: Discount of rewards and costs per step.
        tau: Fraction by which the targets move.
        actor_learning_rate: Learning rate of the actor.
        critic_learning_rate: Learning rate of all critics.
        model_learning_rate: Learning rate of the autoencoder.
        costly: Which of two cost critics is used: ``"larger"`` or ``"smaller"``; static.
        cost_of: Which actions the predicted cost is of: ``"policy"``, those that the policy takes,
            or ``"samples"``, the costliest of the samples; static.
        n_samples: Samples of the latent in every next state; static.
        multiplier: The controller of the multipliers.

    Source: Fujimoto, Meger and Precup, Off-policy deep reinforcement learning without exploration,
    arXiv 1812.02900; costs and multipliers as in BCQ-Lag of OSRL (Liu et al., Datasets and
    benchmarks for offline safe reinforcement learning, arXiv 2306.09303), from which order, rates
    and weights are taken.
    """

    phi: float = setting(0.05, low=0)
    least_weight: float = setting(0.75, low=0, high=1)
    kl_weight: float = setting(0.5, low=0)
    discount: float = setting(0.99, low=0, high=1)
    tau: float = setting(0.005, above=0, high=1)
    actor_learning_rate: float = setting(1e-3, above=0)
    critic_learning_rate: float = setting(1e-3, above=0)
    model_learning_rate: float = setting(1e-3, above=0)
    costly: Literal["larger", "smaller"] = eqx.field(static=True, default="larger")
    cost_of: Literal["policy", "samples"] = eqx.field(static=True, default="policy")
    n_samples: int = setting(10, low=1, static=True)
    multiplier: MultiplierSettings = MultiplierSettings()

    reads: ClassVar[tuple[str, ...]] = (
        "obs", "action", "reward", "cost", "next_obs", "terminated", "mask",
    )  # fmt: skip
    rates: ClassVar[Mapping[str, str]] = {
        **AUTOENCODER_RATES,
        **PRICE_RATES,
        "critics": "critic_learning_rate",
        "actor": "actor_learning_rate",
    }
    keeps_limits: ClassVar[bool] = True

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """The autoencoder; actor, critics and cost critics with targets; multipliers of zero."""
        keys, nets, act = jax.random.split(key, 5), self.networks, spec.n_action
        members = MEMBERS * spec.n_cost
        with_targets = {
            "critics": nets.obs_action_networks(spec, 1, keys[0], initialiser="uniform"),
            "cost_critics": nets.obs_action_networks(
                spec, 1, keys[1], members=members, initialiser="uniform"
            ),
            "actor": nets.obs_network(spec, act, keys[4], extra_inputs=act, output=tanh),
        }
        return with_targets | {
            **fresh_autoencoder(nets, spec, keys[2], keys[3]),
            "multipliers": fresh_multipliers(spec.n_cost),
        }, with_targets

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step of all networks, and one step of the multipliers."""
        rows = only_batch(rows)
        model_key, reward_key, cost_key, actor_key = jax.random.split(key, 4)
        state, model_loss = autoencoder_step(self, state, rows, model_key)

        least = self.least_weight
        q_next = self._next_values(
            state, state.targets["critics"], rows, reward_key, least, n_samples=self.n_samples
        )
        q_next = jnp.max(q_next[0], axis=-1)
        target = td_target(rows.reward, q_next, rows.terminated, discount=self.discount)
        state, loss, q = self.descend(state, "critics", critic_loss, rows, target)

        least = least if self.costly == "smaller" else 1 - least
        n = self.n_samples if self.cost_of == "samples" else 0
        next_costs = self._next_values(
            state, state.targets["cost_critics"], rows, cost_key, least, n_samples=n
        )
        next_cost_value = jnp.max(next_costs, axis=-1)
        cost = counted_costs(state.preparation, rows.cost).T
        terminated = jnp.broadcast_to(rows.terminated, cost.shape)
        target = discounted_cost_target(
            cost, next_cost_value[None], terminated, discount=self.discount
        )
        state, cost_loss, cost_q = self.descend(
            state, "cost_critics", cost_critic_loss, rows, target
        )

        parameters = state.parameters
        decoded = _decode(parameters["decoder"], rows.obs, _latents(actor_key, rows.action))
        action = _perturb(parameters["actor"], rows.obs, decoded, self.phi)
        measured = action
        if self.cost_of == "policy":
            middle = _decode(parameters["decoder"], rows.obs, _middle(rows.action))
            measured = _perturb(parameters["actor"], rows.obs, middle, self.phi)
        state, control = multiplier_step(
            self, state, rows, measured, least=self.costly == "smaller"
        )
        parameters = state.parameters
        loss_of = partial(_actor_loss, least=self.costly == "smaller")
        critics_and_multipliers = (
            parameters["critics"],
            parameters["cost_critics"],
            parameters["multipliers"].value,
        )
        state, actor_loss, actor_action = self.descend(
            state, "actor", loss_of, critics_and_multipliers, rows, decoded, self.phi
        )
        state = state.with_averaged_targets("actor", "critics", "cost_critics", tau=self.tau)
        return state, {
            "model_loss": model_loss,
            "critic_loss": loss,
            "cost_loss": cost_loss,
            "cost_q": cost_q,
            **control,
            "actor_loss": actor_loss,
            "held_at_bound": held_actions(actor_action, rows.action, rows.mask),
            **value_metrics(q, state.preparation, rows, discount=self.discount),
        }

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The action decoded from ``z = 0`` and moved by the actor, in physical units."""
        parameters = state.parameters
        phi = jnp.asarray(self.phi, jnp.float32)
        return network_policy(
            state.preparation, PerturbedDecoder(parameters["decoder"], parameters["actor"], phi)
        )

    def _next_values(
        self,
        state: LearnerState,
        critics: Network,
        rows: UnitRows,
        key: PRNGKeyArray,
        least: float | Float[Array, ""],
        *,
        n_samples: int,
    ) -> Float[Array, "quantity batch sample"]:
        """The mixtures of two critics in every next state, at samples, or at ``z = 0`` if none."""
        batch, act = rows.action.shape
        count = max(n_samples, 1)
        if n_samples:
            shape = (batch, n_samples, 2 * act)
            z = _clip_latent(jax.random.normal(key, shape, rows.action.dtype)).reshape(-1, 2 * act)
        else:
            z = _middle(rows.action)
        obs = jnp.repeat(rows.next_obs, count, axis=0)
        decoded = _decode(state.parameters["decoder"], obs, z)
        actions = _perturb(state.targets["actor"], obs, decoded, self.phi)
        values = sampled_q_values(critics, rows.next_obs, actions.reshape(batch, -1, act))
        values = values.reshape(MEMBERS, -1, batch, count)
        return least * jnp.min(values, axis=0) + (1 - least) * jnp.max(values, axis=0)


def _clip_latent(z: Float[Array, "*batch latent"]) -> Float[Array, "*batch latent"]:
    return jnp.clip(z, -LATENT_RANGE, LATENT_RANGE)


def _middle(action: Float[Array, "batch act"]) -> Float[Array, "batch latent"]:
    return jnp.zeros((len(action), 2 * action.shape[-1]), action.dtype)


def _latents(key: PRNGKeyArray, action: Float[Array, "batch act"]) -> Float[Array, "batch latent"]:
    return _clip_latent(jax.random.normal(key, (len(action), 2 * action.shape[-1]), action.dtype))


def _decode(
    decoder: Network, obs: Float[Array, "batch obs"], z: Float[Array, "batch latent"]
) -> Float[Array, "batch act"]:
    return decoder(jnp.concatenate([obs, z], axis=-1))


def _perturb(
    actor: Network,
    obs: Float[Array, "batch obs"],
    decoded: Float[Array, "batch act"],
    phi: float | Float[Array, ""],
) -> Float[Array, "batch act"]:
    return jnp.clip(decoded + phi * actor(jnp.concatenate([obs, decoded], axis=-1)), -1, 1)


def _actor_loss(
    actor: Network,
    critics_and_multipliers: tuple[Network, Network, Float[Array, " cost"]],
    rows: UnitRows,
    decoded: Float[Array, "batch act"],
    phi: float | Float[Array, ""],
    *,
    least: bool,
) -> tuple[Float[Array, ""], Float[Array, "batch act"]]:
    """The priced cost of the moved actions minus their value; and the actions."""
    critics, cost_critics, multipliers = critics_and_multipliers
    action = _perturb(actor, rows.obs, decoded, phi)
    q = jnp.min(q_values(critics, rows.obs, action), axis=0)
    cost_value = multipliers @ cost_values(cost_critics, rows.obs, action, least=least)
    return -masked_mean(q - cost_value, rows.mask), action
