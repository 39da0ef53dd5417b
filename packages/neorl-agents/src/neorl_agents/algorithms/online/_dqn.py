"""Deep Q-networks for plants that act on one channel of all."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    Networks,
    Steps,
    UnitRows,
    linear,
    require_count,
    require_flag,
    require_number,
    single,
)
from neorl_agents.networks import Network, largest
from neorl_agents.policies import (
    EpsilonGreedyPolicy,
    HistoryPolicy,
    NetworkPolicy,
    Preparation,
    network_policy,
)
from neorl_core import DataStatistics, InputError, Spec
from neorl_core.losses import squared_loss
from neorl_core.targets import double_td_target

LEAST_PRIORITY = 1e-6


class DQN(BaseLearner):
    """DQN: the values of choices, double and duelling, on the surprising part of what was tried.

    One action channel is chosen in every step: it gets the high end of its range, all others get
    their low end. One update draws a batch from the last ``online.capacity`` rows, with chances in
    proportion to ``(|error| + 1e-6)^priority`` when the row was seen last (a new one: the largest
    so far), and is one gradient step down

    ``mean w (Q(s, a) - y)^2``, ``y = r + discount (1 - terminated) Q'(s', argmax Q(s', .))``

    with ``w = (n p)^-beta`` over its largest, where ``beta`` goes from ``importance`` to 1 along
    the run, by Adam (``e = 1.5e-4``) behind a clip of the norm at 10. Duelling is
    ``Q = V + A - mean A``, both from one last layer. Every ``copy_every`` updates the target
    becomes the network. The chance of a random choice falls linearly from 1 to ``final_epsilon``
    over the part ``exploration`` of the run.

    Attributes:
        discount: Discount of the reward per step, in [0, 1].
        learning_rate: Learning rate.
        priority: Exponent of the priorities, in [0, 1]; 0 draws all rows with the same chance.
        importance: Exponent of the weights at the start, in [0, 1].
        exploration: Part of the run over which the chance of a random choice falls, in (0, 1].
        final_epsilon: That chance afterwards, in [0, 1].
        decay_updates: Length of the run in updates; -1 stands for it, 0 keeps ``importance`` and
            ``final_epsilon`` throughout.
        copy_every: Updates between two copies to the target.
        double: Whether the network chooses and its target values; else the target does both;
            static.
        dueling: Whether advantages and value are separate outputs; static.
        collect: Steps of every episode before each update; static.

    Source: Mnih et al., Nature 518 (2015) 529; van Hasselt et al., arXiv 1509.06461; Wang et al.,
    arXiv 1511.06581; Schaul et al., arXiv 1511.05952; rates and clip of Rainbow, arXiv 1710.02298.
    """

    discount: float = 0.99
    learning_rate: float = 6.25e-5
    priority: float = 0.6
    importance: float = 0.4
    exploration: float = 0.5
    final_epsilon: float = 0.05
    decay_updates: int = -1
    copy_every: int = 50
    double: bool = eqx.field(static=True, default=True)
    dueling: bool = eqx.field(static=True, default=True)
    collect: int = eqx.field(static=True, default=1)
    networks: Networks = Networks(hidden=(120, 84))
    steps: Steps = Steps(batch_size=128, optimiser="dqn", reward_scale="none")

    reads: ClassVar[tuple[str, ...]] = ("obs", "action", "reward", "next_obs", "terminated")
    rates: ClassVar[Mapping[str, str]] = {"values": "learning_rate"}
    schedules: ClassVar[tuple[str, ...]] = ("decay_updates",)
    needs_rollouts: ClassVar[bool] = True

    def check(self) -> None:
        """Raises a ``ValueError`` that names the first hyperparameter with a bad value."""
        require_number(self, "priority", "importance", "final_epsilon", low=0, high=1)
        require_number(self, "exploration", low=0, high=1, open_low=True)
        require_count(self, "decay_updates", least=-1)
        require_count(self, "copy_every", "collect")
        require_flag(self, "double", "dueling")
        if self.networks.encoder != "none":
            raise ValueError(
                f"DQN.networks.encoder must be 'none', got {self.networks.encoder!r}: it learns "
                "from single rows of what it tried"
            )

    def source(self, given: Any) -> Any:
        """The replay of past steps, drawn by priority."""
        return given.replayed(self.collect)

    def init(
        self,
        spec: Spec,
        statistics: DataStatistics,
        key: PRNGKeyArray,
        *,
        preparation: Preparation | None = None,
        context: Mapping[str, LearnerState] | None = None,
    ) -> LearnerState:
        """A fresh state, which also holds the errors of the last batch.

        Raises:
            InputError: If the plant has fewer than two action channels to choose from.
        """
        if spec.n_action < 2:
            raise InputError(
                f"DQN chooses one action channel of all, and the plant has {spec.n_action}; take "
                "a learner of continuous actions, such as sac"
            )
        state = super().init(spec, statistics, key, preparation=preparation, context=context)
        return state.with_counters(errors=jnp.zeros(self.batch_size, jnp.float32))

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """A network of values and its target."""
        count = spec.n_action + (1 if self.dueling else 0)
        values = self.networks.of_obs(spec, count, key)
        return {"values": values}, {"values": values}

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """One gradient step, and its errors; the key is ignored."""
        rows = single(rows)
        target = self.values(state.targets["values"], rows.next_obs)
        online = self.values(state.parameters["values"], rows.next_obs) if self.double else target
        target = double_td_target(
            rows.reward, online, target, rows.terminated, discount=self.discount
        )
        state, loss, q = self.descend(state, "values", self.loss, rows, target)
        copies = (state.updates + 1) % self.copy_every == 0
        values = jax.tree.map(
            lambda new, old: jnp.where(copies, new, old),
            state.parameters["values"],
            state.targets["values"],
        )
        state = state.with_targets(values=values).with_counters(errors=jnp.abs(q - target))
        return state, {
            "loss": loss, "q_mean": jnp.mean(q), "error": jnp.mean(jnp.abs(q - target)),
            "epsilon": self.epsilon(state),
        }  # fmt: skip

    def loss(
        self, network: Network, rows: UnitRows, target: Float[Array, " batch"]
    ) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
        """The weighted loss, and the values of what was done."""
        chosen = jnp.argmax(rows.action, axis=-1)[:, None]
        q = jnp.take_along_axis(self.values(network, rows.obs), chosen, axis=-1)[:, 0]
        # Not Huber's loss. It pulls equally at all large errors, so the few rows that end an
        # episode, whose errors are as large as the values, cannot keep the values from growing.
        loss = squared_loss(q, target)
        return jnp.mean(loss if rows.weight is None else rows.weight * loss), q

    def values(self, network: Network, obs: Float[Array, "batch obs"]) -> Float[Array, "batch act"]:
        """The value of every choice."""
        out = network(obs)
        if not self.dueling:
            return out
        advantage, value = out[..., :-1], out[..., -1:]
        return value + advantage - jnp.mean(advantage, axis=-1, keepdims=True)

    def priorities(self, state: LearnerState) -> Float[Array, " batch"]:
        """New priorities of the rows of the last batch."""
        return (state.counters["errors"] + LEAST_PRIORITY) ** self.priority

    def weight_exponent(self, state: LearnerState) -> Float[Array, ""]:
        """The exponent ``beta`` of the weights: from ``importance`` to 1 along the run."""
        weight = linear(state.updates, self.decay_updates, 0.0)
        planned = jnp.asarray(self.decay_updates) > 0
        return jnp.where(planned, 1 - (1 - self.importance) * weight, self.importance)

    def epsilon(self, state: LearnerState) -> Float[Array, ""]:
        """The chance of a random choice."""
        length = jnp.asarray(self.decay_updates, jnp.float32)
        done = state.updates / jnp.maximum(length * self.exploration, 1)
        done = jnp.where(length > 0, jnp.minimum(done, 1), 1)
        return 1 - (1 - self.final_epsilon) * done

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The most valuable choice, in physical units."""
        values = state.parameters["values"]
        count = values.n_outputs - (1 if self.dueling else 0)
        return network_policy(state.preparation, values.first_outputs(count, output=largest))

    def explore(self, state: LearnerState) -> EpsilonGreedyPolicy:
        """The epsilon-greedy policy: the greedy choice, or a random one."""
        return EpsilonGreedyPolicy(self.policy(state), self.epsilon(state))
