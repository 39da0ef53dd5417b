"""Constrained decision transformer: clone actions, conditioned on a return and on costs."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_agents.algorithms._decision_transformer import (
    SequencePreparation,
    fresh_networks,
    logged_steps,
    predictor_step,
    require_sequence_settings,
    sequence_policy,
    sequence_preparation,
    sequence_shape,
    warmed_up,
)
from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    Networks,
    UnitRows,
    counted_cost_unit,
    episode_costs,
    only_batch,
)
from neorl_agents.learning import Steps as StepSettings
from neorl_agents.networks import SequenceNetwork, Steps
from neorl_agents.policies import SequencePolicy
from neorl_agents.sampling import HistoriesWithReturns
from neorl_core import DataStatistics, InputError, Spec, Transition
from neorl_core.costs import limit_kind
from neorl_core.distributions import diagonal_gaussian_log_prob
from neorl_core.infrastructure import setting
from neorl_core.losses import masked_mean

LOG_STD_RANGE = (-5.0, 2.0)
COSTLY = 1e-3
"""Smallest cost that counts as above zero; costs are differences of sums, which are rounded."""


class CDT(BaseLearner):
    """Constrained decision transformer: a decision transformer with a budget for every cost.

    The tokens of a step are ``(C_t, G_t, s_t, a_t)``: the costs and the reward still to come in the
    episode, undiscounted, the observation and the action. A cost with a limit per step counts the
    steps above it. At every ``s_t`` the transformer predicts a Gaussian ``pi`` of the action, with
    its mean passed through a tanh and standard deviations within ``exp([-5, 2])``; at every ``a_t``
    it predicts whether each cost of the step is above zero. One update is one gradient step on

    ``-mean log pi(a_t) - temperature mean H(pi) + cost_weight mean BCE(cost_t > 0)``,

    with means over known steps and channels, and one step of the logarithm of the temperature,
    which keeps the entropy of a channel near ``target_entropy``. The policy is the mean of ``pi``.
    Its budgets are the run's limits and its target is ``least + aim (greatest - least)``, with the
    least return of a logged episode and the greatest of one that kept every limit; it subtracts
    predicted costs and rewards from both (:class:`neorl_agents.DecisionTransformer`). A log in
    which no episode kept all limits is refused. If a target and the limits cannot be met together,
    the log determines which of them gives way; a lower ``aim`` asks for less return.

    There is **no guarantee**: a budget is an input of a network, not a bound.

    Deviations: those of the decision transformer; the log is not augmented (the code adds 20 % of
    targets that no episode reached); budgets do not fall below zero; all costs instead of one; the
    token of the costs comes before that of the return, and is the cost itself (OSRL: 50 minus it);
    the target follows from the log (OSRL: chosen by hand for every budget); the mean has a tanh;
    the entropy of a channel is held at -1, whereas OSRL holds it at minus the number of channels.

    Attributes:
        aim: The return to aim at: 0 is the smallest logged one, 1 the largest of an episode that
            kept every limit.
        cost_weight: Weight of the prediction of costs.
        target_entropy: Target of the temperature for the entropy of a channel, in nats.
        learning_rate: Learning rate of the transformer after its warm-up.
        predictor_learning_rate: Learning rate of the predictor of reward and costs.
        temperature_learning_rate: Learning rate of the temperature's logarithm.
        warmup_updates: Updates over which the transformer's rate rises from zero; 0 for none.
        heads: Number of attention heads; must divide the widths; static.

    Source: Liu et al., Constrained decision transformer for offline safe reinforcement learning,
    arXiv 2302.07351; sizes, rates and weights are those of OSRL.
    """

    aim: float = setting(1.0, low=0)
    cost_weight: float = setting(0.02, low=0)
    target_entropy: float = setting(-1.0)
    learning_rate: float = setting(1e-4, above=0)
    predictor_learning_rate: float = setting(1e-3, above=0)
    temperature_learning_rate: float = setting(1e-4, above=0)
    warmup_updates: int = setting(500, low=0)
    heads: int = setting(8, low=1, static=True)
    networks: Networks = Networks(hidden=(128, 128, 128), encoder="history", history_steps=10)
    steps: StepSettings = StepSettings(batch_size=2048, optimiser="dt")

    reads: ClassVar[tuple[str, ...]] = (
        "obs", "action", "reward", "cost", "terminated", "truncated", "mask",
    )  # fmt: skip
    rates: ClassVar[Mapping[str, str]] = {
        "network": "learning_rate",
        "predictor": "predictor_learning_rate",
        "log_temperature": "temperature_learning_rate",
    }
    own_optimisers: ClassVar[Mapping[str, str]] = {"predictor": "adam", "log_temperature": "adam"}
    keeps_limits: ClassVar[bool] = True

    def check(self) -> None:
        """Raises a ``ValueError`` for hyperparameters that do not fit each other."""
        require_sequence_settings(self)

    @property
    def sampler(self) -> HistoriesWithReturns:
        """A sampler of windows, with the return and costs that followed each of their steps."""
        return HistoriesWithReturns(self.networks.history_steps)

    @property
    def centred(self) -> Array:
        """Always true: sums over the rest of an episode are finite, and its steps are counted."""
        return jnp.asarray(True)

    def require_log(self, spec: Spec, rows: Transition) -> None:
        """Refuses a log from which nothing can be learned about its limits.

        Raises:
            InputError: See :func:`neorl_agents.learning.require_limits_in_log`; and if no episode
                keeps all limits, because then there is no return to aim at.
        """
        super().require_log(spec, rows)
        _, quantities = episode_costs(spec, rows)
        exceeded = [
            limit_kind(channel).exceeded(quantities[:, i], channel.limit)
            for i, channel in enumerate(spec.cost)
        ]
        if np.any(exceeded, axis=0).all():
            names = ", ".join(channel.name for channel in spec.cost)
            raise InputError(
                "CDT aims at the largest return of an episode that keeps every limit, but no "
                f"logged episode keeps those of {names} at once; raise a limit, or log episodes "
                "that keep all of them"
            )

    def log_tables(self, spec: Spec, rows: Transition) -> Any:
        """Windows with the limited costs; for a limit per step, the steps above it are counted.

        Raises:
            InputError: If :meth:`require_log` refuses the log.
        """
        self.require_log(spec, rows)
        cost = np.asarray(rows.cost)
        above = (cost > np.asarray([c.limit for c in spec.cost], cost.dtype)).astype(cost.dtype)
        per_step = np.asarray([c.per == "step" for c in spec.cost])
        limited_cost: Any = np.where(per_step, above, cost)
        return self.sampler.tables(rows._replace(cost=limited_cost))

    def prepare(self, spec: Spec, statistics: DataStatistics) -> SequencePreparation:
        """The maps of a training split, and the range of its returns."""
        return sequence_preparation(super().prepare(spec, statistics), statistics)

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """The transformer, the predictor of reward and costs, a temperature of 0.1; no targets."""
        aims, n_out = 1 + spec.n_cost, 2 * spec.n_action
        shape = sequence_shape(self, spec, aims=aims, n_out=n_out, n_forecast=spec.n_cost)
        temperature = jnp.asarray(np.log(0.1), jnp.float32)
        return {**fresh_networks(shape, key), "log_temperature": temperature}, {}

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step of both networks and of the temperature; the key is ignored."""
        rows = only_batch(rows)
        shape = state.parameters["network"].shape
        steps, action, known = logged_steps(rows, shape)
        temperature = jnp.exp(state.parameters["log_temperature"])
        weights = (temperature, self.cost_weight)
        rate = warmed_up(self.learning_rate, state, self.warmup_updates)
        state, loss, loss_metrics = self.descend(
            state, "network", _loss, steps, action, known, weights, rate=rate
        )
        state, metrics = predictor_step(self, state, rows, steps)
        entropy_error = jnp.where(jnp.any(known), loss_metrics["entropy"] - self.target_entropy, 0)
        state, _, _ = self.descend(state, "log_temperature", _temperature_loss, entropy_error)
        return state, {"actor_loss": loss, **loss_metrics, **metrics, "temperature": temperature}

    def policy(self, state: LearnerState) -> SequencePolicy:
        """The mean of the transformer with its target and the run's limits, in physical units."""
        maps = state.preparation
        unit = counted_cost_unit(maps)
        # The remaining budget of a limit per step is zero steps above it.
        per_step = np.asarray([per == "step" for per in maps.cost_per], bool)
        budget = jnp.where(per_step, 0, maps.cost_limit * maps.cost_unit)
        return sequence_policy(state, aim=self.aim, budget=budget, cost_unit=unit)


def _loss(
    network: SequenceNetwork,
    steps: Steps,
    action: Float[Array, "batch step act"],
    known: Bool[Array, "batch step"],
    weights: tuple[Any, Any],
) -> tuple[Float[Array, ""], Metrics]:
    temperature, cost_weight = weights
    outputs, forecast = jax.vmap(network)(steps)
    mean, spread = jnp.split(outputs, 2, axis=-1)
    low, high = LOG_STD_RANGE
    log_std = low + (high - low) * (jnp.tanh(spread) + 1) / 2
    n_action, flat = action.shape[-1], known.reshape(-1)
    density = diagonal_gaussian_log_prob(action, jnp.tanh(mean), log_std) / n_action
    likelihood = masked_mean(density.reshape(-1), flat)
    entropies = jnp.mean(log_std, axis=-1) + 0.5 * jnp.log(2 * jnp.pi * jnp.e)
    entropy = masked_mean(entropies.reshape(-1), flat)
    # The cost of a step is what was still to come before it, minus what is to come after it.
    costs = (steps.aim[:, :-1, 1:] - steps.aim[:, 1:, 1:]) * network.shape.horizon
    costly = (costs > COSTLY).astype(costs.dtype)
    logits = forecast[:, :-1]
    errors = jnp.mean(jax.nn.softplus(logits) - costly * logits, axis=-1)
    consecutive = steps.obs_known[:, :-1] & steps.obs_known[:, 1:] & steps.action_known[:, 1:]
    forecast_loss = masked_mean(errors.reshape(-1), consecutive.reshape(-1))
    loss = -(likelihood + temperature * entropy) + cost_weight * forecast_loss
    return loss, {"entropy": entropy, "forecast_loss": forecast_loss}


def _temperature_loss(
    log_temperature: Float[Array, ""], entropy_error: Float[Array, ""]
) -> tuple[Float[Array, ""], None]:
    return jnp.exp(log_temperature) * entropy_error, None
