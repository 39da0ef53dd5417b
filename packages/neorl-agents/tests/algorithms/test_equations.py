"""One update of learners beside their equations, where recorded updates leave something out.

Recorded are those of ``test_recorded_updates.py``; CQL's equations are in a file of their own.
"""

import jax
import numpy as np
import pytest
import scipy.special
import scipy.stats

from neorl_agents import AWAC, BC, IQL, SACN, TD3BC, XQL, ReBRAC


def first(tree):
    return jax.tree.map(lambda x: x[0], tree)


def counted(tree, masked):
    """The rows of the first batch that count."""
    return jax.tree.map(lambda x: x[0, : x.shape[1] - masked], tree)


def bellman(rows, discount, following):
    return rows.reward + discount * np.where(rows.terminated, 0, following)


def squared(parity, critics, rows, target):
    return ((parity.values(critics, rows.obs, rows.action) - target) ** 2).mean(1).sum()


def log_density(parity, actor, rows, low):
    log_std = np.clip(actor.log_std, low, 2)
    error = (rows.action - parity.network(actor.mean, rows.obs)) / np.exp(log_std)
    return (-(error**2) / 2 - log_std - np.log(2 * np.pi) / 2).sum(-1)


def check_weighted_regression(parity, done, rows, advantage, low):
    """The actor's step, and the share of rows that count."""
    a = done.algorithm
    if a.advantage_scale == "std":
        advantage = advantage / advantage.std()
    weights = np.minimum(np.exp(a.inverse_temperature * advantage), a.max_weight)

    def loss(actor):
        return -np.mean(weights * log_density(parity, actor, rows, low))

    parity.agree(
        done.after.parameters["actor"], parity.descended(loss, done.before.parameters["actor"])
    )
    share = weights.sum() ** 2 / (len(weights) * (weights**2).sum())
    np.testing.assert_allclose(done.metrics["effective_sample"], share, rtol=1e-6)
    ceiling = np.mean(weights == a.max_weight)
    np.testing.assert_allclose(done.metrics["at_ceiling"], ceiling)


def mixture_loss(outputs, action, components=5):
    """With SciPy's densities, row by component by channel."""
    shape = (len(action), components, action.shape[-1])
    weights = scipy.special.softmax(outputs[:, :components], axis=1)
    mean, log_std = (x.reshape(shape) for x in np.split(outputs[:, components:], 2, axis=1))
    spread = np.exp(np.clip(log_std, -5, 2))
    densities = scipy.stats.norm.pdf(action[:, None], np.tanh(mean), spread).prod(-1)
    return -np.log((weights * densities).sum(1)).mean()


@pytest.mark.parametrize("variant", ["deterministic", "gaussian", "mixture"])
def test_bc(parity, variant):
    at_clips = {"gaussian": (2.0, -4.65), "mixture": (2.0, -5.0) + (0.0,) * 8}
    done = parity.update(BC, variant=variant, masked=3, log_std=at_clips.get(variant, ()))
    rows = counted(done.rows, 3)

    def loss(actor):
        if variant == "deterministic":
            return np.mean((parity.network(actor, rows.obs) - rows.action) ** 2)
        if variant == "mixture":
            return mixture_loss(parity.network(actor, rows.obs), rows.action)
        mean, log_std = np.split(parity.network(actor, rows.obs), 2, axis=-1)
        log_std = np.clip(log_std, -5, 2)
        error = (np.arctanh(rows.action) - mean) / np.exp(log_std)
        density = -(error**2) / 2 - log_std - np.log(2 * np.pi) / 2
        return -np.mean((density - np.log1p(-(rows.action**2))).sum(-1))

    parity.agree(
        done.after.parameters["actor"], parity.descended(loss, done.before.parameters["actor"])
    )


def discounts(done):
    """Behind one step, or behind the last of several that are in the row."""
    if done.algorithm.steps.n_step == 1:
        return np.full_like(done.rows.reward, done.algorithm.discount)
    steps = done.batch.discount
    assert len(set(np.round(steps[0], 6))) > 1, "some of the rows must end early"
    return steps


@pytest.mark.parametrize("n_step", [1, 3])
def test_td3_bc(parity, n_step):
    done = parity.update(TD3BC, n_step=n_step)
    a, s, rows = done.algorithm, done.before, done.rows
    shape = rows.action.shape
    noise = a.noise_std * parity.normal(done.key, (shape[0] * shape[1], shape[2])).reshape(shape)
    smooth = np.clip(noise, -a.noise_clip, a.noise_clip)
    action = np.clip(parity.network(s.targets["actor"], rows.next_obs) + smooth, -1, 1)
    following = parity.values(s.targets["critics"], rows.next_obs, action).min(0)
    target, critics = bellman(rows, discounts(done), following), s.parameters["critics"]
    for i in range(2):
        row = jax.tree.map(lambda x, i=i: x[i], rows)
        critics = parity.descended(lambda c, r=row, y=target[i]: squared(parity, c, r, y), critics)
    parity.agree(done.after.parameters["critics"], critics)
    last, one = jax.tree.map(lambda x: x[1], rows), parity.member(critics, 0)

    def q_of(actor):
        inputs = np.concatenate([last.obs, parity.network(actor, last.obs)], axis=-1)
        return parity.network(one, inputs)[:, 0]

    size = np.abs(q_of(s.parameters["actor"])).mean()

    def actor_loss(actor):
        distance = np.mean((parity.network(actor, last.obs) - last.action) ** 2)
        return distance - a.alpha / size * q_of(actor).mean()

    actor = parity.descended(actor_loss, s.parameters["actor"])
    parity.agree(done.after.parameters["actor"], actor)
    parity.agree(done.after.targets["actor"], parity.mixed(s.targets["actor"], actor, a.tau))
    parity.agree(done.after.targets["critics"], parity.mixed(s.targets["critics"], critics, a.tau))


@pytest.mark.parametrize(("scale", "n_step"), [("fixed", 1), ("std", 1), ("fixed", 3)])
def test_iql(parity, scale, n_step):
    masked = 3 if n_step == 1 else 0
    done = parity.update(IQL, advantage_scale=scale, masked=masked, n_step=n_step)
    a, s, rows = done.algorithm, done.before, counted(done.rows, masked)
    q = parity.values(s.targets["critics"], rows.obs, rows.action).min(0)

    def value_loss(value):
        off = q - parity.network(value, rows.obs)[:, 0]
        return np.mean(np.where(off > 0, a.expectile, 1 - a.expectile) * off**2)

    value = parity.descended(value_loss, s.parameters["value"])
    parity.agree(done.after.parameters["value"], value)
    advantage = q - parity.network(value, rows.obs)[:, 0]
    check_weighted_regression(parity, done, rows, advantage, -5)
    steps = discounts(done)[0, : len(rows.reward)]
    target = bellman(rows, steps, parity.network(value, rows.next_obs)[:, 0])
    critics = parity.descended(lambda c: squared(parity, c, rows, target), s.parameters["critics"])
    parity.agree(done.after.parameters["critics"], critics)
    parity.agree(done.after.targets["critics"], parity.mixed(s.targets["critics"], critics, a.tau))


def test_xql(parity):
    done = parity.update(XQL, temperature=0.3, max_exponent=2.0, masked=3)
    a, s, rows = done.algorithm, done.before, counted(done.rows, 3)
    q = parity.values(s.targets["critics"], rows.obs, rows.action).min(0)

    def exponents(value):
        off = q - parity.network(value, rows.obs)[:, 0]
        return np.minimum(off / a.temperature, a.max_exponent)

    largest = max(exponents(s.parameters["value"]).max(), -1)

    def value_loss(value):
        z = exponents(value)
        return np.mean((np.exp(z) - z - 1) * np.exp(-largest))

    value = parity.descended(value_loss, s.parameters["value"])
    parity.agree(done.after.parameters["value"], value)
    advantage = q - parity.network(value, rows.obs)[:, 0]
    check_weighted_regression(parity, done, rows, advantage, -5)
    target = bellman(rows, a.discount, parity.network(value, rows.next_obs)[:, 0])
    critics = parity.descended(lambda c: squared(parity, c, rows, target), s.parameters["critics"])
    parity.agree(done.after.parameters["critics"], critics)
    parity.agree(done.after.targets["critics"], parity.mixed(s.targets["critics"], critics, a.tau))


def test_awac(parity):
    done = parity.update(AWAC)
    a, s, rows = done.algorithm, done.before, first(done.rows)
    next_key, own_key = parity.split(done.key, 2)

    def draw(obs, key):
        noise = parity.normal(key, rows.action.shape)
        return np.clip(
            parity.network(s.parameters["actor"].mean, obs)
            + np.exp(s.parameters["actor"].log_std) * noise,
            -1,
            1,
        )

    after = parity.values(s.targets["critics"], rows.next_obs, draw(rows.next_obs, next_key)).min(0)
    target = bellman(rows, a.discount, after)
    critics = parity.descended(lambda c: squared(parity, c, rows, target), s.parameters["critics"])
    parity.agree(done.after.parameters["critics"], critics)
    logged = parity.values(critics, rows.obs, rows.action).min(0)
    own = parity.values(critics, rows.obs, draw(rows.obs, own_key)).min(0)
    check_weighted_regression(parity, done, rows, logged - own, -20)
    parity.agree(done.after.targets["critics"], parity.mixed(s.targets["critics"], critics, a.tau))


@pytest.mark.parametrize("masked", [0, 5])
def test_awac_as_its_authors_wrote_it(parity, masked):
    """All losses at the networks before the update, softmax weights, a sigmoid deviation."""
    options = {"variant": "original", "inverse_temperature": 0.5, "masked": masked}
    done = parity.update(AWAC, **options)
    a, s, rows = done.algorithm, done.before, counted(done.rows, masked)
    whole, size = first(done.rows), len(rows.reward)
    next_key, own_key = parity.split(done.key, 2)

    def deviation(actor):
        return -6 + 6 * scipy.special.expit(actor.log_std)

    def draw(obs, key):
        noise = parity.normal(key, whole.action.shape)[:size]
        actor = s.parameters["actor"]
        return parity.network(actor.mean, obs) + np.exp(deviation(actor)) * noise

    after = parity.values(s.targets["critics"], rows.next_obs, draw(rows.next_obs, next_key)).min(0)
    target = bellman(rows, a.discount, after)
    before = s.parameters["critics"]
    critics = parity.descended(lambda c: squared(parity, c, rows, target), before)
    parity.agree(done.after.parameters["critics"], critics)
    logged = parity.values(before, rows.obs, rows.action).min(0)
    own = parity.values(before, rows.obs, draw(rows.obs, own_key)).min(0)
    weights = size * scipy.special.softmax(0.5 * (logged - own))

    def loss(actor):
        mean = parity.network(actor.mean, rows.obs)
        density = scipy.stats.norm.logpdf(rows.action, mean, np.exp(deviation(actor)))
        return -np.mean(weights * density.sum(-1))

    parity.agree(done.after.parameters["actor"], parity.descended(loss, s.parameters["actor"]))


def test_rebrac_with_weights_that_fall(parity):
    weights = {"actor_weight": 0.3, "critic_weight": 0.5, "final_weight": 0.25}
    done = parity.update(ReBRAC, at_step=3, decay_updates=8, **weights)
    a, s, rows = done.algorithm, done.before, done.rows
    left = 1 - 0.75 * 3 / 8
    shape = rows.action.shape
    noise = a.noise_std * parity.normal(done.key, (shape[0] * shape[1], shape[2])).reshape(shape)
    smooth = np.clip(noise, -a.noise_clip, a.noise_clip)
    action = np.clip(parity.network(s.targets["actor"], rows.next_obs) + smooth, -1, 1)
    boundary = rows.terminated | rows.truncated
    distance = np.where(boundary, 0, ((action - rows.next_action) ** 2).sum(-1))
    following = parity.values(s.targets["critics"], rows.next_obs, action).min(0)
    target = bellman(rows, a.discount, following - left * a.critic_weight * distance)
    critics = s.parameters["critics"]
    for i in range(2):
        row = jax.tree.map(lambda x, i=i: x[i], rows)
        critics = parity.descended(lambda c, r=row, y=target[i]: squared(parity, c, r, y), critics)
    parity.agree(done.after.parameters["critics"], critics)
    last = jax.tree.map(lambda x: x[1], rows)

    def q_of(actor):
        return parity.values(critics, last.obs, parity.network(actor, last.obs)).min(0)

    size = np.abs(q_of(s.parameters["actor"])).mean()

    def actor_loss(actor):
        off = ((parity.network(actor, last.obs) - last.action) ** 2).sum(-1)
        return np.mean(left * a.actor_weight * off - q_of(actor) / size)

    parity.agree(
        done.after.parameters["actor"], parity.descended(actor_loss, s.parameters["actor"])
    )
    parity.agree(
        done.after.targets["actor"], parity.mixed(s.targets["actor"], s.parameters["actor"], a.tau)
    )
    parity.agree(done.after.targets["critics"], parity.mixed(s.targets["critics"], critics, a.tau))


def test_sac_n_clips_the_spread_of_its_actions(parity):
    """In the step of the temperature; the other steps are recorded ones, without rows at a clip."""
    done = parity.update(SACN, n_critics=3, log_std=(2.05, -5.11))
    a, s, rows = done.algorithm, done.before, first(done.rows)
    noise = parity.normal(parity.split(done.key, 3)[0], rows.action.shape)
    _, log_prob = parity.squashed(s.parameters["actor"], rows.obs, noise, -5, 2)
    slope = -np.mean(log_prob + a.target_entropy * rows.action.shape[1])
    log_temperature = s.parameters["log_temperature"] - parity.rate * slope
    np.testing.assert_allclose(done.after.parameters["log_temperature"], log_temperature, rtol=1e-9)
