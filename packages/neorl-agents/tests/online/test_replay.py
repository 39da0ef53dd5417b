"""The online buffer beside a deque of Python, and batches that are balanced exactly."""

from collections import deque
from functools import partial
from itertools import pairwise

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from neorl_agents import ALGORITHMS, IQL, SACN, TD3, TD3BC, CalQL, ReBRAC
from neorl_agents.learning import for_run, restarted
from neorl_agents.online import (
    balanced_batch,
    for_fine_tuning,
    replay_begin,
    replay_push,
    rows_of_the_log,
)
from neorl_agents.testing import sized
from neorl_core import InputError, Transition, as_arrays
from neorl_core.replay import ring_order

ENVS, HORIZON, DISCOUNT, BEYOND = 3, 5, 0.9, -7.0
PUSH = jax.jit(replay_push, static_argnames="horizon")
BEGIN = jax.jit(replay_begin, static_argnames=("capacity", "returns"))
ORDER = jax.jit(ring_order)


def random_steps(seed, steps, *, envs=ENVS):
    """Rows of plants side by side, whose episodes end by chance or by the clock."""
    rng = np.random.default_rng(seed)
    age, rows = np.zeros(envs, int), []
    for _ in range(steps):
        terminated = rng.uniform(size=envs) < 0.15
        truncated = ~terminated & (age + 1 >= HORIZON)
        age = np.where(terminated | truncated, 0, age + 1)
        obs, action, next_obs = (rng.normal(size=(envs, n)).astype(np.float32) for n in (2, 1, 2))
        reward = rng.normal(size=envs).astype(np.float32)
        row = Transition(obs, action, reward, None, next_obs, None, terminated, truncated)
        rows.append(jax.tree.map(jnp.asarray, row))
    return rows


def walked(rows, capacity):
    """What a deque holds of the same rows: one at a time, returns by a loop."""
    held, running = deque(maxlen=capacity), [[] for _ in range(ENVS)]
    for row, after in pairwise(rows):
        for i in range(ENVS):
            ended = bool(row.terminated[i] | row.truncated[i])
            one = {
                "obs": np.asarray(row.obs[i]),
                "reward": float(row.reward[i]),
                "next_action": np.zeros(1) if ended else np.asarray(after.action[i]),
                "mc_return": -np.inf,
            }
            held.append(one)
            running[i].append(one)
            if ended:
                earned = 0.0 if row.terminated[i] else BEYOND
                for past in reversed(running[i]):
                    earned = past["reward"] + DISCOUNT * earned
                    past["mc_return"] = earned
                running[i] = []
    return held


def pushed(rows, capacity, *, returns=True):
    replay = BEGIN(
        rows[0], capacity=capacity, discount=DISCOUNT, bootstrap_value=BEYOND, returns=returns
    )
    for row in rows:
        replay = PUSH(replay, row, horizon=HORIZON)
    return replay


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 22), st.sampled_from([16, 40]))
def test_it_holds_what_a_deque_holds(seed, steps, capacity):
    """Rows in order, next actions, and returns of the episodes that have ended, as a loop finds."""
    rows = random_steps(seed, steps)
    ring, held = pushed(rows, capacity).ring, walked(rows, capacity)
    order = np.asarray(ORDER(ring))[: len(held)]
    assert int(ring.size) == len(held)
    stored = jax.device_get(ring.rows)
    np.testing.assert_array_equal(stored.rows.obs[order], [one["obs"] for one in held])
    np.testing.assert_array_equal(stored.rows.reward[order], [one["reward"] for one in held])
    expected = [one["next_action"] for one in held]
    np.testing.assert_array_equal(stored.rows.next_action[order], expected)
    # A row whose episode outlives its slot is gone; one that is held has its whole return.
    np.testing.assert_allclose(
        stored.mc_return[order], [one["mc_return"] for one in held], rtol=1e-5, atol=1e-5
    )


def test_returns_are_kept_for_those_who_ask():
    assert pushed(random_steps(0, 4), 16, returns=False).ring.rows.mc_return is None


@pytest.fixture(scope="module")
def batches(problem):
    """Batches of a learner from the log and a buffer whose rewards say where they come from."""

    def make(algorithm, share, number=0, seed=0):
        envs = 4
        rng = np.random.default_rng(1)
        spec = problem.spec

        def column(*shape):
            return jnp.asarray(rng.normal(size=(envs, *shape)), jnp.float32)

        def rows():
            no = jnp.zeros(envs, bool)
            obs, action, after = column(spec.n_obs), column(spec.n_action), column(spec.n_obs)
            reward = jnp.full(envs, 1e3, jnp.float32)
            return Transition(obs, action, reward, None, after, None, no, no)

        replay = BEGIN(rows(), capacity=64, discount=0.9, returns=_calibrated(algorithm))
        for _ in range(4):
            replay = PUSH(replay, rows(), horizon=8)
        unread = {f: None for f in problem.log._fields if f not in algorithm.fields}
        tables = algorithm.sampler.tables(problem.log._replace(**unread))
        tables = jax.tree.map(jnp.asarray, tables)
        draw = jax.jit(partial(balanced_batch, algorithm, share=share))
        return draw(tables, replay.ring, jnp.int32(number), jax.random.key(seed))

    return make


def _calibrated(algorithm):
    return getattr(algorithm, "calibrated", False)


@pytest.mark.parametrize(
    ("kind", "share"), [(IQL, 0.25), (IQL, 1.0), (CalQL, 0.5), (ReBRAC, 0.0), (ReBRAC, 0.5)]
)
def test_every_batch_has_the_stated_counts(batches, kind, share):
    algorithm = sized(kind(), batch_size=10)
    batch = batches(algorithm, share)
    rows = batch.rows
    online = np.asarray(rows.reward) == 1e3
    assert online.shape == (algorithm.batches_per_update, 10)
    assert (online.sum(axis=1) == 10 - rows_of_the_log(10, share)).all()
    assert rows_of_the_log(10, share) == {0.0: 0, 0.25: 2, 0.5: 5, 1.0: 10}[share]
    given = [field for field in Transition._fields if getattr(rows, field) is not None]
    assert set(given) == set(algorithm.fields) - {"mask"}
    if kind is CalQL:  # no episode of the buffer has ended
        assert (np.isneginf(np.asarray(batch.mc_return)) == online).all()


def test_draws_are_functions_of_the_number_and_cover_the_buffer(batches):
    learner = sized(IQL(), batch_size=64)
    first, again, next_one = (batches(learner, 0.5, number=n).rows for n in (0, 0, 1))
    np.testing.assert_array_equal(first.obs, again.obs)
    for half in (slice(0, 32), slice(32, 64)):  # of the log, and of the buffer
        assert not np.array_equal(first.obs[0, half], next_one.obs[0, half])
    seen = batches(sized(IQL(), batch_size=2560), 0.0).rows.obs[0, :, 0]
    counts = np.unique(seen, return_counts=True)[1]
    assert len(counts) == 12
    assert stats.chisquare(counts).pvalue > 1e-3


def test_settings_of_fine_tuning():
    iql = for_fine_tuning(IQL(decay_updates=300, expectile=0.9))
    assert (iql.decay_updates, iql.expectile) == (0, 0.9)
    assert for_fine_tuning(CalQL()) == CalQL()
    assert not for_fine_tuning(CalQL(), "corl").calibrated
    rebrac = for_run(for_fine_tuning(ReBRAC(actor_weight=0.2), "linear"), 400)
    assert (rebrac.decay_updates, rebrac.final_weight, rebrac.critic_weight) == (200, 0.0, 0.01)
    for name in ("iql", "cal_ql", "rebrac"):
        kind = ALGORITHMS[name]
        assert for_fine_tuning(kind(), "offline") == kind()
        for variant in kind.fine_tuning:
            for_run(for_fine_tuning(kind(), variant), 100).validate()


def test_what_cannot_be_fine_tuned_is_named():
    for kind in (TD3BC, SACN):
        with pytest.raises(InputError, match=f"{kind.__name__} cannot be fine-tuned.*no explore"):
            for_fine_tuning(kind())
    with pytest.raises(InputError, match=r"variant of fine-tuning IQL: 'orignal'.*original"):
        for_fine_tuning(IQL(), "orignal")


def test_a_row_whose_episode_goes_on_has_no_bound(problem):
    """Of such rows alone Cal-QL learns what CQL does; with a high return it does not."""
    small = {"hidden": (4,), "batch_size": 8, "n_samples": 2}
    bounded, plain = sized(CalQL(), **small), sized(CalQL(), **small, calibrated=False)
    state = bounded.init(problem.spec, problem.statistics, jax.random.key(0))
    batch, key = problem.batch(bounded), jax.random.key(1)
    update = jax.jit(CalQL.update)

    def learned(learner, rows):
        return jax.tree.leaves(
            update(as_arrays(learner), state, rows, key)[0].parameters["critics"]
        )

    without = learned(plain, batch.rows)
    for returns, same in ((-np.inf, True), (1e3, False)):
        filled = batch._replace(mc_return=jnp.full_like(batch.mc_return, returns))
        pairs = zip(learned(bounded, filled), without, strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs) == same


@pytest.mark.parametrize("kind", [IQL, CalQL, ReBRAC])
def test_what_is_tried_lies_around_the_policy_and_inside_the_box(problem, kind):
    """Median of the draws: for all three it is what the deterministic policy does."""
    plain = sized(kind(), hidden=(8,))
    learner = as_arrays(plain)
    state = plain.init(problem.spec, problem.statistics, jax.random.key(0))
    tried, policy, obs = learner.explore(state), learner.policy(state), problem.log.obs[0]
    keys = jax.random.split(jax.random.key(1), 2001)
    draws = jax.jit(jax.vmap(lambda key: tried(tried.initial_carry(), obs, key)[1]))(keys)
    to_unit = state.preparation.action.to_scaled
    middle = np.median(np.asarray(to_unit(draws)), axis=0)
    np.testing.assert_allclose(middle, to_unit(policy((), obs, None)[1]), atol=0.1)
    assert np.asarray(draws).std(axis=0).min() > 0
    assert (np.asarray(draws) >= np.asarray(state.preparation.low)).all()
    assert (np.asarray(draws) <= np.asarray(state.preparation.high)).all()
    assert tried.sent((), draws[0]) == ()
    if kind is not CalQL:  # schedules begin with the fine-tuning
        late = state.with_counters(updates=jnp.asarray(7, jnp.int32))
        chex.assert_trees_all_equal(restarted(late), state)


def test_td3_fills_its_buffer_with_uniform_actions_and_then_follows_its_actor(problem):
    """The oracle is SciPy's test of Kolmogorov and Smirnov; the untrained actor would fail it."""
    plain = sized(TD3(), hidden=(8,))
    learner = as_arrays(plain)
    state = plain.init(problem.spec, problem.statistics, jax.random.key(0))
    obs, keys = problem.log.obs[0], jax.random.split(jax.random.key(1), 500)

    @jax.jit
    def drawn(state):
        explore = learner.explore(state)
        return jax.vmap(lambda key: explore(explore.initial_carry(), obs, key)[1])(keys)

    low, high = np.asarray(state.preparation.low), np.asarray(state.preparation.high)
    trained = state.with_counters(updates=jnp.asarray(1, jnp.int32))
    chances = [
        [
            stats.kstest(x, "uniform", (a, b - a)).pvalue
            for x, a, b in zip(np.asarray(draws).T, low, high, strict=True)
        ]
        for draws in (drawn(state), drawn(trained))
    ]
    assert min(chances[0]) > 1e-3
    assert max(chances[1]) < 1e-9
    middle = np.median(np.asarray(drawn(trained)), axis=0)
    expected = np.asarray(learner.policy(trained)((), obs, None)[1])
    np.testing.assert_allclose((middle - expected) / (high - low), 0, atol=0.02)
