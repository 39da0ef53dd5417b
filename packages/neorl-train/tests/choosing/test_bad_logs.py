"""Logs from which nothing can be learned, and logs that lie: nothing is chosen, and it says why."""

import dataclasses
import re

import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import ChoiceRule, PlantFacts, RetuneSettings, learned_plants
from neorl_core import Channel, Spec
from neorl_core.control import StateFeedback
from neorl_envs import Dataset
from neorl_envs.datasets import dataset_from_columns
from neorl_train.choosing import (
    ChooseOptions,
    Selection,
    logged_episodes,
    return_distribution,
    select_candidates,
    value_estimates,
)
from neorl_train.judging import MAX_REPLAY_ERROR

STEPS, EPISODES = 20, 48
SPEC = Spec(
    (Channel("level", "m", -30.0, 30.0), Channel("target", "m", -9.0, 9.0)),
    (Channel("valve", "%", -5.0, 5.0),),
    (),
    1.0,
    STEPS,
)
QUICK = ChooseOptions(updates=40, value_updates=0, held_out_modes=0, exogenous=("target",))
SETTINGS = RetuneSettings(model=HistoryModelSettings(updates=QUICK.updates))


def law(gain):
    """``valve = -gain (level - target)``."""
    gains = np.asarray([[gain, -gain]], np.float32)
    low, high = np.full(1, -5.0, np.float32), np.full(1, 5.0, np.float32)
    return StateFeedback(gains, np.zeros(2, np.float32), np.zeros(1, np.float32), low, high)


def distance(obs, action, after, last_action):
    """The declared reward of a step: minus the squared distance that it began with."""
    return -jnp.square(obs[:1] - obs[1:])


FACTS = PlantFacts(objective=distance)
POOL = {"today": law(0.2), "quicker": law(0.8)}


def recorded_log(
    action, target=lambda t: 0.0, reward=None, mode=None, recorded=True, noise=0.3
) -> Dataset:
    """A log of ``x' = 0.98 x + 0.5 u + w``, which may say that today filled it."""
    rng = np.random.default_rng(0)
    columns = []
    for _ in range(EPISODES):
        level = 2 * rng.normal()
        for t in range(STEPS):
            wanted = target(t)
            u = float(np.clip(action(level, wanted, rng), -5, 5))
            after = 0.98 * level + 0.5 * u + noise * rng.normal()
            columns.append(([level, wanted], [u], -((level - wanted) ** 2), [after, target(t + 1)]))
            level = after
    obs, act, paid, following = (np.asarray(x) for x in zip(*columns, strict=True))
    ends = np.arange(len(obs)) % STEPS == STEPS - 1
    modes = {} if mode is None else {"mode": np.full((len(obs), 1), mode)}
    origin = {"behaviour": np.zeros(EPISODES, np.int32), "attributes": {"behaviours": ["today"]}}
    return dataset_from_columns(
        SPEC, **modes, **(origin if recorded else {}), obs=obs, action=act,
        reward=paid if reward is None else paid * 0 + reward,
        cost=np.zeros((len(obs), 0)), next_obs=following, terminated=ends & False, truncated=ends,
    )  # fmt: skip


def chosen(action, options=QUICK, **log) -> Selection:
    """The choice from such a log."""
    return select_candidates(recorded_log(action, **log), "log.h5", POOL, options, FACTS)


def with_signal(level, wanted, rng):
    return -0.2 * (level - wanted) + 0.15 * rng.normal()


def of_another(level, wanted, rng):
    """What neither candidate does."""
    return -1.2 * (level - wanted) + 0.15 * rng.normal()


@pytest.fixture(scope="module")
def honest() -> Selection:
    """The choice from the log of a controller with a test signal."""
    return chosen(with_signal)


def test_set_points_that_never_move_are_enough_where_a_test_signal_does(honest):
    assert honest.chosen == "quicker"
    one = honest.candidates[1].prediction
    assert 0 < one.low < one.gain < np.inf


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (lambda level, wanted, rng: -0.2 * (level - wanted), "valve is almost determined by the"),
        (lambda level, wanted, rng: 5.0, "valve is at the same end of its range in 100.0% of"),
        (lambda level, wanted, rng: 1.0, "valve is constant"),
    ],
)
def test_actions_without_a_cause_of_their_own_leave_what_runs(action, words):
    selection = chosen(action, target=lambda t: 0.5 * (t // 8))
    assert selection.chosen == "today"
    assert selection.sentence.startswith("Keep today")
    refusals = selection.candidates[1].prediction.refusals
    assert any(f"does not show what the candidate would do: {words}" in one for one in refusals), (
        refusals
    )


def test_a_mode_that_lies_leaves_what_runs_although_the_predicted_gain_is_large(honest):
    """Another controller filled the episodes: their returns are not those of today's."""
    lying = chosen(of_another)
    # In spreads of returns 0.02 and 3.0 on the machine that this was written on.
    assert lying.error / lying.scale > 3 * honest.error / honest.scale
    # What runs today has to be predicted within a quarter of the spread, as in a run.
    assert lying.error > MAX_REPLAY_ERROR * lying.scale
    assert (honest.chosen, lying.chosen) == ("quicker", "today")
    quicker = lying.candidates[1].prediction
    assert quicker.gain > ChoiceRule().trust * lying.error  # the rule alone would choose it
    assert not quicker.refusals
    assert lying.sentence.startswith(
        "Keep today; no choice should be based on this log: the model does not reproduce today: "
    )
    assert ", and the log shows " in lying.sentence


def test_a_model_that_does_not_reproduce_what_runs_today_chooses_nothing():
    """As when the identified controller is not the one that recorded a historian's export."""
    named = dataclasses.replace(QUICK, incumbent="today")
    selection = chosen(of_another, recorded=False, options=named)
    assert selection.chosen == "today"
    assert selection.sentence.startswith(
        "Keep today; no choice should be based on this log: the model does not reproduce today: "
    )
    assert ", and the log shows " in selection.sentence
    assert chosen(with_signal, recorded=False, options=named).chosen == "quicker"


def test_where_nobody_says_who_recorded_the_log_the_model_must_pass_the_checks_of_its_command():
    """The true return of no candidate is known, so the model is checked by the logged actions."""
    blind = chosen(of_another, recorded=False)
    assert (blind.error, blind.chosen) == (0.0, "today")
    assert blind.candidates[1].prediction.low > 0
    assert blind.sentence.startswith(
        "Keep today; no choice should be based on this log: the log has no episode that is known "
        "to be recorded by today, and the model fails checks of `neorl-train choose --show model`: "
        "return (the mean is "
    )
    assert "name it with --incumbent NAME" in blind.sentence
    passing = chosen(with_signal, recorded=False, noise=0.01)
    assert passing.warnings == ()
    assert passing.chosen == "quicker"


def test_what_is_better_than_the_first_but_worse_than_the_log_is_not_chosen():
    """Whoever filled the log, of which nobody says who it was, is quicker than both candidates."""
    log = recorded_log(of_another, recorded=False, noise=0.01)
    slow = {"today": law(0.05), "quicker": law(0.2)}
    selection = select_candidates(log, "log.h5", slow, QUICK, FACTS)
    assert (selection.chosen, selection.warnings) == ("today", ())
    quicker = selection.candidates[1].prediction
    assert quicker.low > 0
    (words,) = quicker.refusals
    shown = float(re.search(r"is not above (-[\d.]+) reward, which the log shows", words)[1])
    assert quicker.returns < shown < 0


def test_a_candidate_that_recorded_nothing_is_no_test_of_the_model():
    """The log says that ``today`` filled it, and ``quicker`` is named as what runs."""
    named = dataclasses.replace(QUICK, incumbent="quicker")
    selection = chosen(of_another, options=named)
    assert (selection.error, selection.chosen) == (0.0, "quicker")
    assert "the log has no episode that is known to be recorded by quicker" in selection.sentence


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ({"reward": 0.0}, "the reward is 0 in every row, so all policies are equal"),
        ({"mode": True}, "valve is in manual in 100% of the steps by its mode, yet moves in "),
    ],
)
def test_nothing_is_chosen_from_a_log_with_a_defect_of_its_own(log, words):
    """From the same rows without it the quicker law is chosen, which the first test shows."""
    selection = chosen(with_signal, **log)
    assert selection.chosen == "today"
    assert selection.sentence.startswith(
        f"Keep today; no choice should be based on this log: {words}"
    )


def test_a_log_with_unknown_rows_is_estimated_from_the_others():
    """A third of the readings are lost: their rows are masked and hold NaN."""
    rng = np.random.default_rng(1)
    shape = EPISODES, STEPS
    level = np.cumsum(rng.normal(size=shape), axis=1)
    obs = np.stack([level, np.zeros(shape)], axis=-1).reshape(-1, 2).astype(np.float32)
    action = (-0.2 * obs[:, :1] + 0.1 * rng.normal(size=(len(obs), 1))).astype(np.float32)
    ends = np.arange(len(obs)) % STEPS == STEPS - 1
    lost = rng.random(len(obs)) < 1 / 3
    lost[: 2 * STEPS] = np.arange(2 * STEPS) < STEPS + 3  # an episode, and the start of the next
    lost_after = np.roll(lost, -1) & ~ends
    mask = ~(lost | lost_after)
    following = np.where(ends[:, None], obs, np.roll(obs, -1, axis=0))
    log = dataset_from_columns(
        SPEC,
        obs=np.where(lost[:, None], np.nan, obs),
        action=np.where(lost[:, None], np.nan, action),
        reward=np.where(mask, -(obs[:, 0] ** 2), np.nan),
        cost=np.zeros((len(obs), 0)),
        next_obs=np.where(mask[:, None], following, np.nan),
        terminated=ends & False,
        truncated=ends,
        mask=mask,
    )
    episodes = logged_episodes(log)
    assert len(episodes.obs) == EPISODES - 1
    assert all(np.isfinite(part).all() for part in episodes)
    held = episodes.obs[0, :, 0]  # of the second episode, whose first three rows are lost
    assert (held[:3] == obs[STEPS + 3, 0]).all()
    known = np.where(lost, -1, np.arange(len(obs)))[STEPS + 3 : 2 * STEPS]
    np.testing.assert_array_equal(held[3:], obs[np.maximum.accumulate(known), 0])
    np.testing.assert_allclose(episodes.spread, 0.1, rtol=0.2)
    estimates = value_estimates(log, episodes, law(0.2), updates=100)
    plants = learned_plants(log.transitions, log.spec, 0, settings=SETTINGS)
    one = return_distribution(log, episodes, law(0.2), plants, updates=100)
    assert one.near
    for estimate in (
        estimates.fitted_q, estimates.importance, estimates.doubly_robust, one.mean,
        one.worst_tenth, one.corrected,
    ):  # fmt: skip
        assert np.isfinite([estimate.value, estimate.low, estimate.high]).all()


def test_a_policy_that_the_log_does_not_show_gets_no_correction():
    """A valve at the end of its range, where no controller of the log ever held it."""
    log = recorded_log(with_signal)
    plants = learned_plants(log.transitions, log.spec, 0, settings=SETTINGS)
    shut = dataclasses.replace(law(0.0), bias=np.full(1, -5.0, np.float32))
    one = return_distribution(log, logged_episodes(log), shut, plants, updates=100)
    assert one.far > 0.5
    assert not one.near
    assert one.bias.low < one.bias.value < one.bias.high
    assert one.corrected.value == pytest.approx(one.mean.value + one.bias.value)
    widths = [e.high - e.low for e in (one.mean, one.bias, one.corrected)]
    assert widths[2] == pytest.approx(np.hypot(widths[0], widths[1]))
