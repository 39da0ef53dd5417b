"""A mode left out of the fit, on linear plants whose mean returns are known in closed form."""

import dataclasses
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import (
    ChoiceRule,
    HeldOutMode,
    Mode,
    ModeOutcome,
    OwnReplay,
    PlantFacts,
    RetuneSettings,
    held_out_mode,
    held_out_modes,
    judging_modes,
    learned_plants,
    mode_outcome,
    own_replay,
    select,
)
from neorl_core import Channel, CostChannel, InputError, Spec, Transition
from neorl_core.control import StateFeedback

HORIZON, EPISODES = 40, 60
SPEC = Spec(
    (Channel("level", "m", -40.0, 40.0),),
    (Channel("valve", "%", -50.0, 50.0), Channel("pump", "%", -50.0, 50.0)),
    (CostChannel("moved", "%", 200.0, "episode"), CostChannel("peak", "%", 30.0, "step")),
    dt=1.0,
    horizon=HORIZON,
)
SETTINGS = RetuneSettings(
    model=HistoryModelSettings(history=(1,), members=2, updates=200, width=16),
    evaluation_episodes=16,
)
GROWTH, EFFECT, PRICE, START, NOISE = 0.98, np.array([0.5, -0.4]), 0.1, 3.0, 0.3


def objective(obs, action, next_obs, last):
    moved = jnp.abs(action[0])
    return jnp.stack([-(obs[0] ** 2) - PRICE * jnp.sum(action**2), moved, moved])


FACTS = PlantFacts(objective=objective)


def law(gains):
    low, high = (jnp.full(2, x) for x in (-50.0, 50.0))
    return StateFeedback(jnp.asarray(gains)[:, None], jnp.zeros(1), jnp.zeros(2), low, high)


def recorded_log(modes, signals):
    """Episodes of ``x' = 0.98 x + 0.5 u1 - 0.4 u2 + w`` under ``u = -gain x`` and a test signal."""
    rng, columns = np.random.default_rng(1), []
    for gains, signal in zip(modes, signals, strict=True):
        x, rows = np.full(EPISODES, START), []
        for _ in range(HORIZON):
            u = -x[:, None] * np.asarray(gains) + signal * rng.normal(size=(EPISODES, 2))
            after = GROWTH * x + u @ EFFECT + NOISE * rng.normal(size=EPISODES)
            reward = -(x**2) - PRICE * (u**2).sum(axis=1)
            moved = np.abs(u[:, :1])
            cost = np.concatenate([moved, moved], axis=1)
            rows.append((x[:, None], u, reward[:, None], cost, after[:, None]))
            x = after
        columns.append([np.stack(column, axis=1) for column in zip(*rows, strict=True)])
    obs, action, reward, cost, after = (
        np.concatenate(column).reshape(-1, column[0].shape[-1])
        for column in zip(*columns, strict=True)
    )
    n = len(obs)
    return Transition(
        obs=obs, action=action, reward=reward[:, 0], cost=cost, next_obs=after,
        terminated=np.zeros(n, bool), truncated=np.arange(n) % HORIZON == HORIZON - 1,
        mask=np.ones(n, bool),
    )  # fmt: skip


def true_means(gains, signal):
    """Mean return and mean sum of ``|u1|``: the level is Gaussian at every step."""
    mean, variance, returns, moved = START, 0.0, 0.0, 0.0
    gains, of_signal = np.asarray(gains), np.asarray(signal) ** 2 * np.ones(2)
    for _ in range(HORIZON):
        means, variances = -gains * mean, gains**2 * variance + of_signal
        returns -= mean**2 + variance + PRICE * (means**2 + variances).sum()
        moved += stats.foldnorm(abs(means[0]) / (s := np.sqrt(variances[0] + 1e-4)), scale=s).mean()
        factor = GROWTH - gains @ EFFECT
        mean, variance = factor * mean, factor**2 * variance + EFFECT**2 @ of_signal + NOISE**2
    return np.array([returns, moved])


def modes_of(gains):
    filled = np.arange(len(gains) * EPISODES) // EPISODES
    return [Mode(str(i), law(one), filled == i) for i, one in enumerate(gains)]


def checked(gains, signals, left_out):
    plants = learned_plants(recorded_log(gains, signals), SPEC, 0, FACTS, SETTINGS)
    modes = modes_of(gains)
    order = [modes[left_out], *(mode for i, mode in enumerate(modes) if i != left_out)]
    outcomes = [mode_outcome(own_replay(plants, one, 0, FACTS, SETTINGS)) for one in order]
    return held_out_mode(plants, order[0], outcomes, 0, FACTS, SETTINGS), outcomes, plants


GAINS = ((0.15, 0.0), (0.35, -0.05), (0.6, -0.1))
MODES = modes_of(GAINS)
SIGNAL = np.array([1.2, 1.0])


@pytest.fixture(scope="module")
def between():
    return checked(GAINS, (SIGNAL,) * 3, 1)


def test_a_linear_mode_is_predicted_without_its_episodes(between):
    """Its return is within chance of the closed form; a learned plant counts no small cost."""
    held_out, outcomes, _ = between
    truth = true_means(GAINS[1], 0.0)
    assert abs(held_out.predicted[0] - truth[0]) < 3 * held_out.chance[0] < 0.2 * abs(truth[0])
    assert held_out.predicted[1] == pytest.approx(truth[1], rel=0.15)
    assert np.all(held_out.sure_error[:2] < 0.1 * held_out.spread[:2])
    returns = [one.expected[0] for one in outcomes]
    assert held_out.spread[0] == pytest.approx(max(returns) - min(returns))
    assert held_out.outcome.episodes == EPISODES
    assert held_out.episodes == 2 * EPISODES // 4


def test_what_operators_add_is_not_counted_as_an_error_of_the_model(between):
    """The test signal costs two thirds of the logged return; without it the truth remains."""
    for outcome, gains in zip(between[1], (GAINS[1], GAINS[0], GAINS[2]), strict=True):
        logged, alone = true_means(gains, SIGNAL), true_means(gains, 0.0)
        assert outcome.logged == pytest.approx([*logged, outcome.logged[2]], rel=0.1)
        assert abs(logged[0] - alone[0]) > 3 * outcome.error[0]
        assert abs(outcome.expected[0] - alone[0]) < 3 * outcome.error[0]


def test_the_largest_step_of_a_cost_is_compared_if_its_limit_bounds_a_step(between):
    """The first step is the largest: the gain times the level at the start."""
    held_out = between[0]
    assert held_out.predicted[2] == pytest.approx(GAINS[1][0] * START, rel=1e-3)
    assert held_out.error[2] < 1e-3


def test_a_mode_with_an_actuator_that_the_others_never_move_is_predicted_wrongly():
    """Only the mode left out moves the pump, which drives the level up beside the valve."""
    gains = ((0.15, 0.0), (0.2, 0.0), (0.2, -0.6))
    valve_alone = np.array([1.2, 0.0])
    held_out, _, _ = checked(gains, (valve_alone, valve_alone, SIGNAL), 2)
    assert held_out.sure_error[0] > 0.5 * held_out.spread[0]


def test_the_expected_mean_of_a_mode_is_that_of_its_replay_corrected_by_the_whole_log():
    """By hand: three replayed episodes with half of the logged deviations, five logged ones."""
    logged = np.array([[1.0], [3.0], [5.0]])
    all_logged = np.array([[1.0], [3.0], [5.0], [5.0], [7.0]])
    predicted = np.array([[[5.0], [6.0], [7.0]], [[7.0], [8.0], [9.0]]])
    outcome = mode_outcome(OwnReplay(predicted, logged, all_logged))
    assert outcome.logged == pytest.approx(4.2)
    assert outcome.expected == pytest.approx(7.0 + 0.5 * (4.2 - 3.0))
    # Nothing of the replay varies beyond the log; half of the variance of the log remains.
    assert outcome.error == pytest.approx(0.5 * np.std(all_logged, ddof=1) / np.sqrt(5))
    repeated = mode_outcome(OwnReplay(logged[None], logged, all_logged))
    assert repeated.expected == pytest.approx(4.2)
    constant = mode_outcome(OwnReplay(predicted * 0 + 2.0, logged * 0, all_logged * 0))
    assert (constant.expected, constant.error) == (2.0, 0.0)
    diverged = mode_outcome(OwnReplay(np.full((2, 3, 1), -np.inf), logged, all_logged))
    assert not np.isfinite(diverged.expected).any()


def test_modes_with_few_episodes_are_not_left_out(between):
    _, outcomes, plants = between
    few = Mode("rare", law(GAINS[1]), np.arange(3 * EPISODES) < 5)
    with pytest.raises(InputError, match="the log has 5 episodes of rare, "):
        own_replay(plants, few, 0, FACTS, SETTINGS)
    most = few._replace(name="usual", recorded=~few.recorded)
    with pytest.raises(InputError, match="without usual the log has 5 episodes"):
        held_out_mode(plants, most, outcomes, 0, FACTS, SETTINGS)


def measured_error(share, *, spread=100.0, chance=1.0):
    """A mode whose predicted return is wrong by a share of the difference between the modes."""
    mean = np.array([50.0])
    outcome = ModeOutcome(mean, mean, np.zeros(1), 60, 20)
    predicted = mean - share * spread - 1.96 * chance
    return HeldOutMode("fast", outcome, predicted, np.full(1, chance), np.full(1, spread), 40, 0.0)


def test_a_model_that_mispredicts_a_held_out_mode_refuses_every_candidate(between):
    """The same pool, with an error within the allowed share, and with one beyond it."""
    _, _, plants = between
    pool = {"timid": law(GAINS[0]), "good": law((0.25, -0.02))}
    rule = ChoiceRule(held_out=0.3)
    for share, refused in ((0.2, False), (0.4, True)):
        held_out = measured_error(share, spread=10.0, chance=0.1)
        known = plants._replace(held_out=(held_out,))
        chosen, (_, good) = select(known, pool, "timid", rule)
        assert chosen == ("timid" if refused else "good")
        words = "without the episodes of fast mispredicts its return by 40% of the difference"
        assert any(words in reason for reason in good.refusals) == refused


def test_a_gain_that_is_small_beside_the_error_for_a_held_out_mode_is_refused(between):
    """The gain is allowed while a fifth of the error is smaller than it."""
    _, _, plants = between
    pool = {"timid": law(GAINS[0]), "good": law((0.25, -0.02))}
    gain = select(plants, pool, "timid")[1][1].gain
    for error, chosen in ((4 * gain, "good"), (6 * gain, "timid")):
        held_out = measured_error(0.05, spread=20 * error, chance=0.0)
        known = plants._replace(held_out=(held_out,))
        assert select(known, pool, "timid")[0] == chosen


def test_modes_that_hardly_differ_or_leave_the_data_tell_nothing_of_the_model():
    """By hand: beyond 1.25 times the incumbent's distance, 0.0501 deviations a step are allowed."""
    rule = ChoiceRule(held_out=0.3)
    alike = measured_error(0.2, spread=4.0, chance=2.0)
    assert alike.share == pytest.approx(0.2)
    assert judging_modes([alike], rule) == ()
    wrong = measured_error(0.4, spread=4.0, chance=2.0)
    assert judging_modes([wrong], rule) == (wrong,)
    little, more = measured_error(0.1), measured_error(0.2)
    assert judging_modes([alike, little, more], rule) == (more, little)
    far = more._replace(outside=0.2)
    assert judging_modes([far, little], rule) == (little,)
    assert judging_modes([far._replace(outside_incumbent=0.13)], rule) != ()
    diverged = little._replace(predicted=np.full(1, -np.inf))
    assert judging_modes([more, diverged], rule)[0] is diverged
    assert np.isinf(diverged.share)


def test_what_runs_today_stays_in_every_fit(between):
    """Of three modes, the two others are left out, the one that differs most first."""
    _, _, plants = between
    quick = dataclasses.replace(SETTINGS, model=dataclasses.replace(SETTINGS.model, updates=2))
    find = partial(held_out_modes, plants, MODES, 0, FACTS, quick)
    assert [one.name for one in find(incumbent="0")] == ["2", "1"]
    assert [one.name for one in find(incumbent="0", most=1)] == ["2"]
    assert len(find(incumbent="elsewhere")) == 3
    assert find(most=0) == find.func(plants, MODES[:1], 0, FACTS, quick) == ()
