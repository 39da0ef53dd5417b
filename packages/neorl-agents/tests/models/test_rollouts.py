"""Rollouts in a model: each predicted row is the model's answer, and a learner trains on them."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import IQL, TD3BC
from neorl_agents.artefact import policy_actions
from neorl_agents.learning import (
    Fit,
    GivenBatches,
    Log,
    begin_training,
    rows_for,
    train_chunk,
    training_keys,
)
from neorl_agents.models import ModelRollouts, PredictedStep
from neorl_agents.sampling import as_batch
from neorl_agents.testing import make_problem, sized
from neorl_core import InputError, as_arrays

KEY = jax.random.key(3)


class Countdown(eqx.Module):
    """A model whose answers can be recomputed by hand: it moves, pays and ends without chance."""

    predicts_costs: bool = eqx.field(static=True, default=False)

    def predict(self, state: Any, obs: Any, action: Any, key: Any) -> PredictedStep:
        return PredictedStep(
            next_obs=obs + state["drift"] * jnp.sum(action),
            reward=jnp.sum(obs) - jnp.sum(action),
            cost=jnp.abs(action[:1]) * jnp.ones(2) if self.predicts_costs else jnp.zeros(0),
            terminated=obs[0] > state["limit"],
            disagreement=jnp.abs(obs[0]),
        )


class ModelBased(TD3BC):
    """TD3+BC on rollouts in a model; as a learner from outside would write it."""

    rollouts: ModelRollouts = ModelRollouts(Log(), Countdown())

    def fits(self) -> Mapping[str, Fit]:
        return {}

    def source(self, given: Any) -> Any:
        return eqx.tree_at(lambda r: r.log, self.rollouts, given)


class WithCosts(ModelBased):
    reads: ClassVar[tuple[str, ...]] = (*TD3BC.reads, "cost")


class Doubting(ModelBased):
    """It stops rollouts where the disagreement, here a size of the observation, is large."""

    doubt: float = 1.0

    reads: ClassVar[tuple[str, ...]] = (*TD3BC.reads, "truncated", "next_action")

    def cut(self, state: Any, step: PredictedStep, calibration: Any) -> Any:
        return step.disagreement > self.doubt


@pytest.fixture(scope="module")
def problem():
    return make_problem()


def begun(problem, learner, limit=1e9, drift=0.01):
    """Arguments of ``train_chunk``, with the state of the model as context."""
    learner = sized(learner, hidden=(8, 8), batch_size=16)
    context = {"model": {"drift": jnp.float32(drift), "limit": jnp.float32(limit)}}
    state = learner.init(problem.spec, problem.statistics, KEY, context=context)
    rows = rows_for(learner, problem.log, [0.0] * problem.spec.n_cost)
    tables = jax.tree.map(jnp.asarray, learner.sampler.tables(rows))
    source = learner.source(Log())
    return as_arrays(learner), as_arrays(source), state, tables


def predicted_rows(memory):
    count = int(memory.ring.size)
    return jax.tree.map(lambda x: np.asarray(x)[:count], memory.ring.rows.rows)


def test_every_row_is_the_models_answer_and_rollouts_are_chained(problem):
    rollouts = ModelRollouts(Log(), Countdown(), penalty=0.5, steps=3, starts=8, capacity=24)
    limit = float(np.median(np.asarray(problem.log.obs)[:, 0]))
    learner, source, state, tables = begun(problem, ModelBased(rollouts=rollouts), limit)
    memory = begin_training(learner, source, state, tables, KEY).memory
    rows = predicted_rows(memory)
    assert rows.obs.shape == (24, problem.spec.n_obs)
    moved = rows.obs + 0.01 * rows.action.sum(1, keepdims=True)
    np.testing.assert_allclose(rows.next_obs, moved, rtol=1e-5, atol=1e-5)
    priced = rows.obs.sum(1) - rows.action.sum(1) - 0.5 * np.abs(rows.obs[:, 0])
    np.testing.assert_allclose(rows.reward, priced, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(rows.terminated, rows.obs[:, 0] > limit)
    assert 0 < rows.terminated.mean() < 1
    # By step: a step begins where the one before it ended, or anew behind the end of an episode.
    obs, after, ended = (
        x.reshape(3, 8, *x.shape[1:]) for x in (rows.obs, rows.next_obs, rows.terminated)
    )
    goes_on = ~ended[:-1]
    np.testing.assert_array_equal(obs[1:][goes_on], after[:-1][goes_on])
    logged = {row.tobytes() for row in np.asarray(problem.log.obs, np.float32)}
    begun_at = [*obs[0], *obs[1:][~goes_on]]
    assert all(row.tobytes() in logged for row in begun_at)
    np.testing.assert_allclose(
        policy_actions(learner.policy(state), rows.obs), rows.action, rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(float(memory.reward), rows.reward.mean(), rtol=1e-4)
    assert float(memory.ended) == pytest.approx(rows.terminated.mean())


def test_a_rollout_that_is_cut_bootstraps_and_starts_anew(problem):
    """The row of the cut is truncated and not terminated, and keeps the model's observation."""
    rollouts = ModelRollouts(Log(), Countdown(), steps=3, starts=8, capacity=24)
    first = np.asarray(problem.log.obs)[:, 0]
    limit, doubt = float(np.quantile(first, 0.8)), float(np.median(np.abs(first)))
    learner = Doubting(rollouts=rollouts, doubt=doubt)
    learner, source, state, tables = begun(problem, learner, limit)
    rows = predicted_rows(begin_training(learner, source, state, tables, KEY).memory)
    ended = rows.obs[:, 0] > limit
    np.testing.assert_array_equal(rows.terminated, ended)
    doubtful = (np.abs(rows.obs[:, 0]) > doubt) & ~ended
    last = np.arange(24) >= 16
    np.testing.assert_array_equal(rows.truncated, doubtful | (last & ~ended))
    assert 0 < doubtful[~last].sum() < 16
    assert not rows.next_action[ended | doubtful].any()
    moved = rows.obs + 0.01 * rows.action.sum(1, keepdims=True)
    np.testing.assert_allclose(rows.next_obs, moved, rtol=1e-5, atol=1e-5)
    logged = {row.tobytes() for row in np.asarray(problem.log.obs, np.float32)}
    begun_anew = np.array([row.tobytes() in logged for row in rows.obs[8:]])
    np.testing.assert_array_equal(begun_anew, (ended | doubtful)[:16])


@pytest.mark.nightly
def test_batches_hold_the_stated_share_of_the_log_and_the_length_of_a_chunk_is_no_part(problem):
    rollouts = ModelRollouts(
        Log(), Countdown(), steps=2, starts=8, capacity=64, share=0.25, cycle=2
    )
    learner, source, state, tables = begun(problem, ModelBased(rollouts=rollouts), drift=10.0)
    training = begin_training(learner, source, state, tables, KEY)
    keys = training_keys(KEY)
    batch = as_batch(source.batches(learner, training.memory, tables, jnp.arange(1), keys.batches))
    logged = {row.tobytes() for row in np.asarray(problem.log.next_obs, np.float32)}
    after = np.asarray(batch.rows.next_obs).reshape(-1, 16, problem.spec.n_obs)
    assert [[row.tobytes() in logged for row in one] for one in after] == [
        [True] * 4 + [False] * 12 for _ in after
    ]
    ends = []
    for chunks in ((4,), (2, 2)):
        now, done = begin_training(learner, source, state, tables, KEY), 0
        for n_updates in chunks:
            first = jnp.int32(done)
            now, metrics = train_chunk(
                learner, source, now, tables, first, KEY, n_updates=n_updates
            )
            done += n_updates
        ends.append(now)
    jax.tree.map(np.testing.assert_array_equal, *map(_plain, ends))
    assert {"model_reward", "model_disagreement", "model_ended"} <= set(metrics)


def _plain(tree):
    return jax.tree.map(lambda x: np.asarray(x), tree)


def test_costs_are_those_of_the_model(problem):
    rollouts = ModelRollouts(Log(), Countdown(predicts_costs=True), steps=2, starts=4, capacity=8)
    learner, source, state, tables = begun(problem, WithCosts(rollouts=rollouts))
    memory = begin_training(learner, source, state, tables, KEY).memory
    rows = predicted_rows(memory)
    np.testing.assert_allclose(rows.cost, np.abs(rows.action[:, :1]) * np.ones(2), rtol=1e-6)


REFUSED = {
    "a model without costs for a learner that reads them": (
        WithCosts(), {}, Log(), "reads costs and its model predicts none; set predicts_costs=True"
    ),
    "a model with costs for one that does not": (
        ModelBased(), {"model": Countdown(predicts_costs=True)}, Log(), "set predicts_costs=False"
    ),
    "a name that nothing was fitted under": (
        ModelBased(), {"name": "plant"}, Log(), "need the fitted model 'plant'"
    ),
    "several steps": (
        ModelBased(), {"n_step": 3}, Log(), "single rows, but ModelBased samples NSteps"
    ),
    "rows out of a file": (ModelBased(), {}, GivenBatches(), "a log in memory"),
    "too small a memory": (ModelBased(), {"capacity": 3}, Log(), "at least steps . starts = 320"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_rolled_out_is_refused_in_words(problem, case):
    learner, changes, given, words = REFUSED[case]
    changes = dict(changes)
    n_step = changes.pop("n_step", 1)
    rollouts = ModelRollouts(Log(), changes.pop("model", learner.rollouts.model), **changes)
    learner = type(learner)(rollouts=rollouts)
    learner = sized(learner, hidden=(8, 8), batch_size=16, n_step=n_step)
    context = {"model": {"drift": jnp.float32(0), "limit": jnp.float32(0)}}
    state = learner.init(problem.spec, problem.statistics, KEY, context=context)
    rows = rows_for(learner, problem.log, [0.0] * problem.spec.n_cost)
    tables = jax.tree.map(jnp.asarray, learner.sampler.tables(rows))
    if isinstance(given, GivenBatches):
        tables = jax.tree.map(lambda x: x[None, None, :16], tables)
    with pytest.raises(InputError, match=words):
        begin_training(as_arrays(learner), learner.source(given), state, tables, KEY)


def test_a_learner_without_a_policy_is_refused(problem):
    source = ModelRollouts(Log(), Countdown())
    with pytest.raises(InputError, match="does not give one"):
        source.begin(object(), None, None, training_keys(KEY))
    assert IQL().source(Log()) is not None
