"""A policy with memory, step by step, beside the windows that it was trained on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import BC, IQL
from neorl_agents.learning import unit_rows
from neorl_agents.policies import GaussianPolicy
from neorl_agents.sampling import next_windows, windows
from neorl_agents.testing import sized

SMALL = {"hidden": (8, 8), "batch_size": 32, "history_steps": 3}
ROWS = 64


@pytest.fixture(scope="module", params=["history", "gru"])
def trained(request, problem):
    """A learner with memory, and its state; nothing need be learned to tell two windows apart."""
    plain = sized(BC(), encoder=request.param, **SMALL)
    return plain, plain.init(problem.spec, problem.statistics, jax.random.key(3))


@pytest.fixture(scope="module")
def log(problem):
    """Episodes of several lengths; observations fail now and then, as does one action."""
    rng = np.random.default_rng(1)
    rows = jax.tree.map(lambda x: np.array(x[:ROWS]), problem.log)
    failed = rng.uniform(size=ROWS) < 0.2
    rows.obs[failed, 1] = np.nan
    unknown = np.flatnonzero(~failed)[5]
    rows.action[unknown] = np.nan
    return rows._replace(mask=~failed)


@jax.jit
def stepped(policy, obs, action, starts):
    """Actions along a log; the carry begins anew with every episode."""

    def step(carry, row):
        fresh = policy.initial_carry()
        carry = jax.tree.map(lambda new, old: jnp.where(row[2], new, old), fresh, carry)
        carry, proposed = policy(carry, row[0], None)
        return policy.sent(carry, row[1]), proposed

    return jax.lax.scan(step, policy.initial_carry(), (obs, action, starts))[1]


def episode_starts(log):
    ends = log.terminated | log.truncated
    return np.concatenate([[True], ends[:-1]])


def test_stepping_through_a_log_is_evaluating_its_windows(trained, log):
    plain, state = trained
    policy = plain.policy(state)
    tables = jax.tree.map(jnp.asarray, plain.sampler.tables(log))
    seen = log._replace(obs=windows(tables, jnp.arange(ROWS), steps=3), next_obs=None, mask=None)

    @jax.jit
    def answers(preparation, policy, seen):
        return policy.action.to_physical(policy.network(unit_rows(preparation, seen).obs))

    expected = np.asarray(answers(state.preparation, policy, seen))
    actual = np.asarray(stepped(policy, log.obs, log.action, episode_starts(log)))
    half = np.asarray(policy.high - policy.low) / 2
    np.testing.assert_allclose((actual / half)[log.mask], (expected / half)[log.mask], atol=1e-5)
    assert np.isnan(actual[~log.mask]).all(), "an observation that fails has no action"


@jax.jit
def behind(policy, window):
    """The action in the newest observation of each window, with the carry of the steps before."""

    def one(window):
        return policy(policy.carry_of_window(window), window.obs[-1], None)[1]

    return jax.vmap(one)(window)


def test_the_carry_behind_a_window_is_that_of_having_stepped_to_it(trained, log):
    plain, state = trained
    policy = plain.policy(state)
    tables = jax.tree.map(jnp.asarray, plain.sampler.tables(log))
    window = windows(tables, jnp.arange(ROWS), steps=3)
    actual = np.asarray(behind(policy, window))
    want = np.asarray(stepped(policy, log.obs, log.action, episode_starts(log)))
    half = np.asarray(policy.high - policy.low) / 2
    np.testing.assert_allclose((actual / half)[log.mask], (want / half)[log.mask], atol=1e-5)


def test_windows_are_those_of_a_loop(log):
    """Masked rows are in none, however good their observations look."""
    log = log._replace(obs=np.where(np.isnan(log.obs), 7.0, log.obs))
    tables = jax.tree.map(jnp.asarray, sized(BC(), encoder="gru", **SMALL).sampler.tables(log))
    actual = jax.device_get(windows(tables, jnp.arange(ROWS), steps=3))
    after = jax.device_get(next_windows(tables, jnp.arange(ROWS), steps=3))
    starts = episode_starts(log)
    for row in range(ROWS):
        first = max(i for i in range(row + 1) if starts[i])
        for step in range(3):
            i = row - 2 + step
            known = i >= first and log.mask[i]
            action_known = (
                i - 1 >= first and log.mask[i - 1] and np.isfinite(log.action[i - 1]).all()
            )
            assert actual.obs_known[row, step] == known
            assert actual.action_known[row, step] == action_known
            np.testing.assert_array_equal(actual.obs[row, step], log.obs[i] if known else 0)
            np.testing.assert_array_equal(
                actual.action[row, step], log.action[i - 1] if action_known else 0
            )
        for now, later in zip(actual, after, strict=True):
            np.testing.assert_array_equal(later[row, :2], now[row, 1:])
        np.testing.assert_array_equal(after.obs[row, 2], log.next_obs[row])
        if log.mask[row] and np.isfinite(log.action[row]).all():
            np.testing.assert_array_equal(after.action[row, 2], log.action[row])
        else:
            assert not after.action_known[row, 2]


def test_a_failed_observation_is_forgotten_after_the_window(trained, problem):
    plain, state = trained
    policy = plain.policy(state)
    obs, action = np.array(problem.log.obs[:8]), np.array(problem.log.action[:8])
    spoilt = obs.copy()
    spoilt[2] = np.nan
    starts = np.arange(8) == 0
    clean = np.asarray(stepped(policy, obs, action, starts))
    actual = np.asarray(stepped(policy, spoilt, action, starts))
    assert np.isnan(actual[2]).all()
    assert np.isfinite(np.delete(actual, 2, axis=0)).all()
    np.testing.assert_array_equal(actual[:2], clean[:2])
    assert (actual[3:5] != clean[3:5]).any()
    # The window holds three steps, and the action before the oldest of them.
    np.testing.assert_array_equal(actual[6:], clean[6:])


def test_what_came_before_matters_and_a_fresh_carry_forgets_it(trained, problem):
    plain, state = trained
    policy = plain.policy(state)
    obs = jnp.stack([problem.log.obs[0], problem.log.obs[1]])
    action = problem.log.action[:2]
    one = stepped(policy, obs, action, np.array([True, False]))
    anew = stepped(policy, obs, action, np.array([True, True]))
    assert (one[1] != anew[1]).any()
    np.testing.assert_array_equal(anew[1], policy(policy.initial_carry(), obs[1], None)[1])
    # The first step of an episode has no action before it, even where one is told.
    after_one = policy.sent(policy.initial_carry(), action[0])
    np.testing.assert_array_equal(policy(after_one, obs[1], None)[1], anew[1])
    # What was sent counts for one step: where nobody tells the next one, it is unknown.
    carry = policy.sent(policy(after_one, obs[0], None)[0], action[0])
    assert carry.sent[-1] == 1
    assert policy(carry, obs[1], None)[0].sent[-1] == 0


def test_exploring_carries_the_memory_of_the_mean(problem):
    plain = sized(IQL(), encoder="history", **SMALL)
    state = plain.init(problem.spec, problem.statistics, jax.random.key(0))
    explore, mean = plain.explore(state), plain.policy(state)
    assert isinstance(explore, GaussianPolicy)
    carry, _ = explore(explore.initial_carry(), problem.log.obs[0], jax.random.key(1))
    expected, _ = mean(mean.initial_carry(), problem.log.obs[0], None)
    np.testing.assert_array_equal(carry.window, expected.window)
    after = explore.sent(carry, problem.log.action[0])
    assert after.sent[-1] == 1


def test_a_batch_without_windows_is_refused(trained, problem):
    plain, state = trained
    with pytest.raises(ValueError, match=r"read windows of 3 steps, got rows"):
        unit_rows(state.preparation, problem.log)
    memoryless = sized(BC(), hidden=(8,)).init(problem.spec, problem.statistics, jax.random.key(0))
    with pytest.raises(ValueError, match=r"read rows, got windows of 3 steps"):
        unit_rows(memoryless.preparation, problem.batch(plain))


def test_a_log_that_does_not_say_where_episodes_end_is_refused(problem):
    sampler = sized(BC(), encoder="gru", **SMALL).sampler
    with pytest.raises(ValueError, match="must list terminated and truncated in its `reads`"):
        sampler.tables(problem.log._replace(truncated=None))


def test_one_observation_is_seen_at_a_time(trained, problem):
    plain, state = trained
    policy = plain.policy(state)
    with pytest.raises(ValueError, match=r"one observation of shape \(4,\), got \(2, 4\)"):
        policy(policy.initial_carry(), problem.log.obs[:2], None)
