"""A network on top of a controller: its bound, what the controller hears, what training brings."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from neorl_agents.artefact import POLICY_KINDS, kind_of
from neorl_agents.models import HistoryModelSettings
from neorl_agents.networks import init_mlp
from neorl_agents.policies import ResidualPolicy
from neorl_agents.retuning import (
    TODAY,
    ResidualSettings,
    RetuneSettings,
    learned_plants,
    refine,
    with_authority,
)
from neorl_agents.retuning._residual import _train
from neorl_core import Affine, Channel, Spec, Transition, unit_interval
from neorl_core.control import PID, StateFeedback

SPEC = Spec(
    (Channel("level", "m", -30.0, 30.0),), (Channel("valve", "%", -50.0, 50.0),), (), 1.0, 40
)
QUICK = RetuneSettings(
    model=HistoryModelSettings(history=(1,), members=2, updates=300, width=16),
    residual=ResidualSettings(updates=80, hidden=(16,), authority=0.5),
    evaluation_episodes=16,
)


def law(gain):
    low, high = (jnp.full(1, x) for x in (-50.0, 50.0))
    return StateFeedback(jnp.full((1, 1), gain), jnp.zeros(1), jnp.zeros(1), low, high)


def on_top(base, network, authority=5.0):
    ends = jnp.asarray([-50.0]), jnp.asarray([50.0])
    maps = Affine(jnp.zeros(1), jnp.ones(1)), unit_interval(SPEC.action)
    return ResidualPolicy(base, *maps, network, jnp.full(1, authority), *ends)


def simulated(policy, count, seed, signal=0.0):
    """Episodes of ``x' = 0.98 x + 0.5 u + w``, with the reward ``-x^2 - 0.1 u^2``."""
    rng = np.random.default_rng(seed)
    act = jax.jit(jax.vmap(lambda carry, obs: policy(carry, obs, None)))
    carry = jax.vmap(lambda _: policy.initial_carry())(jnp.arange(count))
    x, rows = 3 * rng.normal(size=count), []
    for _ in range(SPEC.horizon):
        carry, action = act(carry, jnp.asarray(x[:, None], jnp.float32))
        u = np.clip(np.asarray(action)[:, 0] + signal * rng.normal(size=count), -50, 50)
        after = 0.98 * x + 0.5 * u + 0.3 * rng.normal(size=count)
        rows.append((x, u, -(x**2) - 0.1 * u**2, after))
        x = after
    return [np.stack(column, axis=1) for column in zip(*rows, strict=True)]


@pytest.fixture(scope="module")
def refined():
    obs, action, reward, after = (x.ravel() for x in simulated(law(0.3), 60, 0, 0.7))
    n = len(obs)
    log = Transition(
        obs=obs[:, None], action=action[:, None], reward=reward, cost=np.zeros((n, 0)),
        next_obs=after[:, None], terminated=np.zeros(n, bool),
        truncated=np.arange(n) % SPEC.horizon == SPEC.horizon - 1, mask=np.ones(n, bool),
    )  # fmt: skip
    plants = learned_plants(log, SPEC, 0, settings=QUICK)
    return plants, refine(plants, law(0.3), 0, QUICK)


@pytest.mark.nightly
def test_the_network_brings_a_good_part_of_what_the_regulator_would(refined):
    """On the true plant, which nothing here has seen."""
    _, done = refined
    assert done.chosen != TODAY
    gained = simulated(done.policy, 3000, 5)[2].sum(axis=1) - simulated(law(0.3), 3000, 5)[2].sum(
        axis=1
    )
    best = simulated(law(1.65), 3000, 5)[2].sum(axis=1) - simulated(law(0.3), 3000, 5)[2].sum(
        axis=1
    )
    assert gained.mean() > 0.4 * best.mean()
    taken = {one.name: one for one in done.table}[done.chosen]
    np.testing.assert_allclose(taken.gain, gained.mean(), rtol=0.5)
    assert np.mean(done.scores[-10:]) > np.mean(done.scores[:10])


def test_another_controller_of_the_same_kind_compiles_nothing(refined):
    plants, _ = refined
    size = _train._cache_size()
    refine(plants, law(0.4), 3, QUICK)
    assert _train._cache_size() == size


def test_a_part_of_the_authority_is_a_part_of_what_is_added(refined):
    _, done = refined
    obs = jnp.asarray([2.0])
    base = float(law(0.3)((), obs, None)[1][0])
    whole = with_authority(done.policy, 1.0)
    _, action = whole(whole.initial_carry(), obs)
    half = with_authority(done.policy, 0.5)
    _, part = half(half.initial_carry(), obs)
    assert float(part[0]) - base == pytest.approx(0.5 * (float(action[0]) - base), rel=1e-4)


finite = st.floats(-1e6, 1e6, width=32)


@settings(max_examples=60)
@given(
    weights=arrays(np.float32, 13, elements=st.floats(-1e4, 1e4, width=32)),
    obs=st.one_of(finite, st.just(np.nan), st.just(np.inf)),
    authority=st.floats(0, 20, width=32),
)
def test_the_action_never_differs_by_more_than_the_authority(weights, obs, authority):
    network = init_mlp((2, 3, 1), jax.random.key(0))
    leaves, tree = jax.tree.flatten(network)
    parts = np.split(weights, np.cumsum([x.size for x in leaves])[:-1])
    shaped = [jnp.asarray(p.reshape(x.shape)) for p, x in zip(parts, leaves, strict=True)]
    policy = on_top(law(0.3), jax.tree.unflatten(tree, shaped), authority)
    seen = jnp.asarray([obs], jnp.float32)
    base = np.asarray(law(0.3)((), seen, None)[1])
    carry, action = policy(policy.initial_carry(), seen)
    if not np.isfinite(base).all():
        assert np.isnan(np.asarray(action)).all()
        return
    assert np.all(np.abs(np.asarray(action) - base) <= authority * (1 + 1e-5) + 1e-5)
    assert np.all(np.abs(np.asarray(action)) <= 50.0)
    np.testing.assert_allclose(np.asarray(carry.correction), np.asarray(action) - base, atol=1e-4)


def loops():
    one = jnp.ones(1)
    return PID(
        kp=0.5 * one, ki=0.1 * one, kd=0 * one, tau=0 * one, setpoint=0 * one, bias=0 * one,
        low=-50 * one, high=50 * one, dt=jnp.ones(()), measured=(0,), override_below=jnp.zeros(0),
        override_cap=jnp.zeros(0),
    )  # fmt: skip


def test_the_integral_of_the_controller_counts_on_as_if_it_were_alone():
    """A constant addition is not taken for an operator's hand."""
    network = init_mlp((2, 1), jax.random.key(0))
    pushed = dataclasses.replace(network, biases=(jnp.full(1, 9.0),))
    policy, alone = on_top(loops(), pushed), loops()
    carry, lonely = policy.initial_carry(), alone.initial_carry()
    for obs in np.sin(np.arange(20.0)).astype(np.float32):
        seen = jnp.asarray([obs])
        carry, action = policy(carry, seen)
        carry = policy.sent(carry, action)
        lonely, expected = alone(lonely, seen, None)
        lonely = alone.sent(lonely, expected)
        np.testing.assert_allclose(np.asarray(action - expected), 5.0, atol=0.2)
    for ours, theirs in zip(jax.tree.leaves(carry.base), jax.tree.leaves(lonely), strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-4, atol=1e-4)


def test_a_network_of_zeros_is_the_controller_to_the_bit():
    """Actions and integrals over a loop, with a hand on the valve now and then."""
    zeros = jax.tree.map(jnp.zeros_like, init_mlp((2, 4, 1), jax.random.key(0)))
    readings = 40 * jax.random.normal(jax.random.key(1), (60, 1))

    def step(policy, carry, at):
        carry, action = policy(carry, readings[at], None)
        carry = policy.sent(carry, jnp.where(at % 7 == 3, -action, action))
        return carry, (getattr(carry, "base", carry), action)

    alone, topped = (
        jax.lax.scan(functools.partial(step, policy), policy.initial_carry(), jnp.arange(60))[1]
        for policy in (loops(), on_top(loops(), zeros))
    )
    assert len(np.unique(alone[1])) > 30
    jax.tree.map(np.testing.assert_array_equal, topped, alone)


def test_it_is_a_kind_that_an_artefact_holds():
    policy = on_top(loops(), init_mlp((2, 8, 1), jax.random.key(1)))
    name = kind_of(policy)
    kind = POLICY_KINDS[name]
    template = eqx.filter_eval_shape(kind.template, SPEC, kind.static(policy))
    assert jax.tree.structure(template) == jax.tree.structure(policy)
    assert [x.shape for x in jax.tree.leaves(template)] == [
        x.shape for x in jax.tree.leaves(policy)
    ]


def test_a_network_must_promise_as_much_as_the_model_is_wrong(refined):
    """Half of the promised gain is error that a retuned controller would be forgiven."""
    plants, done = refined
    promised = {one.name: one for one in done.table}[done.chosen].gain
    own = np.ones(len(plants.logged), bool)
    today = done.table[0].returns
    doubtful = plants._replace(by_incumbent=own, logged=np.full(len(own), today - 3 * promised))
    doubtful = doubtful.with_model_error(law(0.3))
    assert refine(doubtful, law(0.3), 0, QUICK).chosen == TODAY
    sure = plants._replace(by_incumbent=own, logged=np.full(len(own), today - 0.1 * promised))
    sure = sure.with_model_error(law(0.3))
    assert refine(sure, law(0.3), 0, QUICK).chosen == done.chosen
