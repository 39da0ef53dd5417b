"""The plan of a trial: its length, and after how many broken episodes it stops."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from neorl_core import Channel, CostChannel, Spec
from neorl_envs.datasets import dataset_from_columns
from neorl_train._job.candidates import broken_episodes
from neorl_train.judging import STOP_LEVEL, BrokenEpisodes, stopping_counts, trial_plan


@pytest.mark.parametrize("episodes", [3, 19, 20, 112, 5_000])
@pytest.mark.parametrize("share", [1e-3, 0.02, 0.1, 0.4, 0.9])
def test_counts_are_the_smallest_that_a_binomial_reaches_so_rarely(share, episodes):
    pairs = dict((n, count) for count, n in stopping_counts(share, episodes))
    looks = (10, episodes) if episodes >= 20 else (episodes,)
    for n in looks:
        level = STOP_LEVEL / len(looks)
        if n in pairs:
            assert stats.binom.sf(pairs[n] - 1, n, share) <= level
            assert stats.binom.sf(pairs[n] - 2, n, share) > level
        else:  # not even if every episode is broken
            assert stats.binom.sf(n - 1, n, share) > level


def test_a_policy_that_breaks_as_few_is_stopped_in_at_most_five_of_a_hundred_trials():
    """Looked at after every episode, over simulated trials; most that break three times as many."""
    rng = np.random.default_rng(0)
    pairs = stopping_counts(0.05, 112)
    assert [n for _, n in pairs] == [10, 112]

    def stopped(share):
        broken = np.cumsum(rng.random((20_000, 112)) < share, axis=1)
        return np.mean(np.any([broken[:, n - 1] >= count for count, n in pairs], axis=0))

    assert stopped(0.05) <= STOP_LEVEL
    assert stopped(0.15) > 0.9


def test_the_plan_says_in_one_sentence_when_to_stop():
    plan = trial_plan("PID", 1.5, 4.0, "EUR", BrokenEpisodes(6, 120))
    # By SciPy, 3 or more of 10 have a probability of 1.15 %, and 11 or more of 112 of 2.48 %.
    assert plan == (
        "Run it in shadow first, then with bounded authority, alternating with PID. Stop as soon "
        "as 3 of its first 10 or 11 of its 112 episodes break a limit; if it breaks one in 5 % of "
        "its episodes, as in the log, the probability of stopping is at most 5 %. About 112 "
        "episodes of each show a gain of 1.5 EUR four times in five."
    )
    timed = trial_plan("PID", 1.5, 4.0, "EUR", None, episode=1485.0)
    assert "About 112 episodes of each, 46 h, show a gain" in timed
    none = trial_plan("PID", 1.5, 4.0, "EUR", BrokenEpisodes(0, 120))
    first = "Stop at its first episode that breaks a limit, because none of 120 logged episodes"
    assert f"{first} does." in none
    often = trial_plan("PID", 9.0, 4.0, "EUR", BrokenEpisodes(7, 10))
    assert "70 % of the logged episodes break a limit, so 4 episodes cannot show" in often
    assert "a limit" not in trial_plan("PID", 1.5, 4.0, "EUR", None)


@pytest.mark.parametrize(
    ("incumbent", "expected"), [("PID", (1, 2)), ("manual", (2, 2)), ("unknown", (3, 4))]
)
def test_only_episodes_of_the_incumbent_are_counted_where_the_log_says_which(incumbent, expected):
    """The limits are those of the run: a sum over the episode, and the worst step."""
    channel = (Channel("level", "m", 0.0, 1.0),)
    cost = (CostChannel("energy", "J", 5.0, "episode"), CostChannel("peak", "m", 0.5, "step"))
    spec = Spec(channel, channel, cost, 1.0, 3)
    steps = np.asarray(
        [
            [[1, 0.1]] * 3,  # PID: a sum of 3
            [[2, 0.1]] * 3,  # PID: a sum of 6
            [[0, 0.1], [0, 0.6], [0, 0.1]],  # manual: a step of 0.6
            [[2, 0.6]] * 3,  # manual: both
        ]
    ).reshape(12, 2)
    rows, ends = np.zeros((12, 1)), np.arange(12) % 3 == 2
    loose = tuple(dataclasses.replace(one, limit=100.0) for one in cost)
    log = dataset_from_columns(
        dataclasses.replace(spec, cost=loose), obs=rows, action=rows, reward=rows[:, 0],
        cost=steps, next_obs=rows, terminated=ends & False, truncated=ends,
        behaviour=np.asarray([0, 0, 1, 1], np.int32), attributes={"behaviours": ["PID", "manual"]},
    )  # fmt: skip
    assert broken_episodes(log, spec, incumbent) == expected
