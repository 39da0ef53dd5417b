"""Decision transformer: clone actions, conditioned on the return that followed them."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    Networks,
    UnitRows,
    only_batch,
    require,
    require_moving_actions,
)
from neorl_agents.learning import Steps as StepSettings
from neorl_agents.learning._settings import OWN
from neorl_agents.networks import (
    Network,
    SequenceNetwork,
    SequenceShape,
    Steps,
    init_mlp,
    init_sequence_network,
)
from neorl_agents.policies import Preparation, SequencePolicy
from neorl_agents.sampling import HistoriesWithReturns
from neorl_agents.sampling._rows import episode_ends
from neorl_core import DataStatistics, InputError, Spec, Transition
from neorl_core.infrastructure import setting
from neorl_core.losses import masked_mean


class SequencePreparation(Preparation):
    """A preparation that also holds the returns between which a policy aims.

    Attributes:
        returns: Smallest return of a logged episode, and largest return of one that kept every
            cost limit, in the unit of the log's reward. If none kept them, or that is not known,
            the second is the largest of all.
    """

    returns: Float[Array, "2"] = eqx.field(kw_only=True)


class DecisionTransformer(BaseLearner):
    """Decision transformer: supervised learning of actions, given the return that followed them.

    A transformer reads the last ``networks.history_steps`` steps of an episode as tokens ``(G_1,
    s_1, a_1, G_2, s_2, a_2, ...)``, with ``G_t`` the undiscounted return from step ``t`` to the end
    of the episode, and predicts an action ``pi`` at every ``s_t``. One update is one gradient step
    on ``mean |pi_t - a_t|^2`` over all known steps of a batch of windows. To act well, the policy
    starts from a large ``G_1``, from which the reward of each step is then subtracted.

    **Return at run time** (the decision "Rewards at run time"): a policy does not observe its
    reward at run time. A second network, the reward predictor, is trained alongside the first to
    predict the reward of a step from ``(s_t, a_t, s_{t+1})``, and the policy subtracts what it
    predicts. The target is ``least + aim (greatest - least)``, a leaf of the policy in the unit of
    the log, with the least return of a logged episode and the greatest of one that kept every cost
    limit. If none did, the greatest of all is taken, since this learner does not know of costs. The
    network receives ``G`` divided by the horizon and by the standard deviation of the reward; if no
    logged row is terminated, the log's mean reward is subtracted first.

    The index of a step in its episode is known up to the horizon, after which the policy starts
    again at the first step. Widths: ``networks.hidden`` has one entry for every block, all equal;
    the reward predictor has the same width.

    Deviations: windows end with a uniformly sampled row and are short at the start of an episode
    (the code samples their first rows, and they are short at the end); the mean is over known steps
    (the code: over padding too); GELU is the tanh approximation; no dropout; a warm-up of 500
    updates (CORL: 10,000 of 100,000), so that short runs learn.

    Attributes:
        aim: The return to aim at: 0 is the smallest logged one, 1 the largest of an episode that
            kept every cost limit.
        learning_rate: Learning rate of the transformer after its warm-up.
        predictor_learning_rate: Learning rate of the reward predictor.
        warmup_updates: Updates over which the transformer's rate rises from zero; 0 for none.
        heads: Number of attention heads; must divide the widths; static.

    Source: Chen et al., Decision transformer: reinforcement learning via sequence modeling, arXiv
    2106.01345; sizes, optimiser and order of parts are those of CORL's code.
    """

    aim: float = setting(1.0, low=0)
    learning_rate: float = setting(1e-4, above=0)
    predictor_learning_rate: float = setting(1e-3, above=0)
    warmup_updates: int = setting(500, low=0)
    heads: int = setting(1, low=1, static=True)
    networks: Networks = Networks(hidden=(128, 128, 128), encoder="history", history_steps=20)
    steps: StepSettings = StepSettings(batch_size=64, optimiser="dt")

    reads: ClassVar[tuple[str, ...]] = (
        "obs", "action", "reward", "terminated", "truncated", "mask",
    )  # fmt: skip
    rates: ClassVar[Mapping[str, str]] = {
        "network": "learning_rate",
        "predictor": "predictor_learning_rate",
    }
    own_optimisers: ClassVar[Mapping[str, str]] = {"predictor": "adam"}

    def check(self) -> None:
        """Raises a ``ValueError`` for hyperparameters that do not fit each other."""
        require_sequence_settings(self)

    @property
    def sampler(self) -> HistoriesWithReturns:
        """A sampler of windows, with the return that followed each of their steps."""
        return HistoriesWithReturns(self.networks.history_steps)

    @property
    def centred(self) -> Array:
        """Always true: sums over the rest of an episode are finite, and its steps are counted."""
        return jnp.asarray(True)

    def require_log(self, spec: Spec, rows: Transition) -> None:
        """Refuses a log from which nothing can be learned.

        Raises:
            InputError: If the log is a single episode, or no action ever moves.
        """
        name = type(self).__name__
        if int(np.sum(episode_ends(rows))) < 2:
            raise InputError(
                f"{name} learns from the differences between the returns of episodes, but the log "
                "is one episode; log more, or split it into episodes of the plant's horizon"
            )
        require_moving_actions(name, spec, rows)

    def prepare(self, spec: Spec, statistics: DataStatistics) -> SequencePreparation:
        """The maps of a training split, and the range of its returns."""
        return sequence_preparation(super().prepare(spec, statistics), statistics)

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """The transformer and the reward predictor; no targets."""
        shape = sequence_shape(self, spec, aims=1, n_out=spec.n_action)
        return fresh_networks(shape, key), {}

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step of both networks; the key is ignored."""
        rows = only_batch(rows)
        shape = state.parameters["network"].shape
        rate = warmed_up(self.learning_rate, state, self.warmup_updates)
        steps, action, known = logged_steps(rows, shape)
        state, loss, _ = self.descend(
            state, "network", _action_loss, steps, action, known, rate=rate
        )
        state, metrics = predictor_step(self, state, rows, steps)
        return state, {"actor_loss": loss, **metrics}

    def policy(self, state: LearnerState) -> SequencePolicy:
        """The transformer with its target, in physical units."""
        no_costs = jnp.zeros(0, jnp.float32)
        return sequence_policy(state, aim=self.aim, budget=no_costs, cost_unit=no_costs)


def require_sequence_settings(learner: Any) -> None:
    """Refuses network settings that the transformer does not support."""
    nets = learner.networks
    require(learner, "networks.encoder", nets.encoder == "history", "'history'")
    require(learner, "networks.kind", nets.kind == "mlp", "'mlp'")
    for field in ("activation", "layer_norm"):
        own = getattr(nets, field) == OWN
        require(learner, f"networks.{field}", own, "'own', because a transformer has its own")
    width = nets.hidden[0]
    equal = all(one == width for one in nets.hidden)
    require(learner, "networks.hidden", equal, "equal widths, one for each block")
    divides = width % learner.heads == 0
    require(learner, "heads", divides, f"a divisor of the widths in networks.hidden, {width}")


def sequence_preparation(maps: Preparation, statistics: DataStatistics) -> SequencePreparation:
    """The maps of a training split, with the returns between which a policy aims."""
    every, kept = statistics.episode_return, statistics.kept_return
    greatest = every.max if kept is None else jnp.where(kept.count > 0, kept.max, every.max)
    ends = every.min, greatest
    returns = jnp.stack([jnp.asarray(end, jnp.float32).reshape(()) for end in ends])
    fields_of_maps = {field.name: getattr(maps, field.name) for field in fields(maps)}
    return SequencePreparation(**fields_of_maps, returns=returns)


def sequence_shape(learner: Any, spec: Spec, *, aims: int, n_out: int, n_forecast: int = 0):
    """Sizes of a learner's transformer."""
    nets = learner.networks
    return SequenceShape(
        steps=nets.history_steps, aims=aims, n_obs=spec.n_obs, n_action=spec.n_action, n_out=n_out,
        n_forecast=n_forecast, horizon=spec.horizon, width=nets.hidden[0], layers=len(nets.hidden),
        heads=learner.heads,
    )  # fmt: skip


def fresh_networks(shape: SequenceShape, key: PRNGKeyArray) -> dict[str, Any]:
    """A transformer, and a perceptron that predicts the reward and the costs of a step."""
    key, predictor_key = jax.random.split(key)
    n_inputs = 2 * shape.n_obs + shape.n_action
    hidden = (shape.width,) * 2
    return {
        "network": init_sequence_network(shape, key),
        "predictor": init_mlp((n_inputs, *hidden, shape.aims), predictor_key),
    }


def warmed_up(rate: Any, state: LearnerState, updates: Any) -> Float[Array, ""]:
    """``rate``, increased linearly over the first ``updates`` updates."""
    return rate * jnp.minimum((state.updates + 1) / jnp.maximum(updates, 1), 1)


def logged_steps(
    rows: UnitRows, shape: SequenceShape
) -> tuple[Steps, Float[Array, "batch step act"], Bool[Array, "batch step"]]:
    """Windows as a transformer reads them, the action of every step, and a mask of known steps."""
    to_go: Any = rows.to_go
    batch, act = len(rows.action), shape.n_action
    window = rows.obs.reshape(batch, shape.steps, -1)
    flags = window[..., -2:] > 0
    aim = jnp.concatenate([to_go.returns[..., None], to_go.costs], axis=-1) / shape.horizon
    steps = Steps(
        aim=jnp.where(flags[..., :1], aim, 0),
        obs=window[..., : shape.n_obs],
        action=window[..., shape.n_obs : shape.n_obs + act],
        obs_known=flags[..., 0],
        action_known=flags[..., 1],
        time=to_go.step,
    )
    action = jnp.concatenate([steps.action[:, 1:], rows.action[:, None]], axis=1)
    valid = jnp.ones(batch, bool) if rows.mask is None else rows.mask
    valid_action = jnp.concatenate([steps.action_known[:, 1:], valid[:, None]], axis=1)
    return steps, action, steps.obs_known & valid_action


def _action_loss(
    network: SequenceNetwork, steps: Steps, action: Array, known: Array
) -> tuple[Float[Array, ""], None]:
    outputs, _ = jax.vmap(network)(steps)
    errors = jnp.mean(jnp.square(jnp.tanh(outputs) - action), axis=-1)
    return masked_mean(errors.reshape(-1), known.reshape(-1)), None


def predictor_step(
    learner: Any, state: LearnerState, rows: UnitRows, steps: Steps
) -> tuple[LearnerState, Metrics]:
    """Takes one gradient step of the reward predictor, on all consecutive steps of the windows."""
    to_go: Any = rows.to_go
    sums = jnp.concatenate([to_go.returns[..., None], to_go.costs], axis=-1)
    target = sums[:, :-1] - sums[:, 1:]
    known = steps.obs_known[:, :-1] & steps.obs_known[:, 1:] & steps.action_known[:, 1:]
    inputs = jnp.concatenate([steps.obs[:, :-1], steps.action[:, 1:], steps.obs[:, 1:]], axis=-1)
    state, loss, error = learner.descend(state, "predictor", _predictor_loss, inputs, target, known)
    return state, {"predictor_loss": loss, "return_prediction_error": error}


def _predictor_loss(
    predictor: Network, inputs: Array, target: Array, known: Array
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The mean squared error, and the mean error of the return predicted over a window."""
    error = jnp.where(known[..., None], predictor(inputs) - target, 0)
    errors = jnp.mean(jnp.square(error), axis=-1)
    return masked_mean(errors.reshape(-1), known.reshape(-1)), jnp.mean(
        jnp.abs(jnp.sum(error[..., 0], axis=1))
    )


def sequence_policy(
    state: LearnerState,
    *,
    aim: Any,
    budget: Float[Array, " cost"],
    cost_unit: Float[Array, " cost"],
) -> SequencePolicy:
    """The policy of a transformer that was trained under a :class:`SequencePreparation`."""
    maps: Any = state.preparation
    least, greatest = maps.returns[0], maps.returns[1]
    target = least + aim * (greatest - least)
    return SequencePolicy(
        maps.obs, state.parameters["network"], state.parameters["predictor"], maps.action, maps.low,
        maps.high, jnp.asarray(target, jnp.float32), budget, maps.reward_unit, maps.reward_offset,
        cost_unit,
    )  # fmt: skip
