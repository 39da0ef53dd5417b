"""One update of learners on rollouts beside their equations, and what rollouts give them.

The forms with soft values are compared with recorded updates, in ``rollouts``.
"""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from neorl_agents import COMBO, MOBILE, MOPO, RAMBO, MOReL
from neorl_agents.algorithms._soft_actor import temperature_step
from neorl_agents.algorithms.model_based._mobile import inconsistency
from neorl_agents.algorithms.model_based._morel import halt_threshold
from neorl_agents.algorithms.model_based._rambo import (
    mixture_log_density,
    standardise,
)
from neorl_agents.learning import unit_rows
from neorl_agents.models import Calibration, DynamicsModel, Moments, PredictedStep
from neorl_agents.testing import make_problem, sized

from .test_equations import bellman, first, squared

MODEL = sized(DynamicsModel(members=3, linear=False), hidden=(4,), batch_size=8, optimiser="sgd")


def drawn(parity, actor, obs, key):
    noise = parity.normal(key, (*obs.shape[:-1], actor.biases[-1].shape[-1] // 2))
    return parity.squashed(actor, obs, noise, -5, 2)


def temperature(done):
    free = np.exp(done.before.parameters["log_temperature"])
    return min(free, done.algorithm.largest_temperature)


def check_soft_steps(parity, done, key, target, rows, extra=lambda critics: 0.0):
    """Critics, then the actor, then the temperature, then the targets."""
    s, after = done.before, done.after
    alpha = temperature(done)
    critics = parity.descended(
        lambda c: squared(parity, c, rows, target) + extra(c), s.parameters["critics"]
    )
    parity.agree(after.parameters["critics"], critics)

    def actor_loss(actor):
        action, log_prob = drawn(parity, actor, rows.obs, key)
        return np.mean(alpha * log_prob - parity.values(critics, rows.obs, action).min(0))

    actor = parity.descended(actor_loss, s.parameters["actor"])
    parity.agree(after.parameters["actor"], actor)
    _, log_prob = drawn(parity, s.parameters["actor"], rows.obs, key)
    slope = -np.mean(log_prob + done.algorithm.target_entropy * rows.action.shape[-1])
    expected = s.parameters["log_temperature"] - parity.rate * slope
    np.testing.assert_allclose(after.parameters["log_temperature"], expected, rtol=1e-9)
    moved = parity.mixed(s.targets["critics"], critics, done.algorithm.tau)
    parity.agree(after.targets["critics"], moved)


def soft_target(parity, done, rows, key, *, reward=None, entropy=1.0):
    s = done.before
    action, log_prob = drawn(parity, s.parameters["actor"], rows.next_obs, key)
    following = parity.values(s.targets["critics"], rows.next_obs, action).min(0)
    following = following - entropy * temperature(done) * log_prob
    rows = rows if reward is None else rows._replace(reward=reward)
    return bellman(rows, done.algorithm.discount, following)


def changes(parity, done, parameters, rows):
    """Means and deviations of every member's change of the observation."""
    inputs = np.clip(np.concatenate([rows.obs, rows.action], -1), -8, 8)
    members = parameters["change"]
    outputs = np.stack([layers(parity.member(members.networks, i), inputs) for i in range(3)])
    mean, raw = np.split(outputs, 2, -1)
    low, high = members.low, np.maximum(members.high, members.low + 1)
    softplus = lambda x: np.logaddexp(0, x)  # noqa: E731
    upper = high - softplus(high - raw)
    log_variance = low + (high - low) * softplus(upper - low) / softplus(high - low)
    counted = done.before.context["model"].parameters["structure"].predicted
    return mean * counted, np.exp(log_variance / 2) * counted


def layers(net, x):
    """SiLU behind the only hidden layer."""
    x = x @ net.weights[0] + net.biases[0]
    return x * special.expit(x) @ net.weights[1] + net.biases[1]


@pytest.mark.nightly
def test_mobile(parity):
    """As its authors wrote it, with ``deterministic_backup=True``."""
    options = {"n_samples": 2, "penalty_weight": 0.7, "share": 0.25, "variant": "original"}
    done = parity.update(MOBILE, model=MODEL, warmer=0.7, **options)
    s, rows, keys = done.before, first(done.rows), parity.split(done.key, 3)
    mean, std = changes(parity, done, s.context["model"].parameters, rows)
    noise_key, action_key = parity.split(parity.split(keys[2], 2)[0], 2)
    following = rows.obs + mean + std * parity.normal(noise_key, (2, *mean.shape))
    flat = following.reshape(-1, following.shape[-1])
    action, _ = drawn(parity, s.parameters["actor"], flat, action_key)
    values = parity.values(s.targets["critics"], flat, action).min(0).reshape(2, 3, 8)
    penalty = values.mean(0).std(0, ddof=1)
    penalty[:2] = 0  # of a batch of 8 a quarter is of the log
    np.testing.assert_allclose(done.metrics["inconsistency"], penalty[2:].mean(), rtol=1e-6)
    reward = rows.reward - 0.7 * penalty
    target = soft_target(parity, done, rows, keys[0], reward=reward, entropy=0.0)
    assert np.any(target < 0)
    assert done.before.parameters["log_temperature"] > 0, "the temperature is above one"
    check_soft_steps(parity, done, keys[1], np.maximum(target, 0), rows)


@pytest.mark.nightly
@pytest.mark.parametrize("states", ["mix", "model"])
def test_combo(parity, states):
    done = parity.update(
        COMBO, model=MODEL, n_samples=3, conservative_weight=0.6, share=0.25, states=states
    )
    s, rows, keys = done.before, first(done.rows), parity.split(done.key, 3)
    critic_key = parity.split(keys[2], 2)[1]
    uniform_key, here_key, next_key = parity.split(critic_key, 3)
    with jax.enable_x64(True):
        uniform = jax.random.uniform(uniform_key, (8, 3, 2), np.float64, -1, 1)
    actions, densities = [np.asarray(uniform)], [np.full((8, 3), -2 * np.log(2))]
    for obs, key in ((rows.obs, here_key), (rows.next_obs, next_key)):
        many = np.broadcast_to(obs[:, None], (8, 3, obs.shape[-1]))
        action, log_prob = drawn(parity, s.parameters["actor"], many, key)
        actions.append(action)
        densities.append(log_prob)
    action, density = np.concatenate(actions, 1), np.concatenate(densities, 1)
    many = np.broadcast_to(rows.obs[:, None], (*action.shape[:2], rows.obs.shape[-1]))

    def terms(critics):
        soft = special.logsumexp(parity.values(critics, many, action) - density, axis=-1)
        q = parity.values(critics, rows.obs, rows.action)
        return soft[:, 0 if states == "mix" else 2 :].mean(-1) - q[:, :2].mean(-1)

    target = soft_target(parity, done, rows, keys[0], entropy=0.0)
    check_soft_steps(parity, done, keys[1], target, rows, lambda c: 0.6 * terms(c).sum())
    term = terms(s.parameters["critics"]).mean()
    np.testing.assert_allclose(done.metrics["conservative_term"], term, rtol=1e-6)


@pytest.mark.nightly
def test_rambo(parity):
    """As its authors wrote it: the members' step on the change, advantages from new critics."""
    options = {"adversarial_weight": 0.3, "share": 0.5, "variant": "original"}
    done = parity.update(RAMBO, model=MODEL, warmer=0.7, **options)
    a, s, after, rows = done.algorithm, done.before, done.after, first(done.rows)
    own_key, model_key = parity.split(done.key, 2)
    keys = parity.split(own_key, 3)
    target = soft_target(parity, done, rows, keys[0])
    check_soft_steps(parity, done, keys[1], target, rows)
    member_key, noise_key, _ = parity.split(model_key, 3)
    known, led = (jax.tree.map(lambda x, p=p: x[p], rows) for p in (slice(0, 4), slice(4, 8)))
    mean, std = changes(parity, done, s.parameters, led)
    with jax.enable_x64(True):
        chosen = np.asarray(jax.random.randint(member_key, (4,), 0, 3)), np.arange(4)
    change = mean[chosen] + std[chosen] * parity.normal(noise_key, (4, 4))
    following, model = led.obs + change, s.context["model"]
    inputs = np.clip(np.concatenate([led.obs, led.action, following], -1), -8, 8)
    networks = s.parameters["outcome"].networks
    outputs = np.stack([layers(parity.member(networks, i), inputs) for i in range(3)])[chosen]
    theirs, ours = model.preparation, s.preparation
    paid = outputs[:, 0] * theirs.reward_unit + theirs.reward_offset - ours.reward_offset
    action = np.tanh(np.split(parity.network(after.parameters["actor"], following), 2, -1)[0])
    value = parity.values(after.parameters["critics"], following, action).min(0)
    here = parity.values(after.parameters["critics"], led.obs, led.action).min(0)
    goes_on = outputs[:, 1] <= 0
    advantage = paid / ours.reward_unit + a.discount * goes_on * value - here
    advantage = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-6)
    truth, counted = known.next_obs - known.obs, model.parameters["structure"].predicted

    def loss(members):
        parameters = {"change": members}
        mean, std = changes(parity, done, parameters, led)
        densities = stats.norm.logpdf(change, mean, std).sum(-1)
        against = np.mean(advantage * (special.logsumexp(densities, axis=0) - np.log(3)))
        mean, std = changes(parity, done, parameters, known)
        # Its own loss weighs every observation, and sees targets and means before that weight.
        mean, std = mean / counted, std / counted
        fit = -(stats.norm.logpdf(truth * counted, mean, std) * counted).sum(-1).sum(0).mean()
        gap = np.maximum(members.high - members.low, 1)
        weight = a.adversarial_weight * (counted.sum() + 1) / 2
        return weight * against + fit + a.model.bound_weight * (counted * gap).sum()

    before = s.parameters["change"]
    parity.agree(after.parameters["change"], parity.descended(loss, before), 1e-6)
    assert after.context["model"] is not None


STEP = PredictedStep(
    next_obs=jnp.zeros((3, 4)),
    reward=jnp.array([2.0, 4.0, 6.0]),
    cost=jnp.zeros((3, 0)),
    terminated=jnp.array([False, True, False]),
    disagreement=jnp.array([0.1, 0.5, 0.9]),
)


def test_mopo_prices_disagreement_in_units_of_the_reward():
    state = SimpleNamespace(preparation=SimpleNamespace(reward_unit=jnp.float32(2.0)))
    reward, ended = MOPO(penalty_weight=1.5).imagined(state, STEP, None)
    np.testing.assert_allclose(reward, [1.7, 2.5, 3.3], rtol=1e-6)
    np.testing.assert_array_equal(ended, STEP.terminated)


def test_a_step_that_morel_does_not_know_is_worth_the_worst_reward_for_ever(problem):
    """In a learner's own units too, with rewards centred and without."""
    percentiles = jnp.linspace(0, 0.6, 101)
    calibration = Calibration(jnp.arange(2), jnp.float32(0.2), jnp.float32(0.6), percentiles)
    assert float(halt_threshold(calibration, 0.5)) == pytest.approx(0.4)
    learner = sized(MOReL(halt_margin=0.5, halt_cost=0.25), hidden=(8,), discount=0.9)
    for ends in (True, False):
        log = problem.log._replace(terminated=problem.log.terminated & ends)
        ended = problem.statistics.terminated
        ended = jax.tree.map(lambda x, ends=ends: x * ends, ended)._replace(count=ended.count)
        statistics = problem.statistics._replace(terminated=ended)
        maps = learner.prepare(problem.spec, statistics)
        assert bool(maps.reward_offset != 0) != ends
        state = SimpleNamespace(preparation=maps)
        reward, ended = learner.imagined(state, STEP, calibration)
        np.testing.assert_array_equal(ended, [False, True, True])
        assert float(reward[0]) == 2.0
        rows = jax.tree.map(lambda x: x[:3], log)._replace(reward=reward, terminated=ended)
        units = unit_rows(maps, rows, discount=0.9).reward
        np.testing.assert_allclose(units[1:], 10 * (maps.reward_range[0] - 0.25), rtol=1e-5)


def test_the_inconsistency_is_that_of_means():
    values = np.random.default_rng(0).normal(size=(5, 3, 7))
    np.testing.assert_allclose(inconsistency(values), values.mean(0).std(0, ddof=1), rtol=1e-5)
    assert float(inconsistency(jnp.ones((4, 3, 2)) - 7).max()) == 0


DENSITY = jax.jit(mixture_log_density)


def test_the_density_of_a_mixture_is_scipys_but_for_a_constant():
    rng = np.random.default_rng(0)
    mean, change = rng.normal(size=(3, 5, 2)), rng.normal(size=(5, 2))
    std = rng.uniform(0.5, 2, size=(3, 5, 2))
    moments = Moments(jnp.asarray(mean), jnp.asarray(std))
    actual = DENSITY(moments, jnp.asarray(change), jnp.ones(2))
    each = stats.norm.logpdf(change, mean, std).sum(-1)
    expected = special.logsumexp(each, axis=0) - np.log(3) + np.log(2 * np.pi)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    one = DENSITY(moments, jnp.asarray(change), jnp.array([1.0, 0.0]))
    each = stats.norm.logpdf(change[:, 0], mean[..., 0], std[..., 0])
    expected = special.logsumexp(each, axis=0) - np.log(3) + np.log(2 * np.pi) / 2
    np.testing.assert_allclose(one, expected, rtol=1e-5)
    x = np.asarray(jax.jit(standardise)(change[:, 0].astype(np.float32), np.arange(5) < 4))
    np.testing.assert_allclose([x[:4].mean(), x[:4].std()], [0, 1], atol=1e-5)


def test_the_model_sees_what_the_learner_sees_and_its_rate_ends_with_it():
    learner = sized(MOPO(model_updates=700), encoder="history", history_steps=3)
    fit = learner.fits()["model"]
    assert fit.updates == fit.learner.decay_updates == 700
    assert (fit.learner.networks.encoder, fit.learner.networks.history_steps) == ("history", 3)
    constant = replace(learner, model=replace(learner.model, decay_updates=0))
    assert constant.fitted_model().decay_updates == 0
    with pytest.raises(ValueError, match=r"model\.members must be an integer of at least 1"):
        replace(learner, model=replace(learner.model, members=0)).validate()


def temperature_after(learner, updates):
    """The temperature if the entropy is too large in every update."""
    spec, statistics = make_problem().spec, make_problem().statistics
    context = {"model": learner.fitted_model().init(spec, statistics, jax.random.key(0))}
    state = learner.init(spec, statistics, jax.random.key(0), context=context)
    rows = SimpleNamespace(action=jnp.zeros((4, 2)), mask=None)

    def step(state, _):
        return temperature_step(learner, state, rows, jnp.full(4, -9.0)), None

    state, _ = jax.jit(lambda s: jax.lax.scan(step, s, length=updates))(state)
    return float(jnp.exp(state.parameters["log_temperature"]))


def test_a_temperature_can_leave_its_start_within_a_short_run():
    """With OfflineRL-Kit's rate, for a million updates, it could not: 0.82 after 2,000."""
    small = sized(MOPO(), hidden=(4,), model=sized(MOPO().model, members=1, elites=1, hidden=(4,)))
    assert temperature_after(small, 2_000) < 0.2
    published = replace(small, temperature_learning_rate=1e-4)
    np.testing.assert_allclose(temperature_after(published, 2_000), np.exp(-0.2), rtol=0.01)
    # Adam's steps are at most about the rate, so this bounds a run of the default length.
    assert np.exp(-small.temperature_learning_rate * 30_000) < 1e-3 < np.exp(-1e-4 * 30_000)
