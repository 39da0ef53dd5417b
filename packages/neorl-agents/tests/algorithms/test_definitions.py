"""The golden rules of the algorithms' definitions, one test each."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import AWAC, IQL, TD3BC, XQL
from neorl_agents.learning import UnitRows
from neorl_agents.testing import sized
from neorl_core import (
    Channel,
    DataStatistics,
    FieldStatistics,
    Spec,
    Transition,
    as_arrays,
)
from neorl_core.testing import assert_close

KEY = jax.random.key(0)


def first(tree):
    return jax.tree.map(lambda leaf: leaf[0], tree)


def rows_by_hand(state, batch, discount=0.99):
    """The first batch in the units of the networks, by hand; rewards as they are."""
    maps, rows = jax.device_get((state.preparation, first(jax.device_get(batch))))
    following = rows.obs if rows.next_obs is None else rows.next_obs
    action = (rows.action - maps.action.offset[None]) / maps.action.scale[None]
    return UnitRows(
        obs=(rows.obs - maps.obs.offset[None]) / maps.obs.scale[None],
        action=np.clip(action, np.float32(-1 + 1e-5), np.float32(1 - 1e-5)),
        reward=np.zeros(len(action), np.float32) if rows.reward is None else rows.reward,
        cost=None,
        next_obs=(following - maps.obs.offset[None]) / maps.obs.scale[None],
        next_action=None,
        terminated=rows.terminated,
        truncated=rows.truncated,
        mask=rows.mask,
        discount=np.full(len(action), discount, np.float32),
        mc_return=None,
    )


@pytest.fixture(scope="module")
def td3(problem, few, state_of_form):
    algorithm = sized(TD3BC(), **few)
    state = state_of_form(algorithm, problem)
    return as_arrays(algorithm), state, rows_by_hand(state, problem.batch(algorithm))


@pytest.fixture(scope="module")
def iql(problem, few, state_of_form):
    algorithm = sized(IQL(), **few)
    state = state_of_form(algorithm, problem)
    return as_arrays(algorithm), state, rows_by_hand(state, problem.batch(algorithm))


@jax.jit
def learned(algorithm, state, rows):
    return algorithm.learn(state, rows, KEY)


@jax.jit
def critic_targets(algorithm, state, rows, key):
    return algorithm.critic_targets(state, rows, key)


@jax.jit
def update(algorithm, state, batch, key):
    return algorithm.update(state, batch, key)


def pair(rows):
    return jax.tree.map(lambda column: np.stack([column, column]), rows)


class TestTD3BC:
    def test_noise_is_clipped(self, td3):
        algorithm, state, rows = td3
        rows = pair(rows)
        loud = replace(algorithm, noise_std=jnp.asarray(1e6), noise_clip=jnp.zeros(()))
        quiet = replace(algorithm, noise_std=jnp.zeros(()))
        assert_close(
            critic_targets(loud, state, rows, KEY), critic_targets(quiet, state, rows, KEY)
        )

    def test_smoothed_action_stays_in_the_box(self, td3):
        algorithm, state, rows = td3
        far = replace(algorithm, noise_std=jnp.asarray(1e6), noise_clip=jnp.asarray(1e3))
        targets = critic_targets(far, state, pair(rows), KEY)
        corners = [
            np.broadcast_to(np.float32([overall, sign * overall]), rows.action.shape)
            for sign in (1.0, -1.0)
            for overall in (1.0, -1.0)
        ]
        possible = [value_of(state.targets["critics"], rows.next_obs, action) for action in corners]
        y = [rows.reward + 0.99 * np.where(rows.terminated, 0, q) for q in possible]
        nearest = np.min(np.abs(np.stack(y)[:, None] - np.asarray(targets)[None]), axis=0)
        assert nearest.max() < 1e-4


def value_of(critics, obs, action):
    """The least of the twins, one row and one network at a time."""
    inputs, critics = np.concatenate([obs, action], axis=1), jax.device_get(critics)
    values = [jax.tree.map(lambda leaf, i=i: leaf[i], critics)(inputs)[:, 0] for i in range(2)]
    return np.minimum(*values)


class TestIQL:
    def test_actor_rate_falls_along_half_a_cosine(self, iql):
        algorithm, state, rows = iql
        decaying = replace(algorithm, decay_updates=jnp.asarray(10, jnp.int32))
        before = state.parameters["actor"].log_std
        for done, fraction in ((0, 1.0), (5, 0.5), (10, 0.0), (20, 0.0)):
            at = state.with_counters(updates=jnp.int32(done))
            full, less = (
                learned(one, at, jax.tree.map(lambda x: x[None], rows))[0].parameters["actor"]
                for one in (algorithm, decaying)
            )
            expected = before + fraction * (full.log_std - before)
            assert np.abs(full.log_std - before).min() > 0
            np.testing.assert_allclose(less.log_std, expected, atol=1e-9)

    def test_explores_with_its_own_deviation_and_acts_with_the_mean(self, iql, problem, few):
        _, state, _ = iql
        plain = sized(IQL(), **few)
        obs = problem.log.obs[0]
        _, mean = plain.policy(state)((), obs)
        actor = replace(state.parameters["actor"], log_std=jnp.full(2, -5.0))
        narrow = state.with_parameters(actor=actor)
        keys = jax.random.split(KEY, 500)
        explore = jax.jit(jax.vmap(lambda key: plain.explore(narrow)((), obs, key)[1]))
        actions = np.asarray(explore(keys))
        half = np.array([(c.high - c.low) / 2 for c in problem.spec.action])
        spread = np.std((actions - mean[None]) / half[None], axis=0)
        np.testing.assert_allclose(spread, np.exp(-5), rtol=0.15)

    def test_corl_takes_the_advantage_before_the_value_step(self, problem, few):
        fast = {"value_learning_rate": 0.1, **few}
        metrics = {}
        for variant in ("original", "corl"):
            algorithm = sized(IQL(), variant=variant, **fast)
            state = sized(IQL(), **fast).init(problem.spec, problem.statistics, KEY)
            batch = problem.batch(algorithm)
            _, metrics[variant] = update(as_arrays(algorithm), state, batch, KEY)
        rows = rows_by_hand(state, batch)
        q = value_of(state.targets["critics"], rows.obs, rows.action)
        before = jnp.mean(q - state.parameters["value"](rows.obs)[:, 0])
        np.testing.assert_allclose(metrics["corl"]["advantage"], before, rtol=1e-4)
        assert abs(metrics["original"]["advantage"] - before) > 1e-3


def chain(ends: str) -> tuple[Spec, Transition, DataStatistics, np.ndarray]:
    """Three states in a row, rewards 1, 2, 4, discount 0.9; the last step ends or goes on.

    Where it goes on it stays in the last state, so the value there is ``4 / (1 - 0.9)``.
    """
    states = np.eye(3, dtype=np.float32)
    rows = 96
    index = np.arange(rows) % 3
    action = np.random.default_rng(0).uniform(-0.9, 0.9, size=(rows, 1)).astype(np.float32)
    reward = np.array([1.0, 2.0, 4.0], np.float32)
    last = index == 2
    log = Transition(
        obs=states[index],
        action=action,
        reward=reward[index],
        next_obs=states[np.minimum(index + 1, 2)],
        terminated=last if ends == "terminated" else np.zeros(rows, bool),
        truncated=last if ends == "truncated" else np.zeros(rows, bool),
    )
    channels = tuple(Channel(f"s{i}", "1", 0.0, 1.0) for i in range(3))
    spec = Spec(obs=channels, action=(Channel("u", "1", -1.0, 1.0),), cost=(), dt=1.0, horizon=3)
    one = np.float32(1)
    scalar = FieldStatistics(one, one, one, one, one)
    obs = FieldStatistics(one, states.mean(0), states.std(0), states.min(0), states.max(0))
    end = 4.0 if ends == "terminated" else 40.0
    exact = np.array([1 + 0.9 * (2 + 0.9 * end), 2 + 0.9 * end, end])
    return spec, log, DataStatistics(obs, scalar, scalar, scalar, scalar, scalar), exact


@pytest.mark.parametrize("ends", ["terminated", "truncated"])
@pytest.mark.parametrize("kind", ["iql", pytest.param("td3_bc", marks=pytest.mark.nightly)])
def test_values_of_a_chain_are_exact(kind, ends):
    """No action matters here, so every expectile and every policy has the same values."""
    spec, log, statistics, exact = chain(ends)
    common = {"hidden": (32, 32), "batch_size": 96, "discount": 0.9, "tau": 0.1}
    if kind == "iql":
        algorithm = sized(IQL(), value_learning_rate=3e-3, critic_learning_rate=3e-3, **common)
    else:
        algorithm = sized(TD3BC(), critic_learning_rate=3e-3, **common)
    state = algorithm.init(spec, statistics, KEY)
    shape = (algorithm.batches_per_update, 96)
    batch = jax.tree.map(lambda x: jnp.broadcast_to(x, (*shape, *x.shape[1:])), log)

    def step(algorithm, state, key):
        return algorithm.update(state, batch, key)

    keys = jax.random.split(KEY, 1500)
    state, _ = jax.jit(lambda a, s, keys: jax.lax.scan(partial(step, a), s, keys))(
        as_arrays(algorithm), state, keys
    )
    maps = state.preparation.obs
    obs = (log.obs[:3] - maps.offset[None]) / maps.scale[None]
    actual = value_of(state.parameters["critics"], obs, jnp.asarray(log.action[:3]))
    np.testing.assert_allclose(actual, exact, rtol=0.02)


@pytest.mark.parametrize(
    ("kind", "variant", "low"),
    [
        (IQL, {"variant": "original"}, -5.0),
        (IQL, {"variant": "corl"}, -20.0),
        (XQL, {}, -5.0),
        (AWAC, {}, -20.0),
    ],
)
def test_the_log_deviation_is_clipped_as_in_the_code_of_its_variant(
    problem, few, kind, variant, low
):
    algorithm = sized(kind(), **variant, **few)
    state = algorithm.init(problem.spec, problem.statistics, KEY)
    for log_std, expected in ((-30.0, low), (30.0, 2.0)):
        actor = replace(state.parameters["actor"], log_std=jnp.full(2, log_std))
        far = state.with_parameters(actor=actor)
        np.testing.assert_array_equal(algorithm.explore(far).log_std, np.full(2, expected))
