"""One update of every learner that keeps limits beside its equations, with two limits at once."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from neorl_agents import CAPS, CDT, CPQ, FISOR, COptiDICE, IQLLag, TD3BCLag
from neorl_agents.algorithms._decision_transformer import logged_steps
from neorl_agents.algorithms.constrained._coptidice import inverse_slope, soft_chi_square
from neorl_agents.learning import only_batch, unit_rows
from neorl_agents.testing import make_problem, sized
from neorl_core import CostChannel, as_arrays

from .by_hand import wide
from .test_equations import (
    bellman,
    check_weighted_regression,
    counted,
    log_density,
    squared,
)

MASKED = 3
GAINS = {"kp": 1.3, "ki": 0.6, "kd": 0.4, "largest": 0.9, "allowed_violations": 0.05}


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


def of_a_step(done, horizon=32):
    """By hand: the limit of an episode, or so many steps above, spread evenly."""
    a = done.algorithm
    allowed_violations = (
        a.allowed_violations
        if hasattr(a, "allowed_violations")
        else a.multiplier.allowed_violations
    )
    return np.array([done.before.preparation.cost_limit[0], allowed_violations]) / horizon


def limits(done, horizon=32):
    """The same discounted."""
    return sum(done.algorithm.discount**k * of_a_step(done) for k in range(horizon))


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
    signal = excess
    if done.algorithm.multiplier.unit == "limit":
        excess = excess / limits(done)
        signal = measured = np.minimum(excess, 1)
    error = 0.95 * past.error + 0.05 * signal
    newest = 0.95 * past.cost[:, -1] + 0.05 * measured
    integral = np.clip(past.integral + GAINS["ki"] * signal, 0, GAINS["largest"])
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
    done = parity.update(IQLLag, of=two_limits, masked=MASKED, **GAINS, unit="cost")
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


def check_regression(parity, done, rows, weights):
    def loss(actor):
        return -np.mean(weights * log_density(parity, actor, rows, -5))

    before = done.before.parameters["actor"]
    parity.agree(done.after.parameters["actor"], parity.descended(loss, before))


def test_fisor(parity, two_limits):
    """Both regions, and rows of the feasible one that are not, must be there."""
    shared = {"inverse_temperature": 2.0, "max_weight": 1.05, "max_cost_weight": 1.02}
    costs = (CostChannel("sum", "1", 16.0, "episode"), two_limits.spec.cost[1])
    problem = two_limits._replace(spec=replace(two_limits.spec, cost=costs))
    shifted = {"cost_value": 0.8, "cost_critics": -0.5}
    shared |= {"violation": 0.6, "from_init": True}
    done = parity.update(FISOR, of=problem, shifted=shifted, **shared)
    a, s, rows = done.algorithm, done.before, counted(done.rows, 0)
    now, slow = s.parameters, s.targets
    qc = parity.values(slow["cost_critics"], rows.obs, rows.action).max(0)
    q = parity.values(slow["critics"], rows.obs, rows.action).min(0)

    def expectile(net, target, level):
        off = target - parity.network(net, rows.obs)[:, 0]
        return np.mean(np.where(off > 0, level, 1 - level) * off**2)

    worth = {}
    levels = (("cost_value", qc, 1 - a.cost_expectile), ("value", q, a.expectile))
    for name, target, level in levels:
        worth[name] = parity.descended(
            lambda net, t=target, level=level: expectile(net, t, level), now[name]
        )
        parity.agree(done.after.parameters[name], worth[name])
    vc, next_vc, v, next_v = (
        parity.network(worth[name], obs)[:, 0]
        for name in ("cost_value", "value")
        for obs in (rows.obs, rows.next_obs)
    )
    limit = s.preparation.cost_limit / np.array([32, 1])
    h = np.where((rows.cost > limit).any(1), 0.6, -1)
    assert 0.1 < (h > 0).mean() < 0.9
    reached = (1 - a.discount) * h + a.discount * np.maximum(h, next_vc)
    reached = np.where(rows.terminated, h, reached)
    earned = bellman(rows, a.discount, next_v)
    for name, target in (("cost_critics", reached), ("critics", earned)):
        critics = parity.descended(lambda c, t=target: squared(parity, c, rows, t), now[name])
        parity.agree(done.after.parameters[name], critics)
        parity.agree(done.after.targets[name], parity.mixed(slow[name], critics, a.tau))
    earns = np.where(qc <= 0, np.minimum(np.exp(2 * (q - v)), 1.05), 0)
    spares = np.minimum(np.exp(5 * (vc - qc)), 1.02)
    feasible = vc <= 0
    assert 0 < (qc[feasible] <= 0).mean() < 1
    np.testing.assert_allclose(done.metrics["feasible"], feasible.mean())
    assert 0 < feasible.mean() < 1
    check_regression(parity, done, rows, np.where(feasible, earns, spares))


def test_coptidice(parity, two_limits):
    settings = {"alpha": 0.4, "discount": 0.9, "allowed_violations": GAINS["allowed_violations"]}
    done = parity.update(COptiDICE, of=two_limits, masked=MASKED, **settings)
    a, s, rows = done.algorithm, done.before, counted(done.rows, MASKED)
    prices, cost = s.parameters["multipliers"], counted_in_units(s, rows)

    def advantage(nu):
        here, following = (parity.network(nu, x)[:, 0] for x in (rows.obs, rows.next_obs))
        return here, bellman(rows, a.discount, following) - cost @ prices - here

    def weight(e):
        y = e / a.alpha
        return np.where(y < 0, np.exp(y), y + 1)

    def loss(nu):
        here, e = advantage(nu)
        w = weight(e)
        f = np.where(w < 1, w * np.log(w) - w + 1, (w - 1) ** 2 / 2)
        return np.mean((1 - a.discount) * here + w * e - a.alpha * f)

    before = s.parameters["nu"]
    parity.agree(done.after.parameters["nu"], parity.descended(loss, before))
    np.testing.assert_allclose(done.metrics["nu_loss"], loss(before), rtol=1e-9)
    w = weight(advantage(before)[1])
    assert ((w < 1).mean() > 0.1) & ((w > 1).mean() > 0.1)
    excess = (w[:, None] * cost).mean(0) - of_a_step(done)
    parity.agree(done.after.parameters["multipliers"], np.maximum(prices + parity.rate * excess, 0))
    check_regression(parity, done, rows, w)


def test_the_inverse_slope_is_that_of_the_soft_chi_square():
    y = np.linspace(-3, 3, 13).astype(np.float32)
    w = inverse_slope(jax.numpy.asarray(y))
    np.testing.assert_allclose(jax.vmap(jax.grad(soft_chi_square))(w), y, atol=1e-5)
    assert float(soft_chi_square(jax.numpy.float32(0))) == 1
    assert float(soft_chi_square(jax.numpy.float32(1))) == 0


def test_cpq(parity, two_limits):
    settings = {"discount": 0.9, "allowed_violations": 1e-3, "n_samples": 4, "ood_level": 1.2}
    settings |= {"shifted": {"cost_critics": 0.02}, "masked": MASKED, "from_init": True}
    done = parity.update(CPQ, of=two_limits, **settings)
    a, s, rows = done.algorithm, done.before, counted(done.rows, MASKED)
    now = s.parameters
    size, act = rows.action.shape
    keys = parity.split(done.key, 5)

    def noise(key, width):
        return parity.normal(key, (size + MASKED, width))[:size]

    def latent(encoder, action):
        out = parity.network(encoder, np.concatenate([rows.obs, action], -1))
        mean, log_std = np.split(out, 2, -1)
        return mean, np.clip(log_std, -4, 15)

    def divergence(mean, log_std):
        return ((mean**2 + np.exp(2 * log_std) - 1 - 2 * log_std) / 2).mean(-1)

    def model_loss(encoder, decoder):
        mean, log_std = latent(encoder, rows.action)
        z = mean + np.exp(log_std) * noise(keys[0], 2 * act)
        decoded = parity.network(decoder, np.concatenate([rows.obs, z], -1))
        off = ((decoded - rows.action) ** 2).mean(-1)
        return np.mean(off + a.kl_weight * divergence(mean, log_std))

    losses = {
        "encoder": lambda e: model_loss(e, now["decoder"]),
        "decoder": lambda d: model_loss(now["encoder"], d),
    }
    model = {name: parity.descended(loss, now[name]) for name, loss in losses.items()}
    parity.agree({name: done.after.parameters[name] for name in model}, model)

    def drawn(actor, obs, key):
        return parity.squashed(actor, obs, noise(key, act), -20, 2)[0]

    allowed = limits(done)
    actions = [drawn(now["actor"], rows.obs, key) for key in parity.split(keys[1], 4)]
    far = np.stack([divergence(*latent(model["encoder"], action)) for action in actions])
    ood = far >= np.quantile(far, a.ood_quantile)
    slow, following = s.targets, drawn(now["actor"], rows.next_obs, keys[2])
    after = pairs(parity, slow["cost_critics"], rows.next_obs, following).max(0)
    target = counted_in_units(s, rows).T + a.discount * np.where(rows.terminated, 0, after)
    penalty = np.exp(now["log_penalty"])

    def outside(critics):
        values = np.stack([pairs(parity, critics, rows.obs, x).max(0) for x in actions], 1)
        return (values * ood).sum((1, 2)) / ood.sum()

    def cost_loss(critics):
        off = pairs(parity, critics, rows.obs, rows.action) - target
        return (off**2).mean(-1).sum() - (penalty * (outside(critics) - 1.2 * allowed)).sum()

    costs = parity.descended(cost_loss, now["cost_critics"])
    parity.agree(done.after.parameters["cost_critics"], costs)
    risen = now["log_penalty"] + parity.rate * penalty * (
        1.2 * allowed - outside(now["cost_critics"])
    )
    parity.agree(done.after.parameters["log_penalty"], risen)

    following = drawn(now["actor"], rows.next_obs, keys[3])
    safe = pairs(parity, slow["cost_critics"], rows.next_obs, following).max(0)
    safe = (safe <= allowed[:, None]).all(0)
    assert 0 < safe.mean() < 1
    least = min(s.preparation.reward_range[0], 0) / (1 - a.discount)
    value = np.where(safe, parity.values(slow["critics"], rows.next_obs, following).min(0), least)
    target = bellman(rows, a.discount, value)
    critics = parity.descended(lambda c: squared(parity, c, rows, target), now["critics"])
    parity.agree(done.after.parameters["critics"], critics)

    def actor_loss(actor):
        action = drawn(actor, rows.obs, keys[4])
        kept = (pairs(parity, costs, rows.obs, action).max(0) <= allowed[:, None]).all(0)
        return -np.mean(kept * parity.values(critics, rows.obs, action).min(0))

    parity.agree(done.after.parameters["actor"], parity.descended(actor_loss, now["actor"]))


@pytest.mark.nightly
def test_caps(parity, two_limits):
    done = parity.update(
        CAPS, of=two_limits, n_heads=3, inverse_temperature=0.7, max_weight=0.4,
        allowed_violations=0.05, masked=MASKED,
    )  # fmt: skip
    a, s, rows = done.algorithm, done.before, done.rows
    row = jax.tree.map(lambda x: x[0, :-MASKED] if x.ndim > 1 else x, rows._replace(mask=None))
    q = parity.values(s.targets["critics"], row.obs, row.action).min(0)
    qc = pairs(parity, s.targets["cost_critics"], row.obs, row.action).max(0).T

    def expectile(value, target, share):
        off = target - parity.network(value, row.obs)
        return (np.abs(share - (off < 0)) * off**2).sum(-1).mean()

    value = parity.descended(lambda v: expectile(v, q[:, None], a.expectile), s.parameters["value"])
    lower = 1 - a.cost_expectile
    cost_value = parity.descended(lambda v: expectile(v, qc, lower), s.parameters["cost_value"])
    parity.agree(done.after.parameters["value"], value)
    parity.agree(done.after.parameters["cost_value"], cost_value)

    old, old_cost = s.parameters["value"], s.parameters["cost_value"]
    target = bellman(row, a.discount, parity.network(old, row.next_obs)[:, 0])
    critics = parity.descended(lambda c: squared(parity, c, row, target), s.parameters["critics"])
    parity.agree(done.after.parameters["critics"], critics)
    next_cost = np.where(row.terminated[:, None], 0, parity.network(old_cost, row.next_obs))
    cost_target = counted_in_units(s, row) + a.discount * next_cost

    def cost_loss(critics):
        off = pairs(parity, critics, row.obs, row.action) - cost_target.T
        return (off**2).mean(-1).sum()

    cost_critics = parity.descended(cost_loss, s.parameters["cost_critics"])
    parity.agree(done.after.parameters["cost_critics"], cost_critics)

    better = q - parity.network(old, row.obs)[:, 0]
    cheaper = (parity.network(old_cost, row.obs) - qc).sum(-1)
    earns, spares = (np.minimum(np.exp(0.7 * x), 0.4) for x in (better, cheaper))
    weights = [earns, earns + spares, spares]
    assert max(w.max() for w in (earns, spares)) == 0.4, "the largest weight must play a part"

    def heads_loss(actor):
        means = parity.network(actor.mean, row.obs).reshape(len(row.obs), 3, 2)
        log_std = np.clip(actor.log_std, -5, 2).reshape(3, 2)
        off = (row.action[:, None] - means) / np.exp(log_std)
        density = (-(off**2) / 2 - log_std - np.log(2 * np.pi) / 2).sum(-1)
        return -(np.stack(weights, 1) * density).mean()

    actor = parity.descended(heads_loss, s.parameters["actor"])
    parity.agree(done.after.parameters["actor"], actor)

    def predictor_loss(counts):
        steps = np.concatenate([row.obs, row.action, row.next_obs], -1)
        return ((parity.network(counts, steps) - counted_in_units(s, row)) ** 2).mean()

    counts = parity.descended(predictor_loss, s.parameters["predictor"])
    parity.agree(done.after.parameters["predictor"], counts)
    for name, fast in (("critics", critics), ("cost_critics", cost_critics)):
        parity.agree(done.after.targets[name], parity.mixed(s.targets[name], fast, a.tau))


@pytest.mark.nightly
def test_the_loss_of_cdt_is_that_of_the_paper_and_its_budget_is_the_limit():
    """One cost adds up over an episode, the other counts steps above its limit."""
    problem = make_problem(n_cost=2)
    costs = (CostChannel("sum", "K", 12.0, "episode"), CostChannel("worst", "1", 0.9, "step"))
    spec = replace(problem.spec, cost=costs)
    log = problem.log._replace(cost=problem.log.cost.at[:64, 1].multiply(0.5))
    learner = sized(CDT(), hidden=(8, 8), heads=2, history_steps=3, batch_size=16, cost_weight=0.7)
    of = problem._replace(spec=spec, log=log)
    state = learner.init(spec, of.statistics, jax.random.key(0))
    network = jax.tree.map(lambda x: 10 * np.asarray(x), state.parameters["network"])
    state = state.with_parameters(network=network)
    batch = of.batch(learner)
    _, metrics = jax.jit(CDT.update)(as_arrays(learner), state, batch, jax.random.key(0))

    rows = only_batch(unit_rows(state.preparation, batch))
    steps, action, known = logged_steps(rows, network.shape)
    outputs, forecast = (wide(x) for x in jax.jit(jax.vmap(network))(steps))
    action, known = wide(action), np.asarray(known)
    mean, spread = np.split(outputs, 2, axis=-1)
    log_std = -5 + 7 * (np.tanh(spread) + 1) / 2
    off = (action - np.tanh(mean)) / np.exp(log_std)
    likelihood = (-(off**2) / 2 - log_std - np.log(2 * np.pi) / 2)[known].mean()
    entropy = (log_std + np.log(2 * np.pi * np.e) / 2)[known].mean()
    followed = known[:, :-1] & np.asarray(steps.obs_known[:, 1:])
    # Rows of the log, to read their costs where they stand.
    counted = np.stack(
        [np.asarray(log.cost[:, 0]), np.asarray(log.cost[:, 1]) > np.float32(0.9)], 1
    )
    obs = np.asarray(state.preparation.obs.to_scaled(log.obs))
    place = np.abs(obs[None, None] - np.asarray(steps.obs)[:, :, None]).sum(-1).argmin(-1)
    costly = counted[place[:, :-1]] > 0
    logits = forecast[:, :-1]
    chance = 1 / (1 + np.exp(-logits))
    errors = -np.where(costly, np.log(chance), np.log(1 - chance))[followed].mean()
    np.testing.assert_allclose(metrics["entropy"], entropy, rtol=1e-4)
    np.testing.assert_allclose(metrics["forecast_loss"], errors, rtol=1e-4)
    loss = -(likelihood + 0.1 * entropy) + 0.7 * errors
    np.testing.assert_allclose(metrics["actor_loss"], loss, rtol=1e-4)

    policy = learner.policy(state)
    np.testing.assert_allclose(policy.budget, [12.0, 0.0], rtol=1e-6)
    _, left = policy.remaining(policy.initial_carry())
    np.testing.assert_allclose(left, [12.0, 0.0], rtol=1e-5)
