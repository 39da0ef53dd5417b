"""Checks of a plant model: modes left out of the fit, and the costs of today's controller."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neorl_agents.retuning import HeldOutMode, ModeOutcome, OwnReplay
from neorl_core import Channel, CostChannel, Spec
from neorl_train.choosing._model_trust import cost_checks, mode_checks, own_returns, why_no_mode

SPEC = Spec(
    (Channel("T", "K", 0.0, 500.0),),
    (Channel("feed", "kg/h", 0.0, 10.0),),
    (CostChannel("overheating", "K s", 20.0, "episode"),),
    dt=1.0,
    horizon=10,
)
NBSP = "\N{NO-BREAK SPACE}"
RARE = CostChannel("trip", "1", 0.0, "step")


def mode(error, *, spread=100.0, chance=1.0, cost=3.0, outside=0.0):
    """A mode with a return of 50 and a cost of 3 in the log, and its prediction."""
    mean = np.array([50.0, 3.0])
    outcome = ModeOutcome(mean, mean, np.zeros(2), 60, 20)
    return HeldOutMode(
        "fast",
        outcome,
        np.array([50.0 - error, cost]),
        np.array([chance, 0.1]),
        np.array([spread, 1.0]),
        40,
        outside,
    )


def test_the_worst_mode_that_was_left_out_decides():
    """With a spread of 100 and chance of 1.96, an error of 10 + 1.96 is just allowed."""
    (good,) = mode_checks([mode(2.0), mode(11.9)], SPEC, "EUR")
    assert (good.name, good.holds, good.decides) == ("held-out mode", True, True)
    assert good.sentence.replace(NBSP, " ") == (
        "a model fitted without the episodes of fast predicts for it a return of 38.1 where the "
        "log shows 50 EUR without the operators; beyond chance (1.96) the error is 9.9 % of the "
        "difference between the controllers, within the allowed 10.0 %, only just kept"
    )
    (bad,) = mode_checks([mode(2.0), mode(12.1)], SPEC, "EUR")
    assert (bad.holds, bad.decides) == (False, True)
    assert "which exceeds the allowed" in bad.sentence
    (wild,) = mode_checks([mode(np.inf)], SPEC, "EUR")
    assert not wild.holds
    assert wild.sentence.endswith("diverges when it acts")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "the log does not say which known controllers recorded it; how much the model errs"),
        ([mode(90.0, outside=0.2)], "fast leaves the data of the other controllers by 0.2 stand"),
        ([mode(1.0, spread=4.0)], "the returns of the controllers differ by 4 EUR, too little"),
    ],
)
def test_what_tells_nothing_of_the_model_does_not_decide(found, words):
    (check,) = mode_checks(found, SPEC, "EUR", why_no_mode((), 3))
    assert (check.holds, check.decides) == (False, False)
    assert words in check.sentence
    assert check.sentence.endswith("for a controller that recorded nothing is not known")


def test_a_cost_of_a_mode_that_is_predicted_badly_is_a_warning():
    """The rule tolerates 1 % of the limit, 0.2, and chance explains another 0.196."""
    assert len(mode_checks([mode(2.0, cost=3.39)], SPEC, "EUR")) == 1
    of_return, of_cost = mode_checks([mode(2.0, cost=3.41)], SPEC, "EUR")
    assert of_return.holds
    assert (of_cost.name, of_cost.holds, of_cost.decides) == (
        "held-out mode, overheating", False, False,
    )  # fmt: skip


def replay(predicted, logged, all_logged=None):
    predicted, logged = (np.asarray(x, float)[:, None] for x in (predicted, logged))
    zeros = np.zeros_like(logged)
    every = logged if all_logged is None else np.asarray(all_logged, float)[:, None]
    return OwnReplay(
        np.concatenate([zeros, predicted], axis=1)[None],
        np.concatenate([zeros, logged], axis=1),
        np.concatenate([np.zeros_like(every), every], axis=1),
    )


def test_the_mean_cost_of_what_runs_today_must_not_be_predicted_much_too_low():
    """A quarter of the spread is allowed; too high by more is a warning."""
    logged = [0.0, 4.0] * 10
    for predicted, holds, decides in (
        (2.9, True, True), (3.1, False, False), (1.1, True, True), (0.9, False, True),
    ):  # fmt: skip
        mean, over = cost_checks(replay([predicted] * 20, logged), 1, SPEC.cost[0], 4.0, "PI")
        assert (mean.name, mean.holds, mean.decides) == ("model, overheating", holds, decides)
        assert (over.holds, over.decides) == (True, False)
    assert mean.sentence == (
        "the model predicts a mean sum over an episode of 0.9 for PI and the log shows 2 K s; the "
        "difference exceeds the allowed 1 K s"
    )


def test_the_share_of_episodes_over_a_limit_is_compared_with_its_exact_interval():
    """30 of 100 logged episodes are over: 21.2 to 40 %, which the rule's 3 % widen."""
    every = [30.0] * 30 + [0.0] * 70
    for share, holds in ((0.15, False), (0.2, True), (0.4, True), (0.5, False)):
        predicted = [30.0] * round(20 * share) + [0.0] * round(20 * (1 - share))
        _, over = cost_checks(replay(predicted, [9.0] * 20, every), 1, SPEC.cost[0], 40.0, "PI")
        assert over.holds == holds, share
        words = over.sentence.replace(NBSP, " ")
        assert words.endswith("and the log shows 30.0 % (21.2 % to 40.0 %)")


def test_a_cost_that_the_log_never_shows_must_not_be_predicted():
    """Its spread is zero: 1 % of the limit takes its place, or 3 % of the episodes for a zero."""
    never = [0.0] * 100
    for predicted, holds in ((0.19, True), (0.21, False)):
        mean, _ = cost_checks(replay([predicted] * 20, never[:20]), 1, SPEC.cost[0], 0.0, "PI")
        assert (mean.holds, mean.decides) == (holds, holds)
    for episodes, holds in ((0, True), (6, True), (7, False)):
        peaks = [1.0] * episodes + [0.0] * (100 - episodes)
        mean, over = cost_checks(replay(peaks, never), 1, RARE, 0.0, "PI")
        assert mean.holds == over.holds == holds, episodes


def test_what_runs_today_is_compared_in_its_own_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the episodes of other shifts its return differs, however good the model is."""
    predicted = np.array([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0], [90.0, 90.0, 90.0]])
    given: list[Any] = []

    def replayed(*arguments: Any) -> Any:
        given.append(arguments)
        return SimpleNamespace(returns=predicted)

    monkeypatch.setattr("neorl_train.choosing._model_trust.replayed", replayed)
    facts = {"evaluation_plant": "plant", "logged": np.array([2.0, 30.0, 4.0])}
    for mask, expected in (
        ([True, False, True], (3.0, 3.0, 2)),
        ([False, False, False], (3.0, 12.0, 3)),
        (None, (3.0, 12.0, 3)),
    ):
        own = None if mask is None else np.array(mask)
        plants: Any = SimpleNamespace(**facts, by_incumbent=own)
        policy: Any = "policy"
        assert own_returns(plants, policy) == expected
    assert given[0] == ("plant", "policy")
