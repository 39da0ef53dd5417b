import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import as_arrays
from neorl_core.control import ConstantPolicy
from neorl_envs import collect_log, make
from neorl_safety.constraints import action_constraints
from neorl_safety.guards import guard
from neorl_train import verdict
from neorl_train.judging import (
    Estimate,
    _evaluate,
    rollouts,
    rollouts_in_chunks,
    with_one_structure,
)
from neorl_train.judging._rollouts import _run_episodes, further_starts


def of(evaluation, name, *, guarded=False):
    result = [r for r in evaluation.results if r.name == name and r.guarded == guarded]
    assert len(result) == 1
    return result[0].episodes


def start(plant, key, index):
    """Pole and first level of a start, by the documented use of keys."""
    for_plant, for_reset, _, _ = jax.random.split(jax.random.fold_in(key, index), 4)
    params = plant.sample_params(for_plant)
    return float(params.pole), float(plant.reset(params, for_reset)[1][0])


def test_returns_and_costs_are_those_of_the_closed_form(toy):
    plant, key = toy.Line(), jax.random.key(3)
    result = toy.evaluate(plant, {"p-0": toy.proportional(0.3)}, candidate="p-0", key=key)
    powers = np.arange(1, plant.horizon + 1)
    for name, gain in (("p-0", 0.3), ("steady", 0.2), ("hasty", 0.6)):
        episodes = of(result, name)
        for i in range(episodes.count):
            pole, level = start(plant, key, i)
            levels = level * (pole - gain) ** powers
            assert episodes.returns[i] == pytest.approx(-levels.sum(), rel=1e-5)
            assert episodes.cost_sum[i] == pytest.approx([levels.sum()] * 2, rel=1e-5)
            assert episodes.cost_worst[i] == pytest.approx([levels.max()] * 2, rel=1e-5)
        assert (episodes.length == plant.horizon).all()
        assert episodes.success.all()
        assert not episodes.trip.any()


@pytest.mark.nightly
def test_the_level_reaches_every_interval_and_no_estimate(toy, noisy):
    policies = {
        "good-0": toy.proportional(0.5),
        "good-1": toy.proportional(0.7),
        "bad-0": toy.proportional(0.05),
    }
    plant = toy.Line(noise=toy.NOISE)
    tables = toy.evaluate(plant, policies, candidate="good-0", n_starts=100, level=0.8).tables
    assert (tables.level, noisy.tables.level) == (0.8, 0.95)
    pairs = list(zip(estimates(tables), estimates(noisy.tables), strict=True))
    assert len(pairs) > 100
    narrower = 0
    for loose, strict in pairs:
        assert loose.value == strict.value
        assert strict.low <= loose.low <= loose.high <= strict.high
        narrower += loose.high - loose.low < strict.high - strict.low
    zero_width = sum(strict.low == strict.high for _, strict in pairs)
    assert narrower == len(pairs) - zero_width


def estimates(value):
    """All estimates in a tree of results."""
    if isinstance(value, Estimate):
        return [value]
    if dataclasses.is_dataclass(value):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    return (
        [e for entry in value for e in estimates(entry)] if isinstance(value, list | tuple) else []
    )


close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)


def test_one_policy_under_two_names_meets_the_same_starts_and_noise(toy):
    policies = {"a-0": toy.proportional(0.2), "b-0": toy.proportional(0.2)}
    result = toy.evaluate(toy.Line(noise=toy.NOISE), policies, candidate="a-0")
    for name in ("b-0", "steady"):
        np.testing.assert_array_equal(of(result, "a-0").returns, of(result, name).returns)
    row = result.tables.row("a-0", guarded=False)
    assert (row.difference.value, row.difference.low, row.difference.high) == (0, 0, 0)


def test_a_start_does_not_depend_on_how_many_there_are(toy, noisy):
    plant, policies = toy.Line(noise=toy.NOISE), {"good-0": toy.proportional(0.5)}
    few = toy.evaluate(plant, policies, candidate="good-0")
    for name in ("good-0", "logged behaviour"):
        many = of(noisy.evaluation, name).returns
        np.testing.assert_array_equal(of(few, name).returns, many[:16])
    arguments = plant, policies["good-0"], jax.random.key(3), np.arange(16)
    chunked = [rows.reward.sum(1) for rows in rollouts_in_chunks(*arguments, at_once=5)]
    assert [len(rows) for rows in chunked] == [5, 5, 5, 1]
    close(of(few, "good-0").returns, np.concatenate(chunked))


def test_starts_differ_from_one_another(noisy):
    assert len(set(of(noisy.evaluation, "steady").returns)) == 100


def test_tunings_take_turns_in_the_behaviour(noisy):
    behaviour = of(noisy.evaluation, "logged behaviour").returns
    for turn, name in enumerate(("steady", "hasty")):
        np.testing.assert_array_equal(
            behaviour[turn::2], of(noisy.evaluation, name).returns[turn::2]
        )


class Echo(eqx.Module):
    """Asks for one more than the plant received last."""

    step: jax.Array

    def initial_carry(self):
        return jnp.zeros(1)

    def __call__(self, carry, obs, key=None):
        return carry, carry + self.step

    def sent(self, carry, action):
        return action


class Counting(eqx.Module):
    gain: jax.Array
    traces = [0]  # noqa: RUF012

    def initial_carry(self):
        return ()

    def __call__(self, carry, obs, key=None):
        self.traces[0] += 1
        return carry, -self.gain * obs

    def sent(self, carry, action):
        return carry


def test_all_kinds_and_seeds_share_one_program(toy):
    def traced(gains):
        Counting.traces[0] = 0
        policies = {f"c-{i}": Counting(jnp.asarray(gain)) for i, gain in enumerate(gains)}
        toy.evaluate(toy.Line(), policies, candidate="c-0")
        return Counting.traces[0]

    before = _run_episodes._cache_size()
    assert traced([0.1]) >= 2, "plain and guarded are two kinds"
    assert _run_episodes._cache_size() == before + 1, "of one program"
    assert traced([0.2]) == 0, "another instance of a known kind compiles nothing"
    assert traced([0.1, 0.2, 0.3, 0.4]) == 0
    assert _run_episodes._cache_size() == before + 1


def test_a_wrapped_policy_acts_as_it_does_alone(toy):
    plant, key, starts = toy.Line(noise=toy.NOISE), jax.random.key(0), np.arange(4)
    alone = [toy.proportional(0.3), Echo(jnp.ones(1)), toy.proportional(0.6)]
    alone.append(guard(alone[1], action_constraints(plant.spec), alone[0], plant.spec))
    wrapped = with_one_structure(alone, 1)
    assert len(wrapped[0].members) == 3
    for policy, one in zip(alone, wrapped, strict=True):
        own = rollouts(plant, one, key, starts)
        others = rollouts(plant, as_arrays(policy), key, starts)
        jax.tree.map(close, own, others)


@pytest.fixture(scope="module")
def guarded(toy):
    """Two hostile policies and one that asks for more and more, with a fallback that rests."""
    policies = {
        "nan-0": ConstantPolicy(jnp.array([jnp.nan])),
        "huge-0": ConstantPolicy(jnp.array([3e38])),
        "echo-0": Echo(jnp.ones(1)),
    }
    rest = {"fallback": ConstantPolicy(jnp.zeros(1))}
    return toy.evaluate(
        toy.Line(), policies, candidate="echo-0", fallbacks=rest, key=jax.random.key(4)
    )


def test_the_guard_holds_a_hostile_policy_and_hands_over(guarded):
    nan = of(guarded, "nan-0", guarded=True)
    np.testing.assert_array_equal(nan.returns, of(guarded, "fallback").returns)
    np.testing.assert_array_equal(nan.fallback, nan.length)
    assert guarded.tables.row("nan-0", guarded=True).fallback == 1
    huge = of(guarded, "huge-0", guarded=True)
    # Filtered until the plant has left its measuring range; then the fallback acts.
    assert (huge.filtered >= 3).all()
    np.testing.assert_array_equal(huge.filtered + huge.fallback, huge.length)
    assert np.isfinite(huge.returns).all()
    assert not np.isfinite(of(guarded, "nan-0").returns).any(), "unguarded it reaches the plant"


def test_a_policy_is_told_what_the_plant_received_and_a_constant_fallback_has_its_row(toy, guarded):
    trace = next(t for t in guarded.traces if t.policy == "echo-0")
    # Later the level leaves its measuring range and the fallback takes over.
    np.testing.assert_array_equal(trace.applied[:5, 0], [1, 2, 3, 4, 4])
    plant, episodes = toy.Line(), of(guarded, "fallback")
    powers = np.arange(1, plant.horizon + 1)
    for i in range(episodes.count):
        pole, level = start(plant, jax.random.key(4), i)
        assert episodes.returns[i] == pytest.approx(-(level * pole**powers).sum(), 1e-5)


def test_traces_are_the_named_starts_row_by_row(noisy):
    candidate = of(noisy.evaluation, "good-0", guarded=True)
    labels = {t.label: t for t in noisy.evaluation.traces if t.policy == "good-0"}
    assert set(labels) >= {"typical", "lowest return"}
    for trace in labels.values():
        assert trace.guarded
        assert trace.reward.sum() == pytest.approx(candidate.returns[trace.start], rel=1e-5)
        assert len(trace.obs) == len(trace.action) + 1 == candidate.length[trace.start] + 1
    assert labels["lowest return"].start == np.argmin(candidate.returns)
    below = np.sum(candidate.returns < labels["typical"].reward.sum() - 1e-3)
    assert below in (49, 50)
    further = [trace.start for label, trace in labels.items() if label.startswith("start ")]
    assert len(further) == 8
    gains = candidate.returns - of(noisy.evaluation, "steady").returns
    named = {trace.start for label, trace in labels.items() if not label.startswith("start ")}
    others = [start for start in np.argsort(gains) if start not in named]
    assert [further[0], further[-1]] == [others[0], others[-1]]
    assert np.all(np.diff(gains[further]) > 0), "from the largest loss to the best gain"
    references = {t.label: t.start for t in noisy.evaluation.traces if t.policy == "steady"}
    assert references == {label: trace.start for label, trace in labels.items()}


@pytest.mark.parametrize("incumbent", ["logged behaviour", "fitted"])
def test_what_filled_the_log_or_was_fitted_on_it_may_run_today(toy, incumbent):
    """The behaviour's policies take turns, in the episodes that are shown too."""
    result = toy.evaluate(
        toy.Line(noise=toy.NOISE),
        {"a-0": toy.proportional(0.5)},
        candidate="a-0",
        controllers={"fitted": toy.proportional(0.3)},
        incumbent=incumbent,
    )
    own, others = of(result, "a-0", guarded=True), of(result, incumbent)
    gain = result.tables.row("a-0", guarded=True).difference
    assert gain.value == pytest.approx((own.returns - others.returns).mean(), rel=1e-5)
    assert verdict(result.tables).reference == incumbent
    shown = [trace for trace in result.traces if trace.policy == incumbent]
    assert len(shown) == len(result.traces) / 2
    for trace in shown:
        assert trace.reward.sum() == pytest.approx(others.returns[trace.start], rel=1e-5)
    against = {row.against for row in result.tables.pooled if row.group == "a"}
    assert against == {"logged behaviour", "steady", incumbent}


def test_long_episodes_of_many_channels_are_kept_as_far_as_there_is_room(noisy):
    gains = np.arange(100.0)
    spec = noisy.tables.spec
    assert further_starts(gains, [0, 99], dataclasses.replace(spec, horizon=10**6)) == []
    assert further_starts(gains[:2], [0, 1], spec) == []
    assert further_starts(gains[:3], [0, 1], spec) == [2]
    wide = dataclasses.replace(spec, horizon=200_000 // (2 * 7 * 5))  # room for five episodes
    assert further_starts(gains, [0, 99], wide) == [1, 49, 98]


def test_what_cannot_be_compared_is_refused(toy):
    plant, policy = toy.Line(), toy.proportional(0.3)
    with pytest.raises(ValueError, match="candidate 'x' is not among the policies: a-0"):
        toy.evaluate(plant, {"a-0": policy}, candidate="x")
    with pytest.raises(ValueError, match="steady is already the name of a controller"):
        _evaluate.evaluate(plant, {"steady": policy}, candidate="steady")
    with pytest.raises(ValueError, match="at least two starts, got 1"):
        toy.evaluate(plant, {"a-0": policy}, candidate="a-0", n_starts=1)
    with pytest.raises(ValueError, match="unknown controller as incumbent 'PI'"):
        toy.evaluate(plant, {"a-0": policy}, candidate="a-0", incumbent="PI")


def test_a_log_may_have_other_cost_limits_than_its_simulator(toy):
    """Its row is counted by the limits of the run, as all others are."""
    plant = toy.Line()
    log = collect_log(plant, n_steps=16 * plant.horizon, key=jax.random.key(5))
    load, peak = plant.spec.cost
    spec = dataclasses.replace(plant.spec, cost=(dataclasses.replace(load, limit=0.5), peak))
    policy = {"a-0": toy.proportional(0.3)}
    log = dataclasses.replace(log, spec=spec)
    result = _evaluate.evaluate(plant, policy, log, candidate="a-0", spec=spec, n_starts=16)
    row = result.tables.row("log", guarded=False)
    assert row.costs[0].limit == 0.5
    recorded = of(result, "log")
    np.testing.assert_array_equal(recorded.violated[:, 0], recorded.cost_sum[:, 0] > 0.5)
    assert recorded.violated[:, 0].any()
    cost = (dataclasses.replace(load, unit="cm"), peak)
    log = dataclasses.replace(log, spec=dataclasses.replace(spec, cost=cost))
    with pytest.raises(ValueError, match="Line-v0 has the cost channel load"):
        _evaluate.evaluate(plant, policy, log, candidate="a-0", n_starts=16)


@pytest.mark.nightly
def test_the_reactor_is_evaluated_with_its_operators():
    plant = make("ChemicalReactor-v0")
    tunings = plant.tunings()
    result = _evaluate.evaluate(
        plant,
        {"copy-0": tunings[plant.reference]},
        collect_log(plant, n_steps=20_000, key=jax.random.key(0)),
        key=jax.random.key(1),
        n_starts=128,
    )
    same = result.tables.row("copy-0", guarded=False).difference
    assert (same.low, same.high) == (0, 0)
    behind = result.tables.row("copy-0", guarded=True)
    assert abs(behind.difference.value) < 0.05, "a guard does not hinder the plant's own PID"
    assert behind.fallback == 0
    again, log = (result.tables.row(name, guarded=False) for name in ("logged behaviour", "log"))
    sigma = np.hypot(again.return_std / 128**0.5, log.return_std / log.n_episodes**0.5)
    assert abs(again.returns.value - log.returns.value) < 4 * sigma
    for own, others in zip(again.costs, log.costs, strict=True):
        width = own.total.high - own.total.low + others.total.high - others.total.low
        assert abs(own.total.value - others.total.value) <= width
    assert {band.channel for band in result.bands} == {"T_R", "T_adiab_hat", "P"}
    assert isinstance(result.tables.reward_unit, str)
