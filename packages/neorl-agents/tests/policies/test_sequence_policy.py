"""Learners of sequences: their updates beside published code, and their policies beside windows."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import CDT, DecisionTransformer
from neorl_agents.learning import log_tables, rows_for, unit_rows
from neorl_agents.networks import Steps
from neorl_agents.sampling import HistoriesWithReturns, Rows
from neorl_agents.testing import make_problem, sized, statistics_of
from neorl_core import (
    Affine,
    Channel,
    CostChannel,
    DataStatistics,
    FieldStatistics,
    Spec,
    Transition,
    as_arrays,
)

STORED = Path(__file__).parents[1] / "algorithms/fixtures/sequence_updates.npz"
STEPS, HORIZON, UPDATES = 4, 8, 100


@cache
def stored():
    """The log, and by part the arrays of the case."""
    with np.load(STORED) as file:
        arrays = dict(file)
    parts, names = {}, json.loads(str(arrays["names"]))
    for case, shapes in names.items():
        start, flat = 0, arrays[case]
        for name, shape in shapes.items():
            size = int(np.prod(shape))
            parts.setdefault(case, {})[name] = flat[start : start + size].reshape(shape)
            start += size
    return {name[4:]: x for name, x in arrays.items() if name.startswith("log/")}, parts


def recorded_log():
    """Its rows; every episode is truncated."""
    log, _ = stored()
    ends = np.zeros(len(log["reward"]), bool)
    ends[np.cumsum(log["lengths"], dtype=int) - 1] = True
    return Transition(
        log["obs"], log["action"], log["reward"], terminated=ends & False, truncated=ends
    )


def wide(x):
    x = np.asarray(x)
    return x.astype(float) if x.dtype.kind == "f" else x


def named(network):
    paths = jax.tree_util.tree_leaves_with_path(network.arrays)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in paths}


def drawn_rows(sampler, tables, rows):
    """What is drawn for these rows of the log, taken from a draw in which every row occurs."""
    n, key = len(tables.history.first), jax.random.key(0)
    shape = (1, 20 * n)
    chosen = np.asarray(Rows().draw(tables.history.choice, jnp.int32(0), key, shape).obs)[0]
    found, place = np.unique(chosen, return_index=True)
    assert len(found) == n
    batch = jax.jit(sampler.draw, static_argnums=3)(tables, jnp.int32(0), key, shape)
    return jax.tree.map(lambda x: x[0][place[rows]], batch)


def run_on_the_recorded(case, learner, cost=(), tolerance=1e-7):
    """A hundred updates from the recorded weights, and the weights that were recorded behind them.

    Theirs has padding behind the steps of a window and ours before them: the same steps.
    """
    log, parts = stored()
    channels = tuple(Channel(f"x{i}", "1", -50.0, 50.0) for i in range(3))
    box = tuple(Channel(f"u{i}", "1", -1.0, 1.0) for i in range(2))
    spec = Spec(channels, box, cost, dt=1.0, horizon=HORIZON)
    rows = recorded_log()
    rows = rows._replace(cost=log["cost"][:, None]) if cost else rows
    tables = jax.tree.map(jnp.asarray, log_tables(learner, spec, rows))
    drawn = drawn_rows(learner.sampler, tables, log["chosen"][:UPDATES].astype(int))
    batches = jax.tree.map(lambda x: wide(x)[:, None], drawn)
    of = [FieldStatistics(*[np.zeros(n, np.float32)] * 5) for n in (3, 2)]
    none = FieldStatistics(*[np.float32(1)] * 5)
    of_costs = FieldStatistics(*[np.ones(len(cost), np.float32)] * 5)
    statistics = DataStatistics(*of, none, of_costs, none, none)
    state = learner.init(spec, statistics, jax.random.key(0))
    preparation = jax.tree.map(wide, state.preparation)
    plain = {
        "reward_unit": np.ones(()),
        "reward_offset": np.zeros(()),
        "obs": Affine(np.zeros(3), np.ones(3)),
    }
    network = state.parameters["network"]
    before, expected = parts[f"{case}/before"], parts[f"{case}/after"]
    leaves = [wide(before[name]) for name in named(network)]
    network = jax.tree.unflatten(jax.tree.structure(network), leaves)
    state = jax.tree.map(wide, state.with_parameters(network=network))
    state = replace(state, preparation=replace(preparation, **plain))
    with jax.enable_x64(True):
        arrays = jax.tree.map(wide, as_arrays(learner))
        step = lambda s, batch: arrays.update(s, batch, jax.random.key(0))  # noqa: E731
        run = jax.jit(lambda s, b: jax.lax.scan(step, s, b))
        after, metrics = jax.device_get(run(state, batches))
    actual = named(after.parameters["network"])
    assert set(actual) == set(expected)
    for name, there in expected.items():
        assert np.abs(there - before[name]).max() > 1e-4
        worst = np.abs(actual[name] - there).max() / np.abs(there).max()
        assert worst < 1e-7, (name, worst)
    losses = parts[f"{case}/loss"]
    np.testing.assert_allclose(metrics["actor_loss"], losses["actor_loss"], rtol=tolerance)
    return after, losses


SMALL = {"hidden": (8, 8), "heads": 2, "history_steps": STEPS, "batch_size": 8}
RATES = {"learning_rate": 1e-3, "warmup_updates": 30}


def test_a_hundred_updates_are_those_of_corl():
    learner = sized(DecisionTransformer(), **SMALL, **RATES)
    run_on_the_recorded("dt", learner)


def test_a_hundred_updates_of_cdt_are_those_of_osrl():
    learner = sized(CDT(), **SMALL, **RATES, temperature_learning_rate=1e-3, cost_weight=0.5)
    limit = CostChannel("c", "1", 2.0, "episode")
    # In densities as narrow as exp(-5) the float32 of what lies ahead shows.
    after, losses = run_on_the_recorded("cdt", learner, (limit,), 1e-6)
    temperature = losses["log_temperature"][0]
    assert abs(temperature - np.log(0.1)) > 1e-3
    np.testing.assert_allclose(after.parameters["log_temperature"], temperature, rtol=1e-7)


@cache
def acting():
    """A learner of two blocks, and its policy after no update."""
    problem = make_problem(n_cost=0)
    learner = sized(DecisionTransformer(), hidden=(8, 8), history_steps=3, batch_size=16)
    state = learner.init(problem.spec, problem.statistics, jax.random.key(0))
    # Wider weights, so that actions differ from step to step.
    network = jax.tree.map(lambda x: 10 * np.asarray(x), state.parameters["network"])
    return problem, learner, state.with_parameters(network=network)


@jax.jit
def stepped(policy, carry, obs, action):
    carry, given = policy(carry, obs, None)
    return carry, policy.sent(carry, action), given


def followed(policy, obs, actions):
    """Carries and answers of a policy that sees a log."""
    carry, seen, given = policy.initial_carry(), [], []
    for one, action in zip(obs, actions, strict=True):
        now, carry, answer = stepped(policy, carry, one, action)
        seen.append(now)
        given.append(answer)
    return jax.tree.map(lambda *x: np.stack(x), *seen), np.stack(given)


@pytest.mark.parametrize("failed", [(), (4,)])
def test_the_policy_acts_on_the_windows_of_training_and_counts_for_itself(failed):
    """But for the return, which it counts by the network that was trained to, in one program."""
    problem, learner, state = acting()
    n, horizon, policy = 10, problem.spec.horizon, learner.policy(state)
    obs = np.array(problem.log.obs[:n])
    obs[list(failed), 0] = np.nan
    action, ends = np.array(problem.log.action[:n]), np.arange(n) == n - 1
    log = Transition(
        obs, action, np.asarray(problem.log.reward[:n]), terminated=ends & False, truncated=ends
    )
    tables = jax.device_put(HistoriesWithReturns(3).tables(log))
    before = stepped._cache_size()
    seen, given = followed(policy, obs, action)
    assert stepped._cache_size() - before <= 1

    batch = drawn_rows(HistoriesWithReturns(3), tables, np.arange(n))
    batch = jax.tree.map(lambda x: x[None], batch)
    window = np.asarray(jax.jit(unit_rows)(state.preparation, batch).obs).reshape(n, 3, -1)
    np.testing.assert_allclose(seen.obs, window[..., :4], atol=1e-6)
    np.testing.assert_allclose(seen.action, window[..., 4:6], atol=1e-6)
    np.testing.assert_array_equal(seen.known, window[..., 6:])
    known = window[..., 6] > 0
    times = np.arange(n)[:, None] - np.arange(2, -1, -1)
    np.testing.assert_array_equal(np.where(known, seen.time - times, 0), 0)

    maps, scaled = state.preparation, window[:, -1, :4]
    unit = np.asarray(maps.action.to_scaled(action))
    pairs = np.concatenate([scaled[:-1], unit[:-1], scaled[1:]], axis=-1)
    count = jax.jit(lambda network, x: network(x))
    counted = np.asarray(count(state.parameters["predictor"], pairs))[:, 0] / horizon
    left = [float((policy.target / horizon - maps.reward_offset) / maps.reward_unit)]
    for step, one in enumerate(counted, 1):
        unknown = {step, step - 1} & set(failed)
        left.append(left[-1] - (left[-1] / (horizon - step + 1) if unknown else one))
    np.testing.assert_allclose(seen.remaining[:, 0], left, rtol=1e-5)
    np.testing.assert_allclose(seen.aim[:, -1, 0], left, rtol=1e-5)

    steps = Steps(
        seen.aim, seen.obs, seen.action, seen.known[..., 0] > 0, seen.known[..., 1] > 0, seen.time
    )
    outputs, _ = jax.jit(jax.vmap(policy.network))(steps)
    expected = np.asarray(policy.action.to_physical(jnp.tanh(outputs[:, -1])))
    alive = ~np.isin(np.arange(n), failed)
    width = np.asarray(policy.high - policy.low)
    np.testing.assert_allclose(given[alive] / width, expected[alive] / width, atol=1e-5)
    assert not np.isfinite(given[~alive]).any()
    assert np.std(given[alive], axis=0).min() > 0


def test_after_the_horizon_it_begins_anew():
    problem, learner, state = acting()
    policy = learner.policy(state)
    horizon, n = problem.spec.horizon, problem.spec.horizon + 4
    obs, action = np.array(problem.log.obs[:n]), np.array(problem.log.action[:n])
    obs[horizon:], action[horizon:] = obs[:4], action[:4]
    seen, given = followed(policy, obs, action)
    np.testing.assert_array_equal(given[horizon:], given[:4])
    for mine, first in zip(seen, jax.tree.map(lambda x: x[:4], seen), strict=True):
        np.testing.assert_array_equal(mine[horizon:], first)


def test_what_is_left_is_said_in_the_units_of_the_log():
    _, learner, state = acting()
    maps = state.preparation
    for aim in (0.0, 0.5, 1.0):
        policy = replace(learner, aim=aim).policy(state)
        expected = maps.returns[0] + aim * (maps.returns[1] - maps.returns[0])
        np.testing.assert_allclose(policy.target, expected, rtol=1e-6)
    # Without an offset the number of steps left would not matter.
    policy = replace(policy, reward_offset=jnp.asarray(0.3, jnp.float32))
    before = policy.initial_carry()
    carry = stepped(policy, before, make_problem().log.obs[0], policy.low)[0]
    for one in (before, carry):
        np.testing.assert_allclose(policy.remaining(one)[0], policy.target, rtol=1e-4)


def test_what_lies_ahead_is_the_rest_of_the_episode_without_masked_rows():
    ends = np.array([0, 0, 1, 0, 0, 0, 1], bool)
    mask = np.array([1, 1, 1, 1, 0, 1, 1], bool)
    reward = np.array([1.0, 2, 4, 8, np.nan, 32, 64], np.float32)
    log = Transition(
        np.zeros((7, 1), np.float32), np.zeros((7, 1), np.float32), reward,
        cost=np.stack([reward, 2 * reward], 1), terminated=ends, truncated=ends & False, mask=mask,
    )  # fmt: skip
    to_go = HistoriesWithReturns(2).tables(log).to_go
    np.testing.assert_array_equal(to_go.returns[mask], [7, 6, 4, 104, 96, 64])
    np.testing.assert_array_equal(to_go.costs[mask][:, 1], [14, 12, 8, 208, 192, 128])
    np.testing.assert_array_equal(to_go.steps_left[mask], [3, 2, 1, 3, 2, 1])
    np.testing.assert_array_equal(to_go.step, [0, 1, 2, 0, 1, 2, 3])


@pytest.mark.nightly
def test_it_does_what_was_done_on_the_way_to_the_return_that_is_aimed_at():
    """Half of the episodes act at a quarter of the range and earn little, half at three."""
    problem = make_problem(n_cost=0)
    episode = np.arange(256) // 32
    unit = np.where(episode % 2 == 0, 0.5, -0.5)[:, None] * np.ones((1, 2))
    maps = problem.spec.action
    low, high = (np.array([getattr(c, end) for c in maps]) for end in ("low", "high"))
    ends = np.arange(256) % 32 == 31
    log = problem.log._replace(
        action=np.asarray(low + (unit + 1) / 2 * (high - low), np.float32),
        reward=np.asarray(unit[:, 0], np.float32),
        terminated=ends & False,
        truncated=ends,
    )
    learner = sized(
        DecisionTransformer(), hidden=(16, 16), history_steps=4, batch_size=32,
        learning_rate=3e-3, warmup_updates=20,
    )  # fmt: skip
    state = learner.init(problem.spec, statistics_of(log), jax.random.key(0))
    tables = jax.tree.map(
        jnp.asarray, log_tables(learner, problem.spec, rows_for(learner, log, ()))
    )
    arrays, update = as_arrays(learner), jax.jit(DecisionTransformer.update)
    draw = jax.jit(lambda n: learner.sampler.draw(tables, n, jax.random.key(0), (1, 32)))
    for i in range(300):
        state, _ = update(arrays, state, draw(jnp.int32(i)), jax.random.key(i))
    for aim, expected in ((1.0, 0.5), (0.0, -0.5)):
        policy = replace(learner, aim=aim).policy(state)
        _, given = followed(
            policy,
            log.obs[:8],
            np.full((8, 2), low + (expected + 1) / 2 * (high - low), np.float32),
        )
        acted = 2 * (given - low) / (high - low) - 1
        np.testing.assert_allclose(acted.mean(0), expected, atol=0.15)
