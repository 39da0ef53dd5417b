"""Rules that the definitions of value-based learners imply, on critics and batches made by hand.

Critics are linear (networks without a hidden layer), so that every expected number has a closed
form. The faults of public implementations that a rule would have found are named in it.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from scipy.special import logsumexp

from neorl_agents import AWAC, CQL, EDAC, IQL, SACN, TD3BC, XQL, CalQL, ReBRAC
from neorl_agents.algorithms._td3_bc import _actor_loss
from neorl_agents.learning import UnitRows, regression_weights
from neorl_agents.networks import MLP, q_values, tanh
from neorl_agents.testing import sized
from neorl_core.losses import expectile_loss

from .by_hand import KEY, SMALL, actor_step, linear, method, rows_of, slope_of, started, wide


@pytest.fixture(autouse=True)
def in_float64():
    with jax.enable_x64(True):
        yield


def in_units(learner, seed=0):
    """The rows of an update as networks could see them."""
    rng, shape = np.random.default_rng(seed), (learner.batches_per_update, learner.batch_size)
    action = rng.uniform(-0.9, 0.9, size=(2, *shape, 2))
    return UnitRows(
        obs=rng.normal(size=(*shape, 4)),
        action=action[0],
        reward=rng.normal(size=shape),
        cost=None,
        next_obs=rng.normal(size=(*shape, 4)),
        next_action=action[1],
        terminated=np.zeros(shape, bool),
        truncated=np.zeros(shape, bool),
        mask=None,
        discount=np.full(shape, learner.discount),
        mc_return=None,
    )


class TestCQL:
    """The conservative term; CORL's, d3rlpy's and unifloral's differ in what they subtract."""

    WEIGHTS = np.array([[0.0, 0.7, -1.1], [0.3, 0.2, 0.5]])

    def term(self, learner, critics, obs, action, samples, density, floor=None, weight=1.0):
        """The loss with targets equal to the values, so that only the term is in it."""
        rows = rows_of(obs, action)
        q = jnp.einsum("ei,bi->eb", self.WEIGHTS, jnp.concatenate([rows.obs, rows.action], -1))
        target = jnp.zeros(len(obs))
        loss, (_, difference) = method("critic_loss")(
            learner, critics, rows, target, (samples, density), floor, weight
        )
        return loss - jnp.mean(jnp.sum(jnp.square(q), axis=0)), difference

    def test_the_soft_maximum_of_a_linear_critic_has_its_closed_form(self):
        """``log int exp(w . a) da = sum_c log(2 sinh(w_c) / w_c)``, by uniform samples."""
        side = (np.arange(200) + 0.5) / 100 - 1
        grid = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(1, -1, 2)
        density = np.full(grid.shape[:2], 2 * np.log(0.5))
        obs, action = np.array([[0.4]]), np.array([[0.2, -0.6]])
        _, difference = self.term(CQL(), linear(*self.WEIGHTS), obs, action, grid, density)
        slopes = self.WEIGHTS[:, 1:]
        integral = np.log(2 * np.sinh(slopes) / slopes).sum(1)
        exact = np.mean(np.log(len(grid[0])) + integral - slopes @ action[0])
        np.testing.assert_allclose(difference, exact, atol=1e-4)

    def test_a_constant_critic_leaves_the_sum_of_inverse_densities(self):
        rng = np.random.default_rng(0)
        samples, density = rng.uniform(-1, 1, size=(6, 9, 2)), rng.normal(size=(6, 9))
        rows = rows_of(np.zeros((6, 1)), np.zeros((6, 2)))
        critics = linear([0.0] * 3, [0.0] * 3, bias=4.0)
        given = (critics, rows, jnp.full(6, 4.0), (samples, density), None, 1.0)
        _, (_, corrected) = method("critic_loss")(CQL(), *given)
        np.testing.assert_allclose(corrected, np.log(np.exp(-density).sum(1)).mean())
        _, (_, joined) = method("critic_loss")(CQL(density_correction=False), *given)
        np.testing.assert_allclose(joined, np.log(9 + 1))

    @pytest.mark.parametrize("corrected", [True, False])
    def test_pushes_down_and_up_add_to_zero(self, corrected):
        """Over samples and data: a constant added to a critic changes no conservative term."""
        rng = np.random.default_rng(1)
        rows = rows_of(rng.normal(size=(5, 1)), rng.uniform(-1, 1, size=(5, 2)))
        samples, density = rng.uniform(-1, 1, size=(5, 7, 2)), rng.normal(size=(5, 7))
        learner, critics = CQL(density_correction=corrected), linear(*self.WEIGHTS)
        given = (critics, rows, jnp.zeros(5), (samples, density), None)
        heavy, none = (
            slope_of("critic_loss")(learner, *given, jnp.asarray(weight)) for weight in (25.0, 0.0)
        )
        np.testing.assert_allclose(heavy.biases[0], none.biases[0], atol=1e-12)
        assert not np.allclose(heavy.weights[0], none.weights[0])

    def test_calibration_raises_samples_of_the_policy_only(self):
        rng, n = np.random.default_rng(2), 4
        obs, action = rng.normal(size=(5, 1)), rng.uniform(-1, 1, size=(5, 2))
        samples, density = rng.uniform(-1, 1, size=(5, 3 * n, 2)), rng.normal(size=(5, 3 * n))
        floor = rng.normal(size=5)
        learner = CalQL(n_samples=n)
        actual = self.term(
            learner, linear(*self.WEIGHTS), obs, action, samples, density, jnp.asarray(floor)
        )
        inputs = np.concatenate([np.repeat(obs[:, None], 3 * n, 1), samples], -1)
        q = inputs @ self.WEIGHTS.T
        q[:, n:] = np.maximum(q[:, n:], floor[:, None, None])
        logged = np.concatenate([obs, action], -1) @ self.WEIGHTS.T
        expected = (logsumexp(q - density[..., None], axis=1) - logged).mean(0)
        np.testing.assert_allclose(actual, (expected.sum(), expected.mean()))


class TestReBRAC:
    @pytest.fixture
    def case(self):
        learner, state = started(ReBRAC)
        return learner, state, in_units(learner)

    @pytest.mark.nightly
    def test_without_penalties_it_is_td3(self, case):
        learner, state, rows = case
        free = replace(learner, actor_weight=np.array(0.0), critic_weight=np.array(0.0))
        ours, theirs = (
            method("critic_targets")(one, state, rows, KEY) for one in (free, started(TD3BC)[0])
        )
        np.testing.assert_allclose(ours, theirs)
        row = jax.tree.map(lambda x: x[0], rows)
        _, metrics = actor_step(free, state, row)
        action = state.parameters["actor"](row.obs)
        q = np.min(q_values(state.parameters["critics"], row.obs, action), axis=0)
        np.testing.assert_allclose(metrics["actor_loss"], -q.mean() / np.abs(q).mean())

    def test_rows_at_a_seam_carry_no_penalty(self, case):
        """unifloral and others take the first action of the next episode."""
        learner, state, rows = case
        heavy, free = (replace(learner, critic_weight=np.array(x)) for x in (100.0, 0.0))
        at = np.arange(32)[None, :].repeat(2, 0) % 2 == 0
        foreign = np.where(at[..., None], 0.99, rows.next_action)
        seam = rows._replace(truncated=at)
        targets = method("critic_targets")
        with_penalty = np.asarray(targets(heavy, state, seam, KEY))
        np.testing.assert_array_equal(
            with_penalty, targets(heavy, state, seam._replace(next_action=foreign), KEY)
        )
        without = np.asarray(targets(free, state, rows, KEY))
        np.testing.assert_allclose(with_penalty[at], without[at])
        assert np.all(with_penalty[~at] < without[~at])

    def test_the_scale_of_the_value_moves_no_actor_and_that_of_the_distance_does(self, case):
        learner, state, rows = case
        row = jax.tree.map(lambda x: x[0], rows)
        critics = state.parameters["critics"]
        larger = replace(
            critics,
            weights=(*critics.weights[:-1], 64 * critics.weights[-1]),
            biases=(*critics.biases[:-1], 64 * critics.biases[-1]),
        )
        step = actor_step
        one, first = step(learner, state, row)
        other, second = step(learner, state.with_parameters(critics=larger), row)
        np.testing.assert_allclose(first["actor_loss"], second["actor_loss"])
        for a, b in zip(
            jax.tree.leaves(one.parameters["actor"]),
            jax.tree.leaves(other.parameters["actor"]),
            strict=True,
        ):
            np.testing.assert_allclose(a, b, atol=1e-12)
        heavy, third = step(replace(learner, actor_weight=np.array(64.0)), state, row)
        assert abs(third["actor_loss"] - first["actor_loss"]) > 1
        assert not np.allclose(
            heavy.parameters["actor"].weights[0], one.parameters["actor"].weights[0]
        )

    def test_it_explores_with_the_stated_deviation(self, case):
        learner, state, _ = case
        louder = replace(learner, exploration_std=np.array(0.25)).explore(state)
        np.testing.assert_allclose(np.exp(louder.log_std), [0.25, 0.25])

    def test_distances_are_sums_over_channels_and_those_of_td3_bc_means(self, case):
        """The other way round a weight differs by the number of channels."""
        learner, state, rows = case
        row = jax.tree.map(lambda x: x[0], rows)
        error = np.square(state.parameters["actor"](row.obs) - row.action)
        _, metrics = actor_step(learner, state, row)
        np.testing.assert_allclose(metrics["distance"], error.sum(-1).mean())
        td3, start = started(TD3BC)
        _, metrics = actor_step(td3, start.with_parameters(actor=state.parameters["actor"]), row)
        np.testing.assert_allclose(metrics["distance"], error.mean())


class TestEDAC:
    @staticmethod
    def diversity(*slopes):
        rows = rows_of(np.zeros((3, 1)), np.zeros((3, 2)))
        critics = linear(*[[0.5, *slope] for slope in slopes])
        _, (_, metrics) = method("critic_loss")(EDAC(), critics, rows, jnp.zeros(3))
        return metrics["diversity_term"]

    def test_linear_critics_give_the_mean_of_their_cosines(self):
        slopes = np.random.default_rng(0).normal(size=(4, 2))
        unit = slopes / np.linalg.norm(slopes, axis=1, keepdims=True)
        expected = ((unit @ unit.T).sum() - 4) / 3
        np.testing.assert_allclose(self.diversity(*slopes), expected)

    def test_equal_critics_give_their_number(self):
        np.testing.assert_allclose(self.diversity(*[[0.3, -0.4]] * 5), 5)

    def test_orthogonal_critics_give_nothing(self):
        np.testing.assert_allclose(self.diversity([2.0, 0.0], [0.0, -3.0]), 0, atol=1e-12)


class TestIQL:
    @staticmethod
    def best(expectile, sample):
        """The constant at which the loss is least."""

        def loss(v):
            return float(
                jnp.mean(expectile_loss(np.full(len(sample), v), sample, expectile=expectile))
            )

        return scipy.optimize.minimize_scalar(loss, bounds=(-6, 6), options={"xatol": 1e-9}).x

    def test_half_is_the_mean_and_towards_one_the_largest(self):
        sample = np.random.default_rng(0).normal(size=40)
        actual = [self.best(expectile, sample) for expectile in (0.1, 0.5, 0.7, 0.9, 1 - 1e-7)]
        np.testing.assert_allclose(actual[1], sample.mean(), atol=1e-5)
        assert np.all(np.diff(actual) > 0)
        np.testing.assert_allclose(actual[-1], sample.max(), atol=1e-4)

    def test_weights_are_a_hundred_from_the_logarithm_of_a_hundred_on(self):
        at = np.log(100.0) / 3
        weights = regression_weights(IQL(), jnp.asarray([at - 1e-9, at, at + 1e-9, 1e9]), None)
        np.testing.assert_allclose(weights, 100, rtol=1e-8)
        assert weights[0] < 100
        np.testing.assert_array_equal(weights[2:], 100)

    def test_the_advantage_is_that_of_the_target_critics(self, problem):
        """The version in FQL's code takes the online ones."""
        learner, state = started(IQL)
        batch, update = jax.tree.map(wide, problem.batch(sized(IQL(), **SMALL))), method("update")
        other = state.with_parameters(
            critics=jax.tree.map(lambda x: 3 * x, state.parameters["critics"])
        )
        one, first = update(learner, state, batch, KEY)
        two, second = update(learner, other, batch, KEY)
        assert first["advantage"] == second["advantage"]
        np.testing.assert_array_equal(
            one.parameters["actor"].log_std, two.parameters["actor"].log_std
        )
        assert first["critic_loss"] != second["critic_loss"]

    def test_only_the_rate_of_the_actor_falls(self, problem):
        """unifloral applies the schedule to every network."""
        learner, state = started(IQL)
        learner = replace(learner, decay_updates=np.int32(10))
        batch, update = jax.tree.map(wide, problem.batch(sized(IQL(), **SMALL))), method("update")
        late = state.with_counters(updates=np.int32(10))
        early, ended = (update(learner, s, batch, KEY)[0] for s in (state, late))
        np.testing.assert_array_equal(
            ended.parameters["actor"].mean.weights[0], state.parameters["actor"].mean.weights[0]
        )
        assert not np.array_equal(
            early.parameters["actor"].mean.weights[0], state.parameters["actor"].mean.weights[0]
        )
        np.testing.assert_array_equal(
            ended.parameters["value"].weights[0], early.parameters["value"].weights[0]
        )
        np.testing.assert_array_equal(
            ended.parameters["critics"].weights[0], early.parameters["critics"].weights[0]
        )

    def test_rewards_times_k_and_inverse_temperature_over_k_leave_the_actor(self):
        """Where the values follow the rewards, as at the fixed point."""
        learner, state = started(IQL)
        row = jax.tree.map(lambda x: x[0], in_units(learner))
        k, obs, action = 16.0, row.obs, row.action

        def weights(learner, k):
            last = (
                state.parameters["value"].weights[-1] * k,
                state.parameters["value"].biases[-1] * k,
            )
            value = replace(
                state.parameters["value"],
                weights=(*state.parameters["value"].weights[:-1], last[0]),
                biases=(*state.parameters["value"].biases[:-1], last[1]),
            )
            q = k * jnp.sum(action, -1)
            return regression_weights(learner, q - value(obs)[:, 0], None)

        cooler = replace(learner, inverse_temperature=learner.inverse_temperature / k)
        np.testing.assert_allclose(weights(cooler, k), weights(learner, 1.0), rtol=1e-12)


class TestXQL:
    def test_a_masked_row_does_not_set_the_scale_of_the_loss(self):
        """The largest exponent of a batch divides it, of the rows that count."""
        value = MLP((jnp.zeros((1, 1)),), (jnp.zeros(1),))
        rows, q = rows_of(np.zeros((3, 1)), np.zeros((3, 1))), jnp.asarray([1.0, -2.0, 9.0])
        two = rows._replace(mask=jnp.asarray([True, True, False]))
        loss, _ = method("value_loss")(XQL(), value, two, q)
        z = np.array([0.5, -1.0])
        np.testing.assert_allclose(loss, np.mean(np.exp(z) - z - 1) * np.exp(-0.5), rtol=1e-6)


class TestTD3BC:
    def test_lambda_carries_no_gradient(self):
        """With one, the value's term would be constant where all values have one sign."""
        row = jax.tree.map(lambda x: x[0], in_units(started(TD3BC)[0]))
        actor = MLP((jnp.zeros((4, 2)),), (jnp.asarray([0.1, -0.2]),), output=tanh)
        critics = linear([0.0] * 4 + [1.5, 0.5], [0.0] * 6, bias=50.0)
        slope, _ = jax.jit(jax.grad(_actor_loss, has_aux=True))(actor, critics, row, 2.0)
        action = np.tanh([0.1, -0.2])
        q = 50 + action @ [1.5, 0.5]
        expected = -2.0 / q * np.array([1.5, 0.5]) + (action[None] - row.action).mean(0)
        np.testing.assert_allclose(slope.biases[0], expected * (1 - action**2), rtol=1e-9)

    @pytest.mark.parametrize("kind", [TD3BC, ReBRAC])
    def test_targets_below_zero_stay_below(self, kind):
        """MOBILE in two public codes clips them at zero."""
        learner, state = started(kind)
        rows = in_units(learner)
        poor = rows._replace(reward=np.full_like(rows.reward, -50.0))
        assert np.all(method("critic_targets")(learner, state, poor, KEY) < -40)


@pytest.mark.parametrize("kind", [CQL, SACN, EDAC, AWAC, IQL, XQL])
def test_acting_is_the_mean_whatever_the_deviation(kind, problem):
    """And takes no key: an evaluation that draws measures another policy."""
    learner = sized(kind(), **SMALL)
    state = learner.init(problem.spec, problem.statistics, KEY)
    actor = jax.tree.map(lambda leaf: leaf + 0.3, state.parameters["actor"])
    state = state.with_parameters(actor=actor)
    obs = problem.log.obs[0]
    policy = learner.policy(state)
    acted = [policy((), obs, key)[1] for key in (None, jax.random.key(1), jax.random.key(2))]
    np.testing.assert_array_equal(acted[0], acted[1])
    np.testing.assert_array_equal(acted[0], acted[2])
    if hasattr(actor, "log_std"):
        mean, wider = actor.mean, replace(actor, log_std=actor.log_std + 3)
    else:
        bias, act = actor.biases[-1], len(acted[0])
        mean, wider = actor, replace(actor, biases=(*actor.biases[:-1], bias.at[act:].add(3.0)))
    spread = learner.policy(state.with_parameters(actor=wider))
    np.testing.assert_array_equal(spread((), obs)[1], acted[0])
    unit = np.tanh(
        centre(mean, np.asarray(state.preparation.obs.to_scaled(obs), float))[: len(acted[0])]
    )
    assert np.abs(unit).max() > 0.3, "so large that a tanh is no straight line"
    low, high = np.asarray(state.preparation.low), np.asarray(state.preparation.high)
    np.testing.assert_allclose(2 * (acted[0] - low) / (high - low) - 1, unit, atol=1e-5)


def centre(network, x):
    """What a perceptron gives before its output function."""
    layers = list(zip(network.weights, network.biases, strict=True))
    for weight, bias in layers[:-1]:
        x = np.maximum(x @ np.asarray(weight) + np.asarray(bias), 0)
    return x @ np.asarray(layers[-1][0]) + np.asarray(layers[-1][1])
