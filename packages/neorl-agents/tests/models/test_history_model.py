"""The plant model of a log against least squares, a simulator with the same noise, and the log."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg

from neorl_agents.models import (
    HistoryModelSettings,
    ReplayedStart,
    errors_ahead,
    every_start,
    fit_history_model,
    free_episodes,
    log_rows,
    predicted_episodes,
    replayed_plant,
    visited_rows,
)
from neorl_core import Channel, CostChannel, Environment, InputError, Spec, Transition
from neorl_core.control import ConstantPolicy, StateFeedback

SPEC = Spec(
    (
        Channel("level", "m", -20.0, 20.0),
        Channel("flow", "l/h", 0.0, 9e3),
        Channel("load", "1", -9.0, 9.0),
    ),
    (Channel("valve", "%", -100.0, 100.0),),
    (CostChannel("high", "m", 8.0, "episode"),),
    dt=2.0,
    horizon=40,
)  # fmt: skip
A = np.array([[0.9, 1e-3], [-40.0, 0.7]])
B = np.array([0.02, 3.0])
LOAD = np.array([0.3, 50.0])
REST = np.array([0.0, 3e3])
QUICK = HistoryModelSettings(history=(1,), members=2, updates=20, width=8, batch_size=32)


def moved(obs, action, noise):
    """Level and flow one step on: a linear plant with a load that the controller does not move."""
    away = obs[:2] - REST
    return REST + A @ away + B * action + LOAD * obs[2] + noise


def paid(obs, action):
    return -np.abs(obs[0]) - 1e-3 * action**2


def simulated(gain, noise, load, rng, test_signal):
    """One episode under ``u = -gain level`` and a test signal."""
    obs = np.array([rng.normal(), 3e3, load[0]])
    rows = []
    for t in range(len(noise)):
        action = np.clip(-gain * obs[0] + test_signal[t], -100, 100)
        after = np.append(moved(obs, action, noise[t]), load[t + 1])
        rows.append((obs, action, paid(obs, action), max(after[0] - 2.0, 0.0), after))
        obs = after
    return rows


def recorded(episodes=12, seed=0, gains=(10.0, 30.0)):
    rng = np.random.default_rng(seed)
    columns, draws = [], []
    for episode in range(episodes):
        noise = rng.normal(size=(SPEC.horizon, 2)) * [0.05, 20.0]
        load = np.cumsum(rng.normal(size=SPEC.horizon + 1)) * 0.3
        signal = 10 * rng.normal(size=SPEC.horizon)
        columns += simulated(gains[episode % 2], noise, load, rng, signal)
        draws.append((noise, load))
    obs, action, reward, cost, after = (np.array(x) for x in zip(*columns, strict=True))
    last = np.arange(len(obs)) % SPEC.horizon == SPEC.horizon - 1
    log = Transition(
        obs=obs, action=action[:, None], reward=reward, cost=cost[:, None], next_obs=after,
        terminated=np.zeros(len(obs), bool), truncated=last, mask=np.ones(len(obs), bool),
    )  # fmt: skip
    return log, draws


LOG, DRAWS = recorded()
ROWS = log_rows(LOG, SPEC)
STARTS = np.arange(0, len(ROWS.obs), SPEC.horizon)


@pytest.fixture(scope="module")
def model():
    return fit_history_model(ROWS, SPEC, jax.random.key(0), exogenous=("load",), settings=QUICK)


@pytest.fixture(scope="module")
def plant(model):
    return replayed_plant(model, ROWS, STARTS)


def test_the_linear_part_is_that_of_least_squares(model):
    """In physical units: the coefficients of SciPy's least squares on the same columns."""
    design = np.column_stack([LOG.obs, LOG.action, np.ones(len(LOG.obs))])
    wanted, *_ = linalg.lstsq(design, (LOG.next_obs - LOG.obs)[:, :2])
    actions = jnp.asarray([[0.0]])

    @jax.jit
    def change(obs, action):
        return model.next_obs(obs[None], actions, action, jnp.asarray(-1)) - obs[:2]

    obs, action = jnp.asarray([1.0, 3200.0, 0.5]), jnp.asarray([4.0])
    by_obs, by_action = jax.jit(jax.jacobian(change, (0, 1)))(obs, action)
    actual = np.concatenate([by_obs, by_action], axis=1)
    # The action before this one has a coefficient too; with no use it stays near zero.
    np.testing.assert_allclose(
        actual, wanted[:4].T, rtol=0.05, atol=2e-3 * np.abs(wanted[:4].T).max()
    )
    expected = np.append(np.append(obs, action), 1.0) @ wanted
    np.testing.assert_allclose(change(obs, action), expected, rtol=0.05, atol=0.05)


def test_with_the_logged_actions_an_episode_is_repeated(plant):
    """Observations, rewards and costs, in every network and in the linear part alone."""
    assert isinstance(plant, Environment)

    @jax.jit
    def repeated(start, actions):
        def step(state, action):
            state, seen = plant.step(start, state, action)
            return state, (seen.obs, seen.reward, seen.cost, seen.applied, seen.truncated)

        state, obs = plant.reset(start)
        return obs, jax.lax.scan(step, state, actions)[1]

    for member in range(plant.members):
        for episode in (0, 7):
            rows = slice(episode * SPEC.horizon, (episode + 1) * SPEC.horizon)
            start = ReplayedStart(jnp.asarray(episode), jnp.asarray(member))
            first, answer = repeated(start, jnp.asarray(ROWS.action[rows]))
            obs, reward, cost, applied, truncated = map(np.asarray, answer)
            np.testing.assert_allclose(first, ROWS.obs[rows][0])
            np.testing.assert_allclose(obs, ROWS.next_obs[rows], rtol=2e-3, atol=2e-3)
            np.testing.assert_allclose(reward, ROWS.outcome[rows, 0], rtol=2e-2, atol=2e-2)
            seen = np.where(ROWS.outcome[rows, 1] > 0.3, ROWS.outcome[rows, 1], cost[:, 0])
            np.testing.assert_allclose(cost[:, 0], seen, rtol=5e-2, atol=5e-2)
            np.testing.assert_allclose(applied, ROWS.action[rows])
            assert truncated.tolist() == [False] * (SPEC.horizon - 1) + [True]


@pytest.mark.nightly
def test_another_controller_meets_the_same_noise_and_load(plant):
    """The linear part against the simulator itself, from the same start with the same draws."""
    gain = 20.0
    law = StateFeedback(
        jnp.asarray([[gain, 0.0, 0.0]]),
        jnp.zeros(3),
        jnp.zeros(1),
        jnp.full(1, -100.0),
        jnp.full(1, 100.0),
    )
    for episode in (1, 4):
        noise, load = DRAWS[episode]
        obs, levels = ROWS.obs[STARTS[episode]].astype(float), []
        for t in range(SPEC.horizon):
            action = np.clip(-gain * obs[0], -100, 100)
            obs = np.append(moved(obs, action, noise[t]), load[t + 1])
            levels.append(obs[0])
        start = ReplayedStart(jnp.asarray(episode), jnp.asarray(plant.members - 1))
        state, seen = plant.reset(start)
        collected = []
        for _ in range(SPEC.horizon):
            state, step = plant.step(start, state, law((), seen)[1])
            seen = step.obs
            collected.append(float(seen[0]))
        np.testing.assert_allclose(collected, levels, atol=0.15)
        assert np.std(levels) > 0.2


def test_sums_are_those_of_the_steps(plant):
    law = ConstantPolicy(jnp.asarray([5.0]))
    starts = every_start(plant, range(plant.members), [2, 3])
    actual = predicted_episodes(plant, law, starts)
    assert actual.returns.shape == (2 * plant.members,)
    assert actual.cost_sum.shape[1:] == (1,)
    rows = visited_rows(plant, law, starts)
    assert rows.action.shape == (2 * plant.members, SPEC.horizon, 1)
    actual, rows, starts = jax.device_get((actual, rows, starts))
    reset = jax.jit(lambda start: plant.reset(start))
    one_step = jax.jit(lambda start, state, action: plant.step(start, state, action))
    for i in (0, 3):
        start = ReplayedStart(starts.episode[i], starts.member[i])
        state, seen = reset(start)
        rewards, costs = [], []
        for t in range(SPEC.horizon):
            np.testing.assert_allclose(rows.obs[i, t], seen, rtol=1e-4, atol=1e-4)
            state, step = one_step(start, state, np.asarray([5.0], np.float32))
            np.testing.assert_allclose(rows.action[i, t], step.applied)
            seen = step.obs
            rewards.append(float(step.reward))
            costs.append(float(step.cost[0]))
        np.testing.assert_allclose(actual.returns[i], np.sum(rewards), rtol=1e-4)
        np.testing.assert_allclose(actual.cost_sum[i], [np.sum(costs)], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(actual.cost_worst[i], [np.max(costs)], rtol=1e-4, atol=1e-5)
        assert float(actual.ended[i]) < 1e-6
        np.testing.assert_allclose(rows.alive[i], 1, atol=1e-5)


@pytest.mark.parametrize("terminated", [False, True])
def test_an_episode_that_was_cut_is_counted_as_far_as_the_log_goes(model, terminated):
    """A gap after 25 of 40 rows; what the plant ended itself might have gone on."""
    cut, number = STARTS[2] + 25, np.arange(len(ROWS.obs))
    rows = ROWS._replace(
        start=np.where((ROWS.start == STARTS[2]) & (number >= cut), cut, ROWS.start),
        ends=ROWS.ends | (number == cut - 1),
        terminated=ROWS.terminated | (terminated & (number == cut - 1)),
    )
    plant = replayed_plant(model, rows, np.asarray([STARTS[2], STARTS[3]]), horizon=SPEC.horizon)
    law, starts = ConstantPolicy(jnp.asarray([5.0])), every_start(plant, [0], [0, 1])
    actual = predicted_episodes(plant, law, starts)
    alive = np.asarray(visited_rows(plant, law, starts).alive)
    one_step = jax.jit(lambda start, state: plant.step(start, state, jnp.asarray([5.0])))
    for i, length in enumerate((40 if terminated else 25, 40)):
        start = ReplayedStart(jnp.asarray(i), jnp.asarray(0))
        state, rewards, outside = plant.reset(start)[0], [], []
        for t in range(length):
            state, step = one_step(start, state)
            assert bool(step.truncated) == (t == length - 1)
            rewards.append(float(step.reward))
            outside.append(float(step.info.outside))
        np.testing.assert_allclose(actual.returns[i], np.sum(rewards), rtol=1e-4)
        np.testing.assert_allclose(actual.outside[i], np.mean(outside), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(alive[i], np.arange(SPEC.horizon) < length, atol=1e-5)


def test_rates_interlocks_and_ranges_limit_an_action(model):
    half = lambda obs, action: jnp.minimum(action, 30.0)  # noqa: E731
    plant = replayed_plant(model, ROWS, STARTS[:2], rates=[8.0], interlock=half)
    start = ReplayedStart(jnp.asarray(0), jnp.asarray(0))
    state, _ = plant.reset(start)
    applied = []
    for action in (10.0, 90.0, np.nan, 90.0, 90.0, -400.0):
        state, step = plant.step(start, state, jnp.asarray([action]))
        applied.append(float(step.applied[0]))
    assert applied == [10.0, 18.0, 18.0, 26.0, 30.0, 22.0]


def test_declared_rewards_and_costs_take_the_place_of_learned_ones(model):
    def declared(obs, action, after, last):
        return jnp.stack([after[0] * 2 - jnp.abs(action - last)[0], jnp.nan])

    plant = replayed_plant(model, ROWS, STARTS[:2], objective=declared)
    start = ReplayedStart(jnp.asarray(1), jnp.asarray(0))
    _, step = plant.step(start, plant.reset(start)[0], jnp.asarray([0.0]))
    left = ROWS.outcome[STARTS[1], 0] - 2 * ROWS.next_obs[STARTS[1], 0]
    moved = abs(0.0 - ROWS.action[STARTS[1], 0])
    np.testing.assert_allclose(step.reward, 2 * step.obs[0] - moved + left, rtol=1e-4)
    assert np.isfinite(np.asarray(step.cost)).all()
    _, step = plant.step(start, plant.reset(start)[0], jnp.asarray(ROWS.action[STARTS[1]]))
    np.testing.assert_allclose(step.reward, ROWS.outcome[STARTS[1], 0], rtol=1e-4)


@pytest.mark.parametrize(
    ("reading", "difference", "of_closed", "of_log"),
    [(1, 1e-4, 0.0, 2e-3), (1, 0.1, 0.1, 0.102), (0, 1e-4, 1e-4, 2.1e-3)],
)
def test_the_rounding_of_a_declared_cost_is_no_cost_of_a_policy_that_keeps_its_limit(
    model, reading, difference, of_closed, of_log
):
    """One row is 0.002 above a limit of zero, whose cost the log gives in float64.

    The flow has steps of 2.4e-4 in float32, with which a policy that closes the valve must not be
    charged. What no rounding explains, or none of this reading, remains."""
    read = ROWS.next_obs[:, reading]
    top = np.float32(read.max() - 0.002)
    cost = np.maximum(read - top, 0) + difference * (read > top)
    rows = ROWS._replace(outcome=np.stack([ROWS.outcome[:, 0], cost], 1).astype(np.float32))
    scale = model.scales.outcome.at[:, 1].set(jnp.asarray([cost.mean(), cost.std()]))
    fitted = dataclasses.replace(model, scales=model.scales._replace(outcome=scale))

    def declared(obs, action, after, last):
        return jnp.stack([jnp.nan, jnp.maximum(after[reading] - top, 0)])

    episode, peak = divmod(int(np.argmax(read)), SPEC.horizon)
    plant = replayed_plant(fitted, rows, STARTS[[episode]], objective=declared)
    start = ReplayedStart(jnp.asarray(0), jnp.asarray(0))
    one_step = jax.jit(lambda state, action: plant.step(start, state, action))

    def costs(actions):
        state, _ = plant.reset(start)
        for action in actions[: peak + 1]:
            state, step = one_step(state, jnp.asarray(action))
        return float(step.cost[0])

    logged = rows.action[STARTS[episode] : STARTS[episode] + SPEC.horizon]
    assert costs(logged) == pytest.approx(of_log, abs=1e-3 + of_log / 30)
    # The last valve position is 5 % lower, which makes the flow 15 l/h smaller.
    closer = logged - 5 * (np.arange(SPEC.horizon) == peak)[:, None]
    assert costs(closer) == pytest.approx(of_closed, abs=1e-6)


@pytest.mark.nightly
def test_a_plant_that_ends_its_episodes_is_learned_and_one_that_does_not_never_ends():
    """Episodes end where the level leaves 3: the chance of an end follows the level."""
    rng = np.random.default_rng(1)
    obs = rng.uniform(-6, 6, (3000, 1)).astype(np.float32)
    ended = np.abs(obs[:, 0]) > 3
    n = len(obs)
    log = Transition(
        obs=obs, action=rng.normal(size=(n, 1)), reward=np.zeros(n), cost=np.zeros((n, 0)),
        next_obs=obs, terminated=ended, truncated=~ended, mask=np.ones(n, bool),
    )  # fmt: skip
    spec = Spec((Channel("x", "m", -6, 6),), SPEC.action, (), dt=1.0, horizon=1)
    settings = HistoryModelSettings(history=(1,), members=1, updates=1500, width=16)
    rows = log_rows(log, spec)
    fitted = fit_history_model(rows, spec, jax.random.key(0), settings=settings)
    at = jnp.asarray([[-5.0], [0.0], [2.0], [5.0]])
    zero, member = jnp.zeros(1), jnp.asarray(0)
    odds = jax.vmap(lambda x: fitted.outcomes(x, zero, zero, x, member)[1])(at)
    chance = np.asarray(jax.nn.sigmoid(odds))
    assert chance[[0, 3]].min() > 0.9
    assert chance[1] < 0.1


@pytest.mark.nightly
def test_the_history_is_as_long_as_the_plant_needs_it():
    """A plant with a dead time of three steps needs three past actions, a plain one needs none."""
    rng = np.random.default_rng(2)
    action = rng.normal(size=(60, 50))
    level = np.zeros((60, 51))
    for t in range(50):
        delayed = action[:, t - 3] if t >= 3 else 0.0
        level[:, t + 1] = 0.5 * level[:, t] + delayed
    n = action.size
    last = np.tile(np.arange(50) == 49, 60)
    log = Transition(
        obs=level[:, :-1].reshape(n, 1), action=action.reshape(n, 1), reward=np.zeros(n),
        cost=np.zeros((n, 0)), next_obs=level[:, 1:].reshape(n, 1),
        terminated=np.zeros(n, bool), truncated=last, mask=np.ones(n, bool),
    )  # fmt: skip
    spec = Spec((Channel("x", "m", -9, 9),), SPEC.action, (), dt=1.0, horizon=50)
    settings = HistoryModelSettings(members=1, updates=1, width=4)
    fitted = fit_history_model(log_rows(log, spec), spec, jax.random.key(0), settings=settings)
    assert fitted.history == 4
    rows = log_rows(recorded(episodes=80)[0], SPEC)
    key = jax.random.key(0)
    usual = fit_history_model(rows, SPEC, key, exogenous=("load",), settings=settings)
    assert usual.history == 1


def test_the_history_reaches_past_a_dead_time_that_noise_hides():
    """A lag of 10 steps behind a dead time of 8 under a sluggish loop, with moves by hand.

    The response to a step is ``1 - exp(-(t - 8) / 10)``. One step ahead, 16 past steps predict only
    0.9 % better than 8, and the shortest good history would be 8. With it, the response after 20
    steps would be a third of what it is.
    """
    rng = np.random.default_rng(0)
    pole, length, level, load, drift, integral, by_hand = np.exp(-0.1), 200, 0.0, 0.0, 0.0, 0.0, 0.0
    past, rows = [0.0] * 8, []
    for t in range(60 * length + 1):
        measured = level + drift + 0.1 * rng.normal()
        if t % 1_500 < 150:
            by_hand = by_hand if t % 50 else by_hand + 4 * rng.choice([-1, 1])
            action, integral = by_hand, by_hand + 0.14 * measured
        else:
            integral -= 0.14 / 17 * measured
            action = by_hand = integral - 0.14 * measured
        rows.append((measured, action))
        past.append(action)
        level = pole * level + (1 - pole) * past.pop(0)
        load = 0.983 * load + 0.27 * rng.normal()
        drift = 0.92 * drift + 0.08 * load
    obs, action = np.asarray(rows, np.float32).T[..., None]
    n = len(obs) - 1
    log = Transition(
        obs=obs[:-1], action=action[:-1], reward=np.zeros(n), cost=np.zeros((n, 0)),
        next_obs=obs[1:], terminated=np.zeros(n, bool),
        truncated=np.arange(n) % length == length - 1, mask=np.ones(n, bool),
    )  # fmt: skip
    spec = Spec((Channel("x", "m", -90, 90),), SPEC.action, (), dt=1.0, horizon=length)
    settings = HistoryModelSettings(
        history=(1, 2, 4, 8, 16), longest=True, members=1, updates=1, width=4
    )
    fitted = fit_history_model(log_rows(log, spec), spec, jax.random.key(0), settings=settings)
    assert fitted.history == 16

    @jax.jit
    def moved(size):
        def step(now, _):
            before, actions = now
            after = fitted.next_obs(before, actions, size, jnp.asarray(-1))
            now = jnp.append(before[1:], after[None], 0), jnp.append(actions[1:], size[None], 0)
            return now, after[0]

        rest = jnp.zeros((16, 1)), jnp.zeros((16, 1))
        return jax.lax.scan(step, rest, None, length=60)[1]

    response = np.asarray(moved(jnp.ones(1)) - moved(jnp.zeros(1)))
    late = np.maximum(np.arange(1, 61) - 8, 0)
    np.testing.assert_allclose(response, 1 - np.exp(-late / 10), atol=0.25)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"next_obs": None}, "column next_obs of the log is missing"),
        ({"obs": LOG.obs * np.nan}, "column obs of the log must be finite"),
        ({"reward": LOG.reward * np.nan}, "rewards and costs of the log must be finite"),
        ({"truncated": np.arange(len(LOG.obs)) == len(LOG.obs) - 1}, "the log has one"),
    ],
)
def test_a_log_that_tells_nothing_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        log_rows(LOG._replace(**change), SPEC)


def test_names_that_are_no_channel_are_refused():
    for names, message in ((("laod",), "load"), (("level", "flow", "load"), "none is left")):
        with pytest.raises(InputError, match=message):
            fit_history_model(ROWS, SPEC, jax.random.key(0), exogenous=names, settings=QUICK)


def test_masked_rows_are_in_no_model():
    mask = np.ones(len(LOG.obs), bool)
    mask[50:60] = False
    dirty = LOG._replace(mask=mask, obs=np.where(mask[:, None], LOG.obs, np.nan))
    rows = log_rows(dirty, SPEC)
    assert len(rows.obs) == len(LOG.obs) - 10
    assert rows.ends[49]
    assert rows.start[50] == 50


def test_errors_ahead_are_those_of_the_noise(model):
    """Of the linear part, which is the plant but for noise: SciPy's sums of the noise variance."""
    ahead = errors_ahead(model, ROWS, STARTS, 0)
    assert ahead.steps == (1, 2, 5, 10, 20)
    noise = np.diag([0.05, 20.0]) ** 2
    scale = np.asarray(model.scales.obs[1][:2])
    for k, steps in enumerate(ahead.steps):
        powers = [np.linalg.matrix_power(A, i) for i in range(steps)]
        spread = np.sqrt(np.diag(sum(p @ noise @ p.T for p in powers))) / scale
        np.testing.assert_allclose(ahead.linear[k], spread, rtol=0.35)
    assert (ahead.linear[0] < ahead.unchanged[0]).all()


def test_free_episodes_follow_the_logged_actions_without_what_was_left(model, plant):
    """The linear part beside the simulator without its noise, from the same first row."""
    free = free_episodes(plant, ROWS, STARTS)
    assert free.lengths.tolist() == [SPEC.horizon] * len(STARTS)
    _, load = DRAWS[3]
    obs, levels = ROWS.obs[STARTS[3]].astype(float), []
    for t in range(SPEC.horizon):
        action = float(ROWS.action[STARTS[3] + t, 0])
        obs = np.append(moved(obs, action, np.zeros(2)), load[t + 1])
        levels.append(obs[0])
    np.testing.assert_allclose(free.obs[-1, 3, :, 0], levels, atol=0.25)
    np.testing.assert_allclose(free.obs[-1, 3, :, 2], ROWS.next_obs[STARTS[3] :][: SPEC.horizon, 2])
    sums = ROWS.outcome.reshape(len(STARTS), SPEC.horizon, 2).sum(axis=1)
    np.testing.assert_allclose(free.outcome_logged, sums, rtol=1e-5)
    np.testing.assert_allclose(free.spread, sums.std(axis=0), rtol=1e-5)
