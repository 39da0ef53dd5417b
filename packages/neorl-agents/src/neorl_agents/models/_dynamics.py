"""A one-step model of the plant: a linear part, and an ensemble that learns the residual."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_agents.learning import (
    WHOLE_RUN,
    BaseLearner,
    LearnerState,
    Metrics,
    Networks,
    UnitRows,
    cosine,
    only_batch,
    require,
    require_choice,
)
from neorl_agents.learning._unit_rows import network_inputs
from neorl_agents.models._model_check import exogenous_mask, held_out_rows, require_model_log
from neorl_agents.models._predictions import (
    CLIP,
    LOG_VARIANCES,
    NEVER,
    TERMINATIONS,
    Calibration,
    DynamicsMembers,
    LeastSquares,
    ModelStructure,
    Moments,
    PredictedStep,
    Uncertainty,
    along,
    bound_loss,
    join_moments,
    likelihood_loss,
    linear_answer,
    member_moments,
    network_answers,
    newest,
    no_rows,
    percentiles_of,
    uncertainty_of,
    with_rows,
)
from neorl_agents.networks import Network, Window, ensemble
from neorl_agents.policies import Preparation
from neorl_core import DataStatistics, Spec, Transition
from neorl_core.infrastructure import setting
from neorl_core.losses import masked_mean


class DynamicsModel(BaseLearner):
    """An ensemble that predicts the next observation, the reward, the costs and the end of a step.

    Let ``h`` be the observation, or the window of the last steps if networks see one, ``u`` the
    action, ``x'`` the next observation, all in units of the preparation, and ``y`` the change of
    the observation. Every member ``m`` predicts

    ``y = A (h, u, 1) + s f_m(h, u)``, ``(r, c) = B (h, u, x', 1) + s' g_m(h, u, x')``

    and the log-odds that the episode ends, a further output of ``g``. ``A`` and ``B`` are least
    squares over all batches so far, ``s`` and ``s'`` the standard deviations of their residuals;
    with ``linear=False`` there is no linear part, and ``s = s' = 1``. The networks minimise the
    negative log-likelihood of the residuals,

    ``sum_k ((z_k - m_k)^2 / v_k + log v_k + log 2 pi) / 2 + H(terminated, p)``

    with the cross-entropy ``H``. The log-variance is bounded smoothly, and the bounds are trained
    too, with the penalty ``bound_weight sum_k (high_k - low_k)`` on their distance. The variant
    ``"deterministic"`` has ``v = 1`` and leaves out the constant.

    With windows (``networks.encoder``) the linear part is an autoregression with inputs, so it
    covers a dead time of up to ``history_steps``. Observations that no controller influences
    (``exogenous``: weather, demand, setpoints) are not predicted; rollouts take them from the log.

    It is a learner without a policy: a model-based learner names it in ``fits()``, and finds its
    final state as ``state.context[name]``. Unless it predicts costs, its reward is the
    logged one minus the priced costs, as for any learner that does not read costs.

    Attributes:
        learning_rate: Learning rate of all members, at the start.
        bound_weight: Weight of the distance between the bounds of the log-variance.
        decay_updates: Updates over which the rate falls to zero along half a cosine; 0 for never,
            -1 for the length of its training.
        held_out: Fraction of the episodes to hold out, on which the members are compared: every
            ``round(1 / held_out)``-th.
        members: Number of networks; static.
        elites: Number of members that predict, the best on held-out episodes; 0: all; static.
        variant: ``"gaussian"`` or ``"deterministic"``; static.
        linear: Whether there is a linear part; static.
        predicts_costs: Whether costs are predicted, and the reward is the logged one; static.
        uncertainty: Measure of a prediction's uncertainty: ``"disagreement"``, ``"aleatoric"`` or
            ``"discrepancy"``; see :func:`neorl_agents.models._predictions.uncertainty_of`; static.
        termination: ``"learned"``, or a name in :data:`TERMINATIONS`; static.
        exogenous: Names of the observations that are not predicted; static.

    Source: Chua et al., Deep reinforcement learning in a handful of trials using probabilistic
    dynamics models, arXiv 1805.12114, section 4 and appendix A.1; Janner et al., When to trust
    your model, arXiv 1906.08253, which predicts the reward too. Deviations: the linear part; the
    reward also depends on the next observation, and has its own networks without a variance, which
    would discount the narrow peaks that rewards have; the same batches for all members, no
    bootstrap; a fixed number of updates; a learned end of the episode; no weight decay.
    """

    learning_rate: float = setting(1e-3, above=0)
    bound_weight: float = setting(0.01, low=0)
    decay_updates: int = setting(0, low=WHOLE_RUN)
    held_out: float = setting(0.1, low=0, high=0.5, static=True)
    members: int = setting(5, low=1, static=True)
    elites: int = setting(0, low=0, static=True)
    variant: Literal["gaussian", "deterministic"] = eqx.field(static=True, default="gaussian")
    linear: bool = eqx.field(static=True, default=True)
    predicts_costs: bool = eqx.field(static=True, default=False)
    uncertainty: Uncertainty = eqx.field(static=True, default="disagreement")
    termination: str = eqx.field(static=True, default="learned")
    exogenous: tuple[str, ...] = eqx.field(static=True, default=(), converter=tuple)
    networks: Networks = Networks(hidden=(64, 64))

    rates: ClassVar[Mapping[str, str]] = {
        "change": "learning_rate",
        "outcome": "learning_rate",
        "structure": "learning_rate",
    }
    schedules: ClassVar[tuple[str, ...]] = ("decay_updates",)

    @property
    def reads(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The fields that are read, including ``cost`` if costs are predicted."""
        always = ("obs", "action", "reward", "next_obs", "terminated", "truncated", "mask")
        return (*always, *["cost"] * self.predicts_costs)

    def check(self) -> None:
        """Raises a ``ValueError`` for hyperparameters that do not fit each other."""
        enough = self.elites <= self.members
        require(self, "elites", enough, f"at most {self.members}, the number of members")
        require_choice(self, "termination", ("learned", *TERMINATIONS))

    def require_log(self, spec: Spec, rows: Transition) -> None:
        """See :func:`neorl_agents.models._model_check.require_model_log`."""
        require_model_log(type(self).__name__, spec, rows, self.exogenous, self.held_out)

    def log_tables(self, spec: Spec, rows: Transition) -> Any:
        """The tables of the sampler, without the held-out episodes.

        Raises:
            InputError: If :meth:`require_log` refuses the log.
        """
        self.require_log(spec, rows)
        is_fitted = ~held_out_rows(rows.terminated, rows.truncated, self.held_out)
        return self.sampler.tables(jax.tree.map(lambda column: np.asarray(column)[is_fitted], rows))

    def init(
        self,
        spec: Spec,
        statistics: DataStatistics,
        key: PRNGKeyArray,
        *,
        preparation: Preparation | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> LearnerState:
        """A fresh state; if no row of the log is terminated, no step will be."""
        state = super().init(spec, statistics, key, preparation=preparation, context=context)
        terminated = statistics.terminated
        never_ends = False if terminated is None else (terminated.count > 0) & (terminated.max == 0)
        ends = jnp.where(jnp.asarray(never_ends), 0.0, 1.0).astype(jnp.float32)
        structure = replace(state.parameters["structure"], ends=ends)
        return state.with_parameters(structure=structure)

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """The members, whose outputs are initially close to zero."""
        change_key, outcome_key = jax.random.split(key)
        moments = 2 if self.variant == "gaussian" else 1
        costs = spec.n_cost * self.predicts_costs
        n_inputs, extra = self.networks.encoding(spec).width, spec.n_action + spec.n_obs
        options = {"last_bound": 1e-2, "activation": jax.nn.silu}

        def outcome_network(one: PRNGKeyArray) -> Network:
            return self.networks.obs_network(spec, 2 + costs, one, extra_inputs=extra, **options)

        bounded, none = spec.n_obs * (moments - 1), jnp.zeros(0, jnp.float32)
        low, high = (jnp.full(bounded, bound, jnp.float32) for bound in LOG_VARIANCES)
        change = self.networks.obs_action_networks(
            spec, spec.n_obs * moments, change_key, members=self.members, **options
        )
        outcome = ensemble(self.members, outcome_network, outcome_key)
        structure = ModelStructure(
            change=no_rows(n_inputs + spec.n_action, spec.n_obs),
            outcome=no_rows(n_inputs + extra, 1 + costs),
            predicted=exogenous_mask(spec, self.exogenous),
            ends=jnp.ones((), jnp.float32),
        )
        return {
            "change": DynamicsMembers(change, low, high),
            "outcome": DynamicsMembers(outcome, none, none),
            "structure": structure,
        }, {}

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Adds the batch to the linear parts, then takes one gradient step of all members."""
        rows, maps = only_batch(rows), state.preparation
        structure: ModelStructure = state.parameters["structure"]
        change, outcome = self.targets(structure, maps, rows)
        next_obs = newest(maps, rows.next_obs)
        if self.linear:
            inputs = jnp.concatenate([rows.obs, rows.action], axis=-1)
            structure = replace(
                structure,
                change=with_rows(structure.change, inputs, change, rows.mask),
                outcome=with_rows(
                    structure.outcome, jnp.concatenate([inputs, next_obs], -1), outcome, rows.mask
                ),
            )
            state = state.with_parameters(structure=structure)
        rate = self.learning_rate * cosine(state.updates, self.decay_updates)
        data = (structure, maps, rows)
        state, change_loss, more = self.descend(state, "change", self.change_loss, *data, rate=rate)
        state, outcome_loss, _ = self.descend(state, "outcome", self.outcome_loss, *data, rate=rate)
        return state, {"loss": change_loss + outcome_loss, **more}

    def targets(
        self, structure: ModelStructure, maps: Preparation, rows: UnitRows
    ) -> tuple[Float[Array, "*batch obs"], Float[Array, "*batch outcome"]]:
        """The change of the observation, and the reward with the costs, in units."""
        change = newest(maps, rows.next_obs) - newest(maps, rows.obs)
        costs = [rows.cost] * self.predicts_costs
        change = change * along(structure.predicted, change)
        return change, jnp.concatenate([rows.reward[..., None], *costs], -1)

    def change_loss(
        self, members: DynamicsMembers, structure: ModelStructure, maps: Preparation, rows: UnitRows
    ) -> tuple[Float[Array, ""], Metrics]:
        """Loss of the changes: the negative log-likelihood of the linear part's residual."""
        target, _ = self.targets(structure, maps, rows)
        inputs = jnp.concatenate([rows.obs, rows.action], axis=-1)
        base, scale = linear_answer(self._fit(structure.change), inputs, target.shape[-1])
        answers = network_answers(members, inputs)
        residual = (target - base) / along(scale, target)
        loss = likelihood_loss(members, answers, residual, structure.predicted)
        moments = member_moments(members, answers, base, scale, structure.predicted)
        square = jnp.mean(jnp.square(jnp.mean(moments.mean, axis=0) - target), axis=-1)
        member_variance = jnp.mean(jnp.var(moments.mean, axis=0), axis=-1)
        bound_penalty = self.bound_weight * bound_loss(members, structure.predicted)
        return masked_mean(loss, rows.mask) + bound_penalty, {
            "error": jnp.sqrt(masked_mean(square, rows.mask)),
            "disagreement": jnp.sqrt(masked_mean(member_variance, rows.mask)),
        }

    def outcome_loss(
        self, members: DynamicsMembers, structure: ModelStructure, maps: Preparation, rows: UnitRows
    ) -> tuple[Float[Array, ""], None]:
        """Loss of the reward, the costs and the end of the episode."""
        _, target = self.targets(structure, maps, rows)
        inputs = jnp.concatenate([rows.obs, rows.action, newest(maps, rows.next_obs)], axis=-1)
        base, scale = linear_answer(self._fit(structure.outcome), inputs, target.shape[-1])
        answers = network_answers(members, inputs)
        numbers, end = answers[..., :-1], answers[..., -1]
        residual = (target - base) / along(scale, target)
        loss = likelihood_loss(members, numbers, residual, jnp.ones_like(scale))
        terminated = jnp.broadcast_to(rows.terminated, end.shape).astype(end.dtype)
        ends = jnp.sum(optax.sigmoid_binary_cross_entropy(end, terminated), axis=0) * structure.ends
        return masked_mean(loss + ends, rows.mask), None

    def change(
        self, parameters: Mapping[str, Any], network_obs: Float[Array, "*batch in"], action: Array
    ) -> Moments:
        """The change of the observation that every member predicts.

        Args:
            parameters: The parameters of this learner's state.
            network_obs: The observation as the networks read it, in units.
            action: Action in [-1, 1].

        Returns:
            Means and standard deviations, shape ``(ens, *batch, obs)``; zero for exogenous
            observations.
        """
        structure, members = parameters["structure"], parameters["change"]
        inputs = jnp.concatenate([network_obs, action], axis=-1)
        base, scale = linear_answer(
            self._fit(structure.change), inputs, structure.predicted.shape[-1]
        )
        answers = network_answers(members, inputs)
        return member_moments(members, answers, base, scale, structure.predicted)

    def outcome(
        self, parameters: Mapping[str, Any], network_obs: Float[Array, "*batch in"],
        action: Array, next_obs: Float[Array, "*batch obs"],
    ) -> tuple[Moments, Float[Array, "ens *batch"]]:  # fmt: skip
        """Reward and costs that every member predicts, and the log-odds of an end, in units."""
        structure, members = parameters["structure"], parameters["outcome"]
        inputs = jnp.concatenate([network_obs, action, next_obs], axis=-1)
        answers = network_answers(members, inputs)
        base, scale = linear_answer(self._fit(structure.outcome), inputs, answers.shape[-1] - 1)
        moments = member_moments(members, answers[..., :-1], base, scale, jnp.ones_like(scale))
        return moments, jnp.where(structure.ends > 0, answers[..., -1], NEVER)

    def predict(
        self,
        state: LearnerState,
        obs: Float[Array, " obs"] | Window,
        action: Float[Array, " act"],
        key: PRNGKeyArray,
        calibration: Calibration | None = None,
        logged: Float[Array, " obs"] | None = None,
    ) -> PredictedStep:
        """Predicts one step by a randomly chosen member, in physical units.

        A Gaussian model samples the next observation from the member's distribution, and the end of
        the episode with the predicted probability. A deterministic model gives the means, and ends
        the episode if that is likelier than not. The reward is the member's mean, clipped to the
        range of the log's rewards. The next observation is clipped to 8 standard deviations from
        the log's mean, or to the distance of the current one if that is larger.

        ``disagreement`` is the measure that ``uncertainty`` names, over all predicted numbers.

        Args:
            state: State of this learner.
            obs: One observation, physical units, or the window that networks see; not batched.
            action: One action, physical units.
            key: Random key; consumed.
            calibration: Result of :meth:`calibrate`; all members predict without it.
            logged: Next observation from which the exogenous channels are taken, physical units; if
                not given, they stay as they are.
        """
        maps, parameters = state.preparation, state.parameters
        member_key, noise_key, end_key = jax.random.split(key, 3)
        network_obs = network_inputs(maps, obs)
        unit = jnp.clip(maps.action.to_scaled(action), -1, 1)
        chosen = jnp.arange(self.members) if calibration is None else calibration.elites
        member = jax.random.choice(member_key, chosen)
        change = self.change(parameters, network_obs, unit)
        noise = jax.random.normal(noise_key, change.mean.shape[1:], change.mean.dtype)
        now = newest(maps, network_obs)
        bound = jnp.maximum(CLIP, jnp.abs(now))
        new_obs = jnp.clip(now + change.mean[member] + change.std[member] * noise, -bound, bound)
        if logged is not None:
            is_predicted = parameters["structure"].predicted > 0
            new_obs = jnp.where(is_predicted, new_obs, maps.obs.to_scaled(logged))
        outcome, odds = self.outcome(parameters, network_obs, unit, new_obs)
        terminated = odds[member] > 0
        if self.variant == "gaussian":
            terminated = jax.random.bernoulli(end_key, jax.nn.sigmoid(odds[member]))
        physical_obs = obs.obs[-1] if isinstance(obs, Window) else obs
        next_obs = physical_obs + (new_obs - now) * maps.obs.scale
        if self.termination != "learned":
            terminated = TERMINATIONS.find(self.termination)(physical_obs, action, next_obs)
        reward = jnp.clip(outcome.mean[member, 0], *maps.reward_range)
        costs = outcome.mean[member, 1:]
        return PredictedStep(
            next_obs=next_obs,
            reward=reward * maps.reward_unit + maps.reward_offset,
            cost=costs * maps.cost_unit[: len(costs)],
            terminated=terminated,
            disagreement=uncertainty_of(join_moments(change, outcome, chosen), self.uncertainty),
        )

    def calibrate(
        self, state: LearnerState, rows: UnitRows, valid: Bool[Array, " row"]
    ) -> Calibration:
        """Chooses the elites by their error, and measures their disagreement.

        Args:
            state: State of this learner.
            rows: Rows in the units of its preparation.
            valid: True for the rows that it was not fitted to.
        """
        maps, parameters = state.preparation, state.parameters
        change = self.change(parameters, rows.obs, rows.action)
        outcome, _ = self.outcome(parameters, rows.obs, rows.action, newest(maps, rows.next_obs))
        target = jnp.concatenate(self.targets(parameters["structure"], maps, rows), axis=-1)
        all_members = join_moments(change, outcome, jnp.arange(self.members))
        square = jnp.square(all_members.mean - target[None])
        # Every predicted number is weighted by the residual of the best member.
        squared_error = jnp.sum(jnp.where(valid[None, :, None], square, 0), axis=1)
        smallest = jnp.min(squared_error, axis=0, keepdims=True)
        relative_error = jnp.sum(squared_error / jnp.where(smallest > 0, smallest, 1), axis=-1)
        elites = jnp.argsort(relative_error)[: self.elites or self.members]
        member_variance = uncertainty_of(join_moments(change, outcome, elites), self.uncertainty)
        largest = jnp.max(jnp.where(valid, member_variance, 0))
        mean = masked_mean(member_variance, valid)
        return Calibration(elites, mean, largest, percentiles_of(member_variance, valid))

    def _fit(self, fit: LeastSquares) -> LeastSquares | None:
        return fit if self.linear else None
