"""One update of every learner that keeps limits beside its equations, with two limits at once."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from neorl_agents import IQLLag, TD3BCLag
from neorl_agents.testing import make_problem
from neorl_core import CostChannel

from .test_equations import bellman, check_weighted_regression, counted, squared

MASKED = 3
GAINS = {"kp": 1.3, "ki": 0.6, "kd": 0.4, "largest": 0.9, "chance": 0.05}


@pytest.fixture(scope="module")
def two_limits():
    """The second cost is above its limit per step in half of the rows."""
    problem = make_problem(n_cost=2)
    costs = (CostChannel("sum", "1", 0.05, "episode"), CostChannel("worst", "1", 0.5, "step"))
    rows = problem.log
    # One episode keeps both.
    cost = np.array(rows.cost)
    cost[:64] *= 0.005
    return problem._replace(
        spec=replace(problem.spec, cost=costs), log=rows._replace(cost=jax.numpy.asarray(cost))
    )


def counted_in_units(state, rows):
    above = rows.cost > state.preparation.cost_limit
    return np.where([False, True], above, rows.cost)


def limits(done, horizon=32):
    """By hand: the limit of an episode, or so many steps above, spread evenly and discounted."""
    preparation, discount = done.before.preparation, done.algorithm.discount
    per_episode = np.array([preparation.cost_limit[0], GAINS["chance"]])
    return sum(discount**k * per_episode / horizon for k in range(horizon))


def pairs(parity, critics, obs, action):
    """Values by member and cost."""
    values = parity.values(critics, obs, action)
    return values.reshape(2, 2, *values.shape[1:])


def check_cost_critics(parity, done, batches, next_actions):
    critics, targets = (
        part["cost_critics"] for part in (done.before.parameters, done.before.targets)
    )
    for rows, action in zip(batches, next_actions, strict=True):
        following = pairs(parity, targets, rows.next_obs, action).max(0)
        cost = counted_in_units(done.before, rows).T
        target = cost + done.algorithm.discount * np.where(rows.terminated, 0, following)

        def loss(critics, rows=rows, target=target):
            values = pairs(parity, critics, rows.obs, rows.action)
            return ((values - target) ** 2).mean(-1).sum()

        critics = parity.descended(loss, critics)
    parity.agree(done.after.parameters["cost_critics"], critics)
    moved = parity.mixed(targets, critics, done.algorithm.tau)
    parity.agree(done.after.targets["cost_critics"], moved)
    return critics


def check_control(parity, done, measured):
    """One step of two PID controllers, as the paper writes it."""
    before, after = (state.parameters["multipliers"] for state in (done.before, done.after))
    past, excess = before.control, measured - limits(done)
    error = 0.95 * past.error + 0.05 * excess
    newest = 0.95 * past.cost[:, -1] + 0.05 * measured
    integral = np.clip(past.integral + GAINS["ki"] * excess, 0, GAINS["largest"])
    rise = np.maximum(newest - past.cost[:, 1], 0)
    value = GAINS["kp"] * error + integral + GAINS["kd"] * rise
    parity.agree(after.value, np.clip(value, 0, GAINS["largest"]))
    parity.agree(after.control.error, error)
    parity.agree(after.control.integral, integral)
    parity.agree(after.control.cost, np.stack([past.cost[:, 1], newest], 1))
    np.testing.assert_allclose(done.metrics["cost_excess"], excess.max(), rtol=1e-6)
    return after.value


def test_td3_bc_lag(parity, two_limits):
    done = parity.update(TD3BCLag, of=two_limits, **GAINS)
    a, s, rows = done.algorithm, done.before, done.rows
    shape = rows.action.shape
    noise = a.noise_std * parity.normal(done.key, (shape[0] * shape[1], shape[2])).reshape(shape)
    smooth = np.clip(noise, -a.noise_clip, a.noise_clip)
    action = np.clip(parity.network(s.targets["actor"], rows.next_obs) + smooth, -1, 1)
    target = bellman(
        rows, a.discount, parity.values(s.targets["critics"], rows.next_obs, action).min(0)
    )
    batches = [jax.tree.map(lambda x, i=i: x[i], rows) for i in range(2)]
    critics = s.parameters["critics"]
    for row, y in zip(batches, target, strict=True):
        critics = parity.descended(lambda c, r=row, y=y: squared(parity, c, r, y), critics)
    parity.agree(done.after.parameters["critics"], critics)
    costs = check_cost_critics(parity, done, batches, action)
    last, one = batches[1], parity.member(critics, 0)

    def cost_of(actor):
        return pairs(parity, costs, last.obs, parity.network(actor, last.obs)).max(0)

    prices = check_control(parity, done, cost_of(s.parameters["actor"]).mean(-1))
    assert prices.min() >= 0
    assert prices.max() > 0.03, "some price must play a part"

    def q_of(actor):
        inputs = np.concatenate([last.obs, parity.network(actor, last.obs)], axis=-1)
        return parity.network(one, inputs)[:, 0]

    size = np.abs(q_of(s.parameters["actor"])).mean()

    def actor_loss(actor):
        distance = np.mean((parity.network(actor, last.obs) - last.action) ** 2)
        worth = q_of(actor) - (prices[:, None] * cost_of(actor)).sum(0)
        return distance - a.alpha / size * worth.mean()

    actor = parity.descended(actor_loss, s.parameters["actor"])
    parity.agree(done.after.parameters["actor"], actor)


def test_iql_lag(parity, two_limits):
    done = parity.update(IQLLag, of=two_limits, masked=MASKED, **GAINS)
    a, s, rows = done.algorithm, done.before, counted(done.rows, MASKED)
    before = s.parameters["multipliers"].value
    priced = (rows.reward - counted_in_units(s, rows) @ before) / (1 + before.sum())
    q = parity.values(s.targets["critics"], rows.obs, rows.action).min(0)

    def value_loss(value):
        off = q - parity.network(value, rows.obs)[:, 0]
        return np.mean(np.where(off > 0, a.expectile, 1 - a.expectile) * off**2)

    value = parity.descended(value_loss, s.parameters["value"])
    parity.agree(done.after.parameters["value"], value)
    advantage = q - parity.network(value, rows.obs)[:, 0]
    check_weighted_regression(parity, done, rows, advantage, -5)
    following = parity.network(value, rows.next_obs)[:, 0]
    target = bellman(rows._replace(reward=priced), a.discount, following)
    critics = parity.descended(lambda c: squared(parity, c, rows, target), s.parameters["critics"])
    parity.agree(done.after.parameters["critics"], critics)
    mean = done.after.parameters["actor"].mean
    costs = check_cost_critics(parity, done, [rows], [parity.network(mean, rows.next_obs)])
    measured = pairs(parity, costs, rows.obs, parity.network(mean, rows.obs)).max(0).mean(-1)
    check_control(parity, done, measured)
