"""The rows that equations are written in."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import IQL
from neorl_agents.learning import all_batches, nth_batch, only_batch, unit_rows
from neorl_agents.policies import prepare
from neorl_agents.sampling import Batch, NSteps, RowsWithReturns, as_batch
from neorl_agents.testing import endless, sized


def test_standardises_observations_and_maps_actions_to_the_unit_box(problem):
    maps = prepare(problem.spec, problem.statistics, "none")
    rows = unit_rows(maps, problem.log)
    np.testing.assert_allclose(rows.obs.mean(0), 0, atol=2e-3)
    spread = rows.obs.std(0)
    np.testing.assert_allclose(spread[:3], 1, rtol=1e-4)
    np.testing.assert_allclose(spread[3], 0, atol=1e-6)
    assert np.abs(rows.action).max() == np.float32(1 - 1e-5)
    np.testing.assert_array_equal(rows.reward, problem.log.reward)
    np.testing.assert_array_equal(rows.terminated, problem.log.terminated)


def test_next_action_is_clipped_as_the_action_is_and_zero_at_ends(problem):
    maps = prepare(problem.spec, problem.statistics, "none")
    rows = unit_rows(maps, problem.log._replace(next_action=problem.log.action))
    ends = np.asarray(problem.log.terminated | problem.log.truncated)
    assert ends.any()
    assert np.abs(rows.action[~ends]).max() == np.float32(1 - 1e-5)
    np.testing.assert_array_equal(rows.next_action, np.where(ends[:, None], 0, rows.action))


@pytest.mark.parametrize(
    ("field", "cut", "got"),
    [
        ("obs", np.s_[:, :3], r"\(256, 3\), expected \(256, 4\)"),
        ("next_obs", np.s_[:-1], r"\(255, 4\), expected \(256, 4\)"),
        ("next_action", np.s_[:, :1], r"\(256, 1\), expected \(256, 2\)"),
        ("reward", np.s_[:, None], r"\(256, 1\), expected \(256,\)"),
        ("terminated", np.s_[:9], r"\(9,\), expected \(256,\)"),
    ],
)
def test_a_batch_that_is_not_of_the_plant_is_refused_by_name(problem, field, cut, got):
    maps = prepare(problem.spec, problem.statistics)
    batch = problem.log._replace(**{field: getattr(problem.log, field)[cut]})
    with pytest.raises(
        ValueError, match=rf"does not fit the specification: {field} has the shape {got} .* 4 obs"
    ):
        unit_rows(maps, batch)


def test_a_batch_of_a_plant_with_other_actions_is_refused(problem):
    maps = prepare(problem.spec, problem.statistics)
    batch = problem.log._replace(action=problem.log.action[:, :1])
    with pytest.raises(
        ValueError, match=r"does not fit the specification: action has the shape \(256, 1\)"
    ):
        unit_rows(maps, batch)


def test_costs_are_in_units_of_their_own(problem):
    maps = prepare(problem.spec, problem.statistics)
    cost = np.asarray(problem.log.cost, np.float64)
    rows = unit_rows(maps, problem.log)
    np.testing.assert_allclose(rows.cost, cost / cost.std(0), rtol=1e-5)
    np.testing.assert_allclose(maps.cost_limit, 1.0 / cost.std(0), rtol=1e-5)


@pytest.mark.parametrize("leading", [(), (2, 16)])
def test_masked_rows_are_blank_in_every_field_that_is_a_number(problem, leading):
    """A NaN in one of them would reach a gradient though its row is left out of the mean."""
    maps = prepare(problem.spec, problem.statistics)
    mask = np.random.default_rng(0).uniform(size=256) < 0.6

    def spoilt(x):
        number = x is not None and x.dtype != bool
        return jnp.where(mask.reshape(-1, *[1] * (x.ndim - 1)), x, jnp.nan) if number else x

    log = jax.tree.map(spoilt, problem.log)._replace(mask=jnp.asarray(mask))
    log = jax.tree.map(lambda x: x[:32].reshape(*(leading or (32,)), *x.shape[1:]), log)
    rows = unit_rows(maps, log)
    assert np.isnan(log.cost).any()
    for name in rows._fields:
        column = getattr(rows, name)
        assert column is None or np.isfinite(column).all(), name
    np.testing.assert_array_equal(rows.cost[~np.asarray(log.mask)], 0)


def test_a_cost_of_other_channels_is_refused(problem):
    maps = prepare(problem.spec, problem.statistics)
    cost = jnp.zeros((256, 2))
    with pytest.raises(ValueError, match=r"cost has the shape \(256, 2\), expected \(256, 1\)"):
        unit_rows(maps, problem.log._replace(cost=cost))


def test_what_a_batch_does_not_have_is_none(problem):
    maps = prepare(problem.spec, problem.statistics)
    few = problem.log._replace(cost=None, next_obs=None, next_action=None, terminated=None)
    rows = unit_rows(maps, few._replace(reward=None))
    given = {name for name in rows._fields if getattr(rows, name) is not None}
    assert given == {"obs", "action", "truncated", "discount"}


def test_the_discount_is_the_learners_or_that_of_several_steps(problem):
    maps = prepare(problem.spec, problem.statistics)
    rows = unit_rows(maps, problem.log, discount=0.9)
    np.testing.assert_array_equal(rows.discount, np.full(256, np.float32(0.9)))
    several = jnp.linspace(0.1, 1.0, 256)
    rows = unit_rows(maps, Batch(problem.log, discount=several), discount=0.9)
    np.testing.assert_array_equal(rows.discount, several)


def test_returns_are_in_the_unit_of_the_critics_and_unknown_ones_bound_nothing(problem):
    maps = prepare(problem.spec, problem.statistics)
    returns = jnp.asarray([3.0, -jnp.inf, jnp.nan, jnp.inf] * 64)
    rows = unit_rows(maps, Batch(problem.log, mc_return=returns))
    expected = np.array([3.0 / float(maps.reward_unit), *[-np.inf] * 3] * 64)
    np.testing.assert_allclose(rows.mc_return, expected, rtol=1e-6)


def test_rewards_may_be_centred(problem):
    maps = prepare(problem.spec, problem.statistics, "none")
    centred = unit_rows(replace(maps, reward_offset=jnp.float32(2.0)), problem.log)
    np.testing.assert_allclose(centred.reward, np.asarray(problem.log.reward) - 2, atol=1e-6)


def test_batches_of_an_update_are_taken_one_by_one_or_together(problem):
    learner = sized(IQL(), batch_size=8)
    rows = unit_rows(prepare(problem.spec, problem.statistics), problem.batch(learner))
    twice = jax.tree.map(lambda x: jnp.concatenate([x, x + x]), rows)
    np.testing.assert_array_equal(only_batch(twice).obs, rows.obs[0])
    np.testing.assert_array_equal(nth_batch(twice, 1).obs, 2 * rows.obs[0])
    np.testing.assert_array_equal(
        all_batches(twice).reward, np.tile(rows.reward[0], 2) * np.repeat([1, 2], 8)
    )


def test_centred_rewards_are_those_of_a_log_without_its_mean(problem):
    """Of one step, in sums over three steps, and in returns behind which the log goes on."""
    log = endless(problem, 40.0).log
    mean = np.asarray(log.reward, np.float64).mean()
    plain = log._replace(reward=log.reward - jnp.float32(mean))
    maps = prepare(problem.spec, problem.statistics, "none")
    centred = replace(maps, reward_offset=jnp.float32(mean))
    for sampler in (NSteps(3, 0.9), RowsWithReturns(0.9)):
        given, expected = (as_batch(sampler.tables(jax.device_get(x))) for x in (log, plain))
        mine = unit_rows(centred, given, discount=0.9)
        np.testing.assert_allclose(mine.reward, expected.rows.reward, atol=2e-5)
        if expected.mc_return is not None:
            np.testing.assert_allclose(mine.mc_return, expected.mc_return, atol=3e-4)


@pytest.mark.parametrize("sampler", [NSteps(3, 0.9), RowsWithReturns(0.9)])
def test_an_early_end_is_worth_the_same_where_rewards_are_centred(problem, sampler):
    """A plant may end episodes although no logged row was: every target is off by one constant."""
    discount, mean = 0.9, jnp.float32(40.0)
    plain = prepare(problem.spec, problem.statistics, "none")
    batch = as_batch(sampler.tables(jax.device_get(problem.log)))
    rows, centred = (
        unit_rows(maps, batch, discount=discount)
        for maps in (plain, replace(plain, reward_offset=mean))
    )
    assert 0 < np.mean(rows.terminated) < 1
    value, constant = 7.0, float(mean) / (1 - discount)

    def target(rows, value):
        return rows.reward + rows.discount * np.where(rows.terminated, 0, value)

    np.testing.assert_allclose(
        target(centred, value - constant), target(rows, value) - constant, atol=2e-4
    )
    if rows.mc_return is not None:  # what Cal-QL compares its values with
        known = np.isfinite(rows.mc_return)
        off = np.asarray(rows.mc_return - constant)[known]
        np.testing.assert_allclose(np.asarray(centred.mc_return)[known], off, atol=2e-4)
