"""The golden rules of the algorithms' definitions, one test each."""

from dataclasses import replace
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from neorl_agents import AWAC, BC, IQL, TD3BC, XQL
from neorl_agents.algorithms._delayed import delayed_critic_steps
from neorl_agents.algorithms._iql import _value_loss
from neorl_agents.learning import UnitRows, regress_actor
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

from .by_hand import actor_step

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


def scaled_critics(state, factor):
    """A state whose critics give ``factor`` times the value."""
    critics = state.parameters["critics"]
    weights = (*critics.weights[:-1], factor * critics.weights[-1])
    biases = (*critics.biases[:-1], factor * critics.biases[-1])
    return state.with_parameters(critics=replace(critics, weights=weights, biases=biases))


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
def regressed(algorithm, state, rows, advantage):
    """The actor's step of IQL alone."""
    state, metrics = regress_actor(algorithm, state, rows, advantage, log_std_range=(-5.0, 2.0))
    return state, metrics["actor_loss"]


@jax.jit
def critic_steps(algorithm, state, rows):
    """Those of TD3 towards the rewards."""
    return delayed_critic_steps(algorithm, state, rows, rows.reward)[0]


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


class TestBC:
    def test_loss_is_the_mean_over_rows_and_channels(self, problem, few):
        algorithm = sized(BC(), **few)
        state = algorithm.init(problem.spec, problem.statistics, KEY)
        batch = problem.batch(algorithm)
        _, metrics = update(as_arrays(algorithm), state, batch, KEY)
        policy = algorithm.policy(state)
        box = problem.spec.action
        low, high = np.array([c.low for c in box]), np.array([c.high for c in box])
        mine = np.stack([np.asarray(policy((), obs)[1], np.float64) for obs in batch.obs[0]])
        error = 2 * (mine - np.asarray(batch.action[0], np.float64)) / (high - low)
        np.testing.assert_allclose(metrics["actor_loss"], np.mean(error**2), rtol=1e-4)

    def test_learns_saturated_actions_up_to_the_margin(self, problem, few):
        algorithm = sized(BC(), learning_rate=1e-2, **few)
        state = algorithm.init(problem.spec, problem.statistics, KEY)
        batch = problem.batch(algorithm)
        high = jnp.asarray([channel.high for channel in problem.spec.action])
        batch = batch._replace(action=jnp.broadcast_to(high, batch.action.shape))
        for _ in range(100):
            state, metrics = update(as_arrays(algorithm), state, batch, KEY)
        assert metrics["actor_loss"] < 1e-3
        _, action = algorithm.policy(state)((), batch.obs[0, 0])
        assert np.all(action <= high)


class TestTD3BC:
    def test_actor_step_does_not_feel_the_scale_of_the_value(self, td3):
        algorithm, state, rows = td3
        one, _ = actor_step(algorithm, state, rows)
        other, _ = actor_step(algorithm, scaled_critics(state, 16.0), rows)
        assert_close(one.parameters["actor"], other.parameters["actor"], rtol=1e-5)

    def test_alpha_zero_is_behaviour_cloning(self, td3, problem, few):
        algorithm, state, _ = td3
        bc = sized(BC(), **few)
        start = bc.init(problem.spec, problem.statistics, KEY)
        start = start.with_parameters(actor=state.parameters["actor"])
        expected, theirs = update(as_arrays(bc), start, problem.batch(bc), KEY)
        cloned, metrics = actor_step(
            replace(algorithm, alpha=jnp.zeros(())), state, rows_by_hand(state, problem.batch(bc))
        )
        assert_close(cloned.parameters["actor"], expected.parameters["actor"], rtol=1e-6)
        assert_close(metrics["actor_loss"], theirs["actor_loss"], rtol=1e-6)

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

    def test_critic_steps_leave_actor_and_targets_to_the_bit(self, td3):
        algorithm, state, rows = td3
        new = critic_steps(algorithm, state, pair(rows))
        for part in ("targets", "counters", "preparation"):
            chex.assert_trees_all_equal(getattr(new, part), getattr(state, part))
        for part in ("parameters", "optimisers"):
            after, before = getattr(new, part), getattr(state, part)
            chex.assert_trees_all_equal(after["actor"], before["actor"])
        after, before = (one.parameters["critics"].weights[0] for one in (new, state))
        assert not np.array_equal(after, before)

    def test_targets_move_by_the_rate_on_the_actor_step(self, td3):
        algorithm, state, rows = td3
        new, _ = learned(algorithm, state, pair(rows))
        for name in ("actor", "critics"):
            slow, fast = state.targets[name], new.parameters[name]
            slow, fast = jax.device_get((slow, fast))
            expected = jax.tree.map(lambda t, o: 0.995 * t + 0.005 * o, slow, fast)
            assert_close(new.targets[name], expected)
            assert not np.array_equal(fast.weights[0], slow.weights[0])

    def test_termination_stops_the_bootstrap_and_truncation_does_not(self, td3):
        algorithm, state, rows = td3
        rows = pair(rows)._replace(terminated=np.ones((2, 32), bool))
        np.testing.assert_array_equal(critic_targets(algorithm, state, rows, KEY), rows.reward)
        ended = rows._replace(terminated=np.zeros((2, 32), bool), truncated=np.ones((2, 32), bool))
        going = ended._replace(truncated=np.zeros((2, 32), bool))
        targets = critic_targets(algorithm, state, ended, KEY)
        np.testing.assert_array_equal(targets, critic_targets(algorithm, state, going, KEY))
        assert np.all(targets != rows.reward)


def value_of(critics, obs, action):
    """The least of the twins, one row and one network at a time."""
    inputs, critics = np.concatenate([obs, action], axis=1), jax.device_get(critics)
    values = [jax.tree.map(lambda leaf, i=i: leaf[i], critics)(inputs)[:, 0] for i in range(2)]
    return np.minimum(*values)


class TestIQL:
    def test_value_reaches_the_expectile(self, problem, few):
        """On one state with eight values, the value network finds scipy's root."""
        algorithm = sized(IQL(), expectile=0.8, value_learning_rate=3e-3, **few)
        state = algorithm.init(problem.spec, problem.statistics, KEY)
        q = jnp.asarray(np.random.default_rng(0).normal(size=32), jnp.float32)
        rows = rows_by_hand(state, problem.batch(algorithm))
        rows = rows._replace(obs=np.ones_like(rows.obs))

        def imbalance(v):
            difference = np.asarray(q, np.float64) - v
            return np.sum(np.where(difference > 0, 0.8, 0.2) * difference)

        def step(algorithm, state, _):
            state, loss, _ = algorithm.descend(
                state, "value", _value_loss, rows, q, algorithm.expectile
            )
            return state, loss

        run = jax.jit(lambda a, s: jax.lax.scan(partial(step, a), s, None, length=1000))
        state, _ = run(as_arrays(algorithm), state)
        root = scipy.optimize.brentq(imbalance, -5, 5)
        np.testing.assert_allclose(state.parameters["value"](rows.obs[:1])[0, 0], root, atol=2e-3)

    def test_scaling_advantage_and_inverse_temperature_together_changes_nothing(self, iql):
        algorithm, state, rows = iql
        advantage = jnp.linspace(-1, 1, 32)
        one, _ = regressed(algorithm, state, rows, advantage)
        hotter = replace(algorithm, inverse_temperature=algorithm.inverse_temperature / 8)
        other, _ = regressed(hotter, state, rows, 8 * advantage)
        assert_close(one.parameters["actor"], other.parameters["actor"], rtol=1e-6)

    def test_advantage_over_its_deviation_does_not_feel_the_scale(self, iql, few):
        algorithm, state, rows = iql
        relative = as_arrays(sized(IQL(), advantage_scale="std", **few))
        advantage = jnp.linspace(-1, 3, 32)
        one, loss = regressed(relative, state, rows, advantage)
        other, _ = regressed(relative, state, rows, 64 * advantage)
        assert_close(one.parameters["actor"], other.parameters["actor"], rtol=1e-5)
        _, by_hand = regressed(algorithm, state, rows, advantage / jnp.std(advantage))
        assert_close(loss, by_hand, rtol=1e-5)

    def test_zero_inverse_temperature_is_plain_regression(self, iql):
        algorithm, state, rows = iql
        plain = replace(algorithm, inverse_temperature=jnp.zeros(()))
        one, loss = regressed(plain, state, rows, jnp.linspace(-9, 9, 32))
        other, _ = regressed(plain, state, rows, jnp.zeros(32))
        assert_close(one.parameters["actor"], other.parameters["actor"])
        error = np.asarray(rows.action, np.float64) - np.asarray(
            state.parameters["actor"].mean(rows.obs)
        )
        density = np.sum(-(error**2) / 2 - np.log(2 * np.pi) / 2, axis=1)
        np.testing.assert_allclose(loss, -density.mean(), rtol=1e-5)

    def test_weights_stop_at_the_ceiling(self, iql):
        algorithm, state, rows = iql
        _, at = regressed(algorithm, state, rows, jnp.full(32, np.log(100.0) / 3 + 1e-3))
        _, beyond = regressed(algorithm, state, rows, jnp.full(32, 1e6))
        np.testing.assert_array_equal(at, beyond)

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
