"""PPO and REINFORCE against their equations in NumPy, and their defaults field by field."""

from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import PPO, PPOLag, Reinforce, ReinforceLag
from neorl_agents.algorithms.online._on_policy import (
    Estimates,
    ScaledValue,
    as_rows,
    estimate,
    fresh_actor,
    fresh_value,
    reward_and_costs,
)
from neorl_agents.learning import Log, for_run, unit_rows
from neorl_agents.policies import CategoricalPolicy
from neorl_core import CostChannel, InputError, as_arrays
from neorl_core.statistics import range_statistics

from .rollouts_by_hand import KEY, SMALL, SPEC, STEPS, WORLDS, begun, perceptron, rollout, scaled

ESTIMATE = jax.jit(estimate, static_argnames="kind")


def log_prob(actor, state, rows, actions):
    out = perceptron(actor, scaled(state, rows.obs))
    if actions == "choice":
        logits = out - np.log(np.exp(out).sum(-1, keepdims=True))
        picked = np.take_along_axis(logits, rows.action.argmax(-1)[..., None], -1)[..., 0]
        return picked, -np.sum(np.exp(logits) * logits, -1)
    mean, log_std = np.split(out, 2, axis=-1)
    log_std = np.clip(log_std, -5, 1)
    unit = rows.action.astype(float) - 1  # the range is [0, 2]
    latent = np.arctanh(unit)
    normal = -0.5 * ((latent - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    entropy = np.sum(log_std + 0.5 * np.log(2 * np.pi * np.e), -1)
    return np.sum(normal - np.log(1 - unit**2), -1), entropy


def value_of(value, state, obs, signal=0):
    units = perceptron(value.network, scaled(state, obs))[..., signal]
    return float(value.mean[signal]) + float(value.scale[signal]) * units


def advantages(value, state, rows, discount, lam, signal=0):
    """Row by row, backwards, from the definition."""
    gained = rows.reward if signal == 0 else rows.cost[..., signal - 1]
    now, after = (value_of(value, state, x, signal) for x in (rows.obs, rows.next_obs))
    result = np.zeros((STEPS, WORLDS))
    for world in range(WORLDS):
        carried = 0.0
        for t in reversed(range(STEPS)):
            if rows.terminated[t, world] or rows.truncated[t, world]:
                carried = 0.0
            goes_on = 0.0 if rows.terminated[t, world] else discount * after[t, world]
            difference = gained[t, world] + goes_on - now[t, world]
            carried = difference + discount * lam * carried
            result[t, world] = carried
    return result, result + now


def normalised(x):
    return (x - x.mean()) / (x.std() + 1e-8)


@pytest.mark.parametrize(
    "actions",
    [
        pytest.param("choice", id="ppo-choice"),
        pytest.param("squashed", id="ppo-squashed", marks=pytest.mark.nightly),
    ],
)
def test_one_update_of_ppo_is_its_equations(actions):
    """One pass in one part: the ratio is one, so that the loss before the step is known."""
    learner = PPO(
        actions=actions, epochs=1, minibatches=1, networks=SMALL, entropy_weight=0.1,
        decay_updates=10, rollout=STEPS,
    )  # fmt: skip
    state, rows = begun(learner), rollout(actions)
    networks = state.parameters["networks"]
    after, metrics = jax.jit(learner.update)(state, rows, KEY)
    advantage, returns = advantages(networks.value, state, rows, 0.99, 0.95)
    mean, scale = returns.mean(), returns.std()  # the first rollout sets both
    _, entropy = log_prob(networks.actor, state, rows, actions)
    out = perceptron(networks.value.network, scaled(state, rows.obs))[..., 0]
    value_loss = np.mean((out - (returns - mean) / scale) ** 2) / 2
    actor_loss = -np.mean(normalised(advantage))  # zero but for rounding
    expected = actor_loss + 0.5 * value_loss - 0.1 * entropy.mean()
    np.testing.assert_allclose(metrics["loss"], expected, rtol=1e-4)
    np.testing.assert_allclose(metrics["entropy"], entropy.mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["return_mean"], mean, rtol=1e-4)
    np.testing.assert_allclose(metrics["return_scale"], scale, rtol=1e-4)
    stepped = after.parameters["networks"]
    reached = (stepped.value.mean[0], stepped.value.scale[0])
    np.testing.assert_allclose(reached, (mean, scale), rtol=1e-4)
    assert not np.array_equal(stepped.actor.weights[0], networks.actor.weights[0])


def test_a_ratio_outside_the_clip_is_cut_as_in_the_paper():
    learner, rows = PPO(actions="choice", networks=SMALL, decay_updates=10), rollout("choice")
    state = begun(learner)
    networks = state.parameters["networks"]
    moved = jax.tree.map(lambda x: 60 * x + 0.3, networks.actor)
    units = unit_rows(state.preparation, rows, discount=0.99)
    signals = units.reward[..., None]
    about = ESTIMATE(*networks, units, signals, discount=0.99, lam=0.95, kind="choice")
    climbed = about.advantages[:, 0]
    now_at = networks._replace(actor=moved)
    loss, metrics = jax.jit(learner.loss)(now_at, as_rows(units), about, climbed)
    before, _ = log_prob(networks.actor, state, rows, "choice")
    now, _ = log_prob(moved, state, rows, "choice")
    ratio = np.exp(now - before)
    weight = normalised(advantages(networks.value, state, rows, 0.99, 0.95)[0])
    clipped = np.clip(ratio, 0.8, 1.2)
    assert np.any(ratio != clipped)
    expected = np.mean(np.maximum(-ratio * weight, -clipped * weight))
    np.testing.assert_allclose(metrics["actor_loss"], expected, rtol=1e-4, atol=1e-6)
    assert np.isfinite(loss)


@pytest.mark.parametrize(
    "actions", ["choice", "squashed"], ids=["reinforce-choice", "reinforce-squashed"]
)
def test_the_gradient_of_reinforce_is_the_score_times_what_followed(actions):
    learner, rows = Reinforce(actions=actions, networks=SMALL, rollout=STEPS), rollout(actions)
    state = begun(learner)
    _, metrics = jax.jit(learner.update)(state, rows, KEY)
    actor, value = state.parameters["actor"], state.parameters["value"]
    advantage, returns = advantages(value, state, rows, 0.99, 1.0)
    picked, _ = log_prob(actor, state, rows, actions)
    expected = -np.mean(picked * normalised(advantage))
    np.testing.assert_allclose(metrics["actor_loss"], expected, rtol=1e-3, atol=1e-5)
    out = perceptron(value.network, scaled(state, rows.obs))[..., 0]
    units = (returns - returns.mean()) / returns.std()
    np.testing.assert_allclose(metrics["value_loss"], np.mean((out - units) ** 2) / 2, rtol=1e-4)


@pytest.mark.nightly
def test_the_rate_falls_to_zero_over_the_run():
    learner = PPO(
        actions="choice", networks=SMALL, decay_updates=2, epochs=1, minibatches=1, rollout=STEPS
    )  # fmt: skip
    state, rows, update = begun(learner), rollout("choice"), jax.jit(learner.update)
    weights = [state.parameters["networks"].actor.weights[0]]
    for _ in range(3):
        state, _ = update(state, rows, KEY)
        weights.append(state.parameters["networks"].actor.weights[0])
    moved = [float(jnp.max(jnp.abs(b - a))) for a, b in pairwise(weights)]
    assert min(moved[:2]) > 0
    assert moved[2] == 0


def test_a_choice_is_drawn_by_its_chance_and_the_policy_takes_the_likeliest():
    learner = PPO(actions="choice", networks=SMALL, decay_updates=1)
    state = begun(learner)
    actor = state.parameters["networks"].actor
    biases = (*actor.biases[:-1], jnp.asarray([0.0, 2.0, 1.0]))
    zero = jax.tree.map(jnp.zeros_like, actor)
    networks = state.parameters["networks"]._replace(
        actor=type(actor)(zero.weights, biases, actor.activation, actor.output)
    )
    state = state.with_parameters(networks=networks)
    obs = jnp.zeros(2)
    np.testing.assert_array_equal(learner.policy(state)((), obs)[1], [0, 2, 0])
    explore = learner.explore(state)
    assert isinstance(explore, CategoricalPolicy)
    draws = jax.vmap(lambda key: explore((), obs, key)[1])(jax.random.split(KEY, 4000))
    chance = np.exp([0, 2, 1]) / np.exp([0, 2, 1]).sum()
    np.testing.assert_allclose(np.mean(draws, axis=0) / 2, chance, atol=0.04)


def test_a_log_and_a_rollout_that_cannot_be_cut_are_refused():
    with pytest.raises(InputError, match="needs rollouts of its own policy"):
        PPO().source(Log())
    learner = PPO(actions="choice", networks=SMALL, minibatches=5, decay_updates=1)
    with pytest.raises(ValueError, match="12 rows cannot be divided into 5 equal minibatches"):
        jax.eval_shape(lambda: learner.update(begun(learner), rollout("choice"), KEY))


LIMITED = replace(
    SPEC, cost=(CostChannel("heat", "K", 2.0, "episode"), CostChannel("peak", "K", 0.5, "step"))
)


@pytest.mark.parametrize("kind", [PPOLag, ReinforceLag], ids=["ppo_lag", "reinforce_lag"])
def test_prices_and_the_priced_advantage_are_their_equations(kind):
    """The sum of one cost against its limit, the steps over the limit of the other by chance."""
    learner = for_run(kind(actions="choice", networks=SMALL, rollout=STEPS), 10)
    cost = np.abs(np.random.default_rng(1).normal(size=(STEPS, WORLDS, 2))).astype(np.float32)
    rows = rollout("choice")._replace(cost=cost)
    state = as_arrays(learner).init(LIMITED, range_statistics(LIMITED), KEY)
    units = unit_rows(state.preparation, rows, discount=0.99)
    counted = rows._replace(cost=np.stack([cost[..., 0], cost[..., 1] > 0.5], -1))
    value = fresh_value(learner, LIMITED, KEY)
    value = ScaledValue(value.network, value.mean, jnp.asarray([2.0, 3.0, 0.5]))
    actor, lam = fresh_actor(SMALL, LIMITED, KEY, "choice"), getattr(learner, "trace", 1.0)
    signals = reward_and_costs(learner, state, units)
    about = ESTIMATE(actor, value, units, signals, discount=0.99, lam=lam, kind="choice")
    after, advantage, metrics = jax.jit(learner.penalised_advantage)(state, units, about, value)
    # An episode has five steps: 2 K of one cost, and a step in ten over the limit of the other.
    spent = counted.cost.mean((0, 1)) * 5
    excess = (spent - [2.0, 0.1]) / [2.0, 0.1]
    np.testing.assert_allclose(metrics["cost_excess"], excess.max(), rtol=1e-5)
    assert excess.max() > 1, "counted as no more than one"
    bounded, gains = np.minimum(excess, 1), learner.multiplier
    integral = np.clip(gains.ki * bounded, 0, gains.largest)
    prices = 0.05 * (gains.kp * bounded + gains.kd * np.maximum(bounded, 0)) + integral
    prices = np.clip(prices, 0, gains.largest)
    np.testing.assert_allclose(after.parameters["multipliers"].value, prices, rtol=1e-5)
    parts = [advantages(value, state, counted, 0.99, lam, signal=j)[0].ravel() for j in range(3)]
    expected = parts[0] / 2.0 - prices[0] * parts[1] / 3.0 - prices[1] * parts[2] / 0.5
    np.testing.assert_allclose(advantage, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [PPOLag, ReinforceLag], ids=["ppo_lag", "reinforce_lag"])
def test_a_learner_of_limits_learns_the_values_of_costs_too(kind):
    learner = for_run(kind(actions="choice", networks=SMALL, rollout=STEPS), 10)
    cost = np.ones((STEPS, WORLDS, 2), np.float32)
    state = as_arrays(learner).init(LIMITED, range_statistics(LIMITED), KEY)
    state, metrics = jax.jit(learner.update)(state, rollout("choice")._replace(cost=cost), KEY)
    assert all(np.isfinite(x) for x in metrics.values())
    assert float(metrics["multiplier"]) > 0
    held = state.parameters
    value = held["networks"].value if "networks" in held else held["value"]
    assert value.mean.shape == (3,)
    with pytest.raises(InputError, match="the batch has no cost"):
        learner.update(state, rollout("choice"), KEY)


def test_a_ratio_beyond_all_bounds_has_no_gradient_of_nan():
    """As after many passes over actions at the end of their range."""
    learner, rows = PPO(networks=SMALL, decay_updates=1), rollout("squashed")
    state = begun(learner)
    networks, units = state.parameters["networks"], as_rows(unit_rows(state.preparation, rows))
    about = Estimates(jnp.ones((12, 1)), jnp.ones((12, 1)), jnp.full(12, -1e5))
    climbed = jnp.linspace(-1.0, 1.0, 12)
    slope = jax.grad(lambda x: learner.loss(x, units, about, climbed)[0])
    gradient = jax.jit(slope)(networks)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))
