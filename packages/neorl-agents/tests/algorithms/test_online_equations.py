"""One update of each learner for a simulated plant beside its paper's equations."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import SAC, TD3
from neorl_agents.optimisers import OPTIMISERS
from neorl_core import Channel, Spec
from neorl_core.statistics import range_statistics


def bellman(rows, discount, following):
    return rows.reward + discount * np.where(rows.terminated, 0, following)


def squared(parity, critics, rows, target):
    return ((parity.values(critics, rows.obs, rows.action) - target) ** 2).mean(1).sum()


def test_td3(parity):
    done = parity.update(TD3)
    a, s, rows = done.algorithm, done.before, done.rows
    shape = rows.action.shape
    noise = a.noise_std * parity.normal(done.key, (shape[0] * shape[1], shape[2])).reshape(shape)
    smooth = np.clip(noise, -a.noise_clip, a.noise_clip)
    action = np.clip(parity.network(s.targets["actor"], rows.next_obs) + smooth, -1, 1)
    following = parity.values(s.targets["critics"], rows.next_obs, action).min(0)
    target, critics = bellman(rows, a.discount, following), s.parameters["critics"]
    for i in range(2):
        row = jax.tree.map(lambda x, i=i: x[i], rows)
        critics = parity.descended(lambda c, r=row, y=target[i]: squared(parity, c, r, y), critics)
    parity.agree(done.after.parameters["critics"], critics)
    last, one = jax.tree.map(lambda x: x[1], rows), parity.member(critics, 0)

    def actor_loss(actor):
        inputs = np.concatenate([last.obs, parity.network(actor, last.obs)], axis=-1)
        return -parity.network(one, inputs).mean()

    actor = parity.descended(actor_loss, s.parameters["actor"])
    parity.agree(done.after.parameters["actor"], actor)
    parity.agree(done.after.targets["actor"], parity.mixed(s.targets["actor"], actor, a.tau))
    parity.agree(done.after.targets["critics"], parity.mixed(s.targets["critics"], critics, a.tau))


class PlainSAC(SAC):
    """Every step by plain descent, the one of the temperature too."""

    own_optimisers: ClassVar[dict[str, str]] = {}


def test_sac(parity):
    done = parity.update(PlainSAC, log_std=(2.05, -5.11), masked=3)
    a, s = done.algorithm, done.before
    rows = jax.tree.map(lambda x: x[0, :-3], done.rows)
    batch, act = done.rows.action[0].shape
    for_target, for_actor = parity.split(done.key, 2)
    alpha = np.exp(s.parameters["log_temperature"])

    def draw(actor, obs, key):
        return parity.squashed(actor, obs, parity.normal(key, (batch, act))[:-3], -5, 2)

    action, log_prob = draw(s.parameters["actor"], rows.next_obs, for_target)
    following = parity.values(s.targets["critics"], rows.next_obs, action).min(0)
    target = bellman(rows, a.discount, following - alpha * log_prob)
    critics = parity.descended(lambda c: squared(parity, c, rows, target), s.parameters["critics"])
    parity.agree(done.after.parameters["critics"], critics)

    def actor_loss(actor):
        action, log_prob = draw(actor, rows.obs, for_actor)
        return np.mean(alpha * log_prob - parity.values(critics, rows.obs, action).min(0))

    parity.agree(
        done.after.parameters["actor"], parity.descended(actor_loss, s.parameters["actor"])
    )
    _, log_prob = draw(s.parameters["actor"], rows.obs, for_actor)
    slope = -np.mean(log_prob + a.target_entropy * act)
    np.testing.assert_allclose(
        done.after.parameters["log_temperature"],
        s.parameters["log_temperature"] - parity.rate * slope,
        rtol=1e-9,
    )
    np.testing.assert_allclose(done.metrics["temperature"], alpha)
    parity.agree(done.after.targets["critics"], parity.mixed(s.targets["critics"], critics, a.tau))


def test_sac_clips_the_norm_of_networks_and_not_of_the_temperature():
    names = {name: SAC().optimiser_of(name) for name in SAC.rates}
    assert names == {"actor": "sac", "critics": "sac", "log_temperature": "adam"}
    large = {"weight": jnp.full(4, 50.0)}
    for name, norm in (("sac", 1.0), ("adam", 100.0)):
        chain = OPTIMISERS.find(name)(1e-3)
        _, state = chain.update(large, chain.init(large), large)
        # The first moment of Adam after one step is a tenth of what reached it.
        means = [leaf for leaf in jax.tree.leaves(state) if np.shape(leaf) == (4,)]
        np.testing.assert_allclose(10 * np.linalg.norm(means[0]), norm, rtol=1e-5)


@pytest.mark.parametrize("kind", [SAC, TD3], ids=["sac", "td3"])
def test_it_begins_without_a_log_and_explores_within_the_range(kind):
    channels = (Channel("x", "m", -5.0, 5.0),), (Channel("u", "kN", 2.0, 6.0),)
    spec = Spec(*channels, (), dt=1.0, horizon=10)
    learner = kind()
    state = learner.init(spec, range_statistics(spec), jax.random.key(0))
    policy = learner.explore(state)
    keys = jax.random.split(jax.random.key(1), 200)
    act = jax.jit(jax.vmap(lambda key: policy(policy.initial_carry(), jnp.ones(1), key)[1]))
    actions = np.asarray(act(keys))
    assert 2.0 <= actions.min() < actions.max() <= 6.0
    assert float(actions.std()) > 0.1


def test_td3_fills_its_buffer_with_uniform_actions_and_then_explores_around_its_actor():
    """CleanRL and the authors take 25,000 uniform steps; an untrained actor would stay near 0."""
    channels = (Channel("x", "m", -5.0, 5.0),), (Channel("u", "kN", 2.0, 6.0),)
    spec = Spec(*channels, (), dt=1.0, horizon=10)
    learner = TD3()
    state = learner.init(spec, range_statistics(spec), jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 2000)

    @jax.jit
    def actions(state):
        policy = learner.explore(state)
        return jax.vmap(lambda key: policy((), jnp.ones(1), key)[1])(keys)

    unit = (np.asarray(actions(state)) - 4) / 2
    np.testing.assert_allclose([unit.mean(), unit.std()], [0, 1 / np.sqrt(3)], atol=0.03)
    later = np.asarray(actions(state.with_counters(updates=jnp.int32(1))) - 4) / 2
    np.testing.assert_allclose(later.std(), learner.exploration_std, rtol=0.1)
