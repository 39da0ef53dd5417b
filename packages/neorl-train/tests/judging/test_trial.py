"""The answer for a log alone: every clause, and what each that fails asks for."""

import dataclasses
import math

import numpy as np
import pytest

from neorl_agents.models import ErrorAfterMoves
from neorl_agents.retuning import ChoiceRule, Excitation, Prediction, Refusal
from neorl_core import Channel, CostChannel, Spec
from neorl_train.choosing import ValueEstimates, other_estimates, refuse_if_contradicted
from neorl_train.judging import (
    BrokenEpisodes,
    Estimate,
    LogPrediction,
    OtherEstimate,
    ReplayCheck,
    ResultTables,
    closing,
    trial_verdict,
)

SPEC = Spec(
    (Channel("level", "m", 0.0, 1.0),),
    (Channel("valve", "%", 0.0, 100.0),),
    (CostChannel("overflow", "m", 5.0, "episode"),),
    60.0,
    50,
)
TABLES = ResultTables(
    environment="",
    reason="there is only a log",
    spec=SPEC,
    reward_unit="EUR",
    level=0.95,
    n_starts=0,
    candidate="retuned-0",
    reference="",
    rows=(),
    pooled=(),
    episode_margin=0.05,
)
GOOD = LogPrediction(
    prediction=Prediction(
        name="retuned-0",
        returns=12.0,
        gain=2.0,
        low=1.5,
        by_member=(2.1, 1.9, 1.8),
        cost=(3.0,),
        cost_high=(4.0,),
        cost_incumbent=(3.0,),
        over=(0.0,),
        over_incumbent=(0.0,),
        outside=0.1,
        outside_incumbent=0.1,
        episodes=40,
    ),
    incumbent="PID",
    replayed=10.0,
    logged=10.5,
    scale=4.0,
    rule=ChoiceRule(),
    others=(
        OtherEstimate("the linear part of the plant model", 1.8, 2.3),
        OtherEstimate("fitted Q evaluation", -0.4, 0.2),
    ),
)


def changed(**values):
    """The good prediction with other numbers of the candidate or of the log."""
    own = {name for name in values if name in Prediction.__dataclass_fields__}
    one = dataclasses.replace(GOOD.prediction, **{name: values[name] for name in own})
    rest = {name: value for name, value in values.items() if name not in own}
    return dataclasses.replace(GOOD, prediction=one, **rest)


def test_what_holds_in_every_clause_is_worth_a_trial_with_its_plan():
    """Two standard errors of the fitted values reach above zero, so they contradict nothing."""
    moved = Excitation(np.asarray([0.2]), np.zeros(1), ("valve",))
    decided = trial_verdict(TABLES, changed(excitation=moved))
    assert decided.answer == "worth a trial"
    names = ["model", "return", "overflow", "support", "agreement", "excitation", "choice rule"]
    assert [clause.name for clause in decided.clauses] == names
    assert all(clause.holds for clause in decided.clauses)
    gain = "the model predicts 2 EUR more per episode than with PID (interval 1.5 to 2.5, whose"
    assert f"{gain} lower end must be above 0.04)" in decided.sentence
    # Lower bound 1.5 of a spread of 4: 2 (2.8 * 4 / 1.5)^2 = 111.5 episodes of each.
    assert closing(decided).startswith("Run it in shadow first")
    assert "About 112 episodes of each, 3.9 days, show a gain of 1.5 EUR" in closing(decided)
    assert closing(decided) in repr(decided)


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.45, "is 45 % of that of the better of two guesses, the last"),
        (math.inf, "diverge within 50"),
    ],
)
def test_the_error_after_moves_is_said_and_decides_nothing(share, words):
    decided = trial_verdict(TABLES, changed(after_moves=ErrorAfterMoves(share, 50, 90)))
    assert decided.answer == "worth a trial"
    (model,) = [clause for clause in decided.clauses if clause.name == "model"]
    assert words in model.sentence


def test_the_verdict_takes_the_share_of_its_log():
    few = changed(broken=BrokenEpisodes(6, 120))
    assert "3 of its first 10 or 11 of its 112 episodes" in closing(trial_verdict(TABLES, few))
    unlimited = dataclasses.replace(TABLES, spec=dataclasses.replace(TABLES.spec, cost=()))
    free = changed(cost=(), cost_high=(), cost_incumbent=(), over=(), over_incumbent=())
    assert "Stop" not in closing(trial_verdict(unlimited, free))
    assert "Stop at its first episode" in closing(trial_verdict(TABLES, GOOD))


@pytest.mark.parametrize(
    ("change", "failed", "answer", "words"),
    [
        ({"logged": 12.0}, "model", "cannot tell", "name a controller that is closer"),
        ({"low": 0.03}, "return", "cannot tell", "Record more episodes"),
        ({"gain": -2.0, "low": -2.5}, "return", "do not deploy", ""),
        ({"cost_high": (5.5,)}, "overflow", "do not deploy", ""),
        ({"outside": 0.2}, "support", "cannot tell", "Record episodes near the proposed actions"),
        (
            {"others": (OtherEstimate("fitted Q evaluation", -2.0, -0.5),)},
            "agreement",
            "cannot tell",
            "Record episodes in which the actions differ",
        ),
        (
            {"excitation": Excitation(np.asarray([3e-6]), np.zeros(1), ("valve",))},
            "excitation",
            "cannot tell",
            "Record a test signal or manual moves on the actuator",
        ),
        (
            {"warnings": ("A and B appear to be exchanged",)},
            "log",
            "cannot tell",
            "Correct the log",
        ),
        (
            {"refused_by": (Refusal("costs", "its mean overflow rises from 1 to 2 m"),)},
            "choice rule",
            "cannot tell",
            "Judge a candidate that the rule allows",
        ),
    ],
)
def test_each_clause_refuses_alone_and_says_what_would_change_it(change, failed, answer, words):
    decided = trial_verdict(TABLES, changed(**change))
    assert decided.answer == answer
    assert [clause.name for clause in decided.clauses if not clause.holds] == [failed]
    assert words in closing(decided)
    assert (closing(decided) == "") == (answer == "do not deploy")


REFUSALS = (
    Refusal("return", "the lower end of its predicted gain is not above 0.04"),
    Refusal("agreement", "the linear part of the model predicts a loss of 1.5"),
    Refusal("support", "it is 0.2 standard deviations per step away from the data of the log"),
    Refusal("excitation", "the log does not show what the candidate would do"),
    Refusal("costs", "53.3% of its episodes exceed 80% of the limit of overflow"),
    Refusal("error", "its predicted gain, 2, is less than 20% of the model's error"),
    Refusal("divergence", "its rollouts in the model diverge"),
    Refusal("way", "going only 0.5 of the way to it is predicted to lose 3"),
)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_whatever_the_choice_rule_refuses_is_not_worth_a_trial(refusal):
    """Even where the clause about the same subject holds, as with a stricter rule of a search."""
    decided = trial_verdict(TABLES, changed(refused_by=(refusal,)))
    assert decided.answer == "cannot tell"
    (clause,) = [one for one in decided.clauses if not one.holds]
    assert (clause.name, clause.value, clause.sentence) == ("choice rule", 1, refusal.sentence)
    assert decided.sentence.startswith(
        f"Cannot tell whether retuned-0 is better: {refusal.sentence}. Judge a candidate"
    )


def test_a_reason_that_another_clause_states_is_not_repeated():
    still = Excitation(np.asarray([3e-6]), np.zeros(1), ("valve",))
    contradicting = (OtherEstimate("the linear part of the plant model", -1.5, -1.0),)
    failing = {"low": 0.03, "outside": 0.2, "excitation": still, "others": contradicting}
    decided = trial_verdict(TABLES, changed(refused_by=REFUSALS, **failing))
    failed = {clause.name: clause for clause in decided.clauses if not clause.holds}
    assert list(failed) == ["return", "support", "agreement", "excitation", "choice rule"]
    rest = [one.sentence for one in REFUSALS[4:]]
    assert failed["choice rule"].sentence == "; ".join(rest)
    for one in REFUSALS[:4]:
        assert one.sentence not in decided.sentence
    stated = trial_verdict(TABLES, changed(refused_by=REFUSALS[:4], **failing))
    assert [clause.name for clause in stated.clauses if not clause.holds] == list(failed)[:-1]


def test_a_refused_loss_or_cost_is_still_not_to_be_deployed():
    for change in ({"gain": -2.0, "low": -2.5}, {"cost_high": (5.5,)}):
        decided = trial_verdict(TABLES, changed(refused_by=REFUSALS[4:5], **change))
        assert decided.answer == "do not deploy"
        assert decided.clauses[-1].name == "choice rule"
        assert not decided.clauses[-1].holds


@pytest.mark.parametrize(
    "name", ["model", "return", "support", "agreement", "excitation", "log", "choice rule"]
)
def test_a_cost_may_have_the_name_of_another_clause(name):
    """Neither is the clause taken for a cost, nor the cost for the clause."""
    spec = dataclasses.replace(SPEC, cost=(CostChannel(name, "m", 5.0, "episode"),))
    tables = dataclasses.replace(TABLES, spec=spec)
    assert trial_verdict(tables, GOOD).answer == "worth a trial"
    far = Refusal("error", "its predicted gain is less than 20% of the model's error")
    still = Excitation(np.asarray([3e-6]), np.zeros(1), ("valve",))
    failing = {
        "logged": 12.0, "low": 0.03, "outside": 0.2, "excitation": still, "refused_by": (far,),
        "others": (OtherEstimate("fitted Q evaluation", -2.0, -0.5),), "warnings": ("a defect",),
    }  # fmt: skip
    assert trial_verdict(tables, changed(**failing)).answer == "cannot tell"
    costly = trial_verdict(tables, changed(cost_high=(5.5,), refused_by=REFUSALS[:1]))
    assert costly.answer == "do not deploy"
    assert REFUSALS[0].sentence in costly.sentence
    assert closing(trial_verdict(tables, changed(cost_high=(5.5,)))) == ""


def test_the_incumbent_itself_is_kept_and_not_refused():
    """Its own cost beyond a limit, for example by rounding, is no reason to stop what runs."""
    still = Excitation(np.asarray([3e-6]), np.zeros(1), ("valve",))
    same = changed(
        gain=0.0, low=0.0, cost_high=(5.5,), cost_incumbent=(5.2,), excitation=still,
        refused_by=(Refusal("error", "its predicted gain, 0, is less than 20% of the error"),),
    )  # fmt: skip
    decided = trial_verdict(TABLES, same)
    assert decided.answer == "cannot tell"
    assert "20% of the error" not in decided.sentence
    assert "choice rule" not in [clause.name for clause in decided.clauses]
    assert decided.sentence.startswith("Keep PID, because no candidate may be preferred to it (")
    assert "is beyond it too; declare what the plant tolerates" in decided.sentence
    assert 'keep them with manual = "keep" in plant.toml' in closing(decided)


def test_a_refused_candidate_still_says_what_the_log_lacks():
    still = Excitation(np.asarray([3e-6]), np.zeros(1), ("valve",))
    decided = trial_verdict(TABLES, changed(gain=-2.0, low=-2.5, excitation=still))
    assert decided.answer == "do not deploy"
    assert closing(decided).startswith("Record a test signal or manual moves on the actuator")
    assert closing(decided) in repr(decided)


def test_no_gain_is_not_called_a_loss():
    same = changed(others=(OtherEstimate("fitted Q evaluation", 0.0, 0.0),))
    (clause,) = [one for one in trial_verdict(TABLES, same).clauses if not one.holds]
    assert clause.sentence == "fitted Q evaluation predicts no gain at all"


def test_the_clause_on_the_model_is_the_check_of_the_command():
    """One function for both, so that neither says what the other denies."""
    repeated = ReplayCheck("PID", GOOD.replayed, GOOD.logged, GOOD.scale, "EUR")
    clause = trial_verdict(TABLES, GOOD).clauses[0]
    assert (clause.value, clause.limit, clause.holds, clause.sentence) == (
        0.5,
        1.0,
        True,
        repeated.sentence,
    )
    assert repeated.sentence.startswith("the model reproduces PID: it predicts a return of ")
    assert repeated.sentence.endswith(
        "and the log shows 10.5 EUR (a difference of 1 EUR is allowed)"
    )
    beyond = repeated._replace(replayed=11.51)
    assert not beyond.holds
    assert beyond.sentence.startswith("the model does not reproduce PID")
    diverged = trial_verdict(TABLES, changed(replayed=np.nan))
    assert diverged.answer == "cannot tell"
    assert "the model diverges when PID acts in it, so it does not reproduce" in diverged.sentence
    assert "nan" not in diverged.sentence


def test_a_limit_that_today_breaks_too_is_said_with_what_to_declare():
    worse = changed(cost_high=(5.5,), cost_incumbent=(5.2,))
    (words,) = [one.sentence for one in trial_verdict(TABLES, worse).clauses if not one.holds]
    expected = "the mean of PID, 5.2 m, is beyond it too; declare what the plant tolerates"
    assert expected in words
    kept = changed(cost_high=(5.5,), cost_incumbent=(4.8,))
    assert not any("too" in one.sentence for one in trial_verdict(TABLES, kept).clauses)


def test_the_estimator_that_contradicts_is_named_with_its_loss():
    others = (*GOOD.others, OtherEstimate("the doubly robust estimate", -3.0, -1.0))
    (clause,) = [
        clause
        for clause in trial_verdict(TABLES, changed(others=others)).clauses
        if clause.name == "agreement"
    ]
    assert (clause.bound, clause.holds) == (-1.0, False)
    words = "the doubly robust estimate contradicts the gain: it predicts a loss of 3 EUR"
    assert clause.sentence.startswith(words)


@pytest.mark.parametrize("field", ["low", "replayed", "outside"])
def test_a_number_that_is_none_is_never_worth_a_trial(field):
    """As of a model that diverges."""
    nan = float("nan")
    assert trial_verdict(TABLES, changed(**{field: nan})).answer != "worth a trial"
    diverged = (*GOOD.others, OtherEstimate("fitted Q evaluation", nan, nan))
    decided = trial_verdict(TABLES, changed(others=diverged))
    assert decided.answer == "cannot tell"
    assert "fitted Q evaluation diverged and gives no number" in decided.sentence


def test_select_refuses_a_gain_that_another_estimator_contradicts_or_cannot_judge():
    one, nan = GOOD.prediction, float("nan")
    assert refuse_if_contradicted(one, GOOD.others) is one
    loss, diverged = OtherEstimate("A", -3.0, -1.0), OtherEstimate("B", nan, nan)
    assert refuse_if_contradicted(one, (*GOOD.others, loss, diverged)).refusals == (
        "A predicts a loss of 3, at least 1, where the plant model predicts a gain of 2",
        "B diverged and gives no estimate of its gain",
    )
    worse = dataclasses.replace(one, gain=-0.5)
    assert refuse_if_contradicted(worse, (loss, diverged)) is worse


def fitted_by(members, gap=0.5):
    """Estimates of a policy whose fitted values of 30 episodes are given by the members' means."""
    variation = np.random.default_rng(0).normal(0.0, 1.0, 30)
    first = np.asarray(members)[:, None] + variation - variation.mean()
    one = Estimate(float(first.mean()), 0.0, 0.0)
    return ValueEstimates(one, (), None, (), one, one, 2.0, gap, first)


def test_members_that_disagree_about_a_loss_refuse_nothing():
    """All agree on average on a loss of 3, beyond the error of 0.5 on today's controller."""
    prediction, today = GOOD.prediction, fitted_by([10.0, 11.0, 12.0, 13.0])
    bounds = {}
    for name, members in {
        "one network": [8.5],
        "agreeing": [7.0, 8.1, 8.9, 10.0],
        "disagreeing": [5.0, 12.0, 6.0, 11.0],
    }.items():
        incumbent = fitted_by([11.5]) if len(members) == 1 else today
        others = other_estimates(prediction, fitted_by(members), incumbent)
        bounds[name] = {one.name: one for one in others}["fitted Q evaluation"]
        assert bounds[name].gain == pytest.approx(-3)
        refused = refuse_if_contradicted(prediction, others) is not prediction
        assert refused == (name != "disagreeing"), name
    # The episodes of candidate and incumbent vary alike, and so does each member of "agreeing".
    assert bounds["one network"].high == pytest.approx(-3 + 0.5)
    gains = np.array([-3.0, -2.9, -3.1, -3.0])
    reach = 3.1824 * np.sqrt(1.25) * gains.std(ddof=1)
    assert bounds["agreeing"].high == pytest.approx(-3 + reach + 0.5, rel=1e-4)
