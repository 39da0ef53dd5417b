"""Deep Q-networks for plants on which one action channel is chosen at a time."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.learning import (
    WHOLE_RUN,
    BaseLearner,
    LearnerState,
    Metrics,
    Networks,
    Steps,
    UnitRows,
    linear,
    only_batch,
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
from neorl_core.infrastructure import setting
from neorl_core.losses import squared_loss
from neorl_core.targets import double_td_target

LEAST_PRIORITY = 1e-6


class DQN(BaseLearner):
    """DQN: Q-learning from replay, optionally double, duelling and with prioritised replay.

    In every step one action channel is chosen: it gets the high end of its range, all others get
    their low end. One update samples a batch from the last ``online.capacity`` rows, with
    probabilities proportional to ``(|error| + 1e-6)^priority``, where the error is that from when
    the row was last sampled (a new row has the largest so far). It takes one gradient step on

    ``mean w (Q(s, a) - y)^2``, ``y = r + discount (1 - terminated) Q'(s', argmax Q(s', .))``

    with ``w = (n p)^-beta`` divided by its maximum, where ``beta`` goes from ``importance`` to 1
    along the run. By default ``argmax Q'`` takes the place of ``argmax Q`` (``double``), and all
    rows are equally likely (``priority``).
    Duelling is ``Q = V + A - mean A``, both from one last layer. Every ``copy_every`` updates the
    target is set to the network. The probability of a random choice falls linearly from 1 to
    ``final_epsilon`` over the fraction ``exploration`` of the run.

    The defaults are those of CleanRL's ``dqn.py``. With double values, duelling, priorities and the
    optimiser ``"dqn"`` (Rainbow's: ``e = 1.5e-4``, gradients clipped to a norm of 10) it returned
    less while training on CartPole, 413.6 against 487.7 over five seeds
    (``tools/studies/benchmarks/results/classics.json``, "dqn" and "dqn, plain").

    Attributes:
        discount: Discount of the reward per step.
        learning_rate: Learning rate.
        priority: Exponent of the priorities; with 0 all rows are equally likely.
        importance: Exponent of the weights at the start.
        exploration: Fraction of the run over which the probability of a random choice falls, in
            (0, 1].
        final_epsilon: The probability of a random choice after that.
        decay_updates: Length of the run in updates; -1 takes it from the run, 0 keeps
            ``importance`` and ``final_epsilon`` throughout.
        copy_every: Updates between two copies to the target.
        double: Whether the network chooses and its target values; if not, the target does both;
            static.
        dueling: Whether advantages and value are separate outputs; static.
        collect: Steps of every episode before each update; static.

    Source: Mnih et al., Nature 518 (2015) 529; van Hasselt et al., arXiv 1509.06461; Wang et al.,
    arXiv 1511.06581; Schaul et al., arXiv 1511.05952.
    """

    discount: float = setting(0.99, low=0, high=1)
    learning_rate: float = setting(2.5e-4, above=0)
    priority: float = setting(0.0, low=0, high=1)
    importance: float = setting(0.4, low=0, high=1)
    exploration: float = setting(0.5, above=0, high=1)
    final_epsilon: float = setting(0.05, low=0, high=1)
    decay_updates: int = setting(-1, low=WHOLE_RUN)
    copy_every: int = setting(50, low=1)
    double: bool = eqx.field(static=True, default=False)
    dueling: bool = eqx.field(static=True, default=False)
    collect: int = setting(1, low=1, static=True)
    networks: Networks = Networks(hidden=(120, 84))
    steps: Steps = Steps(batch_size=128, reward_scale="none")

    reads: ClassVar[tuple[str, ...]] = ("obs", "action", "reward", "next_obs", "terminated")
    rates: ClassVar[Mapping[str, str]] = {"values": "learning_rate"}
    schedules: ClassVar[tuple[str, ...]] = ("decay_updates",)
    needs_rollouts: ClassVar[bool] = True

    def check(self) -> None:
        """Raises a ``ValueError`` for hyperparameters that do not fit each other."""
        if self.networks.encoder != "none":
            raise ValueError(
                f"DQN.networks.encoder must be 'none', got {self.networks.encoder!r}: DQN learns "
                "from single steps of its own exploration, without windows"
            )

    def source(self, given: Any) -> Any:
        """A prioritised replay of past steps."""
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
                f"DQN chooses one of at least two action channels, but the plant has "
                f"{spec.n_action}; take a learner of continuous actions, such as sac"
            )
        state = super().init(spec, statistics, key, preparation=preparation, context=context)
        return state.with_counters(errors=jnp.zeros(self.batch_size, jnp.float32))

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """A Q-network and its target."""
        n_outputs = spec.n_action + (1 if self.dueling else 0)
        values = self.networks.obs_network(spec, n_outputs, key)
        return {"values": values}, {"values": values}

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step and stores the errors of its rows; the key is ignored."""
        rows = only_batch(rows)
        target = self.values(state.targets["values"], rows.next_obs)
        online = self.values(state.parameters["values"], rows.next_obs) if self.double else target
        target = double_td_target(
            rows.reward, online, target, rows.terminated, discount=self.discount
        )
        state, loss, q = self.descend(state, "values", self.loss, rows, target)
        is_copied = (state.updates + 1) % self.copy_every == 0
        values = jax.tree.map(
            lambda new, old: jnp.where(is_copied, new, old),
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
        """The weighted loss, and the values of the actions taken."""
        chosen = jnp.argmax(rows.action, axis=-1)[:, None]
        q = jnp.take_along_axis(self.values(network, rows.obs), chosen, axis=-1)[:, 0]
        # This is not Huber's loss, whose gradient is the same for all large errors. The few rows
        # that end an episode have errors as large as the values and could not stop the values from
        # growing.
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
        has_length = jnp.asarray(self.decay_updates) > 0
        return jnp.where(has_length, 1 - (1 - self.importance) * weight, self.importance)

    def epsilon(self, state: LearnerState) -> Float[Array, ""]:
        """The probability of a random choice."""
        length = jnp.asarray(self.decay_updates, jnp.float32)
        progress = state.updates / jnp.maximum(length * self.exploration, 1)
        progress = jnp.where(length > 0, jnp.minimum(progress, 1), 1)
        return 1 - (1 - self.final_epsilon) * progress

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The policy that takes the choice with the largest value, in physical units."""
        values = state.parameters["values"]
        n_outputs = values.n_outputs - (1 if self.dueling else 0)
        return network_policy(state.preparation, values.first_outputs(n_outputs, output=largest))

    def explore(self, state: LearnerState) -> EpsilonGreedyPolicy:
        """The epsilon-greedy policy: the greedy choice, or a random one."""
        return EpsilonGreedyPolicy(self.policy(state), self.epsilon(state))
