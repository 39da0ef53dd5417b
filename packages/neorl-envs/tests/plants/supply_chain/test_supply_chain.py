"""The supply chain against or-gym's recorded run and a re-statement, and what its rules earn."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import poisson

from neorl_core import highs, lows
from neorl_core.control import UniformPolicy
from neorl_envs.plants import SupplyChain
from neorl_envs.plants.supply_chain import MarketNoise, bad_policy
from neorl_envs.plants.supply_chain._physics import poisson_quantile, unit_costs, worth

RECORD = np.load(Path(__file__).with_name("or_gym.npz"))
LANES = RECORD["lanes"].tolist()
LEAD = [5, 3, 8, 10, 9, 11, 12, 0, 2, 0]
OR_GYM_STOCK = (100.0, 110.0, 80.0, 400.0, 350.0, 380.0)


@pytest.fixture(scope="module")
def env() -> SupplyChain:
    return SupplyChain()


def drive(
    env: SupplyChain, orders: np.ndarray, levels: np.ndarray, closes: np.ndarray, stock: Any
) -> Any:
    """States and steps under given orders and draws, in float64 and without a season."""
    with jax.enable_x64(True):
        params = env.default_params("clean", dtype=jnp.float64)
        constants = params.constants._replace(
            variability=jnp.ones(()), disruption=jnp.asarray(0.05)
        )
        initial = params.initial._replace(stock=jnp.asarray(stock, jnp.float64))
        params = env.with_constants(params._replace(initial=initial), constants)
        noise = env.sample_noise(params, jax.random.key(0))

        def one(state: Any, row: Any) -> Any:
            action, level, closing = row
            process = MarketNoise(level, closing, jnp.full(10, 0.5))
            state, step = env.step_with_noise(
                params, state, action, noise._replace(process=process)
            )
            return state, (state, step)

        @jax.jit
        def run(rows: Any) -> Any:
            return jax.lax.scan(one, env.reset(params, jax.random.key(0))[0], rows)[1]

        return jax.device_get(run(tuple(map(jnp.asarray, (orders, levels, closes)))))


def test_legacy_allocation_is_or_gym() -> None:
    demand, orders = RECORD["demand"], RECORD["orders"].astype(float)
    levels = (poisson.cdf(demand, 20) + poisson.cdf(demand - 1, 20)) / 2
    legacy = SupplyChain(legacy_allocation=True)
    state, step = drive(legacy, orders, levels, np.ones((60, 10)), OR_GYM_STOCK)
    np.testing.assert_array_equal(state.disturbance.demand, demand)
    np.testing.assert_array_equal(state.plant.stock, RECORD["stock"][1:])
    np.testing.assert_array_equal(state.plant.shipped[:, 0], RECORD["shipped"])
    np.testing.assert_array_equal(state.plant.owed, RECORD["unserved"])
    np.testing.assert_array_equal(step.obs[:, 8:18], RECORD["pipeline"][1:])
    np.testing.assert_allclose(100 * step.reward, RECORD["reward"], rtol=0, atol=1e-11)
    # One stock is promised to several buyers there, and the guard sees it.
    assert RECORD["stock"].min() == -27
    assert step.cost[RECORD["stock"][1:].min(axis=1) < 0, 0].min() >= 1
    assert step.truncated[-1]


def periods_in_numpy(orders: np.ndarray, demand: np.ndarray, closed: np.ndarray) -> Any:
    """The order of events lane by lane, with a short stock shared in parts of the orders."""
    stock, sent, owed = [100, 110, 80, 160, 140, 150], [], 0.0
    capacity = {4: 90, 5: 90, 6: 80}
    for t, row in enumerate(orders):
        requested = {}
        for (supplier, receiver), order, shut in zip(LANES, row, closed[t], strict=True):
            order = 0 if shut else round(order)
            if supplier < 7:
                order = min(order, stock[supplier - 1], capacity.get(supplier, np.inf))
            requested[supplier, receiver] = order
        for supplier in range(1, 7):
            lanes = [lane for lane in requested if lane[0] == supplier]
            there = min(stock[supplier - 1], capacity.get(supplier, np.inf))
            total = sum(requested[lane] for lane in lanes)
            for lane in lanes:
                if total > there:
                    requested[lane] = int(requested[lane] * there // total)
        sent.append([requested[tuple(lane)] for lane in LANES])
        for i, (supplier, receiver) in enumerate(LANES):
            if t >= LEAD[i]:
                stock[receiver - 1] += sent[t - LEAD[i]][i]
            if supplier < 7:
                stock[supplier - 1] -= sent[t][i]
        served = min(demand[t] + owed, stock[0])
        stock[0] -= served
        owed += demand[t] - served
        yield np.array(stock), np.array(sent[t]), owed


def test_a_short_stock_is_shared_and_nothing_is_lost(env: SupplyChain) -> None:
    rng = np.random.default_rng(3)
    orders, levels = rng.uniform(0, 50, (60, 10)), rng.uniform(size=60)
    closes = rng.uniform(size=(60, 10))
    state, step = drive(env, orders, levels, closes, (100.0, 110, 80, 160, 140, 150))
    demand, plant = poisson.ppf(levels, 20), state.plant
    np.testing.assert_array_equal(state.disturbance.demand, demand)
    closed = state.disturbance.closed_for > 0
    assert 0.1 < closed.mean() < 0.5
    expected = periods_in_numpy(orders, demand, closed)
    for t, (stock, sent, owed) in enumerate(expected):
        np.testing.assert_array_equal(plant.stock[t], stock)
        np.testing.assert_array_equal(plant.shipped[t, 0], sent)
        assert plant.owed[t] == owed
    assert plant.stock.min() == 0
    there = plant.stock.sum(axis=1) + step.obs[:, 8:18].sum(axis=1)
    bought, sold = plant.shipped[:, 0, 7:].sum(axis=1), plant.served
    np.testing.assert_allclose(np.diff(there), (bought - sold)[1:], atol=1e-9)


def test_demand_has_poissons_distribution() -> None:
    mean = jnp.asarray((14.0, 20.0, 31.0))[:, None]
    level = jnp.linspace(0.001, 0.999, 301)[None]
    result = jax.vmap(jax.vmap(poisson_quantile, (None, 0)), (0, None))(mean[:, 0], level[0])
    wrong = np.asarray(result) != poisson.ppf(np.asarray(level), np.asarray(mean))
    assert wrong.mean() < 0.01  # float32, at the steps of the distribution


@pytest.mark.nightly
def test_controllers_rank_as_they_should(env: SupplyChain, totals: Any) -> None:
    check_ranks(env, totals, 200)


@pytest.mark.nightly
def test_controllers_rank_as_they_should_over_many_seasons(env: SupplyChain, totals: Any) -> None:
    check_ranks(env, totals, 1000)


def check_ranks(env: SupplyChain, totals: Any, episodes: int) -> None:
    low, high = jnp.asarray(lows(env.spec.action)), jnp.asarray(highs(env.spec.action))
    ordinary, strong = (totals(env, policy, episodes) for policy in env.tunings().values())
    chance = totals(env, UniformPolicy(low, high), episodes)
    bad = totals(env, bad_policy(), episodes)
    better = strong.score - ordinary.score  # on the same markets
    assert better.mean() > 4 * better.std() / np.sqrt(episodes)
    assert strong.score.mean() > 13.3  # the best constant order of a search: 12.6
    assert ordinary.score.mean() > chance.score.mean() + 100
    assert strong.kept_each.mean(axis=0).min() >= 0.99
    assert bad.kept_each.mean(axis=0).max() <= 0.5


@pytest.mark.nightly
def test_no_constant_order_does_as_well(env: SupplyChain, constant_scores: Any) -> None:
    assert constant_scores(env, 500, 32).max() < 12.5


@pytest.mark.nightly
def test_stocks_are_worth_what_they_have_cost(env: SupplyChain) -> None:
    """By hand: a unit bought, made and sent on is an exchange; only holding costs are lost."""
    params = env.default_params("clean")
    node, leaving = unit_costs(params.constants)
    np.testing.assert_allclose(node[3:], [0.15, 0.074, 0.2], rtol=1e-6)
    np.testing.assert_allclose(node[1], 0.07 + 2 * 0.002 + 0.015 + 9 * 0.005, rtol=1e-6)
    np.testing.assert_allclose(leaving[7:], [0.15, 0.07, 0.2], rtol=1e-6)
    empty = params.initial._replace(stock=jnp.asarray((0.0, 0, 0, 90, 0, 0)))
    params = params._replace(initial=empty)
    state, _ = env.reset(params, jax.random.key(0))
    order = jnp.zeros(10).at[2].set(40.0)  # 4 to 2, eight days
    state = state._replace(plant=state.plant._replace(owed=jnp.zeros(())))
    before = worth(params.constants, state.plant)
    for day in range(9):
        state, _ = env.step(params, state, order if day == 0 else order * 0, jax.random.key(1))
    plant = state.plant
    assert float(plant.stock[1]) == 40
    # The way 4-2 costs 0.224 a unit, the cheapest to node 2 0.134: the difference is lost.
    spent = 40 * (0.010 + 8 * 0.008)
    lost = 40 * (0.15 + 0.010 + 8 * 0.008 - 0.134)
    np.testing.assert_allclose(worth(params.constants, plant) - before, spent - lost, rtol=1e-4)


class CutOff(eqx.Module):
    """A policy whose orders end on a day of their own on every lane."""

    inner: Any
    last: Any

    def initial_carry(self) -> Any:
        return self.inner.initial_carry(), jnp.zeros((), jnp.int32)

    def __call__(self, carry: Any, obs: Any, key: Any = None) -> Any:
        inner, day = carry
        inner, action = self.inner(inner, obs, key)
        return (inner, day), jnp.where(day >= self.last, 0.0, action)

    def sent(self, carry: Any, action: Any) -> Any:
        return self.inner.sent(carry[0], action), carry[1] + 1


@pytest.mark.nightly
def test_selling_off_before_the_last_day_does_not_pay(env: SupplyChain, totals: Any) -> None:
    """Raw materials end on day 40, factories ten days later, the shop with its lead times."""
    reference = env.tunings()[env.reference]
    last = (56, 57, 51, 50, 51, 49, 48, 40, 40, 40)
    going_on = totals(env, reference, 128)
    cut = totals(env, CutOff(reference, jnp.asarray(last)), 128)
    ordinary = totals(env, env.tunings()["base stock"], 128)
    gained = (cut.reward - going_on.reward).mean()  # on the same markets
    assert 0 < gained < 0.25
    assert gained < (going_on.reward - ordinary.reward).mean() / 2


def test_hostile_orders_stay_finite_and_compile_once(env: SupplyChain) -> None:
    params = env.default_params()
    state, _ = jax.jit(env.reset)(params, jax.random.key(0))
    step = jax.jit(env.step)
    low, high = np.asarray(lows(env.spec.obs)), np.asarray(highs(env.spec.obs))
    for value in (np.nan, np.inf, -np.inf, 1e30, 50.0):
        for _ in range(12):
            state, answer = step(params, state, jnp.full(10, value), jax.random.key(1))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state, answer)))
        assert (answer.obs >= low).all()
        assert (answer.obs <= high).all()
    assert step._cache_size() == 1
    assert [channel.name for channel in env.spec.cost] == ["inventory", "delays"]
    assert (env.spec.n_obs, env.spec.n_action) == (28, 10)
