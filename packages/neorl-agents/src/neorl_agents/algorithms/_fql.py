"""Flow Q-learning."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    Networks,
    UnitRows,
    critic_loss,
    held_actions,
    only_batch,
    require_moving_actions,
    value_metrics,
)
from neorl_agents.networks import Network, ZeroInputs, gelu, q_values
from neorl_agents.policies import HistoryPolicy, NetworkPolicy, network_policy
from neorl_core import Spec, Transition
from neorl_core.infrastructure import setting
from neorl_core.losses import masked_mean
from neorl_core.targets import td_target


class FQL(BaseLearner):
    """Flow Q-learning: a flow clones the log, and a one-step network is distilled from it.

    ``v(s, x, t)`` is the velocity of a flow from noise ``z ~ N(0, 1)`` to logged actions, and
    ``mu(s, z)`` predicts an action in a single pass. One update takes one step of each, all on the
    networks from before the update:

    1. critics: ``mean_i mean (Q_i(s, a) - y)^2``, ``y = r + discount (1 - terminated) q'``, with
       ``q'`` the mean (or least) target critic of ``clip(mu(s', z))``;
    2. flow: ``mean |v(s, (1 - t) z + t a, t) - (a - z)|^2`` with ``t`` uniform in [0, 1];
    3. actor: ``alpha mean |mu(s, z) - f(s, z)|^2 - mean q / mean |q|``, with ``f`` the flow's end
       after ``flow_steps`` Euler steps from ``z``, ``q`` the mean critic of ``clip(mu(s, z))``, and
       the last divisor without gradient; the divisor is 1 if ``normalised`` is false;
    4. targets: towards the critics **from before** step 1, by ``tau``, as in the published code.

    The policy is ``clip(mu(s, 0))``: deterministic, and one pass of one network. The paper samples
    ``z`` in every step. If the log holds two good actions, ``mu(s, z)`` is one of them for nearly
    every ``z``, but ``z = 0`` may lie at the transition between them.

    Deviations: acting by ``z = 0``; ``normalised`` is true by default, as the authors advise for
    new tasks (their own tasks leave it out); and those common to all learners
    (:class:`neorl_agents.learning.BaseLearner`).

    Attributes:
        alpha: Weight of the distance to the flow; a large one stays near the log.
        discount: Discount of the reward per step.
        tau: Fraction by which the target critics move.
        actor_learning_rate: Learning rate of the flow and of the actor.
        critic_learning_rate: Learning rate of the critics.
        flow_steps: Number of Euler steps of the flow; static.
        aggregate: ``"mean"`` or ``"min"`` of the target critics; static.
        normalised: Whether the actor's loss divides values by their mean magnitude; static.

    Source: Park, Li and Levine, Flow Q-learning, arXiv 2502.02538; widths, rates, ``alpha``, GELU
    and the layer normalisation of critics are the defaults of its code.
    """

    alpha: float = setting(10.0, low=0)
    discount: float = setting(0.99, low=0, high=1)
    tau: float = setting(0.005, above=0, high=1)
    actor_learning_rate: float = setting(3e-4, above=0)
    critic_learning_rate: float = setting(3e-4, above=0)
    flow_steps: int = setting(10, low=1, static=True)
    aggregate: Literal["mean", "min"] = eqx.field(static=True, default="mean")
    normalised: bool = eqx.field(static=True, default=True)
    networks: Networks = Networks(hidden=(512, 512, 512, 512))

    reads: ClassVar[tuple[str, ...]] = ("obs", "action", "reward", "next_obs", "terminated", "mask")
    rates: ClassVar[Mapping[str, str]] = {
        "critics": "critic_learning_rate",
        "flow": "actor_learning_rate",
        "actor": "actor_learning_rate",
    }
    supports_n_step: ClassVar[bool] = True

    def require_log(self, spec: Spec, rows: Transition) -> None:
        """Refuses a log from which nothing can be learned.

        Raises:
            InputError: If no action ever moves.
        """
        require_moving_actions(type(self).__name__, spec, rows)

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """Two normalised critics with targets, the flow, and the one-step actor."""
        critic_key, flow_key, actor_key = jax.random.split(key, 3)
        nets, act = self.networks, spec.n_action
        critics = nets.obs_action_networks(spec, 1, critic_key, activation=gelu, normalised=True)
        return {
            "critics": critics,
            "flow": nets.obs_network(spec, act, flow_key, extra_inputs=act + 1, activation=gelu),
            "actor": nets.obs_network(spec, act, actor_key, extra_inputs=act, activation=gelu),
        }, {"critics": critics}

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step of critics, flow and actor."""
        rows, before, targets = only_batch(rows), state.parameters, state.targets["critics"]
        next_key, start_key, time_key, noise_key = jax.random.split(key, 4)
        shape, dtype = rows.action.shape, rows.action.dtype

        noise = jax.random.normal(next_key, shape, dtype)
        next_action = jnp.clip(_apply(before["actor"], rows.next_obs, noise), -1, 1)
        next_q = q_values(targets, rows.next_obs, next_action)
        next_value = jnp.mean(next_q, 0) if self.aggregate == "mean" else jnp.min(next_q, 0)
        target = td_target(rows.reward, rows.discount * next_value, rows.terminated, discount=1.0)
        state = state.with_averaged_targets("critics", tau=self.tau)
        state, loss, q = self.descend(state, "critics", _mean_critic_loss, rows, target)

        start = jax.random.normal(start_key, shape, dtype)
        time = jax.random.uniform(time_key, (shape[0], 1), dtype)
        state, flow_loss, _ = self.descend(state, "flow", _flow_loss, rows, start, time)

        noise = jax.random.normal(noise_key, shape, dtype)
        end = self.flow_end(before["flow"], rows.obs, noise)
        state, actor_loss, actor_metrics = self.descend(
            state, "actor", self.actor_loss, before["critics"], rows, noise, end
        )
        return state, {
            "critic_loss": loss,
            "flow_loss": flow_loss,
            "actor_loss": actor_loss,
            **actor_metrics,
            **value_metrics(q, state.preparation, rows, discount=self.discount),
        }

    def flow_end(
        self, flow: Network, obs: Float[Array, "batch obs"], noise: Float[Array, "batch act"]
    ) -> Float[Array, "batch act"]:
        """The end of the flow from ``noise`` after ``flow_steps`` Euler steps, within [-1, 1]."""

        def step(x: Float[Array, "batch act"], number: Array) -> tuple[Array, None]:
            time = jnp.full((len(x), 1), number / self.flow_steps, x.dtype)
            return x + _apply(flow, obs, x, time) / self.flow_steps, None

        end, _ = jax.lax.scan(step, noise, jnp.arange(self.flow_steps))
        return jnp.clip(end, -1, 1)

    def actor_loss(
        self,
        actor: Network,
        critics: Network,
        rows: UnitRows,
        noise: Float[Array, "batch act"],
        end: Float[Array, "batch act"],
    ) -> tuple[Float[Array, ""], Metrics]:
        """The loss of step 3, and the distance to the flow."""
        action = _apply(actor, rows.obs, noise)
        distance = masked_mean(jnp.mean(jnp.square(action - end), axis=-1), rows.mask)
        action = jnp.clip(action, -1, 1)
        q = jnp.mean(q_values(critics, rows.obs, action), axis=0)
        mean_abs_q = jax.lax.stop_gradient(masked_mean(jnp.abs(q), rows.mask))
        nonzero = mean_abs_q > jnp.finfo(q.dtype).tiny
        divisor = jnp.where(nonzero, mean_abs_q, 1) if self.normalised else 1
        loss = self.alpha * distance - masked_mean(q, rows.mask) / divisor
        held = held_actions(action, rows.action, rows.mask)
        return loss, {"distance": distance, "held_at_bound": held}

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The one-step network at ``z = 0``, in physical units."""
        act = state.preparation.low.shape[0]
        return network_policy(state.preparation, ZeroInputs(state.parameters["actor"], act))


def _apply(network: Network, obs: Float[Array, "batch obs"], *inputs: Array) -> Array:
    return network(jnp.concatenate([obs, *inputs], axis=-1))


def _mean_critic_loss(
    critics: Network, rows: UnitRows, target: Float[Array, " batch"]
) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
    loss, q = critic_loss(critics, rows, target)
    return loss / 2, q


def _flow_loss(
    flow: Network, rows: UnitRows, start: Float[Array, "batch act"], time: Float[Array, "batch 1"]
) -> tuple[Float[Array, ""], None]:
    point = (1 - time) * start + time * rows.action
    velocity_error = _apply(flow, rows.obs, point, time) - (rows.action - start)
    return masked_mean(jnp.mean(jnp.square(velocity_error), axis=-1), rows.mask), None
