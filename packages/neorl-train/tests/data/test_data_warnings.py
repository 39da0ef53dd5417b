"""What a log cannot teach, in words, before anything is trained."""

import dataclasses

import jax
import numpy as np
import pytest

from neorl_agents import ALGORITHMS
from neorl_core import Channel, CostChannel, Spec
from neorl_envs.datasets import data_statistics, dataset_from_columns
from neorl_train.data import clock_warnings, data_warnings, log_warnings, zero_limits

SPEC = Spec(
    (Channel("level", "m", -9.0, 9.0),), (Channel("valve", "%", 0.0, 100.0),), (), 60.0, horizon=8
)


def told(action, reward, *, trips=False):
    """The sentences on a log of 32 rows, of which the plant may have ended every eighth."""
    rng, one = np.random.default_rng(0), np.ones(32)
    obs, ends = rng.normal(size=(33, 1)), np.arange(32) % 8 == 7
    log = dataset_from_columns(
        SPEC, obs=obs[:-1], action=(action * one)[:, None], reward=reward * one, next_obs=obs[1:],
        terminated=ends & trips, truncated=ends & (not trips),
    )  # fmt: skip
    return data_warnings(jax.device_get(data_statistics(log)), log.spec)


MOVING = np.linspace(0.0, 100.0, 32)


def test_a_log_that_teaches_something_is_not_blamed():
    assert told(MOVING, MOVING) == []


@pytest.mark.parametrize("level", [0.0, -3.0, 1e6])
@pytest.mark.parametrize("digit", [0.0, 1e-7])
def test_a_reward_that_is_always_the_same_is_said(level, digit):
    """Also where its last digit differs."""
    (sentence,) = told(MOVING, level * (1 + digit * (np.arange(32) % 2)))
    assert sentence.startswith("the reward less the penalties is ")
    assert "there is nothing to learn" in sentence


@pytest.mark.parametrize("mean", [-200.0, 200.0])
def test_a_reward_far_from_zero_is_said_where_episodes_end_early(mean):
    """As a profit of 1,000 that varies by 10; elsewhere learners take the mean off themselves."""
    varies = (MOVING - 50) / MOVING.std()
    assert told(MOVING, 2.5 + varies, trips=True) == []
    assert told(MOVING, mean + 10 * varies) == []
    (sentence,) = told(MOVING, mean + 10 * varies, trips=True)
    assert sentence.startswith(f"the reward less the penalties is {mean:g} on average and its")
    assert "its mean is 20 standard deviations from zero" in sentence
    assert "subtract a constant in the reward's expression" in sentence


def test_actions_that_stand_still_or_leave_their_range_are_said():
    (still,) = told(40.0, MOVING)
    assert still.startswith("valve never moves: it is 40 % in every row")
    (beyond,) = told(2 * MOVING, MOVING)
    assert beyond.startswith("valve was logged from 0 to 200 %, beyond its range 0 to 100")


def with_still(*still):
    """The sentences on a log of two measurements, some of which stand still."""
    channels = (*SPEC.obs, Channel("setpoint", "m", -9.0, 9.0))
    rng, ends = np.random.default_rng(0), np.arange(32) % 8 == 7
    obs = rng.normal(size=(33, 2))
    obs[:, still] = 2.0
    log = dataset_from_columns(
        dataclasses.replace(SPEC, obs=channels), obs=obs[:-1], action=MOVING[:, None],
        reward=MOVING, next_obs=obs[1:], terminated=ends & False, truncated=ends,
    )  # fmt: skip
    return data_warnings(jax.device_get(data_statistics(log)), log.spec)


def test_observations_that_never_change_are_said_in_one_line():
    assert with_still() == []
    (one,) = with_still(1)
    assert one.startswith("setpoint never changes in the rows that are trained on, so no policy")
    (both,) = with_still(0, 1)
    assert both.startswith("no observation ever changes in the rows that are trained on")
    assert "check the tags" in both


def counting(channel, *, episodes=8, terminated=False, learners=("bc", "td3_bc_lag")):
    """The warnings on episodes of eight rows that have a channel of time beside the level."""
    rng = np.random.default_rng(0)
    episode, step = np.indices((episodes, 9))
    full = np.stack([rng.normal(size=step.shape), channel(episode, step, rng)], axis=-1)
    rows, ends = 8 * episodes, np.arange(8 * episodes) % 8 == 7
    spec = dataclasses.replace(SPEC, obs=(*SPEC.obs, Channel("batch_time", "min", -99.0, 99.0)))
    log = dataset_from_columns(
        spec, obs=full[:, :-1].reshape(rows, 2), next_obs=full[:, 1:].reshape(rows, 2),
        action=np.linspace(0, 100, rows)[:, None], reward=np.arange(rows),
        terminated=ends & terminated, truncated=ends & (not terminated),
    )  # fmt: skip
    trained = {name: ALGORITHMS[name]() for name in learners}
    return clock_warnings(log, jax.device_get(data_statistics(log)), trained)


CLOCKS = {
    "steps": lambda _, step, __: step,
    "steps left": lambda _, step, __: 8 - step,
    "noisy": lambda _, step, rng: step + rng.normal(0, 0.1, step.shape),
    "cosine": lambda _, step, __: np.cos(np.pi * step / 8),
}
NO_CLOCKS = {
    "constant": lambda _, step, __: 2.0 + 0 * step,
    "noise": lambda _, step, rng: rng.normal(size=step.shape),
    "drift": lambda episode, step, _: 8 * episode + step,
    "both ways": lambda episode, step, _: np.where(episode % 2, step, -step),
    "time of day": lambda episode, step, _: (8 * episode + step) % 24,
    "as noisy as long": lambda _, step, rng: step + rng.normal(0, 2, step.shape),
}


@pytest.mark.parametrize("clock", CLOCKS)
def test_an_observation_that_counts_the_episode_is_said(clock):
    """Its last value is no row's state, so cost critics learn that value from nothing."""
    (sentence,) = counting(CLOCKS[clock])
    assert sentence.startswith("episodes end at values of batch_time beyond those of all other")
    assert "the cost critics of td3_bc_lag learn" in sentence
    assert "leave the channel out of the observations, or declare the ends as term" in sentence
    assert counting(CLOCKS[clock], episodes=2) == [sentence]


@pytest.mark.parametrize("channel", NO_CLOCKS)
@pytest.mark.parametrize("episodes", [1, 2, 8])
def test_other_observations_are_not_blamed(channel, episodes):
    assert counting(NO_CLOCKS[channel], episodes=episodes) == []


def test_a_clock_is_not_blamed_where_nothing_is_learned_from_the_ends():
    """Of one episode, nobody can tell a clock from a drift."""
    assert counting(CLOCKS["steps"], episodes=1) == []
    assert counting(CLOCKS["steps"], terminated=True) == []
    assert counting(CLOCKS["steps"], learners=("bc", "bc_safe", "td3_bc")) == []
    critics = ("td3_bc_lag", "bcq_lag", "cpq", "fisor", "caps", "iql_lag")
    (sentence,) = counting(CLOCKS["steps"], learners=critics)
    assert f"the cost critics of {', '.join(critics)} learn" in sentence


def over_zero(per, limit=0.0, worst=0.3):
    """Four episodes of eight rows, of which the second and the fourth exceed zero."""
    n = 32
    cost = np.zeros((n, 1))
    cost[[9, 10, 30], 0] = worst
    ends, mask = np.arange(n) % 8 == 7, np.ones(n, bool)
    mask[30] = False
    spec = dataclasses.replace(SPEC, cost=(CostChannel("overflow", "m", limit, per),))
    log = dataset_from_columns(
        spec, obs=np.zeros((n, 1)), action=MOVING[:, None], reward=np.zeros(n),
        next_obs=np.zeros((n, 1)), cost=cost, mask=mask, terminated=ends & False, truncated=ends,
    )  # fmt: skip
    return zero_limits(log, spec)


def test_a_limit_of_zero_that_the_log_exceeds_is_said_with_what_to_declare():
    """Only the known rows count: 0.3 m in one of four episodes, so 0.075 m in the mean."""
    (sentence,) = over_zero("step")
    assert sentence == (
        "the cost overflow has a limit of 0, which the mean over episodes keeps only if no episode "
        "exceeds it; 1 of the 4 logged ones does, so hardly any policy can be shown to keep it; "
        "declare what the plant tolerates: the log's own mean worst step of an episode is 0.075 m "
        "(--limits.cost overflow 0.075)"
    )
    (summed,) = over_zero("episode")
    assert "mean sum over an episode is 0.15 m (--limits.cost overflow 0.15)" in summed
    assert over_zero("step", limit=0.1) == over_zero("step", worst=0.0) == []
    assert "--limits.cost overflow 0.031)" in over_zero("step", worst=0.1201)[0]


def test_signals_that_were_inspected_are_not_inspected_again(monkeypatch):
    """The stage that reads the log has looked at them; a constant reward is still looked for."""
    ends, obs = np.arange(32) % 8 == 7, np.arange(33.0)[:, None]
    log = dataset_from_columns(
        SPEC, obs=obs[:-1], action=MOVING[:, None], reward=np.ones(32), next_obs=obs[1:],
        terminated=np.zeros(32, bool), truncated=ends,
    )  # fmt: skip
    monkeypatch.setattr("neorl_train.data._data_warnings.signal_warnings", None)
    constant, given = log_warnings(log, ("A and B appear to be exchanged",))
    assert constant.startswith("the reward is 1 in every row")
    assert given == "A and B appear to be exchanged"
