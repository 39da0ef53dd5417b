"""Fitted Q evaluation by an ensemble: each member against its own bootstrap, and their spread."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.models import FittedQEvaluation, with_next_actions
from neorl_agents.sampling import Batch, bootstrap_weights
from neorl_agents.testing import sized, statistics_of
from neorl_core import as_arrays
from neorl_core.control import ConstantPolicy

from .fitted_q_plants import (
    CHAIN,
    CHAIN_DISCOUNT,
    KEY,
    SPEC,
    affine_learner,
    chain_log,
    linear_log,
    trained,
    values_of_holding,
)


@pytest.fixture
def linear():
    return affine_learner()


MEMBERS = 4


def chain_with_bootstrap(repeats=1, members=MEMBERS):
    """The rows of the chain, each an episode of its own, with the weights of every member."""
    log = jax.tree.map(lambda x: np.tile(x, (repeats,) + (1,) * (x.ndim - 1)), chain_log())
    weights = np.asarray(bootstrap_weights(KEY, len(log.reward), members))
    return log, Batch(log._replace(truncated=None), weight=weights)


def values_of_counted_chain(log, weight):
    """Return and cost of each state in the decision process that weighted counts describe."""
    state, after = np.argmax(log.obs, axis=1), np.argmax(log.next_obs, axis=1)
    total = np.bincount(state, weight, 3)
    moves = np.zeros((3, 3))
    np.add.at(moves, (state, after), np.where(log.terminated, 0, weight))
    earned = [np.bincount(state, weight * x, 3) / total for x in (log.reward, log.cost[:, 0])]
    step = np.eye(3) - CHAIN_DISCOUNT * moves / total[:, None]
    return np.linalg.solve(step, np.stack(earned, axis=1)).T


def members_on_chain(learner, state):
    """Values of the three states by every member, two arrays of shape ``(member, state)``."""
    values = [learner.member_values(state, obs, jnp.zeros(1)) for obs in jnp.eye(3)]
    reward, cost = (np.stack(one, axis=1) for one in zip(*values, strict=True))
    return reward, cost[..., 0]


def test_each_member_has_the_value_of_its_own_bootstrap_of_the_chain(linear):
    log, batch = chain_with_bootstrap()
    learner = sized(linear, discount=CHAIN_DISCOUNT, members=MEMBERS)
    state, metrics = trained(learner, batch, CHAIN, (3e-2, 3e-3, 3e-4), 1_000)
    actual = members_on_chain(learner, state)
    for m, weight in enumerate(batch.weight.T):
        for one, exact in zip(actual, values_of_counted_chain(log, weight), strict=True):
            np.testing.assert_allclose(one[m], exact, atol=0.02)
    exact = values_of_counted_chain(log, np.ones(len(log.reward)))
    mean = learner.value(state, jnp.eye(3)[0], jnp.zeros(1))
    for values, true, of_mean in zip(actual, exact, (mean.reward, mean.cost[0]), strict=True):
        first = values[:, 0]
        assert first.std(ddof=1) > 0.01
        assert of_mean == pytest.approx(first.mean(), rel=1e-5)
        # Within the 95 % reach of four members, from Student's distribution.
        assert abs(first.mean() - true[0]) < 3.18 * np.sqrt(1.25) * first.std(ddof=1)
    assert metrics["loss"].shape == (1_000,)


@pytest.mark.nightly
def test_the_spread_between_members_shrinks_with_the_root_of_the_data(linear):
    spreads = []
    for repeats in (1, 9):
        _, batch = chain_with_bootstrap(repeats, members=16)
        learner = sized(linear, discount=CHAIN_DISCOUNT, members=16)
        state, _ = trained(learner, batch, CHAIN, (3e-2, 3e-3), 400)
        spreads.append([x[:, 0].std(ddof=1) for x in members_on_chain(learner, state)])
    # Each of the two is known to a fifth or so from 16 members.
    np.testing.assert_allclose(np.divide(*spreads), 3, rtol=0.5)


def test_the_mean_of_an_ensemble_is_the_closed_form_of_the_linear_plant(linear):
    held = 20.0
    log = with_next_actions(linear_log(), ConstantPolicy(jnp.asarray([held])))
    weights = bootstrap_weights(KEY, len(log.reward), 3)
    learner = sized(linear, members=3)
    state, _ = trained(learner, Batch(log, weight=weights), SPEC, (1e-1, 1e-2, 1e-3), 1500)
    for obs, action in ((-1.0, 10.0), (0.5, 90.0)):
        of_action = state, jnp.asarray([obs]), jnp.asarray([action])
        reward, cost = values_of_holding(held, obs, action)
        np.testing.assert_allclose(learner.value(*of_action).reward, reward, atol=0.05)
        members = learner.member_values(*of_action)
        # The plant has no noise, so that every bootstrap has the same values.
        np.testing.assert_allclose(members.reward, np.full(3, reward), atol=0.1)
        np.testing.assert_allclose(members.cost, np.full((3, 1), cost), rtol=4e-3)


@pytest.mark.nightly
def test_an_update_without_jit_is_the_same():
    log = with_next_actions(linear_log(64), ConstantPolicy(jnp.asarray([20.0])))
    learner = sized(FittedQEvaluation(members=2), hidden=(8, 8), batch_size=64)
    batch = Batch(jax.tree.map(lambda x: jnp.asarray(x)[None], log),
                  weight=bootstrap_weights(KEY, 64, 2)[None])  # fmt: skip
    fresh = learner.init(SPEC, statistics_of(log), KEY)
    eager, _ = as_arrays(learner).update(fresh, batch, KEY)
    jitted, _ = jax.jit(FittedQEvaluation.update)(as_arrays(learner), fresh, batch, KEY)
    chex.assert_trees_all_close(eager, jitted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("quantiles", [0, 3])
def test_a_member_learns_as_a_single_network_with_its_own_target_does(quantiles):
    """From the same initial weights and on the same rows."""
    log = with_next_actions(linear_log(64), ConstantPolicy(jnp.asarray([20.0])))
    plain = FittedQEvaluation(evaluates_costs=True, quantiles=quantiles, learning_rate=1e-2)
    single = sized(plain, hidden=(8, 8), batch_size=64)
    several = sized(single, members=3)
    weights = bootstrap_weights(KEY, 64, 3)
    together = several.init(SPEC, statistics_of(log), KEY)
    of_second = partial(jax.tree.map, lambda x: x[1:2] if jnp.shape(x)[:1] == (3,) else x)
    member = of_second(together)
    update = jax.jit(FittedQEvaluation.update)
    rows = jax.tree.map(lambda x: jnp.asarray(x)[None], log)
    for _ in range(4):
        batch = Batch(rows, weight=weights[None])
        together, metrics = update(as_arrays(several), together, batch, KEY)
        own = Batch(rows, weight=weights[None, :, 1:2])
        member, own_metrics = update(as_arrays(single), member, own, KEY)
    for name in ("parameters", "targets"):
        chosen = of_second(getattr(together, name))
        chex.assert_trees_all_close(chosen, getattr(member, name), rtol=1e-4, atol=1e-5)
    assert not np.allclose(metrics["q"], own_metrics["q"], rtol=1e-3)
    assert jax.tree.leaves(together.parameters)[0].shape[0] == 3


def test_the_next_action_counts_where_a_record_ends_too():
    log = with_next_actions(linear_log(64), ConstantPolicy(jnp.asarray([20.0])))
    assert log.truncated.all()
    learner = sized(FittedQEvaluation(), hidden=(8, 8), batch_size=64)
    fresh = learner.init(SPEC, statistics_of(log), KEY)
    update, states = jax.jit(FittedQEvaluation.update), []
    for one in (log, log._replace(truncated=None)):
        rows = jax.tree.map(lambda x: jnp.asarray(x)[None], one)
        states.append(update(as_arrays(learner), fresh, rows, KEY)[0])
    chex.assert_trees_all_equal(*states)


def test_an_ensemble_draws_whole_episodes_and_needs_their_ends():
    learner = sized(FittedQEvaluation(members=3), batch_size=32)
    assert "truncated" in learner.fields
    assert "truncated" not in FittedQEvaluation().fields
    log = with_next_actions(linear_log(96), ConstantPolicy(jnp.asarray([20.0])))
    log = log._replace(truncated=np.arange(96) % 8 == 7)
    tables = learner.log_tables(SPEC, log)
    draw = partial(learner.sampler.draw, tables, key=KEY, shape=(1, 32))
    weights = np.asarray(bootstrap_weights(KEY, 12, 3))
    by_flow = {float(x): n // 8 for n, x in enumerate(log.action[:, 0])}
    for number in range(2):
        batch = draw(number)
        assert batch.rows.truncated is None
        episode = [by_flow[float(x)] for x in np.ravel(batch.rows.action)]
        np.testing.assert_array_equal(batch.weight[0], weights[episode])
    with pytest.raises(ValueError, match="the ends of episodes are not known"):
        learner.log_tables(SPEC, log._replace(truncated=None))
