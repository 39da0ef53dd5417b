"""Batches that mix rows of a log with short rollouts in a learned model."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from neorl_agents.learning import (
    Algorithm,
    Explorer,
    LearnerState,
    Metrics,
    Source,
    TrainingKeys,
    reads_costs,
)
from neorl_agents.learning._unit_rows import unit_rows
from neorl_agents.models._dynamics import DynamicsModel
from neorl_agents.models._model_check import held_out_rows
from neorl_agents.models._predictions import PredictedStep
from neorl_agents.networks import Window
from neorl_agents.online import balanced_batch
from neorl_agents.sampling import Batch, Histories, Rows
from neorl_agents.sampling._histories import windows
from neorl_core import InputError, Policy, Transition
from neorl_core.infrastructure import require_settings, setting
from neorl_core.replay import RingBuffer, batch_indices, ring_buffer, ring_push

CALIBRATION_ROWS = 8_192
"""Largest number of rows of the log on which a model is calibrated when training begins."""


@runtime_checkable
class OneStepModel(Protocol):
    """A learner that predicts a step of the plant, such as :class:`DynamicsModel`."""

    @property
    def predicts_costs(self) -> bool:
        """Whether costs are predicted and the reward is the logged one."""
        ...

    def predict(
        self,
        state: LearnerState,
        obs: Float[Array, " obs"],
        action: Float[Array, " act"],
        key: PRNGKeyArray,
    ) -> PredictedStep:
        """Predicts one step in physical units; it may be random."""
        ...


class ModelMemory(NamedTuple):
    """Memory that :class:`ModelRollouts` carries from update to update.

    Attributes:
        ring: Predicted rows in physical units.
        reward: Mean reward of the last rollouts, minus the penalty on disagreement.
        disagreement: Their mean disagreement.
        ended: Fraction of their steps that ended an episode.
        calibration: Calibration of a :class:`DynamicsModel` on the episodes that it was not
            fitted to; ``()`` for any other model.
    """

    ring: RingBuffer
    reward: Float[Array, ""]
    disagreement: Float[Array, ""]
    ended: Float[Array, ""]
    calibration: Any = ()


@runtime_checkable
class Pessimist(Protocol):
    """A learner that changes the rewards and ends of predicted steps before it uses them."""

    def imagined(
        self, state: LearnerState, step: PredictedStep, calibration: Any
    ) -> tuple[Float[Array, "*row"], Bool[Array, "*row"]]:
        """Reward in its own unit, and whether the episode ends, of steps that a model predicted."""
        ...


@runtime_checkable
class RolloutCutter(Protocol):
    """A learner that stops rollouts where it no longer trusts the model.

    The plant does not end there: the row of the step is marked truncated, so that values bootstrap
    from the observation that the model predicted, and the rollout continues from another
    observation of the log.
    """

    def cut(
        self, state: LearnerState, step: PredictedStep, calibration: Any
    ) -> Bool[Array, "*row"]:
        """Whether rollouts stop after these steps, which a model predicted."""
        ...


class ModelRollouts(eqx.Module):
    """Rows of the log, mixed with rollouts of the current policy in a previously fitted model.

    Before every ``cycle`` updates, ``starts`` rollouts of ``steps`` steps begin at observations of
    the log, with the windows before them if networks see windows. If the model ends an episode, the
    rollout continues from another observation of the log. The last step of a rollout does not end
    an episode: values bootstrap there. Observations that the model declares exogenous take the
    values that followed in the log, or the last one if its episode has ended.

    Every predicted row is stored with the reward ``r - penalty * disagreement``, or with the result
    of a learner that is a :class:`Pessimist`. A :class:`RolloutCutter` stops rollouts before their
    last step. A learner that continues to train its model provides
    the current state through a method ``model_state(state)``.

    A learner returns this source from ``source(given)``, and names the model in ``fits()``::

        def fits(self):
            return {"model": Fit(self.model, 10_000)}

        def source(self, given):
            return ModelRollouts(given, self.model)

    Attributes:
        log: Source of the logged rows: a log in memory.
        model: The model; its state is ``state.context[name]``.
        penalty: Reward subtracted per unit of disagreement, in the unit of the reward.
        name: Name of the model among the learner's ``fits()``; static.
        steps: Number of steps of a rollout; static.
        starts: Number of rollouts before every ``cycle`` updates; static.
        capacity: Number of predicted rows kept in the buffer; static.
        share: Fraction of every batch that comes from the log; static.
        cycle: Calls of ``update`` for each set of rollouts; static.

    Raises:
        InputError: When training begins, if the learner has no policy or memory, does not sample
            single rows, reads costs that the model does not predict (or the other way round), if
            the rows are streamed from a file, or if a number is out of range.

    Source: Janner et al., When to trust your model, arXiv 1906.08253, algorithm 2; Yu et al., MOPO,
    arXiv 2005.13239, for the penalty, with the members' disagreement in place of the largest
    predicted deviation.
    """

    log: Source
    model: OneStepModel
    penalty: float | Float[Array, ""] = 0.0
    name: str = eqx.field(static=True, default="model")
    steps: int = setting(5, low=1, static=True)
    starts: int = setting(64, low=1, static=True)
    capacity: int = setting(20_000, low=1, static=True)
    share: float = setting(0.05, low=0, high=1, static=True)
    cycle: int = setting(1, low=1, static=True)

    def begin(
        self, learner: Algorithm, state: LearnerState, tables: Any, keys: TrainingKeys
    ) -> ModelMemory:
        """The rollouts of the initial policy."""
        self._require_usable(learner, state, tables)
        policy, zero = _behaviour(learner, state), jnp.zeros(())
        calibration = self._calibration(learner, state, tables)
        arguments = (policy, learner, state, calibration, tables, 0, keys.begin)
        rows = jax.eval_shape(lambda: self._rollouts(*arguments))
        row = jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), rows[0])
        ring = ring_buffer(Batch(row), capacity=self.capacity)
        memory = ModelMemory(ring, zero, zero, zero, calibration)
        return self._store(memory, *self._rollouts(*arguments))

    def advance(
        self,
        learner: Algorithm,
        state: LearnerState,
        memory: ModelMemory,
        tables: Any,
        number: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> ModelMemory:
        """The memory with rollouts of the current policy in place of the oldest ones."""
        policy = _behaviour(learner, state)
        arguments = (policy, learner, state, memory.calibration, tables, number, key)
        return self._store(memory, *self._rollouts(*arguments))

    def batches(
        self,
        learner: Algorithm,
        memory: ModelMemory,
        tables: Any,
        numbers: Int[Array, " update"],
        key: PRNGKeyArray,
    ) -> Any:
        """Batches with fixed numbers of logged and predicted rows."""

        def draw(number: Int[Array, ""]) -> Any:
            return balanced_batch(learner, tables, memory.ring, number, key, share=self.share)

        return jax.vmap(draw)(numbers)

    def metrics(self, memory: ModelMemory) -> Metrics:
        """Metrics of the last rollouts: reward, disagreement and the fraction of final steps."""
        return {
            "model_reward": memory.reward,
            "model_disagreement": memory.disagreement,
            "model_ended": memory.ended,
        }

    def _rollouts(
        self,
        policy: Policy,
        learner: Algorithm,
        state: LearnerState,
        calibration: Any,
        tables: Any,
        number: Any,
        key: PRNGKeyArray,
    ) -> tuple[Transition, Float[Array, " row"]]:
        """Predicted rows, step by step for all rollouts, and the disagreement in each."""
        start_key, policy_key, model_key = jax.random.split(jax.random.fold_in(key, number), 3)
        shape, log = (self.steps + 1, self.starts), _rows_of(tables)
        start_rows = batch_indices(
            start_key, jnp.asarray(number), n=len(log.action), batch=shape[0] * shape[1]
        )
        indices, model_state = start_rows.reshape(shape), self._model_state(learner, state)
        last = len(log.action) - 1

        def step(carry: Any, inputs: Any) -> tuple[Any, tuple[Transition, Array]]:
            (obs, action, index), (other, act_keys, model_keys) = carry, inputs
            logged = None if not self._exogenous else tables.next_obs[index]
            predicted = self._predict(model_state, calibration, obs, action, model_keys, logged)
            reward, ended = (
                predicted.reward - self.penalty * predicted.disagreement,
                predicted.terminated,
            )
            if isinstance(learner, Pessimist):
                reward, ended = learner.imagined(state, predicted, calibration)
            cut = jnp.zeros_like(ended)
            if isinstance(learner, RolloutCutter):
                cut = learner.cut(state, predicted, calibration) & ~ended
            over = ended | cut
            next_obs = _advance(obs, action, predicted.next_obs)
            obs_after = _where(over, _obs_at(learner, tables, other), next_obs)
            if self._exogenous:
                index = jnp.where(log.terminated[index] | log.truncated[index], index, index + 1)
            index = jnp.where(over, other, jnp.minimum(index, last))
            next_action = jax.vmap(_act, in_axes=(None, 0, 0))(policy, obs_after, act_keys)
            row = Transition(
                obs=obs,
                action=action,
                reward=reward,
                cost=predicted.cost,
                next_obs=next_obs,
                next_action=jnp.where(over[:, None], 0, next_action),
                terminated=ended,
                truncated=cut,
            )
            return (obs_after, next_action, index), (row, predicted.disagreement)

        act_keys = jax.random.split(policy_key, shape)
        model_keys = jax.random.split(model_key, (self.steps, self.starts))
        initial_obs = _obs_at(learner, tables, indices[0])
        first = (
            initial_obs,
            jax.vmap(_act, in_axes=(None, 0, 0))(policy, initial_obs, act_keys[0]),
            indices[0],
        )
        _, (rows, disagreement) = jax.lax.scan(step, first, (indices[1:], act_keys[1:], model_keys))
        ended: Any = rows.terminated
        cut: Any = rows.truncated
        rows = rows._replace(truncated=cut.at[-1].set(~ended[-1]))
        columns = {name: getattr(rows, name) for name in learner.fields if name != "mask"}
        rows = Transition(*(columns.get(name) for name in Transition._fields))  # pyright: ignore
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)
        return flat, disagreement.ravel()

    @property
    def _exogenous(self) -> tuple[str, ...]:
        return self.model.exogenous if isinstance(self.model, DynamicsModel) else ()

    def _model_state(self, learner: Algorithm, state: LearnerState) -> LearnerState:
        model_state_of: Any = getattr(learner, "model_state", None)
        return state.context[self.name] if model_state_of is None else model_state_of(state)

    def _predict(
        self, model_state: Any, calibration: Any, obs: Any, action: Array, keys: Any, logged: Any
    ) -> PredictedStep:
        """Predicts one step of all rollouts."""
        if not isinstance(self.model, DynamicsModel):
            return jax.vmap(self.model.predict, in_axes=(None, 0, 0, 0))(
                model_state, obs, action, keys
            )
        predict = jax.vmap(self.model.predict, in_axes=(None, 0, 0, 0, None, 0))
        return predict(model_state, obs, action, keys, calibration, logged)

    def _calibration(self, learner: Algorithm, state: LearnerState, tables: Any) -> Any:
        """Calibration on the held-out episodes, or on all rows if episode ends are unknown."""
        if not isinstance(self.model, DynamicsModel):
            return ()
        log, model_state = _rows_of(tables), self._model_state(learner, state)
        row_numbers = jnp.arange(0, len(log.action), -(-len(log.action) // CALIBRATION_ROWS))
        rows = unit_rows(model_state.preparation, _rows_at(learner, tables, row_numbers))
        valid = jnp.ones(len(row_numbers), bool)
        if log.truncated is not None and self.model.held_out:
            flags = log.terminated, log.truncated
            valid = held_out_rows(*flags, self.model.held_out, xp=jnp)[row_numbers]
            valid = valid | ~jnp.any(valid)
        return self.model.calibrate(model_state, rows, valid)

    def _store(
        self, memory: ModelMemory, rows: Transition, disagreement: Float[Array, " row"]
    ) -> ModelMemory:
        ended = jnp.zeros(()) if rows.terminated is None else jnp.mean(rows.terminated)
        reward = jnp.zeros(()) if rows.reward is None else jnp.mean(rows.reward)
        ring = ring_push(memory.ring, Batch(rows))
        return ModelMemory(ring, reward, jnp.mean(disagreement), ended, memory.calibration)

    def _require_usable(self, learner: Algorithm, state: LearnerState, tables: Any) -> None:
        name = type(learner).__name__
        if not isinstance(learner, Algorithm):
            raise InputError(f"rollouts in a model need a policy, but {name} does not give one")
        if self.name not in state.context and not hasattr(learner, "model_state"):
            raise InputError(
                f"rollouts need the fitted model {self.name!r}, but the context of {name} has "
                f"{', '.join(state.context) or 'no model'}; return the model from fits() under "
                "this name"
            )
        if reads_costs(learner) != self.model.predicts_costs:
            reads = "reads costs" if reads_costs(learner) else "reads no costs"
            predicts = "predicts them" if self.model.predicts_costs else "predicts none"
            raise InputError(
                f"{name} {reads} and its model {predicts}; set predicts_costs="
                f"{reads_costs(learner)} in the model"
            )
        sampler: Any = learner.sampler
        inner = sampler.rows if isinstance(sampler, Histories) else sampler
        if not isinstance(inner, Rows):
            raise InputError(
                f"rollouts in a model give single rows, but {name} samples "
                f"{type(inner).__name__}; set steps.n_step to 1"
            )
        if self._exogenous and "truncated" not in learner.fields:
            raise InputError(
                "exogenous channels are taken from the log up to the end of each episode, but "
                f"{name} does not read truncated; add it to the learner's fields"
            )
        if self.log.cycle or tables.obs.ndim != 2:
            raise InputError(
                "rollouts in a model begin at rows of a log in memory; do not stream the log, and "
                "do not train on a plant"
            )
        require_settings(self)
        if self.capacity < self.steps * self.starts:
            raise InputError(
                f"ModelRollouts.capacity must be at least steps * starts = "
                f"{self.steps * self.starts}, got {self.capacity}"
            )


def _behaviour(learner: Algorithm, state: LearnerState) -> Policy:
    return learner.explore(state) if isinstance(learner, Explorer) else learner.policy(state)


def _rows_of(tables: Any) -> Any:
    """The columns of the log other than observations."""
    return tables if isinstance(tables, Transition) else tables.choice


def _rows_at(learner: Algorithm, tables: Any, indices: Int[Array, " row"]) -> Transition:
    """Rows of the log as the learner's sampler gives them."""
    rows = jax.tree.map(lambda column: column[indices], _rows_of(tables))
    sampler: Any = learner.sampler
    return rows if isinstance(tables, Transition) else sampler.with_windows(tables, rows)


def _obs_at(learner: Algorithm, tables: Any, indices: Int[Array, " row"]) -> Any:
    """The observations of the given rows, or the windows that end with them."""
    if isinstance(tables, Transition):
        return tables.obs[indices]
    sampler: Any = learner.sampler
    return windows(tables, indices, steps=sampler.steps)


def _advance(obs: Any, action: Array, next_obs: Array) -> Any:
    """Observations one step later; a window drops its oldest step."""
    if not isinstance(obs, Window):
        return next_obs
    known = jnp.ones(next_obs.shape[:-1], bool)
    pairs = zip(obs, (next_obs, action, known, known), strict=True)
    return Window(*(jnp.concatenate([old[:, 1:], new[:, None]], axis=1) for old, new in pairs))


def _where(chosen: Bool[Array, " row"], if_true: Any, if_false: Any) -> Any:
    """Selects, row by row, from one of two trees of arrays."""

    def select(x: Array, y: Array) -> Array:
        return jnp.where(chosen.reshape(-1, *(1,) * (x.ndim - 1)), x, y)

    return jax.tree.map(select, if_true, if_false)


def _act(policy: Any, obs: Any, key: PRNGKeyArray) -> Array:
    """The action of a policy for one observation, or for one window."""
    if not isinstance(obs, Window):
        return policy(policy.initial_carry(), obs, key)[1]
    history_policy = getattr(
        policy, "parameters", policy
    )  # A sampling policy wraps a history policy.
    return policy(history_policy.carry_of_window(obs), obs.obs[-1], key)[1]
