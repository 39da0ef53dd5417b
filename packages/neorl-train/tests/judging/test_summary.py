import dataclasses

import numpy as np
import pytest
import scipy.stats

from neorl_core import Channel, CostChannel, Spec
from neorl_envs.blocks import Term
from neorl_train.judging import (
    Episodes,
    PolicyResult,
    fraction_estimates,
    mean_estimates,
    policy_rows,
    pooled_rows,
)
from neorl_train.judging._summary import COLUMNS_AT_ONCE

N = 100
SPEC = Spec(
    obs=(Channel("x", "m", -1.0, 1.0),),
    action=(Channel("u", "%", 0.0, 1.0),),
    cost=(CostChannel("band", "m", 2.0, "episode"), CostChannel("peak", "m", 1.0, "step")),
    dt=1.0,
    horizon=9,
)


def episodes(returns, cost=0.5):
    costs = np.full((N, 2), cost)
    return Episodes(
        returns=returns,
        length=np.full(N, 9),
        cost_sum=costs,
        cost_worst=costs / 2,
        steps_over=np.ones((N, 2), int),
        violated=np.zeros((N, 2), bool),
        success=np.ones(N, bool),
        trip=np.zeros(N, bool),
        filtered=np.full(N, 3),
        fallback=np.zeros(N, int),
        alarms=np.zeros(N, int),
        travel=np.full((N, 1), 2.5),
        reversals=np.ones((N, 1), int),
        terms=np.stack([returns, cost + 0 * returns], axis=1),
    )


def result(name, returns, *, role="learner", cost=0.5):
    group, _, seed = name.rpartition("-")
    seeds = (int(seed),) if role == "learner" else ()
    return PolicyResult(name, group or name, role, False, episodes(returns, cost), seeds)


@pytest.fixture(scope="module")
def results():
    rng = np.random.default_rng(0)
    start = rng.normal(size=N) * 5
    learners = [result(f"iql-{s}", start + 1 + s + rng.normal(size=N)) for s in range(3)]
    return [*learners, result("pid", start, role="classical", cost=0.75)]


def test_differences_are_paired_and_so_much_sharper(results):
    rows = {row.name: row for row in policy_rows(results, SPEC, reference="pid", level=0.95)}
    row, base = rows["iql-1"], results[3].episodes.returns
    difference = results[1].episodes.returns - base
    assert row.difference.value == pytest.approx(difference.mean())
    assert row.least_difference == difference.min()
    expected = scipy.stats.t.interval(0.95, N - 1, difference.mean(), scipy.stats.sem(difference))
    assert (row.difference.low, row.difference.high) == pytest.approx(expected, abs=0.03)
    assert row.difference.high - row.difference.low < (row.returns.high - row.returns.low) / 3
    assert row.costs[0].difference.value == pytest.approx(-0.25)
    assert row.costs[1].difference.value == pytest.approx(-0.125)


def test_a_row_states_what_the_episodes_were(results):
    row = policy_rows(results[:1], SPEC, reference="", level=0.95)[0]
    returns = results[0].episodes.returns
    assert (row.return_min, row.return_max) == (returns.min(), returns.max())
    assert row.return_std == pytest.approx(returns.std(ddof=1))
    assert row.length.low == row.length.value == row.length.high == 9
    assert row.filtered == pytest.approx(3 / 9)
    assert row.difference is None
    assert row.costs[0].difference is None
    assert (row.success.value, row.success.high) == (1, 1)
    assert row.success.low == pytest.approx(0.025 ** (1 / N))
    assert (row.costs[0].limited, row.costs[1].limited) == (row.costs[0].total, row.costs[1].worst)
    assert row.costs[0].violating.high == pytest.approx(1 - 0.025 ** (1 / N))


def test_amounts_are_paired_term_by_term_where_they_are_asked_for(results):
    terms = (Term("profit", "EUR", 1.0), Term("loss", "kg", -2.0))
    chosen = {("iql-1", False), ("pid", False)}
    rows = policy_rows(results, SPEC, reference="pid", level=0.95, detailed=chosen, terms=terms)
    first, guarded, _, log = rows
    assert first.amounts == ()
    kinds = [(cell.kind, cell.name, cell.unit, cell.worth) for cell in guarded.amounts]
    assert kinds == [
        ("term", "profit", "EUR", 1.0),
        ("term", "loss", "kg", -2.0),
        ("travel", "u", "%", 0.0),
        ("reversals", "u", "1", 0.0),
        ("beyond", "peak", "min", 0.0),
    ]
    assert guarded.amounts[0].difference == guarded.difference
    loss, beyond = guarded.amounts[1], guarded.amounts[4]
    assert loss.difference.value == pytest.approx(-0.25)  # 0.5 against 0.75 in every episode
    assert beyond.amount.value == pytest.approx(1 / 60)  # one step of a second over
    assert all(cell.difference is None for cell in log.amounts)
    undeclared = policy_rows(results, SPEC, reference="pid", level=0.95, detailed=chosen)
    assert [cell.kind for cell in undeclared[1].amounts] == ["travel", "reversals", "beyond"]


def test_pooled_seeds_are_averaged_start_by_start(results):
    (row,) = pooled_rows(results, SPEC, against=[results[3]], level=0.95)
    base = results[3].episodes.returns
    difference = np.array([r.episodes.returns - base for r in results[:3]])
    assert row.seeds == ("iql-0", "iql-1", "iql-2")
    assert row.difference.value == pytest.approx(difference.mean())
    assert [seed.value for seed in row.each_seed] == pytest.approx(difference.mean(axis=1))
    assert row.fresh_seeds.value == pytest.approx(difference.mean())
    by_seed = scipy.stats.t.interval(
        0.95, 2, difference.mean(), scipy.stats.sem(difference.mean(axis=1))
    )
    assert row.fresh_seeds.low == pytest.approx(by_seed[0], abs=0.2)
    assert row.difference.low > row.fresh_seeds.low
    assert row.better


def test_pooled_seeds_are_not_better_with_a_higher_cost(results):
    costly = [
        dataclasses.replace(r, episodes=episodes(r.episodes.returns, 0.76)) for r in results[:3]
    ]
    (row,) = pooled_rows(costly, SPEC, against=[results[3]], level=0.95)
    assert row.difference.low > 0
    assert not row.better


def test_one_seed_alone_says_nothing_of_fresh_ones(results):
    (row,) = pooled_rows(results[:1], SPEC, against=[results[3]], level=0.95)
    assert row.fresh_seeds is None


def test_any_number_of_columns_gives_the_same_estimates():
    samples = np.random.default_rng(1).normal(size=(N, COLUMNS_AT_ONCE + 5))
    together = mean_estimates(samples, level=0.95)
    assert len(together) == COLUMNS_AT_ONCE + 5
    assert together[-1] == mean_estimates(samples[:, -1:], level=0.95)[0]
    assert [one.value for one in together] == pytest.approx(samples.mean(axis=0))
    assert mean_estimates(samples[:, :0], level=0.95) == []
    happened = samples > 0
    fractions = fraction_estimates(happened, level=0.95)
    assert [one.value for one in fractions] == pytest.approx(happened.mean(axis=0))
    assert fractions[-1] == fraction_estimates(happened[:, -1:], level=0.95)[0]


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_fractions_have_the_exact_interval_of_scipy_s_binomial_test(level):
    counts = [0, 1, 37, N - 1, N]
    happened = np.arange(N)[:, None] < np.array(counts)
    for count, estimate in zip(counts, fraction_estimates(happened, level=level), strict=True):
        exact = scipy.stats.binomtest(count, N).proportion_ci(level, method="exact")
        ends = [exact.low, exact.high]
        assert [estimate.low, estimate.high] == pytest.approx(ends, abs=1e-9)


def test_not_a_number_is_passed_on():
    samples = np.random.default_rng(1).normal(size=(N, 2))
    samples[3, 0] = np.nan
    spoilt, sound = mean_estimates(samples, level=0.95)
    assert np.isnan([spoilt.value, spoilt.low, spoilt.high]).all()
    assert sound.low < sound.value < sound.high
