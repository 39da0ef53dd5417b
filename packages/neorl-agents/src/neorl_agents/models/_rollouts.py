"""Batches of which a part comes from short rollouts in a learned model."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents.learning import (
    Algorithm,
    Explorer,
    LearnerState,
    Metrics,
    Source,
    TrainingKeys,
    reads_costs,
)
from neorl_agents.models._dynamics import PredictedStep
from neorl_agents.online import balanced_batch
from neorl_agents.sampling import Batch, Rows, as_batch
from neorl_core import InputError, Policy, Transition
from neorl_core.replay import RingBuffer, ring_buffer, ring_push


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
        """One step in physical units; it may be drawn at random."""
        ...


class ModelMemory(NamedTuple):
    """What :class:`ModelRollouts` carries from update to update.

    Attributes:
        ring: Predicted rows in physical units.
        reward: Mean reward of the last rollouts, less the price of disagreement.
        disagreement: Their mean disagreement.
        ended: Share of their steps that ended an episode.
    """

    ring: RingBuffer
    reward: Float[Array, ""]
    disagreement: Float[Array, ""]
    ended: Float[Array, ""]


class ModelRollouts(eqx.Module):
    """Rows of the log, mixed with rollouts of the present policy in a model that was fitted before.

    Before every ``cycle`` updates, ``starts`` rollouts of ``steps`` steps begin at observations of
    the log. Where the model ends an episode, the rollout goes on from another observation of the
    log. The last step of a rollout is no end: values bootstrap there. Every predicted row is stored
    with the reward ``r - penalty * disagreement``.

    A learner returns this source from ``source(given)``, and names the model in ``fits()``::

        def fits(self):
            return {"model": Fit(self.model, 10_000)}

        def source(self, given):
            return ModelRollouts(given, self.model)

    Attributes:
        log: Source of the logged rows: a log in memory.
        model: The model; its state is ``state.context[name]``.
        penalty: Reward that one unit of disagreement takes off, in the unit of the reward.
        name: Name of the model among the learner's ``fits()``; static.
        steps: Steps of a rollout; static.
        starts: Rollouts before every ``cycle`` updates; static.
        capacity: Predicted rows that are remembered; static.
        share: Share of the log in every batch, in [0, 1]; static.
        cycle: Calls of ``update`` for each set of rollouts; static.

    Raises:
        InputError: When training begins, if the learner has no policy or memory, does not draw
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
    steps: int = eqx.field(static=True, default=5)
    starts: int = eqx.field(static=True, default=64)
    capacity: int = eqx.field(static=True, default=20_000)
    share: float = eqx.field(static=True, default=0.05)
    cycle: int = eqx.field(static=True, default=1)

    def begin(
        self, learner: Algorithm, state: LearnerState, tables: Any, keys: TrainingKeys
    ) -> ModelMemory:
        """The rollouts of the initial policy."""
        self._require_usable(learner, state, tables)
        policy, zero = _behaviour(learner, state), jnp.zeros(())
        rows = jax.eval_shape(lambda: self._rollouts(policy, learner, state, tables, 0, keys.begin))
        row = jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), rows[0])
        ring = ring_buffer(Batch(row), capacity=self.capacity)
        memory = ModelMemory(ring, zero, zero, zero)
        return self._stored(memory, *self._rollouts(policy, learner, state, tables, 0, keys.begin))

    def advance(
        self,
        learner: Algorithm,
        state: LearnerState,
        memory: ModelMemory,
        tables: Any,
        number: Int[Array, ""],
        key: PRNGKeyArray,
    ) -> ModelMemory:
        """The rollouts of the present policy, in place of the oldest ones."""
        policy = _behaviour(learner, state)
        return self._stored(memory, *self._rollouts(policy, learner, state, tables, number, key))

    def batches(
        self,
        learner: Algorithm,
        memory: ModelMemory,
        tables: Any,
        numbers: Int[Array, " update"],
        key: PRNGKeyArray,
    ) -> Any:
        """Batches with the same counts of logged and predicted rows."""

        def draw(number: Int[Array, ""]) -> Any:
            return balanced_batch(learner, tables, memory.ring, number, key, share=self.share)

        return jax.vmap(draw)(numbers)

    def metrics(self, memory: ModelMemory) -> Metrics:
        """Of the last rollouts: reward, disagreement and the share of steps that ended one."""
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
        tables: Any,
        number: Any,
        key: PRNGKeyArray,
    ) -> tuple[Transition, Float[Array, " row"]]:
        """Predicted rows, one rollout after the other by step, and the disagreement in each."""
        start_key, policy_key, model_key = jax.random.split(jax.random.fold_in(key, number), 3)
        shape = (self.steps + 1, self.starts)
        drawn = learner.sampler.draw(tables, jnp.asarray(number), start_key, shape)
        fresh, model_state = as_batch(drawn).rows.obs, state.context[self.name]

        def act(obs: Array, step_key: PRNGKeyArray) -> Array:
            return policy(policy.initial_carry(), obs, step_key)[1]

        def step(carry: tuple[Array, Array], inputs: Any) -> tuple[tuple[Array, Array], Any]:
            (obs, action), (other, act_keys, model_keys) = carry, inputs
            predict = jax.vmap(self.model.predict, in_axes=(None, 0, 0, 0))
            seen = predict(model_state, obs, action, model_keys)
            ended = seen.terminated
            following = jnp.where(ended[:, None], other, seen.next_obs)
            then = jax.vmap(act)(following, act_keys)
            row = Transition(
                obs=obs,
                action=action,
                reward=seen.reward - self.penalty * seen.disagreement,
                cost=seen.cost,
                next_obs=seen.next_obs,
                next_action=jnp.where(ended[:, None], 0, then),
                terminated=ended,
                truncated=jnp.zeros_like(ended),
            )
            return (following, then), (row, seen.disagreement)

        act_keys = jax.random.split(policy_key, shape)
        model_keys = jax.random.split(model_key, (self.steps, self.starts))
        first = fresh[0], jax.vmap(act)(fresh[0], act_keys[0])
        _, (rows, disagreement) = jax.lax.scan(step, first, (fresh[1:], act_keys[1:], model_keys))
        rows = rows._replace(truncated=rows.truncated.at[-1].set(~rows.terminated[-1]))
        listed = {name: getattr(rows, name) for name in learner.fields if name != "mask"}
        rows = Transition(*(listed.get(name) for name in Transition._fields))  # pyright: ignore
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)
        return flat, disagreement.ravel()

    def _stored(
        self, memory: ModelMemory, rows: Transition, disagreement: Float[Array, " row"]
    ) -> ModelMemory:
        ended = jnp.zeros(()) if rows.terminated is None else jnp.mean(rows.terminated)
        reward = jnp.zeros(()) if rows.reward is None else jnp.mean(rows.reward)
        ring = ring_push(memory.ring, Batch(rows))
        return ModelMemory(ring, reward, jnp.mean(disagreement), ended)

    def _require_usable(self, learner: Algorithm, state: LearnerState, tables: Any) -> None:
        name = type(learner).__name__
        if not isinstance(learner, Algorithm):
            raise InputError(f"{name} gives no policy, so nothing acts in the model")
        if self.name not in state.context:
            raise InputError(
                f"{name} has no fitted {self.name!r}: name the model in fits(), beside "
                f"{', '.join(state.context) or 'nothing else'}"
            )
        if reads_costs(learner) != self.model.predicts_costs:
            reads = "reads costs" if reads_costs(learner) else "reads no costs"
            predicts = "predicts them" if self.model.predicts_costs else "predicts none"
            raise InputError(
                f"{name} {reads} and its model {predicts}; set predicts_costs="
                f"{reads_costs(learner)} in the model"
            )
        if not isinstance(learner.sampler, Rows) or not isinstance(tables, Transition):
            raise InputError(
                f"rollouts in a model give single rows, and {name} draws "
                f"{type(learner.sampler).__name__}; use networks.encoder='none' and steps.n_step=1"
            )
        if self.log.cycle or tables.obs.ndim != 2:
            raise InputError(
                "rollouts in a model begin at rows of a log in memory; do not stream it, and do "
                "not train on a plant"
            )
        for field in ("steps", "starts", "cycle"):
            if getattr(self, field) < 1:
                raise InputError(f"ModelRollouts.{field} must be at least 1")
        if not 0 <= self.share <= 1:
            raise InputError(f"ModelRollouts.share must lie in [0, 1], got {self.share}")
        if self.capacity < self.steps * self.starts:
            raise InputError(
                f"ModelRollouts.capacity must be at least steps * starts = "
                f"{self.steps * self.starts}, got {self.capacity}"
            )


def _behaviour(learner: Algorithm, state: LearnerState) -> Policy:
    return learner.explore(state) if isinstance(learner, Explorer) else learner.policy(state)
