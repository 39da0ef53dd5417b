"""A model of the plant over one step: an ensemble of networks, fitted to a log."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    UnitRows,
    require,
    require_choice,
    require_count,
    require_flag,
    require_number,
    single,
)
from neorl_agents.networks import Network
from neorl_agents.policies import Preparation
from neorl_core import Spec
from neorl_core.losses import gaussian_nll, masked_mean, soft_clamp

LOG_VARIANCES = (-10.0, 0.5)
"""Bounds of the log-variances at the start of training."""


class PredictedStep(NamedTuple):
    """What a model expects of one step, in physical units.

    Attributes:
        next_obs: Following observation, shape ``(obs,)``.
        reward: Reward of the step, as the learner of the model was given it.
        cost: Costs of the step, shape ``(cost,)``; of length zero where the model predicts none.
        terminated: Whether the plant ends the episode.
        disagreement: How far the members differ, in units of the model's preparation.
    """

    next_obs: Float[Array, " obs"]
    reward: Float[Array, ""]
    cost: Float[Array, " cost"]
    terminated: Bool[Array, ""]
    disagreement: Float[Array, ""]


class DynamicsMembers(eqx.Module):
    """What a dynamics model trains.

    Attributes:
        networks: Stacked networks from observation and action to all outputs.
        low: Least log-variance of every predicted number; of length zero without variances.
        high: Largest log-variance, likewise.
    """

    networks: Network
    low: Float[Array, " target"]
    high: Float[Array, " target"]


class Moments(NamedTuple):
    """The outputs of every member, in units of the preparation.

    Attributes:
        mean: Change of the observation, reward, then costs.
        log_variance: Of each of them, not yet bounded; ``None`` for a deterministic model.
        end: Log-odds that the plant ends the episode.
    """

    mean: Float[Array, "ens *batch target"]
    log_variance: Float[Array, "ens *batch target"] | None
    end: Float[Array, "ens *batch"]


class DynamicsModel(BaseLearner):
    """An ensemble that predicts the next observation, the reward, the costs and the end of a step.

    With ``x`` the observation and the action, and ``y`` the change of the observation, the reward
    and the costs in units of the preparation, every member minimises minus the log-likelihood

    ``sum_k ((y_k - m_k(x))^2 / v_k(x) + log v_k(x) + log 2 pi) / 2 + H(terminated, p(x))``

    with the cross-entropy ``H``. The log-variance is bounded smoothly, and the bounds are trained
    too, drawn together by ``bound_weight sum_k (high_k - low_k)``. The variant ``"deterministic"``
    has ``v = 1`` and leaves out the constant. Members differ by their first weights and see the
    same batches; all channels are standardised, so that none outweighs another by its unit.

    It is a learner without a policy: a model-based learner names it in ``fits()``, and finds its
    final state as ``state.context[name]``. Unless it predicts costs, its reward is less their
    price, as that of a learner that does not read them.

    Attributes:
        learning_rate: Learning rate of all members.
        bound_weight: Weight that draws the bounds of the log-variance together, not negative.
        members: Number of networks; static.
        variant: ``"gaussian"`` or ``"deterministic"``; static.
        predicts_costs: Whether costs are predicted, and the reward is the logged one; static.

    Source: Chua et al., Deep reinforcement learning in a handful of trials using probabilistic
    dynamics models, arXiv 1805.12114, section 4 and appendix A.1; Janner et al., When to trust
    your model, arXiv 1906.08253, which predicts the reward too. Deviations: one set of batches for
    all members in place of a bootstrap, a learned end of the episode, no decay of weights.
    """

    learning_rate: float = 1e-3
    bound_weight: float = 0.01
    members: int = eqx.field(static=True, default=5)
    variant: Literal["gaussian", "deterministic"] = eqx.field(static=True, default="gaussian")
    predicts_costs: bool = eqx.field(static=True, default=False)

    rates: ClassVar[Mapping[str, str]] = {"members": "learning_rate"}

    @property
    def reads(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The fields that are read; with ``cost`` where costs are predicted."""
        always = ("obs", "action", "reward", "next_obs", "terminated", "mask")
        return (*always, *["cost"] * self.predicts_costs)

    def check(self) -> None:
        """Raises a ``ValueError`` that names the first hyperparameter with a bad value."""
        require_number(self, "bound_weight", low=0)
        require_count(self, "members")
        require_choice(self, "variant", ("gaussian", "deterministic"))
        require_flag(self, "predicts_costs")
        alone = self.networks.encoder == "none"
        require(self, "networks.encoder", alone, "'none': the model predicts one observation")

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """The members, which expect next to no change at first."""
        targets = spec.n_obs + 1 + spec.n_cost * self.predicts_costs
        bounded = targets if self.variant == "gaussian" else 0
        networks = self.networks.of_both(
            spec, targets + bounded + 1, key, members=self.members, last_bound=1e-2
        )
        low, high = (jnp.full(bounded, bound, jnp.float32) for bound in LOG_VARIANCES)
        return {"members": DynamicsMembers(networks, low, high)}, {}

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """One gradient step of all members; the key is ignored."""
        state, loss, more = self.descend(state, "members", self._loss, single(rows))
        return state, {"loss": loss, **more}

    def predict(
        self,
        state: LearnerState,
        obs: Float[Array, " obs"],
        action: Float[Array, " act"],
        key: PRNGKeyArray,
    ) -> PredictedStep:
        """One step as a member that is drawn at random expects it, in physical units.

        A Gaussian model draws the numbers from the member's distribution, and the end of the
        episode with its chance. A deterministic one gives the means, and an end that is likelier
        than not. ``disagreement`` is ``sqrt(mean_k var_i m_{ik})`` over members ``i``.

        Args:
            state: State of this learner.
            obs: One observation, physical units; batches are a ``vmap``.
            action: One action, physical units.
            key: Random key; consumed.
        """
        maps, members = state.preparation, state.parameters["members"]
        moments = self._moments(
            members, maps.obs.to_scaled(obs), jnp.clip(maps.action.to_scaled(action), -1, 1)
        )
        member_key, noise_key, end_key = jax.random.split(key, 3)
        member = jax.random.randint(member_key, (), 0, self.members)
        drawn, odds = moments.mean[member], moments.end[member]
        terminated = odds > 0
        if moments.log_variance is not None:
            log_variance = soft_clamp(moments.log_variance[member], members.low, members.high)
            noise = jax.random.normal(noise_key, drawn.shape, drawn.dtype)
            drawn = drawn + jnp.exp(log_variance / 2) * noise
            terminated = jax.random.bernoulli(end_key, jax.nn.sigmoid(odds))
        differ = jnp.sqrt(jnp.mean(jnp.var(moments.mean, axis=0)))
        return _in_physical_units(maps, obs, drawn, terminated, differ)

    def _moments(self, members: DynamicsMembers, obs: Array, action: Array) -> Moments:
        outputs = jax.vmap(_answer, in_axes=(0, None))(
            members.networks, jnp.concatenate([obs, action], axis=-1)
        )
        numbers, end = outputs[..., :-1], outputs[..., -1]
        if self.variant == "deterministic":
            return Moments(numbers, None, end)
        mean, log_variance = jnp.split(numbers, 2, axis=-1)
        return Moments(mean, log_variance, end)

    def _loss(self, members: DynamicsMembers, rows: UnitRows) -> tuple[Float[Array, ""], Metrics]:
        costs = [rows.cost] * self.predicts_costs
        change = rows.next_obs - rows.obs
        target = jnp.concatenate([change, rows.reward[:, None], *costs], axis=-1)
        moments = self._moments(members, rows.obs, rows.action)
        everyone = jnp.broadcast_to(target, moments.mean.shape)
        if moments.log_variance is None:
            losses = jnp.square(everyone - moments.mean) / 2
        else:
            low, high = members.low[None, None], members.high[None, None]
            losses = gaussian_nll(moments.mean, moments.log_variance, everyone, low=low, high=high)
        ended = jnp.broadcast_to(rows.terminated, moments.end.shape).astype(losses.dtype)
        ends = optax.sigmoid_binary_cross_entropy(moments.end, ended)
        per_row = jnp.sum(jnp.sum(losses, axis=-1) + ends, axis=0)
        apart = self.bound_weight * jnp.sum(members.high - members.low)
        square = jnp.mean(jnp.square(jnp.mean(moments.mean, axis=0) - target), axis=-1)
        differ = jnp.mean(jnp.var(moments.mean, axis=0), axis=-1)
        return masked_mean(per_row, rows.mask) + apart, {
            "error": jnp.sqrt(masked_mean(square, rows.mask)),
            "disagreement": jnp.sqrt(masked_mean(differ, rows.mask)),
        }


def _answer(network: Network, inputs: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
    return network(inputs)


def _in_physical_units(
    maps: Preparation, obs: Array, drawn: Array, terminated: Array, differ: Array
) -> PredictedStep:
    n_obs = obs.shape[0]
    return PredictedStep(
        next_obs=obs + drawn[:n_obs] * maps.obs.scale,
        reward=drawn[n_obs] * maps.reward_unit + maps.reward_offset,
        cost=drawn[n_obs + 1 :] * maps.cost_unit[: len(drawn) - n_obs - 1],
        terminated=terminated,
        disagreement=differ,
    )
